"""What a profile may say, as JSON Schema: for editors, and to tell a misspelt key from a right one."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.core.profile import Profile

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def profile_schema() -> dict[str, Any]:
    return {"$schema": DIALECT, **Profile.model_json_schema(mode="validation")}


def schema_text() -> str:
    """The content of `configs/profile.schema.json`."""
    return json.dumps(profile_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def keys_at(place: Sequence[str | int]) -> frozenset[str]:
    """The keys that the table at `place` may have: `()` is the profile, `("sources", 0)` a source."""
    return frozenset(key for table in _tables_at(place) for key in table.get("properties", ()))


def description_at(place: Sequence[str | int]) -> str:
    """What the field at `place` is for; "" where nothing is written of it."""
    fields = [_inside(table, place[-1]) for table in _tables_at(place[:-1])] if place else []
    return next((str(field["description"]) for field in fields if "description" in field), "")


def _tables_at(place: Sequence[str | int]) -> list[dict[str, Any]]:
    schema = profile_schema()
    tables = [schema]
    for step in place:
        tables = [
            inner for table in tables for inner in _tables(_inside(table, step), schema["$defs"])
        ]
    return tables


def _inside(table: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    if isinstance(step, int):
        items: Mapping[str, Any] = table.get("items", {})
        return items
    found: Mapping[str, Any] = table.get("properties", {}).get(step, {})
    return found


def _tables(node: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The node itself, or what it refers to: one of several where there is a choice."""
    if "$ref" in node:
        yield from _tables(defs[node["$ref"].rsplit("/", 1)[-1]], defs)
        return
    choices = [*node.get("oneOf", ()), *node.get("anyOf", ())]
    for choice in choices:
        yield from _tables(choice, defs)
    if not choices:
        yield dict(node)
