"""From a request to what is to be generated: tokens, limits, defaults."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kt_legacy_engine.errors import bad_request, prompt_too_long, unknown_model
from kt_legacy_engine.generating import Ask
from kt_legacy_engine.model import Tokenizer
from kt_legacy_engine.requests import (
    ChatRequest,
    CompletionRequest,
    Request,
    TokenizeRequest,
    check,
)
from kt_legacy_engine.sampling import Sampling

_THINK = b"<think>"
# It has as many as it has bytes, at most; line ends may follow.
_END_TOKENS = len(_THINK) + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenized:
    """`opens_thinking`: the chat template ends the prompt in `<think>`."""

    count: int
    opens_thinking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """`max_tokens`: the longest reply. `temperature`, `top_p`: where a request does not say."""

    tokenizer: Tokenizer
    model_name: str
    context_tokens: int
    vocabulary: int
    max_tokens: int
    temperature: float
    top_p: float

    async def chat(self, request: ChatRequest) -> Ask:
        messages = [message.plain() for message in request.messages]
        return await self._ask(
            request, lambda: self.tokenizer.encode_chat(messages), param="messages"
        )

    async def completion(self, request: CompletionRequest) -> Ask:
        return await self._ask(request, lambda: self._encoded(request.prompt), param="prompt")

    async def tokenized(self, request: TokenizeRequest) -> Tokenized:
        """Needs no model, and so no turn: it is answered while a reply is made."""
        try:
            return await asyncio.to_thread(self._tokenized, request)
        except ValueError as error:
            raise bad_request(str(error), "messages") from None

    def _tokenized(self, request: TokenizeRequest) -> Tokenized:
        if request.messages is None:
            return Tokenized(count=len(self.tokenizer.encode(request.prompt or "")))
        tokens = self.tokenizer.encode_chat([message.plain() for message in request.messages])
        end = b"".join(self.tokenizer.raw(token) for token in tokens[-_END_TOKENS:])
        return Tokenized(count=len(tokens), opens_thinking=end.rstrip().endswith(_THINK))

    def _encoded(self, prompt: str | list[int] | list[str]) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt)
        if all(isinstance(token, int) for token in prompt):
            return self._known(prompt)
        return self.tokenizer.encode(str(prompt[0]))

    def _known(self, tokens: list[int] | list[str]) -> list[int]:
        numbers = [int(token) for token in tokens]
        if any(not 0 <= token < self.vocabulary for token in numbers):
            raise ValueError(f"tokens of this model are numbers from 0 to {self.vocabulary - 1}")
        return numbers

    async def _ask(self, request: Request, encode: Callable[[], list[int]], *, param: str) -> Ask:
        if request.model != self.model_name:
            raise unknown_model(request.model, self.model_name)
        check(request)
        try:
            # A long prompt takes a while: not in the event loop.
            prompt = tuple(await asyncio.to_thread(encode))
        except ValueError as error:
            raise bad_request(str(error), param) from None
        if not prompt:
            raise bad_request("The prompt is empty.", param)
        if len(prompt) >= self.context_tokens:
            raise prompt_too_long(len(prompt), self.context_tokens, param)
        # Both are upper bounds: a reply that meets the end of the context ends with `length`.
        limit = min(
            request.limit or self.max_tokens, self.max_tokens, self.context_tokens - len(prompt)
        )
        if request.min_tokens > limit:
            raise bad_request(
                f"min_tokens is {request.min_tokens}, but the reply can have {limit} at most.",
                "min_tokens",
            )
        return Ask(
            prompt=prompt,
            sampling=self._sampling(request),
            max_tokens=limit,
            min_tokens=request.min_tokens,
            ignore_eos=request.ignore_eos,
            stops=request.stops,
            logprobs=request.alternatives,
        )

    def _sampling(self, request: Request) -> Sampling:
        temperature, top_p = request.temperature, request.top_p
        return Sampling(
            temperature=self.temperature if temperature is None else temperature,
            top_p=self.top_p if top_p is None else top_p,
            top_k=max(request.top_k or 0, 0),
            # NumPy's seeds are not negative.
            seed=None if request.seed is None else request.seed % 2**64,
            presence_penalty=request.presence_penalty or 0.0,
            frequency_penalty=request.frequency_penalty or 0.0,
            bias=request.logit_bias or {},
        )
