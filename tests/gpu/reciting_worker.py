"""Stands in for the process with the model, where there is no GPU: `python3 -m gpu.reciting_worker FD`.

It says what TinySeek says, a token in RECITING_S (0.0015 without it: TinySeek's pace on an H200), and
tells its number to WATCHED_FILE as watched_worker does. So the checks themselves can be tried.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from gpu.kt_legacy import REPLIES, STORY, STORY_BEGINS
from kt_legacy_engine.model import Logits
from kt_legacy_engine.pipe import Ready, Server
from kt_legacy_engine.tokenizing import FileTokenizer

_USER, _ASSISTANT = "<｜User｜>", "<｜Assistant｜>"  # noqa: RUF001 - so these tokens are written


class TinySeek:
    """Its replies. Whatever else it is asked brings noise, the same for the same tokens."""

    def __init__(self, tokenizer: FileTokenizer, capacity: int, step_s: float) -> None:
        self.capacity = capacity
        self.vocabulary = tokenizer.vocabulary
        self._step_s = step_s
        self._ends = min(tokenizer.end_tokens)
        self._user, self._assistant = (tokenizer.encode(mark)[-1] for mark in (_USER, _ASSISTANT))
        self._replies = {
            tuple(tokenizer.encode(question)[1:]): tokenizer.encode(reply)[1:]
            for question, reply in (REPLIES | {STORY: STORY_BEGINS}).items()
        }
        self._tokens: list[int] = []

    def truncate(self, length: int) -> None:
        del self._tokens[length:]

    def extend(self, tokens: Sequence[int]) -> Logits:
        time.sleep(self._step_s)
        self._tokens += tokens
        random = np.random.default_rng(len(self._tokens))
        logits = random.random(self.vocabulary, dtype=np.float32)
        if (token := self._next()) is not None:
            logits[token] = 50
        return logits

    def _next(self) -> int | None:
        try:
            end = _last(self._tokens, self._assistant)
            begin = _last(self._tokens[:end], self._user)
        except ValueError:
            return None
        reply = self._replies.get(tuple(self._tokens[begin + 1 : end]))
        said = len(self._tokens) - end - 1
        if reply is None or said > len(reply):
            return None
        return reply[said] if said < len(reply) else self._ends


def _last(tokens: Sequence[int], wanted: int) -> int:
    return len(tokens) - 1 - list(reversed(tokens)).index(wanted)


def main(fd: int) -> None:
    server = Server(Connection(fd))
    spec = server.ordered()
    if target := os.environ.get("WATCHED_FILE"):
        told = {"pid": os.getpid(), "weights_bytes": 0, "cache_bytes": 0, "reserved_bytes": 0}
        Path(target).write_text(json.dumps(told), encoding="utf-8")
    model = TinySeek(
        FileTokenizer(Path(spec.model_path), ""),
        spec.cache_lens,
        float(os.environ.get("RECITING_S", "0.0015")),
    )
    server.serve(
        model, Ready(capacity=model.capacity, vocabulary=model.vocabulary, about=("GPU: none",))
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
