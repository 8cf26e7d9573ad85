"""How `status` names what a container does."""

import pytest

from orchestrator.core.gates import Sighting
from orchestrator.reporting import _state_in_words


@pytest.mark.parametrize(
    ("service", "seen", "words"),
    [
        ("weights", Sighting(status="exited", exit_code=0), "done"),
        ("weights", Sighting(status="exited", exit_code=6), "exited with 6"),
        # Whoever is to run on is not done when it ends well.
        ("gateway", Sighting(status="exited", exit_code=0), "exited with 0"),
        ("gateway", Sighting(status="running", health="healthy"), "running, healthy"),
        ("inference", Sighting(status="restarting", restarts=3), "restarting, restarts: 3"),
        ("webui", Sighting(), "unknown"),
    ],
)
def test_a_state_is_told_in_words(service: str, seen: Sighting, words: str) -> None:
    assert _state_in_words(service, seen) == words
