"""Facts that are saved on one host and read on another, and folders of captured outputs."""

import re
import socket
from pathlib import Path

import pytest

from orchestrator.adapters.host import (
    load_facts,
    read_host,
    read_machine,
    save_facts,
)
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.facts import Disk, HostFacts

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"


def test_saved_facts_are_read_back_and_name_no_user_and_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "rosalind")
    monkeypatch.setenv("HOME", "/srv/people/rosalind")
    monkeypatch.setattr(socket, "gethostname", lambda: "deep-thought.example.org")
    for path, shown in (
        ("/srv/people/rosalind/weights", "~/weights"),
        ("/home/rosalind/weights", "~/weights"),
        ("/home/another/weights", "~/weights"),
        ("/data/rosalind/deep-thought/weights", "/data/.../.../weights"),
        ("/data/weights", "/data/weights"),
    ):
        facts = read_machine().model_copy(update={"disk": Disk(path=path, free_bytes=1)})
        save_facts(tmp_path / "facts.json", facts)
        text = (tmp_path / "facts.json").read_text()
        assert not [word for word in ("rosalind", "another", "deep-thought") if word in text]
        assert load_facts(tmp_path / "facts.json", Path("weights")).facts == facts.model_copy(
            update={"disk": Disk(path=shown, free_bytes=1)}
        )


def test_saved_disks_name_no_user_either(tmp_path: Path) -> None:
    facts = HostFacts(disks=(Disk(path="/"), Disk(path="/home/rosalind")))
    save_facts(tmp_path / "facts.json", facts)
    assert "rosalind" not in (tmp_path / "facts.json").read_text()


def test_saved_facts_have_no_place_for_serial_numbers_addresses_or_ids(tmp_path: Path) -> None:
    save_facts(tmp_path / "facts.json", read_host(tmp_path, []))
    # Of fields alone: `serialize` is an instruction that some processors have.
    fields = re.findall(r'"(\w+)":', (tmp_path / "facts.json").read_text().lower())
    words = ("uuid", "serial", "mac", "address", "hostname", "user", "bus_id")
    assert fields
    assert not [name for name in fields if name.startswith(words) or name.endswith(words)]


def test_a_folder_of_captured_outputs_is_read_as_facts() -> None:
    facts = load_facts(HOSTS / "36-3090-125gib", Path("weights")).facts
    assert facts.cpu.threads == 16
    assert facts.gpus is not None
    assert facts.gpus[0].name == "NVIDIA GeForce RTX 3090"


@pytest.mark.parametrize(
    ("text", "why"),
    [('{"cpu": {"sockets": "many"}}', "cpu.sockets"), ('{"cpus": 1}', "cpus"), ("", "JSON")],
)
def test_a_file_of_something_else_is_refused_with_the_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "facts.json").write_text(text)
    with pytest.raises(BadConfiguration) as refusal:
        load_facts(tmp_path / "facts.json", Path("weights"))
    assert why in refusal.value.why


def test_a_folder_without_captures_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "holiday.txt").touch()
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(BadConfiguration) as refusal:
            load_facts(path, Path("weights"))
        assert refusal.value.exit_code == 2
    with pytest.raises(BadConfiguration):
        save_facts(tmp_path / "no" / "facts.json", HostFacts())
