"""Stands in for torch where only the metadata of the engine's source are asked for."""

__version__ = "0"
