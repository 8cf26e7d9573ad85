"""The hub itself: two listening doors, the routing of requests, and what a test calls."""

import base64
import hashlib
import hmac
import re
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from urllib.parse import quote, urlencode

from typing_extensions import Self

from hub import huggingface, others
from hub.answers import Answer, Content, Plain, Request, Shelf, in_json
from hub.body import Extent, Line, Sending, acknowledged_bytes, extent, prepare, send, unsent_bytes
from hub.doors import Door, Handler
from hub.faults import (
    Armed,
    Deed,
    EmptyReply,
    Expire,
    Fault,
    Fin,
    Replace,
    Reset,
    Stall,
    Status,
    Target,
    Vanish,
    read_faults,
)
from hub.log import Entry, Log, Seen
from hub.repository import Repositories, Unknown
from hub.wheels import normalized, sha256_of
from wire import Lock, LockedFile
from wire.order import HttpFolder, HuggingFace, ModelScope, WheelMember

_CDN = re.compile(r"/cdn/(?P<repo>[^/]+/[^/]+)/(?P<revision>[0-9a-f]{40})/(?P<path>.+)")


class Hub:
    """See README.md beside this file. Listens from the start; a context manager ends it."""

    def __init__(  # noqa: PLR0913 - a test names the few it wants
        self,
        root: Path,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        cdn_port: int = 0,
        page: int = 1000,
        ttl_s: float = 3600,
        gated: Collection[str] = (),
        tokens: Mapping[str, Collection[str]] | None = None,
        redirects: bool = True,
    ) -> None:
        self._spare = tempfile.TemporaryDirectory(prefix="hub-")
        self._repositories = Repositories(root, Path(self._spare.name))
        self._armed = Armed()
        self._log = Log()
        self._ttl_s = ttl_s
        self._key = secrets.token_bytes(32)
        self._closing = threading.Event()
        self._index = root / "_index"
        self._shelf = Shelf(
            repositories=self._repositories,
            index=self._index,
            page=page,
            gated=frozenset(gated),
            tokens={token: frozenset(repos) for token, repos in (tokens or {}).items()},
            redirects=redirects,
            lie_about=self._armed.lie_about,
            cdn_url=self._sign,
        )
        self._doors = [
            Door((host, port), "hub", self._route, self._serve),
            Door((host, cdn_port), "cdn", self._cdn, self._serve),
        ]
        self._threads = [threading.Thread(target=door.run, name=door.name) for door in self._doors]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends every connection. A second call does nothing."""
        if self._closing.is_set():
            return
        self._closing.set()
        for door in self._doors:
            door.stop()
        for thread in self._threads:
            thread.join(10)
        self._spare.cleanup()

    # --- where it is, and what it has ---

    @property
    def port(self) -> int:
        return self._doors[0].port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def index_url(self) -> str:
        return f"{self.url}/simple"

    def commit(self, repo: str) -> str:
        return self._repositories.resolve(repo)

    def lock(self, repo: str, *patterns: str) -> Lock:
        files = self._repositories.files(repo)
        return Lock(
            repo=repo,
            revision=self.commit(repo),
            files=tuple(
                LockedFile(path=path, size_bytes=blob.size_bytes, sha256=blob.sha256)
                for path, blob in sorted(files.items())
                if any(fnmatchcase(path, pattern) for pattern in patterns or ("*",))
            ),
        )

    def huggingface(self, repo: str) -> HuggingFace:
        return HuggingFace(endpoint=self.url, repo=repo, revision=self.commit(repo))

    def modelscope(self, repo: str) -> ModelScope:
        return ModelScope(endpoint=self.url, repo=repo, revision=self.commit(repo))

    def folder(self, repo: str) -> HttpFolder:
        return HttpFolder(url=f"{self.url}/files/{repo}")

    def wheel(self, project: str, member: str) -> WheelMember:
        (wheel,) = (self._index / normalized(project)).glob("*.whl")
        url = f"{self.url}/packages/{normalized(project)}/{wheel.name}"
        return WheelMember(url=url, sha256=sha256_of(wheel), member=member)

    # --- what goes wrong ---

    def arm(self, *faults: Fault | Deed) -> None:
        for fault in faults:
            if isinstance(fault, Expire | Replace | Vanish):
                self._do(fault)
            else:
                self._armed.add(fault)

    def disarm(self) -> None:
        self._armed.clear()

    @property
    def armed(self) -> tuple[Fault, ...]:
        return self._armed.waiting()

    def push(self, repo: str, contents: Mapping[str, bytes]) -> str:
        """A new commit, which `main` names from now on."""
        return self._repositories.push(repo, contents)

    def _do(self, deed: Deed) -> None:
        if isinstance(deed, Expire):
            self._key = secrets.token_bytes(32)
        elif isinstance(deed, Replace):
            self._repositories.replace(deed.repo, deed.path, deed.content)
        else:
            self._repositories.vanish(deed.repo, deed.revision)

    # --- what was seen ---

    @property
    def seen(self) -> tuple[Seen, ...]:
        return self._log.snapshot()

    def forget(self) -> None:
        self._log.forget()

    def wait(
        self, predicate: Callable[[tuple[Seen, ...]], bool], within_s: float = 20
    ) -> tuple[Seen, ...]:
        """The log, once it satisfies `predicate`. AssertionError if it does not in time."""
        assert self._log.wait(predicate, within_s), f"not within {within_s} s: {self.seen}"
        return self.seen

    # --- routing ---

    def _route(self, request: Request) -> Answer:
        if request.path in {"/_fault", "/_log", "/_armed"}:
            return self._control(request)
        for dialect in (
            others.modelscope,
            others.plain_folder,
            others.python_index,
            huggingface.answer,
        ):
            if (answer := dialect(self._shelf, request)) is not None:
                return answer
        return in_json({"error": "not found"}, HTTPStatus.NOT_FOUND)

    def _control(self, request: Request) -> Answer:
        if request.path == "/_log":
            if request.method == "DELETE":
                self.forget()
            return in_json([asdict(seen) for seen in self.seen])
        if request.method == "POST":
            try:
                faults = read_faults(request.body)
            except ValueError as error:
                return in_json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
            if not faults:
                self.disarm()
            self.arm(*faults)
        return in_json([fault.model_dump(mode="json") for fault in self.armed])

    def _sign(self, origin: str, repo: str, path: str, revision: str) -> str:
        host = origin.rpartition(":")[0]
        where = f"/cdn/{repo}/{revision}/{path}"
        expires = f"{time.time() + self._ttl_s:.3f}"
        query = urlencode({"Expires": expires, "Signature": self._signature(where, expires)})
        return f"{host}:{self._doors[1].port}{quote(where)}?{query}"

    def _signature(self, where: str, expires: str) -> str:
        made = hmac.digest(self._key, f"{where}\n{expires}".encode(), hashlib.sha256)
        return base64.urlsafe_b64encode(made).decode()

    def _cdn(self, request: Request) -> Answer:
        found = _CDN.fullmatch(request.path)
        if found is None:
            return _xml(HTTPStatus.NOT_FOUND, "NoSuchKey")
        if "Authorization" in request.headers:
            return _xml(HTTPStatus.BAD_REQUEST, "Only one auth mechanism allowed")
        expires = request.query.get("Expires", "0")
        signature = request.query.get("Signature", "")
        genuine = hmac.compare_digest(signature, self._signature(request.path, expires))
        if not genuine or float(expires) < time.time():
            return _xml(HTTPStatus.FORBIDDEN, "Request has expired")
        try:
            blob = self._repositories.files(found["repo"], found["revision"])[found["path"]]
        except (Unknown, KeyError):
            return _xml(HTTPStatus.NOT_FOUND, "NoSuchKey")
        return Content(found["path"], blob.on_disk, blob.size_bytes, blob.etag)

    # --- one request ---

    def _serve(self, handler: Handler, request: Request, answer: Answer) -> None:
        entry = Entry(
            door=handler.door.kind,
            method=request.method,
            url=request.url,
            range=request.headers.get("Range"),
            authorized="Authorization" in request.headers,
            file=answer.file,
        )
        self._log.begin(entry)
        try:
            self._answer(handler, request, answer, entry)
        finally:
            self._log.end(entry)

    def _answer(self, handler: Handler, request: Request, answer: Answer, entry: Entry) -> None:
        span = Extent(HTTPStatus.OK, 0, 0)
        if isinstance(answer, Content):
            asked, if_range = request.headers.get("Range"), request.headers.get("If-Range")
            span = extent(asked, if_range, answer)
        faults = self._armed.take(
            Target(
                method=request.method,
                url_path=request.path,
                file=answer.file,
                span=(span.start, span.end) if isinstance(answer, Content) else None,
            )
        )
        entry.fault = ", ".join(fault.kind for fault in faults) or None
        match faults:
            case [EmptyReply() as fault]:
                self._fired(fault)
                handler.close_connection = True
                return
            case [Status() as fault]:
                self._fired(fault)
                headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
                answer = Plain(fault.code, headers, b"injected")
            case _:
                pass
        if isinstance(answer, Plain):
            entry.status = answer.status
            handler.send_plain(answer)
            return
        sending = prepare(answer, span, faults)
        entry.status, entry.start = sending.status, sending.start
        handler.send_head(sending.status, sending.headers)
        if request.method == "GET":
            self._send(handler, answer, sending, faults, entry)

    def _send(
        self,
        handler: Handler,
        content: Content,
        sending: Sending,
        faults: tuple[Fault, ...],
        entry: Entry,
    ) -> None:
        connection = handler.connection
        line = Line(
            connection, lambda count: self._log.sent(entry, count), self._closing, self._fired
        )
        for fault in faults:
            if not isinstance(fault, Reset | Fin | Stall):
                self._fired(fault)
        before = acknowledged_bytes(connection) + unsent_bytes(connection)
        try:
            with content.on_disk.open("rb") as file:
                goes_on = send(line, file, sending, faults)
        except ConnectionError:
            self._log.arrived(entry, max(0, acknowledged_bytes(connection) - before))
            raise
        handler.close_connection |= not goes_on

    def _fired(self, fault: Fault) -> None:
        if fault.then is not None:
            self._do(fault.then)


def _xml(status: int, message: str) -> Plain:
    body = f"<Error><Code>{HTTPStatus(status).phrase}</Code><Message>{message}</Message></Error>"
    return Plain(status, {"Content-Type": "application/xml"}, body.encode())
