"""What the fields of a request may hold: refused by `check`, told to clients by `schema`.

Null is what many clients send for "not given", and means that here. What is not named passes, but
for fields that are closed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import Refused
from gateway.request_errors import invalid_value, missing, unknown, unsupported


@dataclass(frozen=True, slots=True)
class Kind:
    says: str
    schema: Mapping[str, Any]
    holds: Callable[[Any], bool]
    fields: "Fields | None" = None
    """Of an object whose fields are checked, each under its own name."""


def _is(*types: type) -> Callable[[Any], bool]:
    """JSON's true and false are no numbers, whatever Python thinks."""
    return lambda value: isinstance(value, types) and (bool in types or not isinstance(value, bool))


def whole_number(at_least: int | None = None, at_most: int | None = None) -> Kind:
    said = [
        *([] if at_least is None else [f"at least {at_least}"]),
        *([] if at_most is None else [f"at most {at_most}"]),
    ]
    return Kind(
        "a whole number" + (f" of {' and '.join(said)}" if said else ""),
        {
            "type": "integer",
            **({} if at_least is None else {"minimum": at_least}),
            **({} if at_most is None else {"maximum": at_most}),
        },
        lambda value: (
            _is_whole(value)
            and (at_least is None or value >= at_least)
            and (at_most is None or value <= at_most)
        ),
    )


def _is_whole(value: Any) -> bool:
    """JSON knows one kind of number: 5.0 is whole."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, float) and value.is_integer()
    )


def just(*words: str) -> Kind:
    says = " or ".join(f"'{word}'" for word in words)
    return Kind(
        says, {"enum": list(words)}, lambda value: isinstance(value, str) and value in words
    )


def record(required: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None) -> Kind:
    """An object; what is not named passes, and null is what it was not given."""
    fields = Fields({**required, **(optional or {})}, tuple(required))
    return Kind(f"an object with {', '.join(required)}", fields.schema(), fields.hold)


def closed(kinds: Mapping[str, Kind], required: tuple[str, ...] = ()) -> Kind:
    """An object that holds nothing else than `kinds`."""
    fields = Fields(kinds, required, closed=True)
    return Kind("an object", fields.schema(), _is(dict), fields)


def list_of(kind: Kind, plural: str, at_most: int | None = None) -> Kind:
    return Kind(
        f"a list of {'' if at_most is None else f'at most {at_most} '}{plural}",
        {
            "type": "array",
            "items": kind.schema,
            **({} if at_most is None else {"maxItems": at_most}),
        },
        lambda value: (
            isinstance(value, list)
            and (at_most is None or len(value) <= at_most)
            and all(kind.holds(each) for each in value)
        ),
    )


def either(first: Kind, second: Kind) -> Kind:
    return Kind(
        f"{first.says} or {second.says}",
        {"anyOf": [first.schema, second.schema]},
        lambda value: first.holds(value) or second.holds(value),
    )


ANYTHING = Kind("anything", {}, lambda _: True)
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
    one_of: tuple[str, ...] = ()
    """At least one of these; the first is named where none is there."""
    closed: bool = False
    """What is named nowhere here is refused."""
    unused: Mapping[str, Kind] = field(default_factory=dict)
    """Accepted, and of no use here: `used` leaves it out."""
    lacking: tuple[str, ...] = ()
    """Known, and refused as what no engine here can do."""

    def check(self, parsed: Mapping[str, Any], within: str = "") -> None:
        """Refused by the name of the first field that does not hold; `within` begins that name."""
        if self.one_of and all(parsed.get(name) is None for name in self.one_of):
            raise Refused(missing(within + self.one_of[0]))
        for name in self.required:
            if parsed.get(name) is None:
                raise Refused(missing(within + name))
        # Of what the request has, not of all that it might: that is less by far.
        for name, value in parsed.items():
            kind = self.kinds.get(name) or self.unused.get(name)
            if kind is None:
                self._check_other(within + name, name, value)
            elif value is not None:
                if not kind.holds(value):
                    raise Refused(invalid_value(within + name, kind.says, value))
                if kind.fields is not None:
                    kind.fields.check(value, f"{within}{name}.")

    def _check_other(self, called: str, name: str, value: object) -> None:
        if name not in self.lacking:
            if self.closed:
                raise Refused(unknown(called))
        elif value is not None:
            raise Refused(unsupported(called))

    def used(self, parsed: Mapping[str, Any]) -> Mapping[str, Any]:
        """`parsed` itself where all of it is of use."""
        if self.unused.keys().isdisjoint(parsed):
            return parsed
        return {name: value for name, value in parsed.items() if name not in self.unused}

    def hold(self, value: Any) -> bool:
        return isinstance(value, dict) and all(
            kind.holds(value[name]) if value.get(name) is not None else name not in self.required
            for name, kind in self.kinds.items()
        )

    def schema(self) -> dict[str, Any]:
        properties = {
            name: kind.schema if name in self.required else _or_null(kind.schema)
            for name, kind in self.kinds.items()
        }
        unused = {
            name: {**_or_null(kind.schema), "description": _UNUSED}
            for name, kind in self.unused.items()
        }
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {**properties, **unused},
            "required": list(self.required),
        }
        if self.closed:
            schema["additionalProperties"] = False
        if self.one_of:
            schema["anyOf"] = [
                {"properties": {name: self.kinds[name].schema}, "required": [name]}
                for name in self.one_of
            ]
        return schema


_UNUSED = "Accepted, and has no effect: the engine does not get it."


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
