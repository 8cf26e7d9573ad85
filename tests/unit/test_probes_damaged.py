"""Outputs that were cut, lost a line or got a wrong sign: less is known then, and nothing is made up."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from orchestrator.core.facts import HostFacts
from orchestrator.core.probes.captures import NAMES, facts_of

HOSTS = Path(__file__).parents[1] / "fixtures" / "hosts"
FILES = sorted(path for path in HOSTS.glob("*/*") if path.name != "case.json")
SHORT = 1000
SIGNS = st.one_of(st.sampled_from("0123456789 \t\n\r:\uff1a|,.-+/%()[]\x1b\x00"), st.characters())


def numbers(value: object, place: str = "") -> Iterator[tuple[str, float]]:
    """Every amount in the facts, by its place; cards and nodes by their own number."""
    if isinstance(value, bool):
        return
    if isinstance(value, (int, float)):
        yield place, value
    elif isinstance(value, HostFacts):
        if value.node_count is not None:
            yield "node_count", value.node_count
        for field in ("cpu", "memory", "disk", "limits", "nodes", "gpus"):
            yield from numbers(getattr(value, field), field)
    elif isinstance(value, BaseModel):
        own = f"{place}{getattr(value, 'id', getattr(value, 'index', ''))}"
        for field in type(value).model_fields:
            yield from numbers(getattr(value, field), f"{own}.{field}")
    elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        for one in value:
            yield from numbers(one, place)


def never_larger(less: HostFacts, whole: HostFacts) -> None:
    most = dict(numbers(whole))
    larger = {
        place: (size, most[place])
        for place, size in numbers(less)
        if place in most and size > most[place]
    }
    assert not larger


def made_of(path: Path, text: str) -> HostFacts:
    others = {other.name: other.read_text(encoding="utf-8") for other in path.parent.glob("*.txt")}
    return facts_of(others | {path.name: text})


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name[:2]}-{path.name}")
def test_a_text_cut_anywhere_never_promises_more_than_the_whole(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    whole = facts_of({path.name: text})
    # Every place in short texts; in long ones every third, which meets each column in some row.
    for end in range(0, len(text), 1 if len(text) < SHORT else 3):
        less = facts_of({path.name: text[:end]})
        never_larger(less, whole)
        # A list of flags that goes on after the cut proves the absence of none.
        for flag in ("avx2", "avx512f", "amx_tile"):
            assert less.cpu.has(flag) in (None, whole.cpu.has(flag))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name[:2]}-{path.name}")
def test_a_text_without_one_of_its_lines_never_promises_more_than_the_whole(path: Path) -> None:
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = facts_of({path.name: "".join(rows)})
    for gone in range(len(rows)):
        never_larger(facts_of({path.name: "".join(rows[:gone] + rows[gone + 1 :])}), whole)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(FILES), st.data())
def test_wrong_signs_in_a_text_are_no_crash_and_facts_still_survive_json(
    path: Path, data: st.DataObject
) -> None:
    signs = list(path.read_text(encoding="utf-8"))
    places = st.integers(0, len(signs) - 1)
    for place, sign in data.draw(st.lists(st.tuples(places, SIGNS), max_size=8)):
        signs[place] = sign
    facts = made_of(path, "".join(signs))
    assert HostFacts.model_validate_json(facts.model_dump_json()) == facts
    assert all(size >= 0 for _, size in numbers(facts))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(NAMES), st.text(max_size=200))
def test_any_text_at_all_under_any_name_is_no_crash(name: str, text: str) -> None:
    facts_of({f"{name}.txt": text})


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["docker-info.json", "docker-version.json"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["Server", "Client", "Version", "ServerVersion", "Runtimes"])
                | st.sampled_from(
                    ["SecurityOptions", "ClientInfo", "Plugins", "Name", "CgroupVersion"]
                ),
                inner,
                max_size=5,
            )
        ),
    ),
)
def test_json_of_another_shape_is_no_crash(name: str, value: object) -> None:
    facts_of({name: json.dumps(value)})


@pytest.mark.parametrize(
    "strange",
    [str.upper, lambda text: text.replace("\n", "\r\n"), lambda text: text.replace("\n", " ")],
)
def test_texts_that_passed_through_other_systems_are_no_crash(
    strange: Callable[[str], str],
) -> None:
    for path in FILES:
        facts_of({path.name: strange(path.read_text(encoding="utf-8"))})
