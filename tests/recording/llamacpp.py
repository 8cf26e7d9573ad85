"""llama.cpp in the stack's own image and container: `python3 -m recording.llamacpp`.

From the project's folder, in its environment of development, with Docker: see README.md beside this.
Brings a stack of its own up, takes it down again, and writes tests/fixtures/engines/llamacpp.json.
"""

import sys
import tempfile
from pathlib import Path

from e2e.scenario import Appliance
from recording.client import Door
from recording.record import record, today
from recording.recorded import KEPT, Engine, Recording

_CONTEXT_TOKENS, _SLOTS, _PORT = 2048, 2, 8000


def recorded_of(appliance: Appliance) -> Recording:
    """`appliance`: that serves `demo`. Its engine has no port on the host, but an address."""
    container = appliance.running("inference")
    assert container is not None
    (network,) = container.attrs["NetworkSettings"]["Networks"].values()
    told = container.exec_run(
        ["python3", "-c", "from importlib.metadata import version; print(version('xllamacpp'))"]
    )
    assert isinstance(told.output, bytes)
    return record(
        Door(f"http://{network['IPAddress']}:{_PORT}", appliance.secret("engine_api_key")),
        Engine(
            name="llamacpp",
            version=f"xllamacpp {told.output.decode().strip()}",
            on="TinySeek Q4_K_M, in its container, without a GPU",
            recorded=today(),
            model="local-model",
            context_tokens=_CONTEXT_TOKENS,
            slots=_SLOTS,
        ),
    )


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="recording-") as home:
        settings = {"context_tokens": str(_CONTEXT_TOKENS), "slots": str(_SLOTS)}
        appliance = Appliance(Path(home), settings)
        try:
            appliance.up()
            text = recorded_of(appliance).as_text()
        finally:
            appliance.remove()
    (KEPT / "llamacpp.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
