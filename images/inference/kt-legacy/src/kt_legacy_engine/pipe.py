"""What the two processes say to each other, over one socket. Logits travel as they lie in memory."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from kt_legacy_engine.model import EngineGone, Logits, Model
from placing.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What the process with the model is to load. Paths are absolute.

    `memory_nodes`: where the weights are to lie, by `memory_policy`.
    """

    model_path: str
    shards: tuple[str, ...]
    rules: str
    cpu_infer: int
    cache_lens: int
    memory_policy: Policy = "local"
    memory_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What it loaded. `about`: for people."""

    capacity: int
    vocabulary: int
    about: tuple[str, ...]


class Caller:
    """The end of the process that answers HTTP."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def order(self, spec: Spec) -> None:
        self._send(asdict(spec))

    def heard(self, within_s: float) -> Ready | tuple[int, int] | None:
        """How many bytes are loaded, of how many; at last what is loaded. None: nothing new."""
        try:
            if not self._connection.poll(within_s):
                return None
            said = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise EngineGone("the process with the model ended while it loaded it") from error
        if "loaded" in said:
            return int(said["loaded"]), int(said["total"])
        return Ready(
            capacity=said["capacity"], vocabulary=said["vocabulary"], about=tuple(said["about"])
        )

    def extend(self, tokens: Sequence[int]) -> Logits:
        self._send({"extend": list(tokens)})
        try:
            answer = self._connection.recv_bytes()
        except (OSError, EOFError) as error:
            raise EngineGone("the process with the model ended") from error
        return np.frombuffer(answer, dtype=np.float32)

    def truncate(self, length: int) -> None:
        self._send({"truncate": length})

    def _send(self, said: dict[str, Any]) -> None:
        try:
            self._connection.send_bytes(json.dumps(said).encode())
        except OSError as error:
            raise EngineGone("the process with the model ended") from error


class Server:
    """The end of the process that has the model."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ordered(self) -> Spec:
        said = json.loads(self._connection.recv_bytes())
        several = {name: tuple(said[name]) for name in ("shards", "memory_nodes")}
        return Spec(**said | several)

    def tell(self, loaded_bytes: int, total_bytes: int) -> None:
        self._send({"loaded": loaded_bytes, "total": total_bytes})

    def serve(self, model: Model, ready: Ready) -> None:
        """Returns when the other end is gone."""
        try:
            self._send(asdict(ready))
            while True:
                said = json.loads(self._connection.recv_bytes())
                if "extend" in said:
                    self._connection.send_bytes(model.extend(said["extend"]).tobytes())
                else:
                    model.truncate(said["truncate"])
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return

    def _send(self, said: dict[str, Any]) -> None:
        self._connection.send_bytes(json.dumps(said).encode())
