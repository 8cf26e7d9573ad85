"""What is wrong with a profile, in the words of who writes one: a line for each, with what is allowed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic_core import ErrorDetails

from orchestrator.core.schema import description_at, keys_at

Place = tuple[str | int, ...]

NO_SUCH_KEY = "there is no such key"
KINDS = "'huggingface', 'modelscope', 'http', 'folder' or 'wheel'"
# pydantic's type of a problem, and the name of the bound in its context -> in our words
BOUNDS = {
    "greater_than_equal": ("ge", "too small: at least"),
    "greater_than": ("gt", "too small: more than"),
    "less_than_equal": ("le", "too large: at most"),
    "less_than": ("lt", "too large: less than"),
}
FORMS = {
    "repo": "OWNER/NAME",
    "name": "a-z, 0-9, '.', '_' and '-', a letter or a digit first",
    "url": "http://HOST/FOLDER or https://HOST/FOLDER",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """`place`: keys and numbers that lead to it; () is the profile itself."""

    place: Place
    what: str

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(map(str, self.place)), self.what)))


def mistakes(problems: Sequence[ErrorDetails]) -> tuple[Mistake, ...]:
    """Each once: a misspelt key is not missing as well, and a table's missing keys are one mistake."""
    missing: dict[Place, list[str]] = {}
    for problem in problems:
        *table, key = _place(problem)
        if problem["type"] == "missing" and isinstance(key, str):
            missing.setdefault(tuple(table), []).append(key)
    found = [mistake for problem in problems if (mistake := _mistake(problem, missing)) is not None]
    lacking = (
        Mistake(table, f"missing: {', '.join(keys)}") for table, keys in missing.items() if keys
    )
    return (*found, *lacking)


def _place(problem: ErrorDetails) -> Place:
    """Pydantic puts a source's kind into the place of its fields; the file has no such level."""
    place = problem.get("ctx", {}).get("place", problem["loc"])
    if len(place) > 2 and place[0] == "sources":  # noqa: PLR2004 - sources, number, kind
        return (*place[:2], *place[3:])
    return tuple(place)


def _mistake(problem: ErrorDetails, missing: Mapping[Place, list[str]]) -> Mistake | None:
    place, kind = _place(problem), problem["type"]
    if kind == "extra_forbidden":
        return _misspelt(place, missing)
    if kind in {"union_tag_not_found", "union_tag_invalid"}:
        return _kind_of_source(place, problem)
    pair = isinstance(place[-1] if place else None, int) and kind == "missing"
    if kind == "missing" and not pair:
        return None
    if kind == "too_short" and problem["input"]:  # its items are what is wrong
        return None
    place = place[:-1] if pair else place
    return Mistake(place, _what(problem, place))


def _misspelt(place: Place, missing: Mapping[Place, list[str]]) -> Mistake:
    *table, key = place
    lacking = missing.get(tuple(table), [])
    for candidates in (lacking, sorted(keys_at(table))):
        if near := get_close_matches(str(key), candidates, n=1):
            if near[0] in lacking:
                lacking.remove(near[0])
            return Mistake(place, f"{NO_SUCH_KEY}; did you mean {near[0]!r}?")
    return Mistake(place, f"{NO_SUCH_KEY}: {', '.join(sorted(keys_at(table)))}")


def _kind_of_source(place: Place, problem: ErrorDetails) -> Mistake:
    given = problem["input"]
    if not isinstance(given, Mapping):
        return Mistake(place, "it must be a table [[sources]]")
    if "kind" in given:
        return Mistake((*place, "kind"), f"{given['kind']!r} is none of {KINDS}")
    if near := get_close_matches("kind", map(str, given), n=1):
        return Mistake((*place, near[0]), f"{NO_SUCH_KEY}; did you mean 'kind'?")
    return Mistake((*place, "kind"), f"it is missing: one of {KINDS}")


def _what(problem: ErrorDetails, place: Place) -> str:
    kind, given, context = problem["type"], problem["input"], problem.get("ctx", {})
    if kind in BOUNDS:
        name, words = BOUNDS[kind]
        return f"{given} is {words} {context[name]}"
    if kind in {"enum", "literal_error"}:
        return f"{given!r} is none of {context['expected']}"
    if kind == "string_pattern_mismatch":
        return f"{given!r} is not of the form {FORMS.get(str(place[-1]), context['pattern'])}"
    if kind == "too_short":
        return "it is empty: at least one is needed"
    if (words := next(_wrong_kind(kind), "")) != "":
        meaning = description_at(place)
        return f"{words} ({meaning})" if meaning else words
    return problem["msg"].removeprefix("Value error, ")


def _wrong_kind(kind: str) -> Iterator[str]:
    if kind == "string_too_short":
        yield "it is empty"
    elif kind in {"missing", "too_long"}:
        yield "it must be a list of two numbers"
    elif kind.startswith("int"):
        yield "it must be a whole number without quotes"
    elif kind.startswith("float"):
        yield "it must be a number without quotes"
    elif kind in {"string_type", "path_type"}:
        yield "it must be text in quotes"
    elif kind in {"tuple_type", "frozen_set_type", "list_type"}:
        yield "it must be a list in brackets"
    elif kind in {"model_type", "model_attributes_type", "dict_type"}:
        yield "it must be a table"
