"""kt-legacy's own serving layer over a model that recites: `python3 -m recording.recited`.

From the project's folder, in its environment of development: see README.md beside this. Writes
tests/fixtures/engines/kt-legacy-reciting.json.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kt_legacy_engine.model import Logits
from reciting import KEY, Reciter, serving
from recording.client import Door
from recording.record import record, today
from recording.recorded import KEPT, Engine, Recording

_CONTEXT_TOKENS = 1024
_REPLY = "Paris. 北京 🐼"


@dataclass
class Thoughtful(Reciter):
    """Takes a moment over each token, as models do: two clients can meet."""

    reply: str = _REPLY
    capacity: int = _CONTEXT_TOKENS

    def extend(self, tokens: Sequence[int]) -> Logits:
        time.sleep(0.002)
        return super().extend(tokens)


def recited() -> Recording:
    with serving(Thoughtful(), context_tokens=_CONTEXT_TOKENS) as engine:
        return record(
            Door(engine.url, KEY),
            Engine(
                name="kt-legacy",
                version="this project's serving layer",
                on="a model that recites, a token a byte",
                recorded=today(),
                model="tiny",
                context_tokens=_CONTEXT_TOKENS,
                slots=1,
            ),
        )


if __name__ == "__main__":
    (KEPT / "kt-legacy-reciting.json").write_text(recited().as_text(), encoding="utf-8")
