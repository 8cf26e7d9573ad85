"""A file whose newest usable content is in force, without a restart and without a watcher.

Its folder is mounted, not the file: whoever writes it puts a new file in its place.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

_log = logging.getLogger(__name__)

T = TypeVar("T")
_Version = tuple[int, int, int] | None


class FileUnusableError(Exception):
    """A file that can't be read, or does not hold what it should."""


class Reloaded(Generic[T]):
    """`parse` gets the file's text and raises ValueError for one it can't use.

    An absent file is `default`. A bad first version raises; a bad later one is logged, and the last
    good one stays in force: a slip of an editor's hand must not stop the service.
    """

    def __init__(
        self,
        path: Path | None,
        parse: Callable[[str], T],
        default: T,
    ) -> None:
        self._path = path
        self._text_path = str(path)
        self._parse = parse
        self._default = default
        self._followers: list[Callable[[T], None]] = []
        self._seen = self._version()
        self._value = self._read()

    def follow(self, follower: Callable[[T], None]) -> None:
        """Calls `follower` with the value in force, now and whenever it changes."""
        self._followers.append(follower)
        follower(self._value)

    def current(self) -> T:
        """The value in force. Costs one stat."""
        if (version := self._version()) != self._seen:
            self._seen = version
            try:
                self.reload()
            except FileUnusableError as error:
                _log.warning("the last good version stays in force: %s", error)
        return self._value

    def reload(self) -> None:
        """Reads the file whether or not it looks changed; raises where it can't be used."""
        self._value = self._read()
        for follower in self._followers:
            follower(self._value)

    def _version(self) -> _Version:
        if self._path is None:
            return None
        try:
            # Of the text: a Path costs more than the kernel does.
            found = os.stat(self._text_path)  # noqa: PTH116
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> T:
        if self._path is None:
            return self._default
        try:
            return self._parse(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return self._default
        except (OSError, ValueError) as error:
            message = f"{self._path}: {' '.join(str(error).split())}"
            raise FileUnusableError(message) from error
