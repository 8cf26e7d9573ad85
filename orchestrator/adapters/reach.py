"""Which services this host reaches, and how far its clock is off, by one short request each."""

import logging
import queue
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from statistics import median

import httpx

from orchestrator.core.facts import Reach

log = logging.getLogger(__name__)

WITHIN_S = 4.0
STEP_WITHIN_S = 3.0
# Proxies answer these for a server that they won't or can't talk to.
REFUSED = (HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)


@dataclass(frozen=True, slots=True)
class _Answer:
    name: str
    reached: bool
    clock_ahead_s: float | None = None


def read_reach(endpoints: Mapping[str, str], ca_bundle: Path | None = None) -> Reach:
    """`endpoints`: field of `Reach` -> URL. What has not answered in time is not reached.

    The environment's proxies count, and the host's certificates.
    """
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    trusted = ssl.create_default_context(cafile=ca_bundle)

    def ask(name: str, url: str) -> None:
        answers.put(_ask(name, url, trusted))

    for name, url in endpoints.items():
        # A name server that stays silent can't be interrupted: such a thread is left behind.
        threading.Thread(target=ask, args=(name, url), daemon=True).start()
    found = _in_time(answers, len(endpoints))
    clocks = [one.clock_ahead_s for one in found if one.clock_ahead_s is not None]
    reached = dict.fromkeys(endpoints, False) | {one.name: one.reached for one in found}
    return Reach(
        **{name: reached.get(name) for name in Reach.model_fields if name != "clock_ahead_s"},
        clock_ahead_s=median(clocks) if clocks else None,
    )


def _in_time(answers: queue.SimpleQueue[_Answer], expected: int) -> list[_Answer]:
    end = time.monotonic() + WITHIN_S
    found: list[_Answer] = []
    while len(found) < expected:
        try:
            found.append(answers.get(timeout=max(end - time.monotonic(), 0)))
        except queue.Empty:
            break
    return found


def _ask(name: str, url: str, trusted: ssl.SSLContext) -> _Answer:
    try:
        with (
            httpx.Client(verify=trusted, timeout=STEP_WITHIN_S) as client,
            client.stream("GET", url) as response,
        ):
            ahead = _clock_ahead_s(response)
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as trouble:
        log.debug("%s: %s", url, trouble)
        return _Answer(name, reached=False)
    return _Answer(name, status not in REFUSED and not httpx.codes.is_server_error(status), ahead)


def _clock_ahead_s(response: httpx.Response) -> float | None:
    """Our time less the server's. An answer from a cache carries an old date."""
    date = response.headers.get("date")
    if date is None or "age" in response.headers:
        return None
    try:
        return time.time() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
