"""What crosses a container border: types, and the pure functions that define them.

Standard library and pydantic only. Every program of the stack may import this package, and it imports none of them.
"""

from wire.on_disk import read_receipt, stat_files
from wire.weights import Discrepancy, FileStat, Lock, LockedFile, ProvenFile, Receipt, discrepancies

__all__ = [
    "Discrepancy",
    "FileStat",
    "Lock",
    "LockedFile",
    "ProvenFile",
    "Receipt",
    "discrepancies",
    "read_receipt",
    "stat_files",
]
