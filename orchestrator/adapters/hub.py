"""What model hubs, HTTP folders and wheels say they hold. Weights themselves are the job's business."""

import base64
import csv
import hashlib
import io
import logging
import re
import ssl
import zipfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import httpx
from typing_extensions import Buffer, assert_never

from orchestrator.core.locking import Listing, Published, SourceUnavailable, describe
from wire.order import Folder as MountedFolder
from wire.order import HttpFolder, HuggingFace, ModelScope, Source, WheelMember

log = logging.getLogger(__name__)

SMALL_FILE_BYTES = 64 << 20  # hubs keep files above 10 MB in LFS, where their sha256 is published
READ_AHEAD_BYTES = 64 << 10
DEFAULT_PAUSE_S = 2.0
SUMS_NAME = "SHA256SUMS"
SUMS_LINE = re.compile(r"^([0-9a-fA-F]{64}) [ *](.+)$")
GATED_STEP = "accept the licence on the model's page, and put an access token in {token_file}"


class Hubs:
    """Asks one question at a time. Every refusal and silence is a SourceUnavailable, in words."""

    def __init__(self, *, ca_bundle: Path | None, token: str, token_file: Path) -> None:
        self._token = token
        self._token_step = GATED_STEP.format(token_file=token_file)
        # Proxies and netrc of the environment count; so does the host's CA bundle, not httpx's own.
        self._http = httpx.Client(
            verify=ssl.create_default_context(cafile=ca_bundle),
            timeout=httpx.Timeout(30, connect=10),
            follow_redirects=True,
        )

    def close(self) -> None:
        self._http.close()

    def listing(self, source: Source) -> Listing | None:
        """Every file the source says it has; None where it is of a kind that does not say."""
        match source:
            case HuggingFace():
                return self._huggingface(source)
            case ModelScope():
                return self._modelscope(source)
            case HttpFolder():
                return self._http_folder(source)
            case WheelMember():
                return self._wheel(source)
            case MountedFolder():
                return None
            case _:
                assert_never(source)

    def completed(self, source: Source, listing: Listing, file: Published) -> Published:
        """The file with what the listing left out, where the source has a way to tell it."""
        match source:
            case HttpFolder() if file.size_bytes is None:
                return replace(file, size_bytes=self._size(f"{_base(source)}/{quote(file.path)}"))
            case HuggingFace() if file.sha256 is None:
                return self._hashed(source, listing, file)
            case _:
                return file

    def piece(self, source: Source, path: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end`, the last not included, of one file: not fewer, and no other."""
        url = _address(source, path)
        headers = self._headers() if isinstance(source, HuggingFace) else {}
        try:
            with _range(self._http, url, start, end, headers) as response:
                self._refuse_bad_answer(response)
                content, _ = _read_range(response, start, end)
        except (httpx.TransportError, httpx.TooManyRedirects) as error:
            raise _unreachable(error, url) from error
        except (httpx.InvalidURL, OSError) as error:
            raise SourceUnavailable(f"{path}: {error}", lasting=True) from error
        if len(content) != end - start:
            raise SourceUnavailable(
                f"{path}: asked for bytes {start} to {end}, it sends {len(content)} bytes"
            )
        return content

    def _hashed(self, source: HuggingFace, listing: Listing, file: Published) -> Published:
        """A small file is known by git's hash: fetch it, check that, and compute the sha256."""
        if file.size_bytes is None or file.size_bytes > SMALL_FILE_BYTES:
            raise SourceUnavailable(f"it publishes no sha256 of {file.path}", lasting=True)
        url = f"{source.endpoint}/{source.repo}/resolve/{listing.commit}/{quote(file.path)}"
        content = self._ask(url, headers=self._headers()).content
        blob = b"blob %d\0%b" % (len(content), content)
        git_sha1 = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
        if (len(content), git_sha1) != (file.size_bytes, file.git_sha1):
            raise SourceUnavailable(
                f"{file.path} is not what its listing says: git's hash is {git_sha1}, "
                f"not {file.git_sha1}"
            )
        return replace(file, sha256=hashlib.sha256(content).hexdigest())

    def _huggingface(self, source: HuggingFace) -> Listing:
        api = f"{source.endpoint}/api/models/{source.repo}"
        headers = self._headers()
        about = self._json(f"{api}/revision/{quote(source.revision, safe='')}", headers=headers)
        commit = str(_within(about, "sha"))
        files: list[Published] = []
        page: str | None = f"{api}/tree/{commit}?recursive=true&expand=false"
        while page:
            response = self._ask(page, headers=headers)
            files += map(_hf_file, (e for e in _parsed(response) if e.get("type") == "file"))
            following = response.links.get("next", {}).get("url")
            page = str(response.url.join(following)) if following else None
        return Listing(source=describe(source), repo=source.repo, commit=commit, files=tuple(files))

    def _modelscope(self, source: ModelScope) -> Listing:
        url = f"{source.endpoint}/api/v1/models/{source.repo}/repo/files"
        answer = self._json(url, params={"Revision": source.revision, "Recursive": "True"})
        entries = _within(answer, "Data", "Files")
        return Listing(
            source=describe(source),
            repo=source.repo,
            commit="",  # its API names no commit of the whole repository
            files=tuple(
                Published(
                    path=str(_within(entry, "Path")),
                    size_bytes=int(_within(entry, "Size")),
                    sha256=entry.get("Sha256") or None,
                )
                for entry in entries
                if entry.get("Type") != "tree"
            ),
        )

    def _http_folder(self, source: HttpFolder) -> Listing | None:
        try:
            sums = self._ask(f"{_base(source)}/{SUMS_NAME}").text
        except SourceUnavailable as refusal:
            if refusal.lasting:
                return None  # such a folder can be read, it just does not vouch for itself
            raise
        named = (found for line in sums.splitlines() if (found := SUMS_LINE.match(line)))
        return Listing(
            source=describe(source),
            repo=f"http/{_plain_name(urlsplit(source.url).path) or 'folder'}",
            commit="",
            files=tuple(
                Published(path=found[2].removeprefix("./"), sha256=found[1].lower())
                for found in named
            ),
        )

    def _wheel(self, source: WheelMember) -> Listing:
        try:
            with zipfile.ZipFile(
                io.BufferedReader(_Ranged(self._http, source.url), READ_AHEAD_BYTES)
            ) as wheel:
                size_bytes = wheel.getinfo(source.member).file_size
                record = next(n for n in wheel.namelist() if n.endswith(".dist-info/RECORD"))
                sha256 = _sha256_in_record(wheel.read(record).decode(), source.member)
        except httpx.TransportError as error:
            raise _unreachable(error, source.url) from error
        except (KeyError, StopIteration, zipfile.BadZipFile, OSError, ValueError) as error:
            raise SourceUnavailable(
                f"can't find {source.member} and its hash in it: {error}", lasting=True
            ) from error
        file = Published(
            path=PurePosixPath(source.member).name, size_bytes=size_bytes, sha256=sha256
        )
        project = _plain_name(unquote(source.url).rsplit("/", 1)[-1]).split("-")[0]
        return Listing(
            source=describe(source),
            repo=f"wheel/{project.replace('_', '-')}",
            commit="",
            files=(file,),
        )

    def _headers(self) -> Mapping[str, str]:
        # Httpx leaves the header out when a redirect leads to another host.
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _size(self, url: str) -> int:
        try:
            # Not compressed: then the length is the file's own.
            response = self._http.head(url, headers={"Accept-Encoding": "identity"})
        except httpx.TransportError as error:
            raise _unreachable(error, url) from error
        self._refuse_bad_answer(response)
        if "Content-Length" not in response.headers:
            raise SourceUnavailable(f"it does not tell the size of {url}", lasting=True)
        return int(response.headers["Content-Length"])

    def _json(self, url: str, **request: Any) -> Any:
        return _parsed(self._ask(url, **request))

    def _ask(self, url: str, **request: Any) -> httpx.Response:
        log.debug("GET %s", url)
        try:
            response = self._http.get(url, **request)
        except (httpx.TransportError, httpx.TooManyRedirects) as error:
            raise _unreachable(error, url) from error
        except (httpx.InvalidURL, httpx.DecodingError) as error:
            raise SourceUnavailable(f"{url}: {error}", lasting=True) from error
        self._refuse_bad_answer(response)
        return response

    def _refuse_bad_answer(self, response: httpx.Response) -> None:
        if response.is_success:
            return
        code = response.status_code
        said = response.headers.get("X-Error-Message") or response.reason_phrase
        url = response.request.url.copy_with(query=None)
        if code in {401, 403}:
            with_token = "with the token" if self._token else "without a token"
            raise SourceUnavailable(
                f"{code} {with_token}: {said} ({url})", next_step=self._token_step, lasting=True
            )
        if code in {404, 410}:
            raise SourceUnavailable(
                f"{code}: there is no {url}: {said}",
                next_step="correct `repo` and `revision` in the profile",
                lasting=True,
            )
        if code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
            wait = response.headers.get("Retry-After", "")
            pause_s = float(wait) if wait.isdigit() else DEFAULT_PAUSE_S
            raise SourceUnavailable(f"{code}: {said} ({url})", again_after_s=pause_s)
        raise SourceUnavailable(f"{code}: {said} ({url})", lasting=True)


class _Ranged(io.RawIOBase):
    """A file behind a URL, read by ranges. Raises httpx.TransportError, or OSError in words."""

    def __init__(self, http: httpx.Client, url: str) -> None:
        self._http = http
        self._url = url
        self._at = 0
        self._size = self._fetch(0, 1)[1]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        room = memoryview(buffer).cast("B")
        wanted = min(len(room), self._size - self._at)
        if wanted <= 0:
            return 0
        content, _ = self._fetch(self._at, wanted)
        room[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _fetch(self, start: int, count: int) -> tuple[bytes, int]:
        with _range(self._http, self._url, start, start + count, {}) as response:
            return _read_range(response, start, start + count)


def _range(
    http: httpx.Client, url: str, start: int, end: int, headers: Mapping[str, str]
) -> AbstractContextManager[httpx.Response]:
    # Not compressed: a range is one of the file's own bytes.
    asked = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    return http.stream("GET", url, headers={**headers, **asked})


def _read_range(response: httpx.Response, start: int, end: int) -> tuple[bytes, int]:
    """The bytes, and the size of the whole file. OSError where the answer is another one."""
    found = re.fullmatch(rf"bytes {start}-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if response.status_code != httpx.codes.PARTIAL_CONTENT or found is None:
        message = f"asked for bytes {start} to {end}, the answer is {response.status_code}"
        raise OSError(message)
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > end - start:
            message = f"asked for {end - start} bytes, it sends more"
            raise OSError(message)
    return bytes(content), int(found[1])


def _address(source: Source, path: str) -> str:
    match source:
        case HuggingFace():
            revision = quote(source.revision, safe="")
            return f"{source.endpoint.rstrip('/')}/{source.repo}/resolve/{revision}/{quote(path)}"
        case ModelScope():
            query = urlencode({"Revision": source.revision, "FilePath": path})
            return f"{source.endpoint.rstrip('/')}/api/v1/models/{source.repo}/repo?{query}"
        case HttpFolder():
            return f"{_base(source)}/{quote(path)}"
        case WheelMember() | MountedFolder():
            raise SourceUnavailable(f"{describe(source)} is not read by ranges", lasting=True)
        case _:
            assert_never(source)


def _base(source: HttpFolder) -> str:
    return source.url.rstrip("/")


def _hf_file(entry: Mapping[str, Any]) -> Published:
    lfs = entry.get("lfs") or {}
    return Published(
        path=str(_within(entry, "path")),
        size_bytes=int(lfs.get("size", _within(entry, "size"))),
        sha256=lfs.get("oid"),
        git_sha1=None if lfs else entry.get("oid"),
    )


def _sha256_in_record(record: str, member: str) -> str:
    """The member's hash in a wheel's RECORD: `path,sha256=URLSAFE_BASE64_WITHOUT_PADDING,size`."""
    rows = {row[0]: row[1] for row in csv.reader(record.splitlines()) if len(row) > 1}
    algorithm, _, digest = rows[member].partition("=")
    if algorithm != "sha256":
        message = f"RECORD gives a hash of kind {algorithm!r}"
        raise ValueError(message)
    return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()


def _parsed(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        # What a captive portal or a filtering proxy says is a page, with 200.
        said = f"{response.request.url.copy_with(query=None)} answers with no JSON"
        raise SourceUnavailable(f"{said}: {response.text[:80]!r}") from error


def _within(answer: Any, *names: str) -> Any:
    for name in names:
        if not isinstance(answer, Mapping) or name not in answer:
            raise SourceUnavailable(f"its answer has no {name!r}: {str(answer)[:200]}")
        answer = answer[name]
    return answer


def _plain_name(path: str) -> str:
    name = PurePosixPath(unquote(path)).name
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")


def _unreachable(error: httpx.HTTPError, url: str) -> SourceUnavailable:
    host = urlsplit(url).netloc.rpartition("@")[2]
    said = str(error) or type(error).__name__
    if isinstance(error, httpx.ProxyError):
        step = "the proxy refused: check HTTPS_PROXY and NO_PROXY"
    elif "CERTIFICATE_VERIFY_FAILED" in said:
        step = (
            "behind a proxy that inspects TLS, add its certificate to this host's bundle "
            "(update-ca-certificates), or name a bundle in SSL_CERT_FILE"
        )
    else:
        step = f"check the network, DNS and HTTPS_PROXY; does this host reach {host}?"
    return SourceUnavailable(f"{host} can't be reached: {said}", next_step=step)
