"""A download in words, at the size it is made for: 9 files of 49 GB."""

import io
import json

from rich.console import Console

from orchestrator.console import _drawn
from orchestrator.core.events import GateChecked, as_record
from orchestrator.core.gates import GateResult, Verdict
from orchestrator.core.telling import duration, file_rows, in_one_line, stage
from wire.order import FileProgress, Phase, Progress

SHARD_BYTES = 49_527_312_640


def a_progress(shards: int = 9, have: int = 3, **changes: object) -> Progress:
    """The first `have` are verified, the next one is a third here."""
    files = tuple(
        FileProgress(
            path=f"DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-{n + 1:05d}-of-{shards:05d}.gguf",
            size_bytes=SHARD_BYTES,
            have_bytes=SHARD_BYTES if n < have else SHARD_BYTES // 3 if n == have else 0,
            verified=n < have,
        )
        for n in range(shards)
    )
    fields = {
        "phase": Phase.FETCHING,
        "done_bytes": sum(file.have_bytes for file in files),
        "total_bytes": shards * SHARD_BYTES,
        "rate": 112e6,
        "eta_s": 2500,
        "source": "huggingface",
        "note": "",
        "files": files,
        "written_at": 0,
    }
    return Progress.model_validate(fields | changes)


def test_one_line_says_how_much_how_fast_how_long_and_from_where() -> None:
    # 3 and a third of 9 shards of 49.527 GB: 165.1 of 445.7 GB, 37.03 %
    assert in_one_line(a_progress()) == (
        "fetching 165.1 of 445.7 GB (37.0 %), 112.0 MB/s, 41 min left, from huggingface"
    )


def test_what_is_not_known_is_not_said() -> None:
    paused = a_progress(phase=Phase.PAUSED, rate=0, eta_s=None, note="the disk is full")
    assert in_one_line(paused) == (
        "paused 165.1 of 445.7 GB (37.0 %), from huggingface; the disk is full"
    )


def test_a_hundred_percent_is_said_of_what_is_complete_alone() -> None:
    total = 9 * SHARD_BYTES
    assert "(99.9 %)" in in_one_line(a_progress(done_bytes=total - 1))
    assert "(100.0 %)" in in_one_line(a_progress(done_bytes=total))


def test_every_file_has_its_state() -> None:
    rows = file_rows(a_progress())
    assert len(rows) == 9
    assert rows[2][1:] == ("49.5 of 49.5 GB", "verified")
    assert rows[3][1:] == ("16.5 of 49.5 GB", "33.3 %")
    assert rows[4][2] == "waiting"


def test_of_many_files_those_under_way_are_shown_and_the_others_counted() -> None:
    rows = file_rows(a_progress(shards=163, have=100))
    assert len(rows) == 2
    assert "00101-of-00163" in rows[0][0]
    assert rows[1] == ("and 162 more", "100 of 163", "verified")


def test_nine_shards_fit_a_small_terminal() -> None:
    screen = io.StringIO()
    Console(file=screen, width=80, force_terminal=False).print(
        _drawn("weights", in_one_line(a_progress()), a_progress())
    )
    lines = screen.getvalue().rstrip().splitlines()
    assert len(lines) <= 9 + 3
    assert all(len(line) <= 80 for line in lines)
    assert any("33.3 %" in line for line in lines)


def test_the_stage_does_not_change_with_every_byte() -> None:
    assert stage(a_progress(done_bytes=1)) == stage(a_progress(done_bytes=2)) == "fetching"
    assert stage(a_progress(note="the disk is full")) == "fetching: the disk is full"


def test_progress_is_part_of_the_event_that_programs_get() -> None:
    event = GateChecked("weights", GateResult(Verdict.WAIT, "fetching"), 1.0, a_progress())
    record = json.loads(json.dumps(as_record(event)))
    assert record["progress"]["total_bytes"] == 9 * SHARD_BYTES
    assert record["progress"]["phase"] == "fetching"
    assert record["progress"]["files"][3]["have_bytes"] == SHARD_BYTES // 3


def test_durations_are_said_in_two_units_at_most() -> None:
    said = {s: duration(s) for s in (0, 59, 60, 3599, 3600, 90_000)}
    assert said == {
        0: "0 s",
        59: "59 s",
        60: "1 min",
        3599: "59 min",
        3600: "1 h 0 min",
        90_000: "1 d 1 h",
    }
