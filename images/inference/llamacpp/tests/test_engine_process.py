"""How `python3 -m llamacpp_engine` ends, and what its healthcheck says."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from images.inference.llamacpp.tests.engine_process import Container, started

# --- ends ---


@pytest.mark.parametrize(
    ("engine", "words"), [("serves", "serving"), ("loads-for-ever", "loading")]
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_ends_with_0_while_loading_too(
    container: Container, engine: str, words: str, number: signal.Signals
) -> None:
    with started(container, engine, words) as process:
        process.send_signal(number)
        assert process.wait(timeout=20) == 0


def test_a_load_that_fails_ends_it_with_1_after_the_engines_own_words(
    container: Container,
) -> None:
    code, words = container.run("refuses")
    assert code == 1
    assert words.index("failed to load GGUF split") < words.index("could not start")


@pytest.mark.parametrize(
    ("engine", "line"),
    [
        ("refuses", "error: the engine could not start with "),
        ("crashes", "error: the engine was ended by SIGABRT"),
    ],
)
def test_what_went_wrong_has_lines_of_its_own_though_the_engine_left_one_half_written(
    container: Container, engine: str, line: str
) -> None:
    _, words = container.run(engine)
    assert any(said.startswith(line) for said in words.splitlines())


def test_an_engine_that_crashes_ends_it_with_the_signals_exit_code(container: Container) -> None:
    code, words = container.run("crashes")
    assert code == 128 + signal.SIGABRT
    assert "the engine was ended by SIGABRT" in words


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        pytest.param("--- + - + --", 1, id="twice in a row after it had listened"),
        pytest.param("---------- stop", 0, id="but not while it is still loading"),
        pytest.param("+ - + - + stop", 0, id="but not for one answer that got lost"),
    ],
)
def test_an_engine_that_no_longer_listens_ends_it(
    container: Container, answers: str, code: int
) -> None:
    program = f"""
import os, signal, sys
from llamacpp_engine.supervise import hold_signals, supervise
looks = iter({answers.replace("stop", "").replace(" ", "")!r})
def answers():
    look = next(looks, None)
    if look is None:
        os.kill(os.getpid(), signal.SIGTERM)
    return look == "+"
hold_signals()
sys.exit(supervise(signal.pause, answers, look_every_s=0.01))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=container.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr


def test_the_engine_does_not_outlive_a_watcher_that_fails(container: Container) -> None:
    process = container.start("serves")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("serving"):
            break
    engine = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
    # It can't say that it is stopping.
    process.stderr.close()
    process.terminate()
    assert process.wait(timeout=20) != 0
    deadline = time.monotonic() + 20
    while Path(f"/proc/{engine}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{engine}").exists()


# --- the healthcheck ---


@pytest.mark.parametrize(("status", "code"), [("200 OK", 0), ("503 Service Unavailable", 1)])
def test_health_is_the_engines_own_answer(container: Container, status: str, code: int) -> None:
    with socket.create_server(("127.0.0.1", container.port)) as listener:
        process = health(container)
        connection, _ = listener.accept()
        with connection:
            request = connection.recv(1000)
            connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
            assert process.wait(timeout=20) == code
    assert request.startswith(b"GET /health ")


def test_health_fails_when_nothing_listens(container: Container) -> None:
    assert health(container).wait(timeout=20) == 1


def health(container: Container) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "llamacpp_engine.health"],
        env=container.environment,
        stderr=subprocess.DEVNULL,
    )
