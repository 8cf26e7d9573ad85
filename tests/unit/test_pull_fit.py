"""`pull` judges by the files' own headers too, before it fetches what can't run here."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

import hosts
from fitting import tinyseek
from judged import shipped
from orchestrator import prepare
from orchestrator.choosing import Considered, first_advice
from orchestrator.core.advice import advise
from orchestrator.core.checks.finding import Severity
from orchestrator.core.errors import UnfitProfile
from orchestrator.core.inventory import Inventory
from orchestrator.core.recommend import Pick
from orchestrator.core.settings import Layer
from orchestrator.place import Place, settings_without_profile
from orchestrator.prepare import Need, prepare_pull

HOST = hosts.rtx4090_480gb_two_sockets()


class WentOn(Exception):
    """The fit was found good enough."""


def went_on(*_: object) -> NoReturn:
    raise WentOn


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Where the weights are known, and all is prepared but what comes after the judgement."""
    supply = SimpleNamespace(lock=None)
    weights = SimpleNamespace(supply=supply, at_work=False)
    monkeypatch.setattr(prepare, "_weights", lambda *_: weights)
    monkeypatch.setattr(prepare, "still_missing", lambda *_: 12_349_824)
    monkeypatch.setattr(prepare, "_base_system", went_on)
    return settings_without_profile(tmp_path, {})[2]


def pulls(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    inventory: Inventory | None,
    need: Need = Need.FETCH,
    forced: tuple[str, ...] = (),
) -> None:
    monkeypatch.setattr(prepare, "_inventory", lambda *_: inventory)
    demo = shipped("demo")
    considered = Considered(
        layers=(),
        pick=Pick(demo.name, ""),
        facts=HOST,
        advice=first_advice(demo, (), place, HOST),
    )
    lookout: Any = None
    prepare_pull(considered, place, lookout, need, forced)


def unreadable() -> Inventory:
    whole = tinyseek()
    return replace(whole, shape=replace(whole.shape, architecture="mamba9"))


def test_what_the_headers_say_can_not_be_read_is_not_fetched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnfitProfile, match="engine-reads"):
        pulls(place, monkeypatch, unreadable())


def test_what_can_be_read_or_is_not_known_or_is_forced_is_fetched(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for inventory, forced in (
        (tinyseek(), ()),
        (None, ()),
        (unreadable(), ("engine-reads",)),
    ):
        with pytest.raises(WentOn):
            pulls(place, monkeypatch, inventory, forced=forced)


@pytest.mark.parametrize("need", [Need.CHECK, Need.REPAIR])
def test_to_look_at_what_is_here_asks_for_no_fit(
    place: Place, monkeypatch: pytest.MonkeyPatch, need: Need
) -> None:
    with pytest.raises(WentOn):
        pulls(place, monkeypatch, unreadable(), need)


@pytest.mark.parametrize(
    ("tokens", "severity"), [(4096, Severity.OK), (4097, Severity.WARN), (131_072, Severity.WARN)]
)
def test_a_context_beyond_what_the_model_was_trained_with_is_warned_of(
    tokens: int, severity: Severity
) -> None:
    """TinySeek's files say 4096: tests/unit/test_inventory.py."""
    layer = Layer(values={"context_tokens": tokens}, origins={"context_tokens": "a test"})
    advice = advise(shipped("demo"), (layer,), HOST, tinyseek(), 0)
    finding = next(found for found in advice.findings if found.check == "context")
    assert finding.severity is severity
    if severity is Severity.WARN:
        assert (finding.found, finding.needed) == (f"{tokens:,} tokens", "<= 4,096")
        assert finding.fix == "export ORCH_CONTEXT_TOKENS=4096"
        assert finding.undo == f"export ORCH_CONTEXT_TOKENS={tokens}"
