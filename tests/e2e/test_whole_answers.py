"""What the gateway puts together of llama.cpp's stream is llama.cpp's own whole answer."""

import json
from typing import Any

import httpx
import pytest

from e2e.scenario import QUESTION, Appliance

ASK_ENGINE = """
import sys, urllib.request
key = open("/run/secrets/engine_api_key").read().strip()
headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
asked = urllib.request.Request("http://127.0.0.1:8000" + sys.argv[1], sys.argv[2].encode(), headers)
print(urllib.request.urlopen(asked, timeout=60).read().decode())
"""
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TALK = [{"role": "system", "content": "Answer."}, {"role": "user", "content": QUESTION}]
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORM = {"type": "json_schema", "json_schema": {"name": "number", "schema": NUMBER}}


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CHAT, {}),
        (CHAT, {"max_tokens": 3}),
        (CHAT, {"logprobs": True, "top_logprobs": 2}),
        (CHAT, {"n": 2}),
        (CHAT, {"stop": ["The"]}),
        (CHAT, {"response_format": FORM}),
        # It does not stream these together: they are asked for whole.
        (CHAT, {"tools": [TOOL], "logprobs": True}),
        (COMPLETIONS, {"prompt": "The capital of France", "logprobs": 2}),
        (COMPLETIONS, {"prompt": ["The capital", "Who is"], "n": 2}),
    ],
)
def test_a_whole_answer_is_the_engines_own(
    appliance: Appliance, path: str, asked: dict[str, Any]
) -> None:
    talk = {"messages": TALK} if path == CHAT else {}
    body = {"model": "local-model", "temperature": 0, "seed": 1, "max_tokens": 12, **talk, **asked}
    engine = appliance.container("inference")
    assert engine is not None
    ask = ["python3", "-c", ASK_ENGINE, path, json.dumps(body)]
    # The second one finds its prompt there from the last request, as the gateway's will.
    engine.exec_run(ask)
    found = engine.exec_run(ask)
    assert found.exit_code == 0, found.output
    assert isinstance(found.output, bytes)
    ours = httpx.post(
        appliance.gateway + path,
        json=body,
        headers={"Authorization": f"Bearer {appliance.secret('gateway_api_key')}"},
        timeout=60,
        trust_env=False,
    )
    assert ours.status_code == 200
    theirs = _less_its_own(json.loads(found.output))
    assert _less_its_own(ours.json()) == _about(theirs)


def _less_its_own(answer: dict[str, Any]) -> dict[str, Any]:
    """Without what is another for each answer; of several it is one's usage that llama.cpp tells."""
    own = ("id", "created", "timings", *(["usage"] if len(answer["choices"]) > 1 else []))
    assert answer.keys() > set(own)
    kept = {name: value for name, value in answer.items() if name not in own}
    if "usage" in kept:
        # How much of the prompt is still there depends on who asked last.
        del kept["usage"]["prompt_tokens_details"]
    for choice in kept["choices"]:
        if choice.get("logprobs"):
            # In the stream of a chat nothing is said of the token that ended it.
            said = choice["logprobs"]["content"]
            choice["logprobs"]["content"] = [each for each in said if each["token"]]
    return kept


def _about(answer: Any) -> Any:
    """Chances of tokens have other last digits when a prompt is there from the last request."""
    if isinstance(answer, dict):
        return {name: _about(value) for name, value in answer.items()}
    if isinstance(answer, list):
        return [_about(value) for value in answer]
    return pytest.approx(answer, abs=1e-3) if isinstance(answer, float) else answer
