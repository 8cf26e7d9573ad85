"""Looks at the stack: what Docker, the services and the weights folder say of themselves."""

from orchestrator.adapters.lookout.looking import EngineLookout, read_progress

__all__ = ["EngineLookout", "read_progress"]
