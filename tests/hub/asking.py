"""A client of the hub, and the repository that its tests ask for."""

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

from hub import (
    Hub,
)

REPO = "some-org/a-model"

BIG = "Q4/a-00001-of-00002.gguf"

BIG_BYTES = bytes(range(251)) * 8000

SMALL = "config.json"


@dataclass(frozen=True)
class Got:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


def get(url: str, method: str = "GET", body: bytes | None = None, /, **headers: str) -> Got:
    """One request on a connection of its own; no redirect is followed."""
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.netloc, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, f"{where.path}?{where.query}", body, named)
        response = connection.getresponse()
        return Got(response.status, response.headers, response.read())
    finally:
        connection.close()


def resolve(hub: Hub, path: str = BIG, method: str = "GET", /, **headers: str) -> Got:
    return get(f"{hub.url}/{REPO}/resolve/{hub.commit(REPO)}/{path}", method, **headers)


def signed(hub: Hub) -> str:
    return str(resolve(hub).headers["Location"])
