"""The engine kt-legacy: where the parts of a model live, and how the engine is told."""
