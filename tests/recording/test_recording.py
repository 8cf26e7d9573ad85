"""The recordings are what engines say today, and the recorder what it says of itself."""

import json
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recording.asked import Asked, requests, sign_of
from recording.client import Door, Exchange
from recording.recited import recited
from recording.recorded import Recording, kept, recording_in
from recording.replay import replaying

KEY = "a-key"


def test_kt_legacys_serving_layer_answers_as_it_was_recorded() -> None:
    now, then = recited(), kept()["kt-legacy-reciting"]
    for name, spoken in then.answers.items():
        assert now.answers[name].without_chance() == spoken.without_chance(), name
    assert now.answers.keys() == then.answers.keys()
    assert now.second.without_chance() == then.second.without_chance()
    assert now.next.without_chance() == then.next.without_chance()


@pytest.mark.parametrize("name", sorted(kept()))
def test_every_recording_has_an_answer_to_everything_that_is_asked(name: str) -> None:
    recording = kept()[name]
    engine = recording.engine
    asked = requests(engine.model, engine.context_tokens)
    assert recording.answers.keys() == asked.keys()
    assert recording_in(recording.as_text()) == recording
    for named in ("name", "version", "on", "recorded"):
        assert getattr(engine, named)


def test_a_recording_of_a_replay_is_the_recording(tmp_path: Path) -> None:
    """The program, its flags, and both halves against each other."""
    then = kept()["llamacpp"]
    (tmp_path / "key").write_text(KEY)
    with replaying(then, KEY) as engine:
        command = [sys.executable, "-m", "recording", engine.url, "--key-file", "key"]
        command += ["--name", "llamacpp", "--version", then.engine.version, "--on", then.engine.on]
        command += ["--model", then.engine.model, "--slots", "2", "--out", "out.json"]
        command += ["--context-tokens", str(then.engine.context_tokens)]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(__file__).parents[1])},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    now = recording_in((tmp_path / "out.json").read_text())
    assert _same(now) == _same(then)
    assert KEY not in (tmp_path / "out.json").read_text()


def _same(recording: Recording) -> dict[str, Any]:
    """But for what came beside a story, of which the recording left out the middle."""
    said = json.loads(recording.as_text())
    del said["engine"]["recorded"]
    return {"engine": said["engine"], "answers": said["answers"]}


def test_an_engine_that_breaks_off_is_no_recording() -> None:
    with socket.create_server(("127.0.0.1", 0)) as engine:

        def answer() -> None:
            client, _ = engine.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nHel")

        thread = threading.Thread(target=answer)
        thread.start()
        door = Door(f"http://127.0.0.1:{engine.getsockname()[1]}", KEY, within_s=20)
        with (
            closing(Exchange(door, Asked(method="GET"))) as exchange,
            pytest.raises(OSError, match="closed"),
        ):
            exchange.read_all()
        thread.join()


@pytest.mark.parametrize("url", ["https://host", "host:8000", "http://host/v1"])
def test_only_the_address_of_an_engine_is_taken(url: str) -> None:
    with pytest.raises(ValueError, match="not of the form"):
        _ = Door(url, KEY).address


def test_a_request_is_known_again_whatever_a_gateway_adds_to_it() -> None:
    asked = requests("m", 8)
    body = json.loads(asked["chat, stream with usage"].body or b"")
    more = json.dumps({**body, "model": "other", "max_tokens": 5, "rid": "x"}).encode()
    known = {sign_of(one.method, one.path, one.body): name for name, one in asked.items()}
    assert known[sign_of("POST", "/v1/chat/completions", more)] == "chat, stream with usage"
