"""Prompts are counted as the model counts them: TinySeek's own tokenizer and chat template."""

import asyncio
import json
import shutil
import tracemalloc
from pathlib import Path
from typing import cast

import pytest

from gateway.counting import Counter, counter_of
from gateway.engine_counting import EngineCounter
from gateway.engine_request import Counted
from gateway.errors import Refused
from gateway.policy import Policy
from gateway.upstream import Engine
from images.gateway.tests.shaping_support import TOKENIZER, chat, policy, refusal_of, shape

# What the GGUF of the same model says of this prompt: begin, User, 5 words and a mark, Assistant.
NAME = {"messages": [{"role": "user", "content": "What is your name?"}]}
NAME_TOKENS = 8


def test_a_chat_is_counted_with_its_template() -> None:
    assert Counter(TOKENIZER).count_chat(NAME, enough=100) == NAME_TOKENS


def test_parts_of_a_message_count_by_their_text() -> None:
    parts = [
        {"type": "text", "text": "What is "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1000}},
        {"type": "text", "text": "your name?"},
    ]
    request = {"messages": [{"role": "user", "content": parts}]}
    assert Counter(TOKENIZER).count_chat(request, enough=100) == NAME_TOKENS


def test_without_a_template_texts_are_counted(tmp_path: Path) -> None:
    shutil.copy(TOKENIZER, tmp_path)
    counted = Counter(tmp_path / "tokenizer.json").count_chat(NAME, enough=100)
    assert counted == NAME_TOKENS - 3 + 4


def test_a_template_that_refuses_a_talk_falls_back_to_its_texts(tmp_path: Path) -> None:
    shutil.copy(TOKENIZER, tmp_path)
    template = {"chat_template": "{{ raise_exception('roles must alternate') }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(template))
    assert Counter(tmp_path / "tokenizer.json").count_chat(NAME, enough=100) == NAME_TOKENS - 3


def test_a_prompt_that_ends_in_think_opens_the_answers_thinking(tmp_path: Path) -> None:
    shutil.copy(TOKENIZER, tmp_path)
    template = {"chat_template": "{{ messages[0]['content'] }}<|A|>{{ '<think>\\n' if t else '' }}"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(template))
    counter = Counter(tmp_path / "tokenizer.json")
    assert counter.opens_thinking({**NAME, "chat_template_kwargs": {"t": True}})
    assert not counter.opens_thinking(NAME)
    said = {"messages": [{"role": "user", "content": "<think>"}]}
    assert not counter.opens_thinking(said)


def test_a_file_that_is_no_tokenizer_counts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    assert counter_of(Policy.model_validate({"model": {"tokenizer_file": file}})) is None


@pytest.mark.parametrize(
    ("context", "max_tokens", "fits"),
    [(NAME_TOKENS + 5, 5, True), (NAME_TOKENS + 4, 5, False), (NAME_TOKENS + 1, None, True),
     (NAME_TOKENS, None, False)],
)  # fmt: skip
def test_a_request_is_refused_from_the_first_token_that_does_not_fit(
    context: int, max_tokens: int | None, fits: bool
) -> None:
    asked = chat(**NAME) if max_tokens is None else chat(**NAME, max_tokens=max_tokens)
    here = policy(model={"context_tokens": context, "tokenizer_file": TOKENIZER})
    if fits:
        assert shape(asked, here).prompt_tokens_estimate == NAME_TOKENS
        return
    refused = refusal_of(asked, here)
    assert (refused.status, refused.code) == (400, "context_length_exceeded")
    assert refused.param == "messages"
    assert f"context is {context} tokens; the prompt has {NAME_TOKENS}" in refused.message
    assert max_tokens is None or f"max_tokens asks for {max_tokens}" in refused.message


def test_who_names_no_number_is_granted_what_the_context_has_left() -> None:
    model = {"context_tokens": 20, "max_tokens": 1000, "tokenizer_file": TOKENIZER}
    shaped = shape(chat(**NAME), policy(model=model))
    assert shaped.parsed["max_tokens"] == shaped.max_tokens_cap == 20 - NAME_TOKENS


def test_a_default_system_message_counts() -> None:
    here = policy(
        model={"context_tokens": NAME_TOKENS + 10, "tokenizer_file": TOKENIZER},
        defaults={"system_message": "What is your name? " * 20},
    )
    with pytest.raises(Refused, match="context_length_exceeded"):
        shape(chat(**NAME), here)


def test_a_short_request_is_not_counted_at_all() -> None:
    model = {"context_tokens": 10_000, "tokenizer_file": Path("/nowhere/tokenizer.json")}
    assert shape(chat(**NAME), policy(model=model)).max_tokens_cap > 0


def test_a_text_prompt_is_named_in_its_refusal() -> None:
    here = policy(model={"context_tokens": 3, "tokenizer_file": TOKENIZER})
    refused = refusal_of(chat(prompt="What is your name?"), here)
    assert refused.param == "prompt"
    assert "the prompt has 5" in refused.message


def test_what_a_client_puts_into_its_options_is_not_kept() -> None:
    """Whether it opens the thinking is, and so often that megabytes of each would be the memory's end."""
    template = Counter(TOKENIZER)
    engine = EngineCounter(cast(Engine, None))
    policy = Policy()

    async def counted(*_: object, **__: object) -> Counted:
        return Counted(count=1)

    engine.counted = counted  # type: ignore[method-assign] # no engine is there

    async def ask_both() -> None:
        for number in range(20):
            options = {"reasoning_effort": f"{number}" * 100_000}
            asked = {**NAME, "chat_template_kwargs": options}
            template.opens_thinking(asked)
            await engine.opens_thinking(asked, policy)

    tracemalloc.start()
    try:
        asyncio.run(ask_both())
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000
