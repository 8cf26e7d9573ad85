"""OpenAI's interface: shapes, limits, refusals. Read by OpenAI's own client where it can be."""

import math
from typing import Any

import openai
import pytest

from reciting import CHAT, KEY, Answer, Engine, Reciter, serving

# The prompt "Hello" as the tokenizer of these tests has it: begin, user, 5 bytes, assistant.
PROMPT_TOKENS = 8


@pytest.fixture
def client(engine: Engine) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{engine.url}/v1", api_key=KEY, max_retries=0)


def hello(client: openai.OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "Hello"}], **more
    )


def test_a_whole_reply_has_its_text_its_end_and_its_usage(client: openai.OpenAI) -> None:
    reply = hello(client)
    assert reply.object == "chat.completion"
    assert reply.id.startswith("chatcmpl-")
    assert reply.model == "tiny"
    (choice,) = reply.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Paris.")
    assert choice.finish_reason == "stop"
    # Six letters and the token that ends the reply.
    usage = (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens)
    assert usage == (PROMPT_TOKENS, 7, PROMPT_TOKENS + 7)


def test_a_stream_is_the_same_reply_in_pieces(engine: Engine) -> None:
    answer = engine.chat(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.events()
    assert {event["object"] for event in events} == {"chat.completion.chunk"}
    assert len({event["id"] for event in events}) == 1
    first, *pieces, last = (event["choices"][0] for event in events)
    assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [piece["delta"] for piece in pieces] == [{"content": letter} for letter in "Paris."]
    assert {choice["finish_reason"] for choice in (first, *pieces)} == {None}
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert all("usage" not in event for event in events)


def test_a_stream_ends_with_its_usage_when_asked_for(engine: Engine) -> None:
    *events, last = engine.chat(stream=True, stream_options={"include_usage": True}).events()
    assert last["choices"] == []
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (
        PROMPT_TOKENS,
        7,
    )
    assert all(event["usage"] is None for event in events)


def test_usage_that_nobody_minds_is_not_told(engine: Engine) -> None:
    events = engine.chat(stream=True, stream_options={"include_usage": None}).events()
    assert all("usage" not in event for event in events)


@pytest.mark.parametrize("top_k", [-1, 0, None])
def test_a_top_k_that_means_all_rules_nothing_out(engine: Engine, top_k: int | None) -> None:
    # Hardly likely, and nearly certain to be met among as many draws.
    said = engine.chat(top_k=top_k, seed=1, temperature=2, max_tokens=200, ignore_eos=True).json()
    assert set(said["choices"][0]["message"]["content"]) - set("Paris.")


def test_openais_client_reads_a_stream(client: openai.OpenAI) -> None:
    chunks = list(hello(client, stream=True, stream_options={"include_usage": True}))
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == "Paris."
    assert chunks[-1].usage.total_tokens == PROMPT_TOKENS + 7


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_reply_that_is_too_long_ends_with_length(client: openai.OpenAI, name: str) -> None:
    reply = hello(client, **{name: 3})
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Par", "length")
    assert reply.usage.completion_tokens == 3


@pytest.mark.parametrize("stop", ["is", ["x", "is"]])
def test_a_stop_string_ends_the_reply_and_is_not_sent(client: openai.OpenAI, stop: Any) -> None:
    reply = hello(client, stop=stop)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Par", "stop")
    assert (
        "".join(c.choices[0].delta.content or "" for c in hello(client, stop=stop, stream=True))
        == "Par"
    )


def test_min_tokens_goes_on_past_the_end_and_past_stop_strings(engine: Engine) -> None:
    said = engine.chat(min_tokens=9, stop=["is"], max_tokens=20, temperature=0).json()
    # The model has nothing more to say than full stops.
    assert said["choices"][0]["message"]["content"].startswith("Paris...")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("min_tokens", "stop", "said"),
    [
        pytest.param(3, ["ri"], "Pa", id="ends after it"),
        pytest.param(4, ["ri"], "Paris.", id="ends with it"),
        pytest.param(
            3, ["ar", "arx"], "Paris.", id="ends within it, and may be another's beginning"
        ),
        pytest.param(3, ["rix"], "Paris.", id="almost"),
        pytest.param(6, ["."], "Paris.", id="ends with the reply"),
    ],
)
def test_a_stop_string_counts_where_it_ends_after_min_tokens(
    engine: Engine, min_tokens: int, stop: list[str], said: str, stream: bool
) -> None:
    answer = engine.complete(min_tokens=min_tokens, stop=stop, stream=stream, max_tokens=6)
    assert (answer.said() if stream else answer.json()["choices"][0]["text"]) == said


