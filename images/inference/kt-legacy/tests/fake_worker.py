"""Stands in for the process with the model: `python3 fake_worker.py BEHAVIOUR FD`.

serves, loads (for ever, at half), refuses (exit code 3), "ends 255" (that exit code), crashes (SIGABRT),
breaks (at the first chat) or spoils (its logits, from there on).
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from kt_legacy_engine.model import EngineGone, Logits
from kt_legacy_engine.pipe import Ready, Server
from reciting import VOCABULARY, Reciter


def main(behaviour: str, fd: int) -> int:
    server = Server(Connection(fd))
    spec = server.ordered()
    server.tell(0, 1000)
    if behaviour == "refuses":
        sys.stderr.write("error: there is no GPU\n")
        return 3
    if behaviour == "ends 255":
        return 255
    if behaviour == "crashes":
        os.kill(os.getpid(), signal.SIGABRT)
    if behaviour == "loads":
        server.tell(500, 1000)
        sys.stderr.write("half\n")
        sys.stderr.flush()
        signal.pause()
    if target := os.environ.get("FAKE_WORKER_TOLD"):
        told = {"shards": spec.shards, "cpu_infer": spec.cpu_infer, "path": sys.path}
        told |= {"environment": dict(os.environ)}
        told |= {"memory": [spec.memory_policy, spec.memory_nodes]}
        Path(target).write_text(json.dumps(told), encoding="utf-8")
    model = Reciter(capacity=spec.cache_lens)
    if behaviour == "breaks":
        model = _Breaking(capacity=spec.cache_lens)
    if behaviour == "spoils":
        model = _Spoiling(capacity=spec.cache_lens)
    ready = Ready(capacity=spec.cache_lens, vocabulary=VOCABULARY, about=("GPU: none",))
    server.serve(model, ready)
    return 0


class _Breaking(Reciter):
    """As soon as it reads more than the warm-up's prompt."""

    def extend(self, tokens: Sequence[int]) -> Logits:
        if len(tokens) > 8:
            os._exit(9)
        return super().extend(tokens)


class _Spoiling(Reciter):
    def extend(self, tokens: Sequence[int]) -> Logits:
        self.spoils = self.spoils or len(tokens) > 8
        return super().extend(tokens)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], int(sys.argv[2])))
    except EngineGone:
        sys.exit(1)
