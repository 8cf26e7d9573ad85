"""Files at addresses: Hugging Face and its mirrors, ModelScope, any HTTP folder."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from urllib3 import BaseHTTPResponse

from downloader.ranged import Address, Range, RangeReader, open_range
from downloader.sources.base import Fault, Kind
from downloader.transport import Transport
from wire import LockedFile
from wire.order import HttpFolder, HuggingFace, ModelScope

GIVE_A_TOKEN = "put an access token into secrets/hf_token (HF_TOKEN_FILE of this job)"  # noqa: S105


@dataclass(frozen=True, slots=True)
class WebSource:
    name: str
    address_of: Callable[[str], Address]
    transport: Transport

    def where(self, file: LockedFile) -> str:
        return f"{file.path} from {self.name}"

    def look(self, file: LockedFile) -> Fault | None:
        del file
        return None

    def open(self, file: LockedFile, start: int, stop: int) -> AbstractContextManager[RangeReader]:
        wanted = Range(start=start, stop=stop, total=file.size_bytes, sha256=file.sha256)
        return open_range(self.transport, self.address_of(file.path), wanted)


def hugging_face(source: HuggingFace, token: str, transport: Transport) -> WebSource:
    endpoint = source.endpoint.rstrip("/")

    def explain(response: BaseHTTPResponse) -> Fault:
        return _hub_refusal(response, source, has_token=bool(token))

    def address_of(path: str) -> Address:
        return Address(
            url=f"{endpoint}/{source.repo}/resolve/{quote(source.revision, safe='')}/{quote(path)}",
            own_headers={"Authorization": f"Bearer {token}"} if token else {},
            explain=explain,
            publishes_sha256=True,
        )

    return WebSource(f"{source.repo} on {host_of(endpoint)}", address_of, transport)


def model_scope(source: ModelScope, transport: Transport) -> WebSource:
    endpoint = source.endpoint.rstrip("/")

    def address_of(path: str) -> Address:
        query = urlencode({"Revision": source.revision, "FilePath": path})
        return Address(
            url=f"{endpoint}/api/v1/models/{source.repo}/repo?{query}",
            explain=plain_refusal,
            publishes_sha256=True,
        )

    return WebSource(f"{source.repo} on {host_of(endpoint)} (ModelScope)", address_of, transport)


def http_folder(source: HttpFolder, transport: Transport) -> WebSource:
    base = source.url.rstrip("/")

    def address_of(path: str) -> Address:
        return Address(url=f"{base}/{quote(path)}", explain=plain_refusal)

    return WebSource(host_of(base) + urlsplit(base).path, address_of, transport)


def plain_refusal(response: BaseHTTPResponse) -> Fault:
    status = response.status
    if status in {401, 403}:
        return Fault(Kind.REFUSED, f"it answered {status}: it does not let us read this")
    if status in {404, 410}:
        return Fault(Kind.REFUSED, f"it answered {status}: the file or the revision is not there")
    return Fault(Kind.LATER, f"it answered {status}")


def _hub_refusal(response: BaseHTTPResponse, source: HuggingFace, *, has_token: bool) -> Fault:
    code = response.headers.get("X-Error-Code", "")
    page = f"{source.endpoint.rstrip('/')}/{source.repo}"
    if response.status in {401, 403}:
        if code == "GatedRepo":
            return Fault(
                Kind.REFUSED,
                f"it answered {response.status}: {source.repo} is gated, and "
                + ("the token's account has no access" if has_token else "there is no token"),
                next_step=f"accept its terms on {page}"
                + (" with the token's account" if has_token else f", {GIVE_A_TOKEN}")
                + ", then run again",
            )
        return Fault(
            Kind.REFUSED,
            f"it answered {response.status}: {source.repo} is private, gated or not there, or "
            + ("the token is not valid" if has_token else "it asks for a token"),
            next_step=f"look whether {page} exists, {GIVE_A_TOKEN} that may read it, then run again",
        )
    if response.status in {404, 410}:
        missing = (
            f"the revision {source.revision[:12]} is no longer there"
            if code == "RevisionNotFound"
            else "the file is not there"
        )
        return Fault(
            Kind.REFUSED,
            f"it answered {response.status}: {missing}",
            next_step="find a source that still has this revision, or make a new lock with "
            "`pull --update-lock`",
        )
    return plain_refusal(response)


def host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]
