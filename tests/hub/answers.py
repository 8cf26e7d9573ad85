"""What a dialect is asked, and what it can answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hub.repository import Repositories


@dataclass(frozen=True, slots=True)
class Request:
    """`origin`: scheme, host and port that the client used."""

    method: str
    url: str
    headers: Message
    body: bytes
    origin: str

    @property
    def path(self) -> str:
        return unquote(urlsplit(self.url).path)

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in parse_qs(urlsplit(self.url).query).items()}

    @property
    def token(self) -> str | None:
        scheme, _, token = (self.headers.get("Authorization") or "").partition(" ")
        return token if scheme.lower() == "bearer" else None


@dataclass(frozen=True, slots=True)
class Plain:
    """A whole answer. `file`: the one that it points to, where it is a redirect."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Content:
    """A file's bytes, whole or in part. `file`: its path in the repository."""

    file: str
    on_disk: Path
    size_bytes: int
    etag: str
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = Plain | Content


@dataclass(frozen=True, slots=True)
class Shelf:
    """What every dialect answers from. `cdn_url` signs: (origin, repo, file, revision) -> URL."""

    repositories: Repositories
    index: Path
    page: int
    gated: frozenset[str]
    tokens: Mapping[str, frozenset[str]]
    redirects: bool
    lie_about: Callable[[str], int]
    cdn_url: Callable[[str, str, str, str], str]


def in_json(found: Any, status: int = HTTPStatus.OK, **headers: str) -> Plain:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(found).encode()
    return Plain(status, {"Content-Type": "application/json", **named}, body)
