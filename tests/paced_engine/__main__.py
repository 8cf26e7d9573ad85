"""`python -m paced_engine`: serves until a signal.

API_KEY_FILE and MODEL_NAME mean what they mean to the engine; PACED_* set the default pace.
"""

import argparse
import os
import sys
from pathlib import Path

import uvicorn

from paced_engine.app import PacedEngine
from paced_engine.pace import Pace


def main() -> int:
    parser = argparse.ArgumentParser(prog="paced_engine")
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104 - also the default of the real one
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    key_file = os.environ.get("API_KEY_FILE")
    engine = PacedEngine(
        Pace.from_environment(os.environ),
        api_key=Path(key_file).read_text(encoding="ascii").strip() if key_file else None,
    )
    uvicorn.run(engine, host=arguments.host, port=arguments.port, lifespan="off", access_log=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
