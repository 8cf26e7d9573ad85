"""Docker that does not answer: where it was looked for, what the system said, and what helps there."""

import pytest

from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.docker_errors import no_answer, root_of
from orchestrator.core.errors import DockerUnavailable


def test_a_docker_that_the_operator_named_is_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    named = "tcp://127.0.0.1:9"  # discard: nobody listens there
    monkeypatch.setenv("DOCKER_HOST", named)
    with pytest.raises(DockerUnavailable) as refused:
        EngineLookout("x")
    assert refused.value.why == f"{named}: Connection refused"
    assert "unset DOCKER_HOST" in refused.value.next_step
    assert "install.sh" not in refused.value.next_step


def test_the_usual_one_is_started_by_the_installer() -> None:
    error = no_answer("Connection refused", "")
    assert error.why == "/var/run/docker.sock: Connection refused"
    assert error.next_step.startswith("./install.sh --no-up")


def test_what_the_system_said_is_found_below_what_libraries_made_of_it() -> None:
    aborted = ConnectionError("Connection aborted.", "FileNotFoundError(2, ...)")
    aborted.__context__ = FileNotFoundError(2, "No such file or directory")
    told = RuntimeError("Error while fetching server API version: ...")
    told.__cause__ = aborted
    assert root_of(told) == "No such file or directory"
    assert root_of(RuntimeError("500 Server Error")) == "500 Server Error"
