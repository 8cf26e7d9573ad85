"""The line in front of the engine: `core` decides, `line` waits, `tickets` are their words."""
