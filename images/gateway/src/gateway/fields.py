"""What the fields of a request may hold: refused by `check`, told to clients by `schema`.

Null is what many clients send for "not given", and means that here. What is not named passes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.errors import Refused
from gateway.request_errors import invalid_value, missing


@dataclass(frozen=True, slots=True)
class Kind:
    says: str
    schema: Mapping[str, Any]
    holds: Callable[[Any], bool]


def _is(*types: type) -> Callable[[Any], bool]:
    """JSON's true and false are no numbers, whatever Python thinks."""
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def whole_number(at_least: int | None = None) -> Kind:
    bound = "" if at_least is None else f" of at least {at_least}"
    schema = {"type": "integer"} if at_least is None else {"type": "integer", "minimum": at_least}
    is_whole = _is(int)
    return Kind(
        f"a whole number{bound}",
        schema,
        lambda value: is_whole(value) and (at_least is None or value >= at_least),
    )


def list_of(kind: Kind, plural: str) -> Kind:
    return Kind(
        f"a list of {plural}",
        {"type": "array", "items": kind.schema},
        lambda value: isinstance(value, list) and all(kind.holds(each) for each in value),
    )


def either(first: Kind, second: Kind) -> Kind:
    return Kind(
        f"{first.says} or {second.says}",
        {"anyOf": [first.schema, second.schema]},
        lambda value: first.holds(value) or second.holds(value),
    )


TEXT = Kind("a text", {"type": "string"}, _is(str))
FLAG = Kind("true or false", {"type": "boolean"}, _is(bool))
NUMBER = Kind("a number", {"type": "number"}, _is(int, float))
OBJECT = Kind("an object", {"type": "object"}, _is(dict))
OBJECTS = list_of(OBJECT, "objects")
TEXT_OR_TEXTS = either(TEXT, list_of(TEXT, "texts"))
TEXT_OR_OBJECT = either(TEXT, OBJECT)
TEXT_OR_OBJECTS = either(TEXT, OBJECTS)
MESSAGES = list_of(
    Kind(
        "an object with a role",
        {"type": "object", "properties": {"role": {"type": "string"}}, "required": ["role"]},
        lambda value: isinstance(value, dict) and isinstance(value.get("role"), str),
    ),
    "objects, each with a role",
)


@dataclass(frozen=True, slots=True)
class Fields:
    kinds: Mapping[str, Kind]
    required: tuple[str, ...] = ()

    def check(self, parsed: Mapping[str, Any]) -> None:
        for name in self.required:
            if parsed.get(name) is None:
                raise Refused(missing(name))
        for name, kind in self.kinds.items():
            value = parsed.get(name)
            if value is not None and not kind.holds(value):
                raise Refused(invalid_value(name, kind.says, value))

    def schema(self) -> dict[str, Any]:
        properties = {
            name: kind.schema if name in self.required else _or_null(kind.schema)
            for name, kind in self.kinds.items()
        }
        return {"type": "object", "properties": properties, "required": list(self.required)}


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
