"""How kt-legacy answers over HTTP on a GPU, recorded: `python3 -m gpu.record WORK OUT`.

Started by run.sh. Writes OUT/recorded/kt-legacy.json, which belongs into tests/fixtures/engines.
"""

import os
import sys
from pathlib import Path

from gpu.engine import CONTEXT_TOKENS, KEY, Start, running
from gpu.forms import older
from gpu.kt_legacy import FIXTURES
from recording.client import Door
from recording.record import record, today
from recording.recorded import Engine

VERSION = "KTransformers 0.2.1.post1, without Marlin"
FILE = "kt-legacy.json"


def main(work: Path, out: Path) -> int:
    threads = max(1, len(os.sched_getaffinity(0)) - 2)
    weights = older(FIXTURES, "Q4_K_M", work / "weights")
    start = Start(weights=weights, threads=threads, watched=out / "watched-record.json")
    with running(start, work, out / "record.log") as engine:
        recording = record(
            Door(f"http://127.0.0.1:{engine.port}", KEY),
            Engine(
                name="kt-legacy",
                version=VERSION,
                on="TinySeek Q4_K_M, on a GPU",
                recorded=today(),
                model="tiny",
                context_tokens=CONTEXT_TOKENS,
                slots=1,
            ),
        )
    (out / "recorded").mkdir(exist_ok=True)
    (out / "recorded" / FILE).write_text(recording.as_text(), encoding="utf-8")
    print(f"{FILE}: {len(recording.answers) + 3} answers")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
