"""What the serving layer asks of an engine, and nothing else: tokens in, logits out."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]


class EngineGone(Exception):
    """The process with the model ended."""


class EngineBroken(Exception):
    """What the process with the model says makes no sense: it can't be used again."""


class Model(Protocol):
    """One sequence of tokens whose keys and values are cached, up to `capacity` of them."""

    @property
    def capacity(self) -> int: ...

    def extend(self, tokens: Sequence[int]) -> Logits:
        """Appends `tokens` to the sequence: the logits after the last of them.

        One token is a step of decoding, several are a chunk of prefill.
        """
        ...

    def truncate(self, length: int) -> None:
        """Forgets all but the first `length` tokens."""
        ...


class Tokenizer(Protocol):
    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens by which the model says that its reply is over."""
        ...

    def encode(self, text: str) -> list[int]:
        """With the tokens that begin every text, if the model has such."""
        ...

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Up to where the reply begins. ValueError: the model's template refuses these messages."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Without special tokens. Half a character becomes U+FFFD."""
        ...

    def raw(self, token: int) -> bytes:
        """The bytes that this one token stands for."""
        ...
