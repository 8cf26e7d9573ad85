"""How far the engine has come, read from the lines of its log: its port opens only after the load."""

import re
from dataclasses import asdict, dataclass, replace

LOADING = "loading"
COMPILING = "compiling kernels and recording CUDA graphs"
WARMING = "warming up"
READY = "ok"

_SHARDS = re.compile(r"Loading safetensors checkpoint shards:.*?(\d+)/(\d+)")
_MARKS = (
    ("Capture cuda graph", COMPILING),
    ("Uvicorn running on", WARMING),
    ("The server is fired up and ready to roll!", READY),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """As the healthcheck tells it. `loaded_bytes`: of the locked files, by the shards that are read.

    `eta_s`: at the mean pace so far; None: too early to tell.
    """

    status: str = LOADING
    loaded_bytes: int = 0
    total_bytes: int = 0
    eta_s: float | None = None
    reason: str = ""

    def record(self) -> dict[str, object]:
        return asdict(self)


def after(stage: Stage, line: str, elapsed_s: float) -> Stage:
    """`elapsed_s`: since the engine was started."""
    if stage.status == READY:
        return stage
    if stage.status == LOADING and (found := _SHARDS.search(line)):
        done, count = int(found[1]), int(found[2])
        eta_s = round(elapsed_s * (count - done) / done, 1) if done else None
        loaded_bytes = stage.total_bytes * done // count if count else 0
        return replace(stage, loaded_bytes=loaded_bytes, eta_s=eta_s)
    for mark, status in _MARKS:
        if mark in line:
            return Stage(status=status)
    return stage
