"""What the lookout makes of what Docker shows, where no Docker is needed."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.adapters.lookout import EngineLookout
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
