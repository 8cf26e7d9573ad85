"""The process with the model, which writes what torch says of its memory to WATCHED_FILE.

`weights_bytes` and `cache_bytes`: what torch had allocated once the model was loaded, and what the
cache added. `most_loading_bytes`: the most that it had reserved until then;
`most_loading_in_use_bytes`: the most of that which was in use. `linears`: how many of the model's
layers compute by which of the engine's classes; `experts`: how many layers' experts. The rest every half second; torch counts it itself,
without asking the GPU.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from gpu.linears import experts, linears
from kt_legacy_engine import engine, worker

_EVERY_S = 0.5


def watch(target: Path) -> None:
    found: dict[str, Any] = {"pid": os.getpid()}
    injected, plain = engine._injected, engine.KtModel

    def measured(*told: Any) -> Any:
        model = injected(*told)
        found["weights_bytes"] = torch.cuda.memory_allocated()
        found["most_loading_bytes"] = torch.cuda.max_memory_reserved()
        found["most_loading_in_use_bytes"] = torch.cuda.max_memory_allocated()
        found["linears"], found["experts"] = linears(model), experts(model)
        return model

    def counted(*told: Any, **more: Any) -> Any:
        before = torch.cuda.memory_allocated()
        model = plain(*told, **more)
        found["cache_bytes"] = torch.cuda.memory_allocated() - before
        torch.cuda.reset_peak_memory_stats()
        threading.Thread(target=tell, daemon=True).start()
        return model

    def tell() -> None:
        part = target.with_suffix(".part")
        while True:
            found["allocated_bytes"] = torch.cuda.memory_allocated()
            found["reserved_bytes"] = torch.cuda.memory_reserved()
            found["most_allocated_bytes"] = torch.cuda.max_memory_allocated()
            part.write_text(json.dumps(found), encoding="utf-8")
            part.replace(target)
            time.sleep(_EVERY_S)

    vars(engine).update(_injected=measured, KtModel=counted)


if __name__ == "__main__":
    watch(Path(os.environ["WATCHED_FILE"]))
    sys.exit(worker.main(int(sys.argv[1])))
