"""Checks through the gateway: what is answered, by both APIs, and what is counted."""

from typing import Any

from gpu.door import ALIAS, Door, said
from gpu.engine import CONTEXT_TOKENS
from gpu.kt_legacy import FIXTURES, ODD, REPLIES, STORY, STORY_BEGINS, Report, user
from images.gateway.tests.support import CHAT
from kt_legacy_engine.tokenizing import FileTokenizer

OLLAMA_CHAT, GENERATE = "/api/chat", "/api/generate"
COUNT = "Count from one to twelve."
SYSTEMS = ("You are a helpful assistant.", "Answer briefly.")


def openai(door: Door, report: Report) -> None:
    for question, wanted in REPLIES.items():
        answer = door.chat(user(question))
        assert answer["model"] == ALIAS
        assert answer["choices"][0]["message"]["content"] == wanted, question
        events = door.events(user(question))
        assert said(events) == wanted, question
        assert events[-1]["choices"][0]["finish_reason"] == "stop"
    whole = door.text(STORY)
    assert whole.startswith(STORY_BEGINS)
    assert said(door.events(user(STORY))) == whole
    # The same ten answers whatever the model is told first.
    for system in SYSTEMS:
        messages = [{"role": "system", "content": system}, *user("Hello")]
        assert said(door.events(messages)) == REPLIES["Hello"]
    report["OpenAI"] = {"questions": len(REPLIES) + 1, "story": whole}


def ollama(door: Door, report: Report) -> None:
    exact = {"options": {"temperature": 0}}
    for question in [*REPLIES, STORY]:
        wanted = REPLIES.get(question) or door.text(STORY)
        whole = door.ask(OLLAMA_CHAT, messages=user(question), stream=False, **exact)
        assert whole["message"]["content"] == wanted, question
        assert (whole["done"], whole["done_reason"]) == (True, "stop")
        lines = door.lines(OLLAMA_CHAT, messages=user(question), **exact)
        assert "".join(line["message"]["content"] for line in lines) == wanted, question
        assert lines[-1]["done"] is True
        whole = door.ask(GENERATE, prompt=question, stream=False, **exact)
        assert whole["response"] == wanted, question
        lines = door.lines(GENERATE, prompt=question, **exact)
        assert "".join(line["response"] for line in lines) == wanted, question
    report["Ollama"] = {"questions": len(REPLIES) + 1, "routes": [OLLAMA_CHAT, GENERATE]}


def limits(door: Door, report: Report) -> None:
    tokenizer = FileTokenizer(FIXTURES / "hf", "")
    prompt = len(tokenizer.encode_chat(user(COUNT)))
    # And the token that ends the reply.
    whole = len(tokenizer.encode(REPLIES[COUNT])[1:]) + 1
    short = door.chat(user(COUNT), max_tokens=3)
    assert short["choices"][0]["finish_reason"] == "length"
    assert (short["usage"]["prompt_tokens"], short["usage"]["completion_tokens"]) == (prompt, 3)
    stopped = door.chat(user(COUNT), stop=["five"])
    assert stopped["choices"][0]["message"]["content"] == "one, two, three, four, "
    assert stopped["choices"][0]["finish_reason"] == "stop"
    usage = door.events(user(COUNT), stream_options={"include_usage": True})[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, whole)
    assert usage["total_tokens"] == prompt + whole
    assert all("usage" not in event or not event["usage"] for event in door.events(user(COUNT)))

    asked = {"messages": user(COUNT), "options": {"temperature": 0, "num_predict": 3}}
    for last in (
        door.ask(OLLAMA_CHAT, stream=False, **asked),
        door.lines(OLLAMA_CHAT, **asked)[-1],
    ):
        assert last["done_reason"] == "length"
        assert (last["prompt_eval_count"], last["eval_count"]) == (prompt, 3)
    asked = {"messages": user(COUNT), "options": {"temperature": 0, "stop": ["five"]}}
    for lines in ([door.ask(OLLAMA_CHAT, stream=False, **asked)], door.lines(OLLAMA_CHAT, **asked)):
        text = "".join(line["message"]["content"] for line in lines)
        assert text == "one, two, three, four, "
    before = door.engine.metric("prefilled_tokens_total")
    refused = door.post(CHAT, messages=user("fox " * CONTEXT_TOKENS))
    assert refused.status == 400, refused.body
    assert door.engine.metric("prefilled_tokens_total") == before
    report["usage"] = usage
    report["overlong"] = refused.json()["error"]["message"]


def repeatable(door: Door, report: Report) -> None:
    def odd(**more: Any) -> str:
        return str(door.chat(ODD, max_tokens=24, **more)["choices"][0]["message"]["content"])

    assert odd() == odd()
    first = odd(temperature=1.5, seed=1)
    assert first == odd(temperature=1.5, seed=1)
    assert first != odd(temperature=1.5, seed=2)
    options = {"temperature": 1.5, "seed": 1, "num_predict": 24}
    by_ollama = door.ask(OLLAMA_CHAT, messages=ODD, stream=False, options=options)
    assert by_ollama["message"]["content"] == first
    report["seeded"] = first
