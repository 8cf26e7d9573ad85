"""What the lookout makes of what Docker shows, where no Docker is needed."""

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import requests
from docker.errors import APIError

from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.errors import DockerUnavailable
from orchestrator.core.gates import EngineSays, Generates, Healthy
from orchestrator.core.telling import gist
from wire.numa import PageReport
from wire.order import PROGRESS_NAME, FileProgress, Phase, Progress

BEGAN = "2026-11-30T12:00:00.5Z"
BEGAN_AT = 1796040000.0  # date -u -d 2026-11-30T12:00:00 +%s


@pytest.mark.parametrize(
    ("status", "said_at", "is_told"),
    [
        ("running", BEGAN_AT + 1, True),
        ("running", BEGAN_AT - 1, False),
        ("exited", BEGAN_AT + 1, False),
    ],
)
def test_what_an_earlier_job_said_is_not_taken_for_this_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, said_at: float, is_told: bool
) -> None:
    file = FileProgress(path="m.gguf", size_bytes=2, have_bytes=1, verified=False)
    said = Progress(
        phase=Phase.FETCHING,
        done_bytes=1,
        total_bytes=2,
        rate=1.0,
        eta_s=1.0,
        source="hub",
        note="",
        files=(file,),
        written_at=said_at,
    )
    (tmp_path / PROGRESS_NAME).write_text(said.model_dump_json())
    container = SimpleNamespace(status=status, attrs={"State": {"StartedAt": BEGAN}})
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(lookout, "_find", lambda _service: container)
    assert (lookout.job_progress("weights", tmp_path) is not None) is is_told


# --- the engine's memory ---

REPORT = PageReport(own_bytes={0: 4096}, may_set_policy=True)


def engine_that(
    monkeypatch: pytest.MonkeyPatch,
    run: Callable[[], tuple[int, bytes | None]],
    status: str = "running",
) -> EngineLookout:
    """A lookout on an inference container in which a command ends as `run` says."""

    def exec_run(command: list[str], *, demux: bool) -> SimpleNamespace:
        assert (command, demux) == (["python3", "-m", "placing.report"], True)
        code, out = run()
        return SimpleNamespace(exit_code=code, output=(out, None))

    container = SimpleNamespace(status=status, exec_run=exec_run)
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(
        lookout, "_find", lambda service: container if service == "inference" else None
    )
    return lookout


def refusing(status: int) -> Callable[[], tuple[int, bytes]]:
    response = requests.Response()
    response.status_code = status

    def run() -> tuple[int, bytes]:
        raise APIError("refused", response)

    return run


def test_the_engines_container_says_where_its_memory_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    lookout = engine_that(monkeypatch, lambda: (0, REPORT.model_dump_json().encode()))
    assert lookout.page_report() == REPORT


@pytest.mark.parametrize(
    ("run", "status"),
    [
        pytest.param(lambda: pytest.fail("asked"), "exited", id="it has ended"),
        pytest.param(lambda: (1, None), "running", id="an image without this program"),
        pytest.param(lambda: (0, b'{"shards": 1}'), "running", id="an answer of another kind"),
        pytest.param(refusing(404), "running", id="removed since"),
        pytest.param(refusing(409), "running", id="stopped since"),
    ],
)
def test_an_engine_that_says_nothing_of_its_memory_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], tuple[int, bytes | None]], status: str
) -> None:
    assert engine_that(monkeypatch, run, status).page_report() is None


def test_a_daemon_that_fails_is_not_taken_for_an_engine_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DockerUnavailable):
        engine_that(monkeypatch, refusing(500)).page_report()


def test_without_a_container_there_is_no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(lookout, "_find", lambda _: None)
    assert lookout.page_report() is None


@pytest.mark.parametrize(
    ("counted", "held"),
    [
        ({"anon": 100, "shmem": 5, "file": 9000, "kernel": 1}, 105),  # cgroup v2
        ({"rss": 100, "shmem": 5, "cache": 9000}, 105),  # cgroup v1
        ({}, 0),
    ],
)
def test_the_engine_holds_what_the_kernel_does_not_count_as_available(
    monkeypatch: pytest.MonkeyPatch, counted: dict[str, int], held: int
) -> None:
    """Its mapped weights are page cache, which is available already; its limit is no amount at all."""

    def stats(*, stream: bool, one_shot: bool) -> dict[str, object]:
        assert (stream, one_shot) == (False, True)
        return {"memory_stats": {"usage": 9999, "limit": 10**12, "stats": counted}}

    container = SimpleNamespace(status="running", stats=stats)
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(lookout, "_find", lambda _service: container)
    assert lookout.memory_held("inference") == held


# --- how far an engine is, its cards, and patience with its replies

LOADING = {
    "status": "loading",
    "about": ["CPU kernels: avx2"],
    "loaded_bytes": 5,
    "total_bytes": 10,
    "read_bytes": None,
    "elapsed_s": 3.0,
    "eta_s": 3.0,
}


def died(exit_code: str) -> dict[str, Any]:
    return {"Action": "die", "Actor": {"Attributes": {"exitCode": exit_code}}}


