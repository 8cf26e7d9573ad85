"""A container as Docker tells of it, as the gates see it."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from docker import DockerClient
from docker.errors import DockerException
from docker.models.containers import Container
from pydantic import TypeAdapter
from requests.exceptions import RequestException

from orchestrator.core.gates import EngineSays, Sighting

log = logging.getLogger(__name__)

_ENGINE_SAYS = TypeAdapter(EngineSays)
_ENGINE_SAYS_FIELDS = tuple(field.name for field in fields(EngineSays))
# Around the end, which is known to the second.
_BEFORE_S, _AFTER_S = 5, 2


def last_logs(container: Container, lines: int) -> bytes:
    """The last lines; of a container that was restarted, the last ones before that."""
    if not container.attrs["RestartCount"]:
        return container.logs(tail=lines)
    ended_at = moment(container.attrs["State"]["FinishedAt"]).replace(tzinfo=None)
    return container.logs(tail=lines, until=ended_at + timedelta(seconds=1))


def moment(text: str) -> datetime:
    """Docker's time stamp, UTC, to the second."""
    return datetime.fromisoformat(text[:19]).replace(tzinfo=timezone.utc)


def sighting(container: Container | None) -> Sighting:
    if container is None:
        return Sighting()
    state = container.attrs["State"]
    return Sighting(
        status=state["Status"],
        container_id=container.id,
        # Of a container that has ended, Docker says "unhealthy", whatever it ended with.
        health=state.get("Health", {}).get("Status") if state["Status"] == "running" else None,
        exit_code=state["ExitCode"],
        out_of_memory=state["OOMKilled"],
        restarts=container.attrs["RestartCount"],
        engine=_engine_says(state.get("Health", {})) if state["Status"] == "running" else None,
    )


def _engine_says(health: Mapping[str, Any]) -> EngineSays | None:
    """What the last healthcheck printed, where that is an engine's own account."""
    last: Mapping[str, Any] = next(reversed(health.get("Log") or ()), {})
    try:
        said = json.loads(last.get("Output", ""))
        return _ENGINE_SAYS.validate_python(
            {name: said[name] for name in _ENGINE_SAYS_FIELDS if said.get(name) is not None}
        )
    except (ValueError, TypeError, AttributeError):  # ValidationError is a ValueError
        return None


def deaths_of(container: Container, engine: DockerClient) -> Sequence[Mapping[str, Any]]:
    """Docker's events of its last end, of which it keeps the newest; () where it tells none."""
    ended_at = int(moment(container.attrs["State"]["FinishedAt"]).timestamp())
    span = {"since": ended_at - _BEFORE_S, "until": ended_at + _AFTER_S}
    wanted = {"container": container.id, "event": ["die", "oom"]}
    try:
        return tuple(engine.events(**span, filters=wanted, decode=True))
    except (DockerException, RequestException) as error:
        log.debug("no events of %s: %s", container.id, error)
        return ()


def as_it_died(seen: Sighting, deaths: Sequence[Mapping[str, Any]]) -> Sighting:
    """Of a container that Docker started again, which clears its exit code and OOMKilled."""
    for event in deaths:
        if event["Action"] == "oom":
            seen = replace(seen, last_line="out of memory")
        elif code := event["Actor"]["Attributes"].get("exitCode"):
            seen = replace(seen, exit_code=int(code))
    return seen
