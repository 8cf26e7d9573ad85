"""The file system that a folder is on, or will be."""

import os
import shutil
from pathlib import Path, PurePosixPath

from orchestrator.adapters.host.machine import HERE, text
from orchestrator.core.facts import Disk
from orchestrator.core.probes.disk import kind_of, mount_of


def existing(folder: Path) -> Path | None:
    """The folder, or the nearest above it that is there."""
    absolute = folder.absolute()
    return next((place for place in (absolute, *absolute.parents) if place.is_dir()), None)


def read_disk(folder: Path, *, virtual: bool, root: Path = HERE) -> Disk:
    """`virtual`: a hypervisor shows its own disks."""
    path = str(folder.absolute())
    there = existing(folder)
    if there is None:
        return Disk(path=path)
    try:
        usage = shutil.disk_usage(there)
    except OSError:
        return Disk(path=path)
    mount = mount_of(text(root / "proc/mounts"), PurePosixPath(there.resolve()))
    filesystem = mount.filesystem if mount else None
    devices = _devices(there, mount.source if mount else "", root / "sys")
    return Disk(
        path=path,
        free_bytes=usage.free,
        total_bytes=usage.total,
        filesystem=filesystem,
        kind=kind_of(filesystem, tuple(devices), virtual=virtual),
    )


def _devices(there: Path, source: str, sys: Path) -> list[str]:
    """What each disk under the file system says of its rotation.

    Btrfs and others number their file systems, not their devices: those are found by name.
    """
    number = there.stat().st_dev
    numbered = sys / "dev/block" / f"{os.major(number)}:{os.minor(number)}"
    named = sys / "class/block" / Path(source).resolve().name
    device = next((path for path in (numbered, named) if path.exists()), None)
    return _rotation(device.resolve()) if device and source.startswith("/dev/") else []


def _rotation(device: Path) -> list[str]:
    """Of the disks under a device: RAID and device mapper name theirs as slaves."""
    slaves = sorted((device / "slaves").glob("*"))
    if slaves:
        return [flag for slave in slaves for flag in _rotation(slave.resolve())]
    whole_disk = device.parent if (device / "partition").exists() else device
    flag = text(whole_disk / "queue/rotational")
    return [flag] if flag else []