def a_container(outputs: list[str], status: str = "running") -> SimpleNamespace:
    health = {"Status": "starting", "Log": [{"Output": output} for output in outputs]}
    state = {"Status": status, "Health": health, "ExitCode": 0, "OOMKilled": False}
    return SimpleNamespace(
        id="i1", status=status, attrs={"State": state, "RestartCount": 0}, top=dict
    )


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        (
            ["old", json.dumps(LOADING) + "\n"],
            EngineSays(
                status="loading",
                loaded_bytes=5,
                total_bytes=10,
                eta_s=3.0,
                about=("CPU kernels: avx2",),
            ),
        ),
        ([json.dumps({"status": "ok", "about": []})], EngineSays(status="ok")),
        # llama.cpp's healthcheck, one that could not ask, and what is nobody's.
        (["/health: 503"], None),
        ([""], None),
        (["[]"], None),
        (['{"status": {}}'], None),
        (["{}"], None),
        ([], None),
    ],
)
def test_an_engines_own_account_is_what_its_last_healthcheck_printed(
    monkeypatch: pytest.MonkeyPatch, outputs: list[str], says: EngineSays | None
) -> None:
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(lookout, "_find", lambda _service: a_container(outputs))
    assert lookout.look(Healthy("inference")).engine == says


@pytest.mark.parametrize(
    ("told", "exit_code", "last_line"),
    [
        (
            [{"Action": "oom", "Actor": {"Attributes": {}}}, died("137")],
            137,
            "out of memory",
        ),
        ([died("3")], 3, "loading 40 %"),
        ([], 0, "loading 40 %"),  # so long ago that Docker has forgotten it
        (None, 0, "loading 40 %"),
    ],
)
def test_how_a_container_ended_is_known_although_docker_started_it_again(
    monkeypatch: pytest.MonkeyPatch,
    told: list[dict[str, Any]] | None,
    exit_code: int,
    last_line: str,
) -> None:
    container = a_container([])
    container.attrs["RestartCount"] = 1
    container.attrs["State"]["FinishedAt"] = "2026-11-30T08:00:10.5Z"
    at = datetime(2026, 11, 30, 8, 0, 10, tzinfo=timezone.utc).timestamp()

    def events(**asked: Any) -> list[dict[str, Any]]:
        assert asked["filters"] == {"container": "i1", "event": ["die", "oom"]}
        assert asked["since"] < at < asked["until"]
        if told is None:
            raise requests.exceptions.ReadTimeout
        return told

    lookout = EngineLookout.__new__(EngineLookout)
    lookout._engine = SimpleNamespace(events=events)  # type: ignore[assignment]
    monkeypatch.setattr(lookout, "_find", lambda _service: container)
    monkeypatch.setattr(lookout, "tail", lambda _service: "loading 40 %\n")
    seen = lookout.look(Healthy("inference"))
    assert (seen.exit_code, seen.last_line) == (exit_code, last_line)


@pytest.mark.parametrize(
    ("listed", "pids"),
    [
        (
            {"Titles": ["UID", "PID", "CMD"], "Processes": [["1", "71", "a"], ["1", "72", "b"]]},
            {71, 72},
        ),
        ({"Titles": None, "Processes": None}, set()),
    ],
)
def test_the_engines_processes_are_known_by_the_hosts_numbers(
    monkeypatch: pytest.MonkeyPatch, listed: dict[str, Any], pids: set[int]
) -> None:
    container = a_container([])
    container.top = lambda: listed
    lookout = EngineLookout.__new__(EngineLookout)
    monkeypatch.setattr(lookout, "_find", lambda _service: container)
    assert lookout.pids_of("inference") == pids
    monkeypatch.setattr(lookout, "_find", lambda _service: None)
    assert lookout.pids_of("inference") == set()


def test_the_first_reply_has_a_patience_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def answer(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        event = json.dumps({"choices": [{"delta": {"content": "391"}}]})
        return httpx.Response(200, text=f"data: {event}\n\ndata: [DONE]\n\n")

    lookout = EngineLookout.__new__(EngineLookout)
    lookout._http = httpx.Client(transport=httpx.MockTransport(answer), timeout=5)
    lookout._api_key = ""
    monkeypatch.setattr(lookout, "_find", lambda _service: a_container([]))
    gate = Generates(
        service="inference",
        url="http://gateway/v1/chat/completions",
        model="m",
        prompt="?",
        expected="391",
        max_tokens=8,
        times=2,
        first_within_s=1200,
        next_within_s=300,
    )
    seen = lookout.look(gate)
    assert [reply.text for reply in seen.replies] == ["391", "391"]
    assert waits == [1200, 300]


def test_of_several_errors_the_last_with_a_reason_is_what_happened() -> None:
    # As on an H200 whose cards were hidden: /health of two processes.
    said = """error: an earlier start
why: of another reason
CPU kernels: bf16
error: the engine does not start: there is no GPU that it can use
why: No CUDA GPUs are available
next: python3 -m orchestrator doctor (it says what the driver lacks)
error: the process with the model ended while it loaded it
error: the engine ended by itself with exit code 3
"""
    assert gist(said) == (
        "the engine does not start: there is no GPU that it can use: No CUDA GPUs are available"
    )
    assert gist("a\nerror: b\nerror: c") == "c"
    assert gist("a\nb") == "b"
    # As torch ends what it says of CUDA.
    assert gist("RuntimeError: CUDA error: out of memory\n\n") == (
        "RuntimeError: CUDA error: out of memory"
    )
