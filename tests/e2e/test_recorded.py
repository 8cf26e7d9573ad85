"""The engine in its container still answers as it was recorded for the gateway's tests."""

import pytest

from e2e.scenario import Appliance
from recording.llamacpp import recorded_of
from recording.recorded import kept


@pytest.mark.long
def test_llamacpp_answers_as_it_was_recorded(appliance: Appliance) -> None:
    now, then = recorded_of(appliance), kept()["llamacpp"]
    assert now.engine.version == then.engine.version, "record it anew: tests/recording/README.md"
    for name, spoken in then.answers.items():
        assert now.answers[name].without_chance() == spoken.without_chance(), name
    assert now.next.without_chance() == then.next.without_chance()
    assert not now.second_waited
