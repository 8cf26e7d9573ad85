"""One range of one address: redirects followed anew each time, and the answer checked to be that range."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from downloader.pace import retry_after_s
from downloader.sources.base import Fault, Kind
from downloader.transport import Transport, fault_of

HOPS = 6
SHORT_BYTES = 1 << 14
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_SHA256 = re.compile(r'(?:W/)?"?([0-9a-fA-F]{64})"?')

Explain = Callable[[BaseHTTPResponse], Fault]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`own_headers`: only for the address's own host, never taken along to another.

    `explain`: what an answer of that host means that is neither bytes nor "later".
    `publishes_sha256`: that host's ETag is the file's sha256 where it looks like one. Elsewhere 64
    hex digits may be anything: the blob stores behind the hubs use hashes of their own.
    """

    url: str
    explain: Explain
    own_headers: Mapping[str, str] = field(default_factory=dict)
    publishes_sha256: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bytes [start, stop) of `total` (None: not known yet) with `sha256` over all of them."""

    start: int
    stop: int
    total: int | None = None
    sha256: str | None = None


@contextmanager
def open_range(transport: Transport, address: Address, wanted: Range) -> Iterator["RangeReader"]:
    response, url = _resolve(transport, address, wanted)
    ended_cleanly = False
    try:
        reader = RangeReader(response, url, wanted)
        yield reader
        ended_cleanly = reader.ended_cleanly
    finally:
        transport.done_with(response, reuse=ended_cleanly)


class RangeReader:
    def __init__(self, response: BaseHTTPResponse, url: str, wanted: Range) -> None:
        self.total = _check(response, wanted)
        self._response = response
        self._url = url
        self._left_bytes = wanted.stop - wanted.start

    def readinto(self, buffer: memoryview, /) -> int:
        """What has arrived, up to the range's end: a longer body is cut there."""
        try:
            chunk = self._response.read1(min(len(buffer), self._left_bytes))
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            raise fault_of(error, self._url) from error
        if not chunk:
            raise Fault(Kind.LATER, f"{_host(self._url)}: the answer ended early")
        buffer[: len(chunk)] = chunk
        self._left_bytes -= len(chunk)
        return len(chunk)

    @property
    def ended_cleanly(self) -> bool:
        return self._left_bytes == 0 and self._response.length_remaining == 0


def _resolve(transport: Transport, address: Address, wanted: Range) -> tuple[BaseHTTPResponse, str]:
    url = address.url
    for _ in range(HOPS):
        ours = _origin(url) == _origin(address.url)
        headers = {"Range": f"bytes={wanted.start}-{wanted.stop - 1}"}
        response = transport.get(url, {**headers, **address.own_headers} if ours else headers)
        accepted = False
        try:
            _check_hash(response, wanted, own=ours and address.publishes_sha256)
            location = response.headers.get("Location")
            if response.status in REDIRECTS and location:
                url = urljoin(url, location)
                continue
            if response.status not in {200, 206}:
                raise _refusal(response, address, url, ours=ours)
            accepted = True
            return response, url
        finally:
            if not accepted:
                # A short body is read to its end, so that the connection can be used again.
                transport.done_with(response, reuse=_drained(response))
    raise Fault(Kind.LATER, f"{_host(address.url)}: more than {HOPS} redirects")


def _drained(response: BaseHTTPResponse) -> bool:
    if response.length_remaining is None or response.length_remaining > SHORT_BYTES:
        return False
    try:
        response.read()
    except (HTTPError, OSError, ValueError):
        return False
    return True


def _refusal(response: BaseHTTPResponse, address: Address, url: str, *, ours: bool) -> Fault:
    status = response.status
    if status in {408, 425, 429} or status >= 500:  # noqa: PLR2004 -- the protocol's own numbers
        wait_s = retry_after_s(response.headers.get("Retry-After"), time.time())
        return Fault(Kind.LATER, f"{_host(url)} answered {status}", retry_after_s=wait_s)
    if status == 416:  # noqa: PLR2004
        has = response.headers.get("Content-Range", "").removeprefix("bytes */") or "fewer"
        return Fault(Kind.DIFFERENT, f"{_host(url)} holds {has} bytes")
    if not ours:
        # A signed address expires; the next try asks for a new one.
        return Fault(Kind.LATER, f"{_host(url)} answered {status} to a redirect")
    return address.explain(response)


def _check(response: BaseHTTPResponse, wanted: Range) -> int:
    """The file's size as the answer tells it. Raises Fault unless the body is the range asked for."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise Fault(Kind.LATER, f"the answer is encoded as {encoding}")
    length = wanted.stop - wanted.start
    if response.status == 200:  # noqa: PLR2004
        # All there is, where all was asked for, is a right answer too.
        if wanted.start == 0 and wanted.total == length == response.length_remaining:
            return length
        raise Fault(Kind.LATER, "the server ignored the range that was asked for (it answered 200)")
    found = response.headers.get("Content-Range", "none")
    match = _CONTENT_RANGE.fullmatch(found.strip())
    if match is None:
        raise Fault(Kind.LATER, f"the answer's Content-Range is {found}")
    start, end, total = match.groups()
    if total == "*":
        raise Fault(Kind.LATER, "the answer's Content-Range does not tell the file's size")
    if wanted.total is not None and int(total) != wanted.total:
        raise Fault(Kind.DIFFERENT, f"expected {wanted.total} bytes, found {total}")
    asked = f"{wanted.start}-{wanted.stop - 1}"
    if f"{start}-{end}" != asked:
        raise Fault(Kind.LATER, f"asked for the bytes {asked}, the answer holds {start}-{end}")
    if response.length_remaining not in {None, length}:
        raise Fault(
            Kind.LATER, f"asked for {length} bytes, the answer has {response.length_remaining}"
        )
    return int(total)


def _check_hash(response: BaseHTTPResponse, wanted: Range, *, own: bool) -> None:
    names = ("X-Linked-Etag", "ETag") if own else ("X-Linked-Etag",)
    for name in names:
        match = _SHA256.fullmatch(response.headers.get(name, "").strip())
        if match and wanted.sha256 and match[1].lower() != wanted.sha256:
            raise Fault(
                Kind.DIFFERENT, f"expected sha256 {wanted.sha256}, the hub says {match[1].lower()}"
            )


def _origin(url: str) -> tuple[str, str]:
    address = urlsplit(url)
    return address.scheme, address.netloc


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
