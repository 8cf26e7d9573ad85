"""Where a locked file's bytes come from: `base` says what a source is, the others are its kinds."""
