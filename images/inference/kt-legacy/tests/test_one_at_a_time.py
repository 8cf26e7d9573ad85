"""One reply at a time, until its client leaves: then the next within a token."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kt_legacy_engine.conversation import Conversation, Counters
from kt_legacy_engine.generating import Ask, Event, Finish, Finished, Piece, Started, generate
from kt_legacy_engine.model import EngineGone
from kt_legacy_engine.sampling import Sampling
from kt_legacy_engine.warming import WarmUpFailed, warm_up
from reciting import CHAT, COMPLETIONS, Answer, Bytes, Engine, Reciter, eventually, serving


def a_busy(engine: Engine, model: Reciter, **body: object) -> socket.socket:
    """A client for whom the model works on the first chunk of its prompt."""
    model.hold()
    client = engine.leaving_client(**body)  # type: ignore[arg-type]
    model.calls.get(timeout=20)
    return client


@contextmanager
def one_that_waits(engine: Engine, model: Reciter) -> Iterator[list[Answer]]:
    """A client behind a cancelled request, whose step ends with the block; then, its answer."""
    with a_busy(engine, model):
        pass
    eventually(lambda: engine.desk._running is None or engine.desk._running.cancelled)
    other = engine.desk._running
    assert other is not None
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(engine.chat("Then")))
    asking.start()
    # Whoever waits is in its list.
    eventually(lambda: len(other.ended._waiters) == 1)
    yield answers
    model.permit(1)
    asking.join(20)


def refusals(answers: list[Answer]) -> list[tuple[int, str]]:
    return [(answer.status, answer.json()["error"]["code"]) for answer in answers]


def test_a_second_request_is_refused_and_told_when_to_come_back(
    engine: Engine, model: Reciter
) -> None:
    with a_busy(engine, model):
        answer = engine.chat()
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "engine_busy"
    assert int(answer.headers["retry-after"]) > 0
    assert engine.metric("kt_refused_requests_total") == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_the_reply_is_made_stops_it_within_a_token(
    engine: Engine, model: Reciter, stream: bool
) -> None:
    with a_busy(engine, model, stream=stream):
        model.permit(3)
        # The prompt, two tokens, and the third begun.
        for _ in range(3):
            model.calls.get(timeout=20)
    eventually(lambda: engine.desk._running is None or engine.desk._running.cancelled)
    model.permit(1)
    eventually(lambda: engine.desk._running is None)
    assert model.seen() == []
    assert engine.metric('kt_finished_requests_total{reason="abort"}') == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_left_costs_no_further_token_though_the_event_loop_has_not_heard_of_it(
    engine: Engine, model: Reciter, stream: bool
) -> None:
    client = a_busy(engine, model, stream=stream)
    model.permit(3)
    for _ in range(3):
        model.calls.get(timeout=20)
    run = engine.desk._running
    assert run is not None
    with engine.deaf():
        assert not run.cancelled
        client.close()
        # The kernel knows at once, or nearly so.
        eventually(lambda: run.cancelled)
        # The token that is being computed, and as many more as anybody wants.
        model.permit(100)
        eventually(lambda: engine.desk.metrics.finished[Finish.ABORT] == 1)
        assert model.seen() == []


def test_what_is_heard_while_a_token_is_said_saves_the_next_step() -> None:
    model, tokenizer = Reciter(), Bytes()
    conversation = Conversation(model, chunk_tokens=16, counters=Counters())
    prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": "Hello"}]))
    ask = Ask(prompt=prompt, sampling=Sampling(temperature=0), max_tokens=100)
    left: list[bool] = []
    events = generate(ask, conversation, tokenizer, lambda: bool(left))
    started, piece = next(events), next(events)
    left.append(True)
    assert (started, piece) == (Started(0), Piece("P", ()))
    assert list(events) == [Finished(Finish.ABORT, 1)]
    # The prompt, and nothing after it.
    assert model.seen() == [(0, len(prompt))]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_its_prompt_is_read_stops_it_within_a_chunk(
    engine: Engine, model: Reciter, stream: bool
) -> None:
    messages = [{"role": "user", "content": "x" * 100}]
    with a_busy(engine, model, stream=stream, messages=messages):
        pass
    eventually(lambda: engine.desk._running is None or engine.desk._running.cancelled)
    model.permit(1)
    eventually(lambda: engine.desk._running is None)
    assert model.seen() == []


def test_the_next_request_waits_for_one_that_is_being_cancelled(
    engine: Engine, model: Reciter
) -> None:
    with one_that_waits(engine, model) as answers:
        model.permit(100)
    assert answers[0].json()["choices"][0]["message"]["content"] == "Paris."


@pytest.mark.parametrize("rid", ["mine", "cmpl-mine", "chatcmpl-mine"])
@pytest.mark.parametrize("form", ["{}", "chatcmpl-{}"])
def test_a_request_is_aborted_by_its_id(
    engine: Engine, model: Reciter, form: str, rid: str
) -> None:
    with a_busy(engine, model, rid=rid, stream=True) as client:
        assert engine.post("/abort_request", rid="other").json() == {"aborted": False}
        assert engine.post("/abort_request", rid=form.format(rid)).json() == {"aborted": True}
        model.permit(1)
        received = b""
        while b"[DONE]" not in received:
            received += client.recv(10_000)
    assert b'"finish_reason":"abort"' in received


def test_health_and_metrics_answer_while_the_model_works(engine: Engine, model: Reciter) -> None:
    messages = [{"role": "user", "content": "x" * 100}]
    with a_busy(engine, model, messages=messages):
        assert engine.get("/health").status == 200
        assert engine.metric("kt_running_requests") == 1
        assert engine.metric("kt_waiting_prefill_tokens") == 103
        model.permit(1)
        model.calls.get(timeout=20)
        eventually(lambda: engine.metric("kt_waiting_prefill_tokens") == 103 - 16)


def test_a_second_turn_reads_only_its_new_tokens(engine: Engine, model: Reciter) -> None:
    first = [{"role": "user", "content": "x" * 50}]
    engine.chat(messages=first)
    before = engine.metric("kt_prefilled_tokens_total")
    second = [*first, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "Hi"}]
    usage = engine.chat(messages=second).json()["usage"]
    # New are the end of the reply, which was picked but never read, and the turn: user, H, i, assistant.
    assert engine.metric("kt_prefilled_tokens_total") - before == 5
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 5


def test_completions_share_the_one_place(engine: Engine, model: Reciter) -> None:
    with a_busy(engine, model, path=COMPLETIONS, prompt="Say|"):
        assert (
            engine.post(CHAT, model="tiny", messages=[{"role": "user", "content": "x"}]).status
            == 503
        )


def test_the_log_has_numbers_and_no_text(engine: Engine) -> None:
    engine.chat("a secret", rid="mine")
    (line,) = [line for line in engine.log if line.startswith("request")]
    assert line.startswith("request mine: 11 prompt tokens, 7 tokens, stop")
    assert not any("secret" in line or "Paris" in line for line in engine.log)


def test_a_client_that_left_before_its_turn_leaves_the_cache_as_it_is() -> None:
    model, tokenizer, counters = Reciter(), Bytes(), Counters()
    conversation = Conversation(model, chunk_tokens=16, counters=counters)

    def ask(content: str, *, left: bool) -> list[Event]:
        prompt = tuple(tokenizer.encode_chat([{"role": "user", "content": content}]))
        asked = Ask(prompt=prompt, sampling=Sampling(temperature=0), max_tokens=100)
        return list(generate(asked, conversation, tokenizer, lambda: left))

    ask("x" * 50, left=False)
    cached = conversation.cached_tokens
    assert ask("another's", left=True) == [Finished(Finish.ABORT, 0)]
    assert conversation.cached_tokens == cached


# --- an engine that is stopped ---


def test_who_waits_for_a_cancelled_one_hears_that_the_engine_is_stopped(
    engine: Engine, model: Reciter
) -> None:
    with one_that_waits(engine, model) as answers:
        engine.desk._loop.call_soon_threadsafe(engine.desk.stop)
    assert refusals(answers) == [(503, "engine_stopping")]
    # Nor is what comes later kept waiting.
    assert engine.chat().json()["error"]["code"] == "engine_stopping"


# --- an engine that breaks ---


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_waits_for_a_cancelled_one_hears_that_the_engine_ended(
    engine: Engine, model: Reciter
) -> None:
    with one_that_waits(engine, model) as answers:
        model.fails = EngineGone("it ended")
    assert refusals(answers) == [(503, "engine_gone")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_ends_before_the_first_token_is_an_error_with_its_status(
    engine: Engine, model: Reciter
) -> None:
    model.fails = EngineGone("it ended")
    answer = engine.chat(stream=True)
    assert answer.status == 503
    assert answer.json()["error"]["code"] == "engine_gone"
    assert engine.lost.wait(20)
    health = engine.get("/health")
    assert (health.status, health.json()["status"]) == (503, "failed")


def test_an_engine_that_ends_within_a_reply_ends_the_stream_with_an_error(
    engine: Engine, model: Reciter
) -> None:
    with a_busy(engine, model, stream=True) as client:
        model.permit(2)
        model.calls.get(timeout=20)
        model.calls.get(timeout=20)
        model.fails = EngineGone("it ended")
        model.permit(1)
        received = b""
        while part := client.recv(10_000):
            received += part
            if b"engine_gone" in received:
                break
    assert b"200 OK" in received
    assert b"[DONE]" not in received


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_engine_that_answers_no_numbers_is_an_error_and_said_to_be_broken(
    engine: Engine, model: Reciter, temperature: int
) -> None:
    model.spoils = True
    answer = engine.chat(temperature=temperature)
    assert (answer.status, answer.json()["error"]["code"]) == (503, "engine_gone")
    assert engine.lost.wait(20)
    health = engine.get("/health").json()
    assert health["status"] == "failed"
    assert "not to be trusted" in health["reason"]
    assert f"error: {health['reason']}" in engine.log


def test_a_warm_up_that_is_too_slow_is_a_failure() -> None:
    times = iter([0.0, 30.0, 30.0, 71.0])
    with pytest.raises(WarmUpFailed, match="took 41 s"):
        warm_up(Reciter(), Bytes(), 16, lambda _: None, clock=lambda: next(times))


def test_the_warm_up_generates_twice_from_nothing() -> None:
    model = Reciter()
    with serving(model, ready=False) as engine:
        eventually(lambda: engine.get("/health").status == 200)
        # The prompt, then all tokens but the last, which nobody reads.
        assert model.seen() == [(0, 8), *((n, 1) for n in range(8, 15))] * 2
        assert engine.metric("kt_prefilled_tokens_total") == 0
