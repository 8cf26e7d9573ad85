"""A model hub for tests: four dialects over one folder, faults on demand, a log of what was sent."""

from hub.faults import (
    Corrupt,
    EmptyReply,
    Expire,
    Fault,
    Fin,
    LateFin,
    NoRange,
    Replace,
    Reset,
    SizeLie,
    Stall,
    Status,
    Trickle,
    Truncate,
    Vanish,
    WrongContentRange,
)
from hub.log import Seen, refetched_bytes
from hub.server import Hub
from hub.wheels import a_wheel

__all__ = [
    "Corrupt",
    "EmptyReply",
    "Expire",
    "Fault",
    "Fin",
    "Hub",
    "LateFin",
    "NoRange",
    "Replace",
    "Reset",
    "Seen",
    "SizeLie",
    "Stall",
    "Status",
    "Trickle",
    "Truncate",
    "Vanish",
    "WrongContentRange",
    "a_wheel",
    "refetched_bytes",
]