def test_ignore_eos_goes_on_to_the_limit(engine: Engine) -> None:
    said = engine.chat(ignore_eos=True, max_tokens=10).json()
    assert said["choices"][0]["finish_reason"] == "length"
    assert said["usage"]["completion_tokens"] == 10


def test_characters_split_over_tokens_arrive_whole() -> None:
    with serving(Reciter("北京 é 🐼")) as engine:
        events = engine.chat(stream=True).events()
        pieces = [e["choices"][0]["delta"].get("content", "") for e in events]
        assert [piece for piece in pieces if piece] == list("北京 é 🐼")


def test_chances_are_told_with_each_token(client: openai.OpenAI) -> None:
    reply = hello(client, logprobs=True, top_logprobs=2)
    content = reply.choices[0].logprobs.content
    assert [entry.token for entry in content] == list("Paris.")
    # One logit of 20 among 260 of 0.
    assert content[0].logprob == pytest.approx(
        -math.log(1 + math.exp(-10) + 259 * math.exp(-20)), abs=1e-6
    )
    assert content[0].bytes == [ord("P")]
    assert content[0].top_logprobs[0].token == "P"
    assert len(content[0].top_logprobs) == 2


def test_chances_in_a_stream_are_all_there(engine: Engine) -> None:
    events = engine.chat(stream=True, logprobs=True, stop=["s."]).events()
    told = [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]
    assert [entry["token"] for part in told for entry in part["content"]] == list("Paris.")


def test_a_completion_has_its_own_shape(client: openai.OpenAI) -> None:
    reply = client.completions.create(model="tiny", prompt="Say|", logprobs=1)
    assert reply.object == "text_completion"
    assert reply.id.startswith("cmpl-")
    (choice,) = reply.choices
    assert (choice.text, choice.finish_reason) == ("Paris.", "stop")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == list("Paris.")
    assert choice.logprobs.text_offset == [0, 1, 2, 3, 4, 5]
    assert reply.usage is not None
    assert reply.usage.prompt_tokens == 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_completions_best_tokens_have_the_picked_one_with_them(
    engine: Engine, stream: bool
) -> None:
    # The bias makes it say x, of which the model itself thinks little.
    bias = {str(ord("x")): 100}
    answer = engine.complete(
        logprobs=1, logit_bias=bias, temperature=0, max_tokens=1, stream=stream
    )
    (told,) = _logprobs(answer)
    ((likeliest, picked),) = (list(best) for best in told["top_logprobs"])
    assert (likeliest, picked) == ("P", "x")
    assert told["top_logprobs"][0]["x"] == told["token_logprobs"][0]
    (none_other,) = _logprobs(engine.complete(logprobs=0, max_tokens=1))
    assert none_other["top_logprobs"] == [{"P": none_other["token_logprobs"][0]}]


@pytest.mark.parametrize("stream", [False, True])
def test_a_completions_offsets_are_places_in_its_text(stream: bool) -> None:
    text = "é🐼a\N{REPLACEMENT CHARACTER}b"
    with serving(Reciter(text)) as engine:
        told = _logprobs(engine.complete(logprobs=0, stream=stream))
    offsets = [offset for part in told for offset in part["text_offset"]]
    # Each byte is a token, and all of one character are where it begins.
    assert offsets == [at for at, letter in enumerate(text) for _ in letter.encode()]


