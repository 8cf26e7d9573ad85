"""`df`, /proc/mounts and what the kernel says about a block device."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath, PurePosixPath
from typing import Literal

from orchestrator.core.facts import Disk
from orchestrator.core.probes.text import size_bytes, whole, whole_lines

# device, kind of file system (df -T), size, used, available, use%, where
DF_ROW = re.compile(
    r"(?P<source>\S.*?)(?:\s+(?P<kind>[a-z][\w.+-]*))?"
    r"\s+(?P<size>\d\S*)\s+\d\S*\s+(?P<free>\d\S*)\s+\d+%\s+(?P<where>/.*)"
)
BLOCKS = re.compile(r"(?<!\S)(\d{1,6})([KMG]?)B?(?=[-\s])", re.ASCII)
BLOCK_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
MOUNT = re.compile(r"(\S+) (/\S*) (\S+) ")
NO_DISKS = ("tmpfs", "devtmpfs", "udev", "none", "shm", "efivarfs", "/dev/loop")
NO_PLACES = (
    *("/boot", "/dev", "/run", "/proc", "/sys", "/snap", "/etc", "/init", "/usr/lib/wsl"),
    *("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet"),
)
NETWORK = ("nfs", "cifs", "smb", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs", "9p")
# A server's folder (nas:/export, //nas/share), and Windows' own disks in WSL.
REMOTE = re.compile(r"(?:\S+:/|//|[A-Z]:\\).*")
MEMORY = ("tmpfs", "ramfs")
Kind = Literal["ssd", "hdd", "network", "memory"]


def parse_df(text: str) -> tuple[Disk, ...]:
    """The file systems that `df` lists and that could hold weights: not those in memory, /boot, ..."""
    rows = _unfolded(whole_lines(text))
    header = next((row for row in rows if BLOCKS.search(row) and not DF_ROW.fullmatch(row)), "")
    return tuple(disk for disk in (_df_row(row, header) for row in rows) if disk)


def for_weights(disks: Iterable[Disk], weights_dir: PurePath) -> Disk | None:
    """The deepest that a folder lies on; of a folder that lies on none, the one with most room."""
    known = list(disks)
    above = [disk for disk in known if weights_dir.is_relative_to(disk.path)]
    if above:
        return max(above, key=lambda disk: len(disk.path))
    return max(known, key=lambda disk: disk.free_bytes or 0, default=None)


def _unfolded(rows: list[str]) -> list[str]:
    """Old versions put what follows a long device name on a line of its own."""
    return re.sub(r"(?m)^(\S+)\n(?=\s+\d)", r"\1 ", "\n".join(rows)).split("\n")


def _df_row(row: str, header: str) -> Disk | None:
    found = DF_ROW.fullmatch(row)
    if found is None or found["source"].startswith(NO_DISKS) or _below(found["where"], NO_PLACES):
        return None
    network = "network" if REMOTE.fullmatch(found["source"]) else None
    return Disk(
        path=found["where"].rstrip(),
        total_bytes=_df_size(found["size"], header),
        free_bytes=_df_size(found["free"], header),
        filesystem=found["kind"],
        kind=network or kind_of(found["kind"], (), virtual=False),
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
