"""What an engine says in its own refusals, whichever of the known shapes it uses."""

import re

import orjson

_OVERFLOWS = (
    # llama.cpp
    r"request \((?P<prompt>\d+) tokens\) exceeds the available context size \((?P<context>\d+) tokens\)",
    # kt-legacy
    r"prompt has (?P<prompt>\d+) tokens\. The context has (?P<context>\d+)",
    # sglang
    r"input \((?P<prompt>\d+) tokens\) is longer than the model's context length \((?P<context>\d+)",
    r"maximum context length of (?P<context>\d+) tokens\. You requested a total of (?P<prompt>\d+)",
)


def words_of(body: bytes) -> str | None:
    """OpenAI's `error.message`, an older `message`, FastAPI's `detail`; None where there is none."""
    try:
        said = orjson.loads(body)
        found = said.get("error", said.get("message", said.get("detail")))
        found = found.get("message") if isinstance(found, dict) else found
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) and found else None


def overflow_in(body: bytes) -> tuple[int, int] | None:
    """The prompt's tokens and the context's, where the engine refuses the one for the other."""
    words = words_of(body) or ""
    found = next(filter(None, (re.search(each, words) for each in _OVERFLOWS)), None)
    return None if found is None else (int(found["prompt"]), int(found["context"]))
