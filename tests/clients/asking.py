"""What the scripts of all clients share: what they are told, and what they tell as JSON."""

import json
import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

URL = os.environ["GATEWAY_URL"]
FULL_URL = os.environ["FULL_GATEWAY_URL"]
"""A gateway with one permit and no line."""
KEY = os.environ["GATEWAY_KEY"]
SAY: dict[str, str] = json.loads(os.environ["SAY"])
"""Prompts by what they make the engine do."""
MODEL = "chat"
TOO_LONG = "word " * 50_000


def tell(**seen: object) -> None:
    print(json.dumps(seen))


def error_of(ask: Callable[[], object]) -> dict[str, Any]:
    """What the library raises, by the names of the class and those above it."""
    try:
        got = ask()
    except Exception as error:  # noqa: BLE001 - which one it is, is the question
        names = [kind.__name__ for kind in type(error).__mro__]
        return {"is": names, "status": getattr(error, "status_code", None), "says": str(error)}
    return {"is": [], "status": None, "says": f"no error but {got!r}"}


@contextmanager
def engine_busy(url: str) -> Iterator[None]:
    """From here on somebody else has the gateway's only permit, for a while."""
    request = urllib.request.Request(  # noqa: S310 - the address is the test's
        f"{url}/v1/chat/completions",
        json.dumps(
            {
                "model": MODEL,
                "messages": [{"role": "user", "content": SAY["occupy"]}],
                "stream": True,
            }
        ).encode(),
        {"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
        answer.readline()
        reading = threading.Thread(target=answer.read)
        reading.start()
        try:
            yield
        finally:
            reading.join()
