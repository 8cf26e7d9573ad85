"""The job's memory does not grow with what it fetches: 1 and 4 GB over loopback, four streams."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hub import Hub
from images.downloader.tests.support import noise
from wire.order import Order, Tuning

REPO = "owner/model"
FILES = 4
# Not `getrusage`: its peak outlives an exec, and so is that of the test before the program.
MEASURED = """
import os, sys, time
from pathlib import Path
from downloader.__main__ import main
began = time.monotonic()
code = main([], os.environ)
wall_s = time.monotonic() - began
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
peak_bytes = int(status["VmHWM"].split()[0]) * 1024
print(wall_s, time.process_time(), peak_bytes, file=sys.stderr)
sys.exit(code)
"""


def peak_bytes(gigabytes: int, folder: Path, environment: dict[str, str]) -> int:
    model = folder / "hub" / REPO
    model.mkdir(parents=True)
    block = noise(1, 10_000_000)
    for number in range(FILES):
        with (model / f"{number}.bin").open("wb") as file:
            for _ in range(gigabytes * 100 // FILES):
                file.write(block)
    weights = folder / "weights"
    weights.mkdir()
    server = [sys.executable, "-m", "hub", str(folder / "hub"), "0"]
    hub_environment = {**environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    with Hub(folder / "hub") as described:
        lock, source = described.lock(REPO, "*"), described.huggingface(REPO)
    with subprocess.Popen(server, env=hub_environment, stdout=subprocess.PIPE, text=True) as hub:
        assert hub.stdout is not None
        url = hub.stdout.readline().split()[-1]
        source = source.model_copy(update={"endpoint": url})
        order = Order(lock=lock, sources=(source,), tuning=Tuning(streams=4))
        Path(environment["ORDER_FILE"]).write_text(order.model_dump_json())
        told = {**environment, "WEIGHTS_DIR": str(weights)}
        run = subprocess.run(
            [sys.executable, "-c", MEASURED],
            env=told,
            check=False,
            capture_output=True,
            text=True,
        )
        hub.terminate()
    assert run.returncode == 0, run.stderr
    wall_s, processor_s, peak = run.stderr.split()[-3:]
    sys.stdout.write(f"{gigabytes} GB: {wall_s} s, of a processor {processor_s} s\n")
    return int(peak)


@pytest.mark.long
def test_memory_stays_small_and_flat(tmp_path: Path, environment: dict[str, str]) -> None:
    peaks = {
        gigabytes: peak_bytes(gigabytes, tmp_path / str(gigabytes), environment)
        for gigabytes in (1, 4)
    }

    sys.stdout.write(f"{json.dumps(peaks)}\n")
    assert max(peaks.values()) < 300_000_000
    assert abs(peaks[4] - peaks[1]) < 10_000_000