def _logprobs(answer: Answer) -> list[Any]:
    events = answer.events() if b"data: " in answer.body else [answer.json()]
    return [e["choices"][0]["logprobs"] for e in events if e["choices"][0]["logprobs"]]


def test_a_completion_can_be_streamed_and_asked_for_in_tokens(engine: Engine) -> None:
    events = engine.complete(prompt=[1, 2, ord("|")], stream=True).events()
    assert "".join(event["choices"][0]["text"] for event in events) == "Paris."
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == ("tiny", "model")
    assert client.models.retrieve("tiny").id == "tiny"


def test_a_seed_repeats_a_reply(engine: Engine) -> None:
    def say(seed: int) -> str:
        reply = engine.chat(
            seed=seed, temperature=2, logit_bias={str(t): 20 for t in range(97, 123)}, max_tokens=12
        )
        return str(reply.json()["choices"][0]["message"]["content"])

    assert say(1) == say(1)
    assert say(1) != say(2)


def test_messages_may_come_in_parts_and_from_a_developer(engine: Engine, model: Reciter) -> None:
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    messages = [{"role": "developer", "content": "x"}, {"role": "user", "content": parts}]
    assert engine.chat(messages=messages).json()["usage"]["prompt_tokens"] == PROMPT_TOKENS + 2


# --- refusals ---


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", CHAT, "/nothing"])
@pytest.mark.parametrize("key", [None, "", "wrong"])
def test_without_the_key_nothing_but_health_answers(
    engine: Engine, path: str, key: str | None
) -> None:
    answer = engine.get(path, key=key)
    assert answer.status == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert engine.get("/health", key=key).status == 200


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages.0",
        ),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"min_tokens": 600}, "min_tokens"),
        ({"logit_bias": {"-300": 1}}, "logit_bias"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ],
)
def test_what_can_not_be_done_is_refused_by_name(
    engine: Engine, body: dict[str, Any], param: str
) -> None:
    answer = engine.chat(**body)
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert str(answer.json()["error"]["param"]).startswith(param)


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(None, id="none"),
        pytest.param(["one", "two"], id="several"),
        pytest.param({"text": "x"}, id="a table"),
        pytest.param([], id="no tokens"),
        pytest.param([100_000], id="no token of this model"),
        pytest.param("x" * 5000, id="too long"),
    ],
)
def test_a_completions_prompt_is_refused_by_its_name(engine: Engine, prompt: Any) -> None:
    answer = engine.complete(prompt=prompt)
    assert answer.status == 400
    assert answer.json()["error"]["param"] == "prompt"


def test_one_of_several_forms_is_refused_without_the_form(engine: Engine) -> None:
    assert engine.chat(stop=3).json()["error"]["param"] == "stop"


def test_another_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="only 'tiny'"):
        client.chat.completions.create(model="other", messages=[{"role": "user", "content": "x"}])


def test_a_prompt_that_does_not_fit_is_refused_with_numbers() -> None:
    with serving(Reciter(capacity=300), context_tokens=300) as engine:
        answer = engine.chat("x" * 297)
        assert answer.status == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert "300 tokens" in answer.json()["error"]["message"]
        # One token less fits, and leaves room for one of the reply.
        reply = engine.chat("x" * 296).json()
        assert (reply["choices"][0]["finish_reason"], reply["usage"]["total_tokens"]) == (
            "length",
            300,
        )


def test_a_reply_longer_than_the_server_allows_is_cut() -> None:
    with serving(Reciter(), max_tokens=4) as engine:
        assert engine.chat(max_tokens=100).json()["choices"][0]["message"]["content"] == "Pari"


def test_bodies_that_are_no_json_and_paths_that_are_none_are_refused(engine: Engine) -> None:
    assert engine._ask("POST", CHAT, "{", KEY).status == 400
    assert engine.get("/v1/nothing").status == 404
    assert engine.get(CHAT).status == 405


def test_a_refusal_does_not_repeat_what_was_asked(engine: Engine) -> None:
    answer = engine.chat(temperature="a secret")
    assert answer.status == 400
    assert "secret" not in answer.text
