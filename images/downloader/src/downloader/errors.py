"""Every way this job can fail, and what the operator does about it.

Failure
├── ConfigurationInvalid   2  a setting, the lock, or the rights on the weights folder
├── NotDelivered           5  the source or the disk failed: the same run may succeed later
└── VerificationFailed     6  the source holds something other than what the lock asks for
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar


class Failure(Exception):
    """What happened, why (one line each), and the next step."""

    exit_code: ClassVar[int]

    def __init__(self, what: str, *, why: tuple[str, ...], next_step: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step

    def lines(self) -> Iterator[str]:
        yield f"error: {self.what}"
        yield from (f"why: {reason}" for reason in self.why)
        yield f"next: {self.next_step}"


class ConfigurationInvalid(Failure):
    exit_code = 2


class NotDelivered(Failure):
    exit_code = 5


class VerificationFailed(Failure):
    exit_code = 6


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Whatever the operating system says inside concerns the weights folder."""
    try:
        yield
    except OSError as error:
        raise _weights_folder_failed(folder, error) from error


def _weights_folder_failed(folder: Path, error: OSError) -> Failure:
    if error.errno in (errno.EACCES, errno.EPERM):
        return ConfigurationInvalid(
            f"can't use the weights folder {folder}",
            why=(str(error), f"this job runs as {_me()}"),
            next_step=f"chown -R {_me()} the host folder that is mounted there, then run again",
        )
    if error.errno == errno.EROFS:
        return ConfigurationInvalid(
            f"can't use the weights folder {folder}",
            why=(str(error),),
            next_step="mount its file system read-write, then run again",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NotDelivered(
            f"the weights folder {folder} became full",
            why=(str(error),),
            next_step="free some space there, then run again: finished files are kept",
        )
    return NotDelivered(
        f"the weights folder {folder} failed",
        why=(str(error),),
        next_step="check its file system and disk (dmesg on the host), then run again",
    )


def _me() -> str:
    return f"{os.geteuid()}:{os.getegid()}"
