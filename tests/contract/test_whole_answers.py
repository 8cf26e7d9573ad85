"""What the gateway puts together of kt-legacy's stream is kt-legacy's own whole answer."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from images.gateway.tests.support import Gateway, environment, running_gateway
from reciting import CHAT, COMPLETIONS, KEY, Engine, Reciter, serving

TALK = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with serving(Reciter("Paris. 北京 🐼")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("keys")
    (folder / "kt").write_text(KEY)
    env = environment(folder, engine.url) | {"UPSTREAM_KEY_FILE": str(folder / "kt")}
    with running_gateway(env) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CHAT, {"messages": TALK}),
        (CHAT, {"messages": TALK, "max_tokens": 3}),
        (CHAT, {"messages": TALK, "logprobs": True, "top_logprobs": 2}),
        (COMPLETIONS, {"prompt": "Say|"}),
        (COMPLETIONS, {"prompt": "Say|", "logprobs": 1, "max_tokens": 4}),
    ],
)
def test_a_whole_answer_is_the_engines_own(
    engine: Engine, gateway: Gateway, path: str, asked: dict[str, Any]
) -> None:
    body = {"model": "tiny", "temperature": 0, **asked}
    # Of a prompt that it knows by then it says that: so both ask for one that it knows.
    engine.post(path, **body)
    theirs = engine.post(path, **body).json()
    ours = gateway.ask("POST", path, json.dumps(body).encode()).json()
    assert ours.keys() == theirs.keys()
    assert ours | {"id": "", "created": 0} == theirs | {"id": "", "created": 0}
