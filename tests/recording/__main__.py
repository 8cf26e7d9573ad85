"""Records the engine at a URL: `PYTHONPATH=tests python3 -m recording --help`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from recording.client import Door
from recording.record import record, today
from recording.recorded import Engine


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m recording", description="Record how an engine answers over HTTP."
    )
    parser.add_argument("url", help="http://HOST:PORT of the engine itself, not of the gateway")
    parser.add_argument("--key-file", type=Path, required=True, help="a file with its API key")
    parser.add_argument("--name", required=True, help="of the engine, as in llamacpp")
    parser.add_argument("--version", required=True, help="of the engine")
    parser.add_argument("--on", required=True, help="model and machine, in words")
    parser.add_argument("--model", required=True, help="the model's name at the engine")
    parser.add_argument("--context-tokens", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True, help="requests it works on at once")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    said = parser.parse_args(words)
    engine = Engine(
        name=said.name,
        version=said.version,
        on=said.on,
        recorded=today(),
        model=said.model,
        context_tokens=said.context_tokens,
        slots=said.slots,
    )
    key = said.key_file.read_text(encoding="ascii").strip()
    recording = record(Door(said.url, key), engine)
    said.out.write_text(recording.as_text(), encoding="utf-8")
    print(f"{said.out}: {len(recording.answers) + 3} answers")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
