"""The journal: what is kept, and the story it tells."""

import json
from pathlib import Path

from orchestrator.adapters.files import JournalFile
from orchestrator.core.events import ActionProgressed, GateChecked, StepGaveUp, StepPassed
from orchestrator.core.gates import GateResult, Verdict
from orchestrator.core.journal import Failure, Story, story_of

WAITING = GateResult(Verdict.WAIT, "starting")


def test_a_run_is_told_with_its_failed_attempt_and_last_words(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.jsonl")
    journal.append({"event": "RunStarted", "command": "up", "profile": "demo"})
    journal.record(StepGaveUp("inference", 1, "exit 137, killed", "its last words"))
    journal.record(StepPassed("inference", 2, "healthy"))
    journal.append({"event": "RunEnded", "exit_code": 0})
    story = story_of(journal.records())
    assert (story.command, story.profile) == ("up", "demo")
    assert story.failures == (Failure("inference", 1, "exit 137, killed", "its last words"),)
    assert story.proven == ("inference",)
    assert story.ended is not None
    assert story.ended["exit_code"] == 0


def test_only_the_last_run_is_told(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.jsonl")
    for profile in ("demo", "demo-q5"):
        journal.append({"event": "RunStarted", "command": "up", "profile": profile})
        journal.record(StepPassed(f"step of {profile}", 1, "healthy"))
    story = story_of(journal.records())
    assert (story.profile, story.proven) == ("demo-q5", ("step of demo-q5",))
    assert story.ended is None


def test_a_thousand_looks_with_one_answer_are_one_record(tmp_path: Path) -> None:
    journal = JournalFile(tmp_path / "journal.jsonl")
    for second in range(1000):
        journal.record(GateChecked("inference", WAITING, float(second)))
        journal.record(ActionProgressed("inference", "a line"))
    journal.record(GateChecked("inference", GateResult(Verdict.OPEN, "healthy"), 1000.0))
    assert [record["result"]["reason"] for record in journal.records()] == ["starting", "healthy"]


def test_a_line_cut_by_a_power_failure_loses_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    JournalFile(path).append({"event": "RunStarted", "command": "up", "profile": "demo"})
    with path.open("a") as file:
        file.write('{"at": "2026-11-30T00:00:00", "event": "StepPa')
    assert story_of(JournalFile(path).records()).profile == "demo"


def test_records_are_stamped_json_lines_with_raw_unicode(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    JournalFile(path).append({"event": "RunEnded", "what": "中文"})
    assert "中文" in path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["at"].endswith("+00:00")


def test_no_journal_is_an_empty_story(tmp_path: Path) -> None:
    assert story_of(JournalFile(tmp_path / "none.jsonl").records()) == Story()


def test_the_run_after_a_torn_line_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    JournalFile(path).append({"event": "RunStarted", "command": "up", "profile": "demo"})
    with path.open("a") as file:
        file.write('{"event": "StepPa')
    JournalFile(path).append({"event": "RunStarted", "command": "pull", "profile": "other"})
    story = story_of(JournalFile(path).records())
    assert (story.command, story.profile) == ("pull", "other")
