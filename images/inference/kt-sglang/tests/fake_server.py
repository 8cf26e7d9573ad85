"""Stands in for sglang: `fake_server.py BEHAVIOUR TOLD_FILE ARGUMENT...`, with a child of its own.

Lines are those of sglang 0.7.2's source.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

SHARDS = "Loading safetensors checkpoint shards:"
DIES = {
    "no-memory": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "no-fp8": "ValueError: type fp8e4nv not supported in this architecture.",
    "no-compiler": "RuntimeError: ninja: build stopped: subcommand failed.",
    "no-shard": "KeyError: \"Tensor 'blk.3.ffn_up_exps.weight' not found in GGUF files\"",
    "no-room": "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    "watchdog": "Scheduler watchdog timeout (self.watchdog_timeout=3000, self.soft=False)",
    "ends": "nothing that anybody knows",
}
# What it says of a process of its own that failed, before and after the load, or of its own first
# request; it then kills itself.
GIVES_UP = {
    "gives-up-early": "Received sigquit from a child process. It usually means the child failed.",
    "gives-up": "SIGQUIT received. signum=3, frame=None. It usually means one child failed.",
    "no-warm-up": "Initialization failed. warmup error: Traceback (most recent call last):",
}


def say(text: str, end: str = "\n") -> None:
    sys.stderr.write(text + end)
    sys.stderr.flush()


def wait() -> NoReturn:
    while True:
        signal.pause()


def main(behaviour: str, told: Path, arguments: list[str]) -> int:
    # As the real one does first: the launcher holds signals back, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    record = {"arguments": arguments, "environment": dict(os.environ), "child": child.pid}
    told.write_text(json.dumps(record), encoding="utf-8")
    if behaviour == "ignores":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(f"{SHARDS}   0% Completed | 0/4 [00:00<?, ?it/s]", end="\r")
    say(f"{SHARDS}  25% Completed | 1/4 [00:01<00:03,  1.00s/it]", end="\r")
    if behaviour == "loads":
        wait()
    if behaviour in {"crashes", "killed"}:
        say("half a line", end="")
        os.kill(os.getpid(), signal.SIGSEGV if behaviour == "crashes" else signal.SIGKILL)
    if behaviour in GIVES_UP:
        say("Scheduler hit an exception: Traceback (most recent call last):\nKeyError: 'of ours'")
        say(GIVES_UP[behaviour])
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "late":
        say("The server is fired up and ready to roll!")
        behaviour = "no-memory"
    if behaviour in DIES:
        say(DIES[behaviour])
        say("RuntimeError: the wake of it")
        return 1
    say("set_mempolicy: Operation not permitted\nset_mempolicy: Operation not permitted")
    say("Capture cuda graph begin. This can take up to several minutes.")
    say("Uvicorn running on http://0.0.0.0:8000")
    say("The server is fired up and ready to roll!")
    say("Capture cuda graph bs [1, 2]")
    say("serving")
    wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
