"""The memory policy of this process and of all it starts: set_mempolicy(2), without libnuma.

The policy decides where a page is allocated, and the thread that first needs the page decides whose
policy counts. A page of the page cache is allocated by the thread that reads the file, under that
thread's policy: mm/filemap.c, filemap_alloc_folio -> folio_alloc -> the policy of `current`. Read
ahead is done by the reader too. A mapping's own policy (mbind) does not count for shared files:
Documentation/admin-guide/mm/numa_memory_policy.rst, "VMA Policy".
"""

import ctypes
import errno
import os
import platform
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

Policy = Literal["local", "one node", "interleave", "replicate"]
POLICIES: tuple[str, ...] = get_args(Policy)

# include/uapi/linux/mempolicy.h; the numbers of the calls: arch/x86/entry/syscalls/syscall_64.tbl
_MODES = {"local": 0, "one node": 2, "interleave": 3}  # MPOL_DEFAULT, MPOL_BIND, MPOL_INTERLEAVE
_NAMES = {0: "default", 1: "prefer", 2: "bind", 3: "interleave", 4: "local"}
_CALLS = {"x86_64": {"set": 238, "get": 239}}
_MOST_NODES = 1024  # CONFIG_NODES_SHIFT is 10 at the most
_FLAGS = 0b111 << 13  # what a mode may carry beside its number
_WORD = ctypes.c_ulong
_WORD_BITS = 8 * ctypes.sizeof(_WORD)


@dataclass(frozen=True, slots=True)
class Applied:
    """Is the policy in force? If not, why."""

    ok: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy as the kernel names it, and its nodes."""

    mode: str
    nodes: tuple[int, ...]


class Refused(Exception):
    """The kernel, or the filter before it, does not take the call. `number`: its errno."""

    def __init__(self, number: int) -> None:
        super().__init__(_WHY.get(number, os.strerror(number)))
        self.number = number


_WHY = {
    errno.EPERM: "the container lacks SYS_NICE: Docker's seccomp filter refuses memory policies",
    errno.ENOSYS: "this kernel has no memory policies",
    errno.EINVAL: "this host has no such node, or the container may not use it",
}


def apply(policy: Policy, nodes: Collection[int]) -> Applied:
    """Puts the policy in force for this thread, and for what it forks or starts from now on."""
    if policy == "replicate":
        return Applied(ok=True, why="the engine itself makes a copy on each node")
    # Bound, not preferred: where the node is full of page cache of other files, a preferred node
    # lets the kernel go to the next one; a bound one makes it clear that cache away.
    try:
        _set(_MODES[policy], () if policy == "local" else nodes)
    except Refused as refusal:
        return Applied(ok=False, why=str(refusal))
    found = in_force()
    if policy != "local" and found is not None and set(found.nodes) != set(nodes):
        # The kernel leaves out silently what is not there.
        return Applied(ok=False, why=f"of nodes {listed(nodes)} it has only {listed(found.nodes)}")
    return Applied(ok=True)


def listed(nodes: Collection[int]) -> str:
    """As the kernel and Docker write node numbers, one by one: 0,1."""
    return ",".join(str(node) for node in sorted(nodes))


def in_force() -> InForce | None:
    """The policy of the calling thread; None where it can't be asked for."""
    mode = ctypes.c_int()
    mask = (_WORD * (_MOST_NODES // _WORD_BITS))()
    try:
        _call("get", ctypes.byref(mode), mask, _WORD(_MOST_NODES + 1), _WORD(0), _WORD(0))
    except Refused:
        return None
    number = mode.value & ~_FLAGS
    nodes = tuple(
        at for at in range(_MOST_NODES) if mask[at // _WORD_BITS] >> (at % _WORD_BITS) & 1
    )
    return InForce(_NAMES.get(number, f"mode {number}"), nodes)


def may_be_set() -> bool | None:
    """May a program in this container set a policy? None where the kernel has none to set.

    Leaves this thread with the kernel's default policy.
    """
    try:
        _set(_MODES["local"], ())
    except Refused as refusal:
        return False if refusal.number == errno.EPERM else None
    return True


def _set(mode: int, nodes: Collection[int]) -> None:
    mask = (_WORD * (_MOST_NODES // _WORD_BITS))()
    for node in nodes:
        if not 0 <= node < _MOST_NODES:
            raise Refused(errno.EINVAL)
        mask[node // _WORD_BITS] |= 1 << (node % _WORD_BITS)
    # The kernel takes one bit less than it is told of.
    _call("set", ctypes.c_int(mode), mask, _WORD(_MOST_NODES + 1))


def _call(name: str, *arguments: object) -> None:
    number = _CALLS.get(platform.machine(), {}).get(name)
    if number is None:
        raise Refused(errno.ENOSYS)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(number), *arguments) < 0:
        raise Refused(ctypes.get_errno())
