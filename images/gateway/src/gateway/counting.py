"""Counts tokens as the model does, with its own tokenizer.json and the chat template beside it."""

import asyncio
import logging
import re
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

import orjson
from tokenizers import Tokenizer

from gateway.chat_template import ChatTemplate, text_of
from gateway.policy import Policy

_log = logging.getLogger(__name__)

_SLICE_CHARACTERS = 2**18
# What marks a message's begin, role and end, where no template says it.
_AROUND_MESSAGE = 4
_STEERING = re.compile(r"</?[\w|]+>|/\w+")
_MOST_KNOWN = 1024


class Counter:
    def __init__(self, tokenizer_file: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(tokenizer_file))
        self._template = ChatTemplate.beside(tokenizer_file)
        self._opens_thinking: dict[bytes, bool] = {}

    def tokens(self, text: str, *, special: bool = True) -> list[int]:
        """Unlike `count` for any length at once: `special` adds what the model wants around it."""
        # A batch of one: unlike `encode` it lets other threads run meanwhile.
        return self._tokenizer.encode_batch([text], add_special_tokens=special)[0].ids

    def chat_tokens(self, parsed: Mapping[str, Any]) -> list[int]:
        return self.tokens(self._chat_text(parsed), special=False)

    def count_chat(self, parsed: Mapping[str, Any], *, enough: int) -> int:
        """Exact up to `enough` tokens; what is longer need not be known to the end."""
        text = self._chat_text(parsed)
        around = 0 if self._template else _AROUND_MESSAGE * len(parsed["messages"])
        return around + self._count(text, enough)

    def count_prompt(self, prompt: object, *, enough: int) -> int:
        """Of a text completion: the longest, where several are asked for."""
        if isinstance(prompt, str):
            return self._count(prompt, enough)
        if not isinstance(prompt, list) or not prompt:
            return 0
        if all(isinstance(token, int) for token in prompt):
            return len(prompt)
        return max(self.count_prompt(each, enough=enough) for each in prompt)

    def opens_thinking(self, parsed: Mapping[str, Any]) -> bool:
        """True where the prompt itself ends in `<think>`, so that the answer begins inside."""
        if self._template is None:
            return False
        last = parsed["messages"][-1:]
        if last and last[0].keys() == {"role", "content"}:
            # How a template ends a prompt is steered by tags and commands alone: the rest of what
            # was said is left out, so that most talks ask what has been asked before.
            steering = " ".join(["x", *_STEERING.findall(text_of(last[0]["content"]))])
            last = [{"role": last[0]["role"], "content": steering}]
        asked = {"messages": last, "chat_template_kwargs": parsed.get("chat_template_kwargs")}
        # Its digest: a client may put megabytes there, and this is kept.
        key = sha256(orjson.dumps(asked)).digest()
        if (known := self._opens_thinking.get(key)) is None:
            prompt = self._template.render(asked)
            known = prompt is not None and prompt.rstrip().endswith("<think>")
            if len(self._opens_thinking) < _MOST_KNOWN:
                self._opens_thinking[key] = known
        return known

    def _chat_text(self, parsed: Mapping[str, Any]) -> str:
        if self._template is not None and (prompt := self._template.render(parsed)) is not None:
            return prompt
        return "\n".join(_texts(parsed))

    def _count(self, text: str, enough: int) -> int:
        total = 0
        for start in range(0, len(text), _SLICE_CHARACTERS):
            part = text[start : start + _SLICE_CHARACTERS]
            total += len(self._tokenizer.encode_batch([part], add_special_tokens=False)[0])
            if total > enough:
                break
        return total


def counter_of(policy: Policy) -> Counter | None:
    """None: this profile names no tokenizer, or one that can't be used."""
    file = policy.model.tokenizer_file
    if file is None:
        return None
    with _loading:
        return _loaded(file, _written_ns(file, int(time.monotonic())))


def prepare_counter(policy: Policy) -> None:
    """A big tokenizer takes a second to read, which no request should have to wait for."""
    asyncio.get_running_loop().run_in_executor(None, counter_of, policy)


_loading = Lock()


@lru_cache(maxsize=1)
def _written_ns(file: Path, second: int) -> int:  # noqa: ARG001 - looked up anew in each
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=1)
def _loaded(file: Path, written_ns: int) -> Counter | None:
    """`written_ns` tells a file from the one that was there before it."""
    try:
        counter = Counter(file)
    except Exception as error:  # noqa: BLE001 - tokenizers raises nothing more exact
        _log.error("tokenizer %s: %s; prompts are not counted", file, error)
        return None
    _log.info("tokenizer %s of %d: prompts are counted", file, written_ns)
    return counter


def _texts(parsed: Mapping[str, Any]) -> Iterator[str]:
    for message in parsed["messages"]:
        yield text_of(message.get("content"))
        if calls := message.get("tool_calls"):
            yield orjson.dumps(calls).decode()
    if tools := parsed.get("tools"):
        yield orjson.dumps(tools).decode()
