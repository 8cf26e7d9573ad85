"""Stands in for the engine's wheel: an open port, and the ways an engine can fail.

FAKE_ENGINE says which: serves, refuses, loads-for-ever, crashes.
FAKE_ENGINE_PARAMS names a file that gets the parameters as JSON.
"""

import ctypes
import json
import os
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class CommonParams(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        )


class Server:
    def __init__(self, params: CommonParams) -> None:
        if target := os.environ.get("FAKE_ENGINE_PARAMS"):
            Path(target).write_text(json.dumps(params, default=_plain), encoding="utf-8")
        self.listening_address = f"http://0.0.0.0:{params.port}"
        behaviour = os.environ["FAKE_ENGINE"]
        if behaviour == "refuses":
            sys.stderr.write("E load_model: failed to load GGUF split\n")
            _begin_a_line()
            message = "Failed to init server, please check the input params."
            raise RuntimeError(message)
        if behaviour == "loads-for-ever":
            sys.stderr.write("loading\n")
            # Like the real one: in C, and without letting go of the interpreter.
            ctypes.PyDLL(None).sleep(600)
        if behaviour == "crashes":
            _begin_a_line()
            os.kill(os.getpid(), signal.SIGABRT)
        self.listener = socket.create_server(("127.0.0.1", params.port))
        _begin_a_line()


def _begin_a_line() -> None:
    """Like the real one's log thread, which writes a line in pieces: the rest comes later."""
    sys.stderr.write("0.00.105.488 I ")
    sys.stderr.flush()


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set) else vars(value)
