"""From nothing to a reply, and what a user sees on the way."""

import json
from collections.abc import Callable

from e2e.scenario import PARIS, Appliance


def test_a_reply_comes_through_the_gateway_streamed_and_not(appliance: Appliance) -> None:
    whole = appliance.ask()
    assert whole.json()["choices"][0]["message"]["content"] == PARIS
    streamed = appliance.ask(stream=True)
    events = [line[6:] for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    deltas = [json.loads(event)["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == PARIS


def test_a_second_up_does_nothing_and_says_so(appliance: Appliance) -> None:
    def started() -> dict[str, str]:
        found = {name: appliance.container(name) for name in ("inference", "gateway", "webui")}
        return {name: c.attrs["State"]["StartedAt"] for name, c in found.items() if c}

    before = started()
    again = appliance.up()
    assert "Nothing to do" in again.stdout
    assert started() == before


def test_up_by_compose_alone_finds_the_stack_as_it_is(appliance: Appliance) -> None:
    before = {name: appliance.container(name) for name in ("inference", "gateway", "webui")}
    alone = appliance.compose("up", "--detach", "--wait")
    assert alone.returncode == 0, alone.stderr
    for name, container in before.items():
        now = appliance.container(name)
        assert container is not None
        assert now is not None
        assert now.id == container.id


def test_compose_alone_brings_the_same_stack_up(new_appliance: Callable[..., Appliance]) -> None:
    fresh = new_appliance()
    fresh.up()
    fresh.run("down")
    alone = fresh.compose("up", "--detach", "--wait")
    assert alone.returncode == 0, alone.stderr
    assert fresh.ask().json()["choices"][0]["message"]["content"] == PARIS
    assert "Nothing to do" in fresh.up().stdout
