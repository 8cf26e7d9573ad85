"""What the policy changes in a request for the engine; without a reason its bytes stay as they are.

Works on requests in the engine's own dialect (OpenAI's), after a client's dialect has been read.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from gateway.capabilities import refuse_unsupported
from gateway.engine_request import EngineRequest
from gateway.errors import Refused
from gateway.lengths import counted_by_file, length_of, may_not_fit
from gateway.policy import Defaults, Policy
from gateway.prefixes import prefix_of
from gateway.request_errors import model_not_found
from gateway.whole_answers import stream_changes, with_stream_on

# Rough, for queueing only: what is refused for its length is counted with the model's tokenizer.
_BYTES_PER_TOKEN = 4


class Draft(NamedTuple):
    """A request as the engine gets it, but for what its length decides."""

    asked: EngineRequest
    changes: Mapping[str, Any]
    to_count: Mapping[str, Any] | None
    """The request for whoever counts it; None where it surely fits."""


def shaped(asked: EngineRequest, policy: Policy) -> EngineRequest:
    """The request as the engine gets it; Refused where the policy does not allow it."""
    if (draft := drafted(asked, policy)) is None:
        return asked
    uncounted = draft.to_count
    counted = None if uncounted is None else counted_by_file(uncounted, policy)
    return finished(draft, policy, counted)


def drafted(asked: EngineRequest, policy: Policy) -> Draft | None:
    """None: there is nothing to change, nor anything to count."""
    if asked.body is None or not asked.admitted:
        return None
    refuse_unsupported(asked, policy.capabilities)
    changes = {
        **_model(asked.parsed, policy),
        **_defaults(asked.parsed, policy.defaults),
        **stream_changes(asked, policy.capabilities),
    }
    parsed = {**asked.parsed, **changes}
    return Draft(asked, changes, parsed if may_not_fit(asked, parsed, policy) else None)


def finished(draft: Draft, policy: Policy, prompt_tokens: int | None) -> EngineRequest:
    """`prompt_tokens`: None where nobody has counted."""
    asked, changes = draft.asked, draft.changes
    length = length_of(asked, {**asked.parsed, **changes}, policy, prompt_tokens)
    changes = {**changes, **length.changes}
    body = asked.body or b""
    changes = {name: value for name, value in changes.items() if asked.parsed.get(name) != value}
    parsed = {**asked.parsed, **changes}
    return asked._replace(
        parsed=parsed,
        body=_body(body, asked.parsed, changes),
        prompt_tokens_estimate=length.prompt_tokens or _estimate(body, parsed),
        max_tokens_cap=length.cap * _answers(parsed),
        prefix=prefix_of(parsed),
        usage_asked=asked.usage_asked and "stream_options" not in changes,
        assembled=not asked.stream and parsed.get("stream") is True,
    )


def _model(parsed: Mapping[str, Any], policy: Policy) -> dict[str, Any]:
    asked, public = parsed.get("model"), policy.model.public
    if public is not None and asked is not None and asked != public:
        raise Refused(model_not_found(asked, public))
    name = policy.model.engine or public
    return {} if name is None else {"model": name}


def _defaults(parsed: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    changes = {name: value for name, value in defaults.sampling.items() if parsed.get(name) is None}
    messages = parsed.get("messages")
    if defaults.system_message is None or not messages:
        return changes
    if any(message["role"] in ("system", "developer") for message in messages):
        return changes
    told = {"role": "system", "content": defaults.system_message}
    return {**changes, "messages": [told, *messages]}


def _answers(parsed: Mapping[str, Any]) -> int:
    """How many the engine writes for this one request, each as long as it may be."""
    prompt, prompts = parsed.get("prompt"), 1
    # One list of numbers is one prompt.
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], (int, float)):
        prompts = len(prompt)
    return prompts * int(max(parsed.get("n") or 1, parsed.get("best_of") or 1))


def _body(body: bytes, parsed: Mapping[str, Any], changes: Mapping[str, Any]) -> bytes:
    rewritten = changes.keys() & parsed.keys()
    if rewritten == {"stream"} and (on := with_stream_on(body)) is not None:
        body, changes = on, {name: changes[name] for name in changes if name != "stream"}
    elif rewritten:
        # orjson writes raw UTF-8: models imitate escapes that they find in their history.
        return orjson.dumps({**parsed, **changes})
    if not changes:
        return body
    # What is only added needs no rewriting of the rest: it goes before the last brace.
    head = body.rstrip()[:-1].rstrip()
    return head + (b"," if parsed else b"") + orjson.dumps(changes)[1:]


def _estimate(body: bytes, parsed: Mapping[str, Any]) -> int:
    """A picture of megabytes is no prompt of millions of tokens."""
    size = len(body)
    for message in parsed.get("messages") or ():
        if isinstance(parts := message.get("content"), list):
            size -= sum(_picture_bytes(part) for part in parts)
    return max(size, 0) // _BYTES_PER_TOKEN


def _picture_bytes(part: Any) -> int:
    if not isinstance(part, dict) or not isinstance(picture := part.get("image_url"), dict):
        return 0
    return len(str(picture.get("url", "")))
