"""Looks at the stack: through the Engine API, over HTTP, and at the receipt on disk."""

import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import docker
import httpx
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from pydantic import ValidationError
from requests.exceptions import RequestException
from typing_extensions import assert_never

from orchestrator.adapters.lookout.containers import (
    as_it_died,
    deaths_of,
    last_logs,
    moment,
    sighting,
)
from orchestrator.core.docker_errors import DOCKER_HOST, no_answer, root_of
from orchestrator.core.errors import DockerUnavailable
from orchestrator.core.gates import (
    Answers,
    Gate,
    Generates,
    Gone,
    Healthy,
    ImagePresent,
    Proven,
    Reply,
    Sighting,
)
from orchestrator.core.probes.nvidia_health import Ailment, Health
from orchestrator.core.telling import gist
from wire import Lock, discrepancies, read_receipt, stat_files
from wire.numa import PageReport
from wire.order import PROGRESS_NAME, Progress

log = logging.getLogger(__name__)

PING_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 60
# Ends by itself before this side stops waiting: see images/inference/placing.
PAGE_REPORT = ("python3", "-m", "placing.report")
ENDED = frozenset({404, 409})  # removed, or stopped, since it was found


class EngineLookout:
    def __init__(self, project: str) -> None:
        self._project = project
        self._http = httpx.Client(timeout=5, trust_env=False)
        with _docker_answers():
            self._engine = docker.from_env(timeout=PING_TIMEOUT_S)
            self._engine.ping()
            self._engine.api.timeout = ANSWER_TIMEOUT_S
        self._weights: tuple[Path, Lock] | None = None
        self._api_key = ""
        self._health: Callable[[], Health] | None = None

    def watch_weights(self, weights_dir: Path, lock: Lock) -> None:
        """What `Proven` is about."""
        self._weights = weights_dir, lock

    def use_api_key(self, key: str) -> None:
        """What `Generates` shows to the gateway."""
        self._api_key = key

    def watch_cards(self, health: Callable[[], Health]) -> None:
        """What `ailments` of the engine are asked of."""
        self._health = health

    def ailments(self, service: str) -> tuple[Ailment, ...]:
        if self._health is None or service != "inference":
            return ()
        return self._health().ailments

    def look(self, gate: Gate) -> Sighting:
        match gate:
            case ImagePresent(ref):
                return Sighting(image_present=self.has_image(ref))
            case Proven(service):
                last_line = gist(self.tail(service))
                seen = self._container(service)
                return replace(
                    seen,
                    unproven=self._unproven(),
                    last_line=last_line,
                    progress=self._progress(service),
                )
            case Healthy(service):
                return self._service(service)
            case Gone(service):
                return self._container(service)
            case Answers(service, url):
                status, trouble = self._ask(url)
                return replace(self._service(service), http_status=status, trouble=trouble)
            case Generates():
                replies, status, trouble = self._generate(gate)
                seen = self._service(gate.service)
                return replace(seen, replies=replies, http_status=status, trouble=trouble)
            case _:
                assert_never(gate)

    def tail(self, service: str, lines: int = 20) -> str:
        with _docker_answers():
            container = self._find(service)
            try:
                return "" if container is None else _text(last_logs(container, lines))
            except NotFound:  # removed since it was found
                return ""

    def has_image(self, ref: str) -> bool:
        with _docker_answers():
            try:
                self._engine.images.get(ref)
            except ImageNotFound:
                return False
            return True

    def registry_holds(self, ref: str) -> bool:
        """Does the registry of this reference answer the daemon, mirrors and proxies included?"""
        try:
            self._engine.images.get_registry_data(ref)
        except (APIError, RequestException) as error:
            log.debug("no registry for %s: %s", ref, error)
            return False
        return True

    def ours_listen_on(self) -> frozenset[int]:
        """Host ports that this project's own containers publish."""
        with _docker_answers():
            found = self._containers()
        ports = (entry for container in found for entry in container.ports.values() if entry)
        return frozenset(int(binding["HostPort"]) for entry in ports for binding in entry)

    def services(self) -> dict[str, tuple[Sighting, str, str]]:
        """Service -> its state, its image reference, its profile label."""
        with _docker_answers():
            found = self._containers()
        return {
            container.labels["com.docker.compose.service"]: (
                sighting(container),
                container.attrs["Config"]["Image"],
                container.labels.get("appliance.profile", ""),
            )
            for container in found
        }

    def is_running(self, service: str) -> bool:
        return self._container(service).status == "running"

    def memory_held(self, service: str) -> int:
        """Bytes that would be available again without the running service; 0 where it does not run.

        Not the files it maps: the kernel counts page cache as available already.
        """
        with _docker_answers():
            container = self._find(service)
            if container is None or container.status != "running":
                return 0
            try:
                seen = cast("dict[str, Any]", container.stats(stream=False, one_shot=True))
            except NotFound:  # removed since it was found
                return 0
        # Of cgroup v2, and of v1: there anonymous memory is called rss.
        counted = seen.get("memory_stats", {}).get("stats", {})
        return int(counted.get("anon", counted.get("rss", 0))) + int(counted.get("shmem", 0))

    def pids_of(self, service: str) -> frozenset[int]:
        """Its processes, by the host's numbers; empty where it does not run."""
        with _docker_answers():
            container = self._find(service)
            if container is None or container.status != "running":
                return frozenset()
            try:
                listed = container.top()
            except APIError as error:
                if error.status_code in ENDED:
                    return frozenset()
                raise
        column = (listed.get("Titles") or ["PID"]).index("PID")
        rows = cast("list[list[str]]", listed.get("Processes") or [])
        return frozenset(int(row[column]) for row in rows)

    def page_report(self) -> PageReport | None:
        """Where the engine's memory lies, as its container says.

        None: it is not running, or says nothing that can be understood.
        """
        with _docker_answers():
            container = self._find("inference")
            if container is None or container.status != "running":
                return None
            try:
                done = container.exec_run(list(PAGE_REPORT), demux=True)
            except APIError as error:
                if error.status_code in ENDED:
                    return None
                raise
        out, err = cast("tuple[bytes | None, bytes | None]", done.output)
        try:
            return PageReport.model_validate_json(out or b"")
        except ValidationError:
            log.debug("%s ended with %s: %s", PAGE_REPORT, done.exit_code, _text(err or b""))
            return None

    def _containers(self, service: str | None = None) -> list[Container]:
        labels: list[str] = [f"com.docker.compose.project={self._project}"]
        if service is not None:
            labels.append(f"com.docker.compose.service={service}")
        labels.append("com.docker.compose.oneoff=False")
        return self._engine.containers.list(
            all=True, filters={"label": labels}, ignore_removed=True
        )

    def _find(self, service: str) -> Container | None:
        return next(iter(self._containers(service)), None)

    def _container(self, service: str) -> Sighting:
        with _docker_answers():
            return sighting(self._find(service))

    def _service(self, service: str) -> Sighting:
        """A service that should run; one that has crashed is asked for its last line."""
        with _docker_answers():
            container = self._find(service)
        seen = sighting(container)
        if container is None or not (
            seen.restarts or seen.status in {"exited", "dead", "restarting"}
        ):
            return seen
        seen = replace(seen, last_line=gist(self.tail(service)))
        if seen.status != "running":
            return seen
        return as_it_died(seen, deaths_of(container, self._engine))

    def _unproven(self) -> tuple[str, ...] | None:
        if self._weights is None:
            return None
        weights_dir, lock = self._weights
        folder = weights_dir / lock.folder
        found = discrepancies(lock, read_receipt(folder), stat_files(folder, lock))
        return tuple(map(str, found))

    def _progress(self, service: str) -> Progress | None:
        if self._weights is None:
            return None
        weights_dir, lock = self._weights
        return self.job_progress(service, weights_dir / lock.folder)

    def job_progress(self, service: str, folder: Path) -> Progress | None:
        """What the running job says of itself; None where none runs, or it has said nothing yet.

        What an earlier job said last lies in the same place.
        """
        with _docker_answers():
            container = self._find(service)
        if container is None or container.status != "running":
            return None
        found = read_progress(folder)
        began = moment(container.attrs["State"]["StartedAt"])
        return found if found and found.written_at >= began.timestamp() else None

    def _ask(self, url: str) -> tuple[int | None, str]:
        try:
            response = self._http.get(url, timeout=5)
        except httpx.TransportError as error:
            log.debug("%s: %s", url, error)  # one of many ways not to be there yet
            return None, "no answer yet"
        return response.status_code, f"{response.status_code} {response.text[:200]}"

    def _generate(self, gate: Generates) -> tuple[tuple[Reply, ...], int | None, str]:
        """The replies until one fails, and the HTTP status and the trouble of that one."""
        replies: list[Reply] = []
        for number in range(gate.times):
            # A 671 B model may take minutes over a first prompt; a dead engine closes at once.
            within_s = gate.next_within_s if number else gate.first_within_s
            try:
                replies.append(self._reply(gate, within_s))
            except httpx.HTTPStatusError as error:
                said = _text(error.response.content)[:200]
                return tuple(replies), error.response.status_code, f"{error} {said}"
            except (httpx.HTTPError, ValueError) as error:
                return tuple(replies), None, str(error) or type(error).__name__
        return tuple(replies), None, ""

    def _reply(self, gate: Generates, within_s: float) -> Reply:
        body = {
            "model": gate.model,
            "messages": [{"role": "user", "content": gate.prompt}],
            "max_tokens": gate.max_tokens,
            "temperature": 0,
            "stream": True,
        }
        headers = {"Authorization": f"Bearer {self._api_key}"}
        asked = time.monotonic()
        first_token_s = 0.0
        text = ""
        patience = httpx.Timeout(5, read=within_s)
        with self._http.stream(
            "POST", gate.url, json=body, headers=headers, timeout=patience
        ) as response:
            if response.is_error:
                response.read()
                response.raise_for_status()
            for piece in _contents(response.iter_lines()):
                if piece and not text:
                    first_token_s = time.monotonic() - asked
                text += piece
        return Reply(text=text, first_token_s=first_token_s)


def read_progress(folder: Path) -> Progress | None:
    """What the weights job last said of itself; None where it has not yet."""
    try:
        return Progress.model_validate_json((folder / PROGRESS_NAME).read_bytes())
    except (OSError, ValidationError):
        return None


def _contents(lines: Iterator[str]) -> Iterator[str]:
    """The texts of a chat stream: `delta.content` and, for reasoning models, what comes before."""
    for line in lines:
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            raise ValueError(str(event["error"]))
        for choice in event.get("choices", ()):
            delta = choice.get("delta", {})
            yield delta.get("reasoning_content") or delta.get("content") or ""


@contextmanager
def _docker_answers() -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:
        if "PermissionError" in str(error):
            raise DockerUnavailable(
                "you may not use Docker",
                why="its socket is for root and the members of the group docker",
                next_step="sudo, or as root: usermod -aG docker YOU, then log in anew",
            ) from error
        raise no_answer(root_of(error), os.environ.get(DOCKER_HOST, "")) from error


def _text(content: bytes) -> str:
    return content.decode(errors="replace")
