"""`python3 -m orchestrator.building`: what is refused before anything is fetched."""

import pytest

from orchestrator import building


@pytest.mark.parametrize("cards", [("8.6",), ("86,90",), ("86", "sm_90")])
def test_an_architecture_that_no_compiler_knows_is_refused_before_anything_is_fetched(
    cards: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "make", lambda *_: None)
    assert building.main("deepseek-r1-ud-iq1s", cards) == 2
    assert 'CARDS="86 90"' in capsys.readouterr().out


def test_architectures_are_written_as_compilers_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(building, "make", lambda steps, *_: made.extend(steps))
    monkeypatch.setattr(building, "EngineLookout", lambda _: None)
    monkeypatch.setattr(building, "engine_image_steps", lambda _, cards, *__: (cards,))
    assert building.main("deepseek-r1-ud-iq1s", ("86", "120a")) == 0
    assert made == ["86 120a"]
