"""Checks through the gateway: clients that wait, leave and come again, what it costs, and how fast it is."""

import json
import os
import signal
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from gpu import memory
from gpu.door import ALIAS, Door, events_in, said
from gpu.engine import CHUNK_TOKENS, CONTEXT_TOKENS, MAX_TOKENS, PATIENCE_S
from gpu.kt_legacy import LONG, ODD, REPLIES, STORY, Report, user
from images.gateway.tests.support import Client, chat_head, new_id
from orchestrator.adapters.host import read_host

# For the gateway to see that its client is gone, and for the engine to see it of the gateway.
TO_HEAR_OF_IT_S = 0.25


def two_at_once(door: Door, report: Report) -> None:
    """The second comes while the first is answered: it waits in the line, sees where, and is served."""
    refused = door.engine.metric("refused_requests_total")
    ended: dict[str, float] = {}
    with ExitStack() as stack:
        first = stack.enter_context(door.begin(STORY, ignore_eos=True, max_tokens=MAX_TOKENS))
        first.read_until(b"data: ")
        second = stack.enter_context(door.begin("Hello"))
        second.read_until(b"queue position=")
        places = door.places()

        def finish(name: str, client: Client) -> None:
            client.read_to_end_of_stream()
            ended[name] = time.monotonic()

        waiting = threading.Thread(target=finish, args=("second", second))
        waiting.start()
        finish("first", first)
        waiting.join(PATIENCE_S)
        body = second.received
    assert ended["first"] < ended["second"]
    states = sorted(place["state"] for place in places["data"])
    assert states == ["queued", "running"], places
    # Chunks of a stream stand between lengths of their own.
    assert b"x-queue-position" in body.partition(b"\r\n\r\n")[0].lower(), body[:400]
    assert b"data: [DONE]" in body
    assert door.engine.metric("refused_requests_total") == refused
    comments = [line for line in body.split(b"\n") if line.startswith(b": queue")]
    report["two at once"] = {
        "places": places,
        "comments": [comment.decode() for comment in comments],
        "second_after_first_s": ended["second"] - ended["first"],
    }


def leaving(door: Door, report: Report) -> None:
    """Counted by the engine: tokens decoded after the client was gone from the gateway.

    TinySeek makes a token in less time than anybody takes to hear of a closed connection. So the
    process with the model is stopped meanwhile, as if a token took long: as it does with a large model.
    """
    assert door.start.watched is not None
    model = json.loads(door.start.watched.read_text(encoding="utf-8"))["pid"]
    found: dict[str, list[Any]] = {"slow": [], "fast": []}
    for kind in ("slow", "fast") * 3:
        client = streaming(door)
        if kind == "slow":
            os.kill(model, signal.SIGSTOP)
        before = door.engine.metric("decoded_tokens_total")
        client.leave()
        if kind == "slow":
            time.sleep(TO_HEAR_OF_IT_S)
            os.kill(model, signal.SIGCONT)
        began = time.monotonic()
        door.engine.until_free()
        took_s = time.monotonic() - began
        decoded = door.engine.metric("decoded_tokens_total") - before
        found[kind].append({"decoded_after": decoded, "s": took_s})
        # The gateway's line is free too, and the next is answered rightly.
        assert door.text("Hello") == REPLIES["Hello"]
    report["leaving"] = found
    assert max(one["decoded_after"] for one in found["slow"]) <= 2, found
    # Some are decoded while the counter is asked for.
    assert statistics.median(one["decoded_after"] for one in found["fast"]) <= 2, found
    assert max(one["s"] for one in found["fast"]) < TO_HEAR_OF_IT_S, found


def streaming(door: Door) -> Client:
    """With some tokens received, and hundreds to come."""
    client = door.begin(STORY, ignore_eos=True, max_tokens=MAX_TOKENS)
    client.read_until(b"data: ")
    deadline = time.monotonic() + PATIENCE_S
    while client.received.count(b"data: ") < 20:
        client.read_more()
        assert time.monotonic() < deadline
    return client


def second_turn(door: Door, report: Report) -> None:
    """Only what is new is read, by the engine's counters; and so the first token comes sooner."""
    turn = user("Second turn. " + LONG)
    engine = door.engine
    before = engine.metric("prefilled_tokens_total")
    fresh_s, first = first_token(door, turn)
    fresh = engine.metric("prefilled_tokens_total") - before
    before = engine.metric("prefilled_tokens_total")
    again = [*turn, {"role": "assistant", "content": first}, *user("Hello")]
    reused_s, _ = first_token(door, again)
    new = engine.metric("prefilled_tokens_total") - before
    usage = door.chat(again, max_tokens=1)["usage"]
    report["second turn"] = {
        "first_prefilled_tokens": fresh,
        "second_prefilled_tokens": new,
        "prompt_tokens": usage["prompt_tokens"],
        "first_ttft_s": fresh_s,
        "second_ttft_s": reused_s,
    }
    assert fresh > CONTEXT_TOKENS // 2
    # The end of the reply, the question, and the marks around them.
    assert new < 20, report["second turn"]
    assert reused_s < fresh_s / 2, report["second turn"]


def first_token(door: Door, messages: Sequence[dict[str, str]]) -> tuple[float, str]:
    """Seconds to the first token at the gateway, and the whole reply."""
    body = {"model": ALIAS, "messages": messages, "temperature": 0, "stream": True, "max_tokens": 8}
    data = json.dumps(body).encode()
    with Client(door.gateway.port) as client:
        began = time.monotonic()
        client.send(chat_head(len(data), new_id()) + data)
        client.read_until(b'"content":')
        took_s = time.monotonic() - began
        return took_s, said(events_in(client.read_to_end_of_stream()))


def budget(door: Door, report: Report) -> None:
    """After a prompt that fills the context. Terms within 5 % of what torch allocated for them."""
    assert door.start.watched is not None
    door.text("Filling. " + LONG, max_tokens=8)
    weights = door.start.weights
    folder = next(weights.weights_dir.glob(f"*/*/{weights.gguf_dir}"))
    files = memory.headers_of(sorted(folder.glob("*.gguf")))
    _, plan = memory.planned(
        "demo-gpu",
        memory.inventory(files),
        read_host(door.control.parent, ()),
        context_tokens=CONTEXT_TOKENS,
        chunk_tokens=CHUNK_TOKENS,
    )
    taken = memory.taken(door.engine, door.start.watched, door.before_mib, files)
    report["memory"] = memory.compared(plan, taken)
    for name in ("weights on the GPU", "KV cache"):
        assert abs(report["memory"][name]["ratio"] - 1) <= 0.05, (name, report["memory"][name])


def pace(door: Door, report: Report) -> None:
    began = time.monotonic()
    door.chat(ODD, ignore_eos=True, max_tokens=400)
    report["decode_tokens_per_s"] = 400 / (time.monotonic() - began)
