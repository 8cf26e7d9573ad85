"""How long a prompt is, told by the engine that would read it, whatever else it does."""

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kt_legacy_engine.requests import read_tokenize
from kt_legacy_engine.tokenizing import FileTokenizer
from reciting import Engine, Reciter, an_asking, eventually

HF = Path(__file__).resolve().parents[4] / "tests/fixtures/tinyseek/hf"
TOKENIZE = "/tokenize"
HELLO = [{"role": "user", "content": "Hello"}]


def test_a_chat_has_as_many_tokens_as_its_reply_says(engine: Engine) -> None:
    told = engine.post(TOKENIZE, messages=HELLO).json()
    assert told == {"count": 8, "opens_thinking": False}
    assert engine.chat("Hello").json()["usage"]["prompt_tokens"] == told["count"]


def test_a_prompt_has_as_many_tokens_as_its_completion_says(engine: Engine) -> None:
    told = engine.post(TOKENIZE, prompt="Say|").json()
    assert told == {"count": 5, "opens_thinking": False}
    assert engine.complete("Say|").json()["usage"]["prompt_tokens"] == told["count"]


def test_it_needs_the_key_and_is_asked_by_post(engine: Engine) -> None:
    assert engine.post(TOKENIZE, key="wrong", messages=HELLO).status == 401
    assert engine.get(TOKENIZE).status == 405


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": []}, {"messages": HELLO, "prompt": "x"}, {"prompt": [1]},
     {"messages": [{"role": "tool", "content": "x"}]}],
)  # fmt: skip
def test_what_is_no_prompt_is_refused(engine: Engine, body: dict[str, Any]) -> None:
    answer = engine.post(TOKENIZE, **body)
    assert (answer.status, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_it_answers_while_a_reply_is_made_and_leaves_that_alone(
    engine: Engine, model: Reciter
) -> None:
    model.hold()
    with engine.leaving_client():
        model.calls.get(timeout=20)
        assert engine.post(TOKENIZE, messages=HELLO).json()["count"] == 8
        assert engine.metric("kt_running_requests") == 1
        assert model.seen() == []
    eventually(lambda: engine.desk._running is None or engine.desk._running.cancelled)


@pytest.mark.parametrize(("end", "opens"), [("<think>", True), ("<think>\n\n", True), ("", False)])
def test_a_template_that_opens_the_thinking_shows(tmp_path: Path, end: str, opens: bool) -> None:
    pytest.importorskip("tokenizers", reason="tokenizers are installed in the image alone")
    pytest.importorskip("jinja2", reason="jinja2 is installed in the image alone")
    shutil.copytree(HF, tmp_path / "hf")
    config = tmp_path / "hf/tokenizer_config.json"
    said = json.loads(config.read_bytes())
    config.write_text(json.dumps(said | {"chat_template": said["chat_template"] + end}))
    asking = replace(an_asking(), tokenizer=FileTokenizer(tmp_path / "hf", ""))

    def opens_after(content: str) -> bool:
        body = json.dumps({"messages": [{"role": "user", "content": content}]}).encode()
        return asyncio.run(asking.tokenized(read_tokenize(body))).opens_thinking

    assert opens_after("Hello") is opens
    assert opens_after("What is <think>") is opens
