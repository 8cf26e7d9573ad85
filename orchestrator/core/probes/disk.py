"""`df`, /proc/mounts and what the kernel says about a block device."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from orchestrator.core.facts import Disk
from orchestrator.core.probes.text import size_bytes, whole, whole_lines

# device, size, used, available, use%, where
DF_ROW = re.compile(r"(\S+)\s+(\S+)\s+\S+\s+(\S+)\s+\d+%\s+(/.*)", re.ASCII)
BLOCKS = re.compile(r"(\d{1,6})([KMG]?)B?-", re.ASCII)
BLOCK_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOUNT = re.compile(r"(\S+) (/\S*) (\S+) ")
NO_DISKS = ("tmpfs", "devtmpfs", "udev", "none", "shm", "efivarfs", "/dev/loop")
NO_PLACES = ("/boot", "/dev", "/run", "/proc", "/sys", "/snap", "/etc")
NETWORK = ("nfs", "cifs", "smb", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs", "9p")
MEMORY = ("tmpfs", "ramfs")
Kind = Literal["ssd", "hdd", "network", "memory"]


def parse_df(text: str) -> Disk | None:
    """The one file system of a disk that `df` lists; None where it lists several, or none."""
    rows = whole_lines(text)
    found = [disk for disk in (_df_row(row, rows[0]) for row in rows[1:]) if disk]
    return found[0] if len(found) == 1 else None


def _df_row(row: str, header: str) -> Disk | None:
    found = DF_ROW.fullmatch(row)
    if found is None or found[1].startswith(NO_DISKS) or _below(found[4], NO_PLACES):
        return None
    return Disk(
        path=found[4], total_bytes=_df_size(found[2], header), free_bytes=_df_size(found[3], header)
    )


def _df_size(text: str, header: str) -> int | None:
    """Plain numbers count blocks, of the size that the header names."""
    blocks = BLOCKS.search(header)
    count = whole(text)
    if blocks and count is not None:
        return count * int(blocks[1]) * BLOCK_UNITS[blocks[2]]
    return size_bytes(text)


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class Mount:
    source: str
    point: str
    filesystem: str


def mount_of(mounts: str, path: PurePosixPath) -> Mount | None:
    """The line of /proc/mounts that a path lies under: the deepest, and of several the last."""
    under: list[Mount] = []
    for line in mounts.splitlines():
        if found := MOUNT.match(line):
            mount = Mount(*map(_unescaped, found.groups()))
            if path.is_relative_to(mount.point):
                under.append(mount)
    deepest = max((len(mount.point) for mount in under), default=0)
    return next((mount for mount in reversed(under) if len(mount.point) == deepest), None)


def _unescaped(cell: str) -> str:
    """The kernel writes blanks, tabs, line breaks and backslashes as octal numbers."""
    return re.sub(r"\\([0-3][0-7]{2})", lambda found: chr(int(found[1], 8)), cell)


def kind_of(filesystem: str | None, rotational: tuple[str, ...], *, virtual: bool) -> Kind | None:
    """`rotational`: what each disk under the file system says; () where none was found.

    A hypervisor's disk says "rotates" unless it was told otherwise, so there it means nothing.
    """
    if filesystem is not None and filesystem.startswith(NETWORK):
        return "network"
    if filesystem in MEMORY:
        return "memory"
    said = {flag.strip() for flag in rotational}
    if said == {"0"}:
        return "ssd"
    return "hdd" if "1" in said and said <= {"0", "1"} and not virtual else None
