"""What an engine says in its own refusals, whichever of the known shapes it uses."""

import orjson


def words_of(body: bytes) -> str | None:
    """OpenAI's `error.message`, an older `message`, FastAPI's `detail`; None where there is none."""
    try:
        said = orjson.loads(body)
        found = said.get("error", said.get("message", said.get("detail")))
        found = found.get("message") if isinstance(found, dict) else found
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) and found else None
