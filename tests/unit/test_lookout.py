"""What the lookout makes of what Docker shows, where no Docker is needed."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests
from docker.errors import APIError

from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.errors import DockerUnavailable
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
