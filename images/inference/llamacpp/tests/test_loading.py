"""How far a load is, told by the healthcheck while llama.cpp says nothing."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamacpp_engine.loading import progress

GB = 10**9
SOURCES = Path(__file__).parents[1] / "src"
TICKS = os.sysconf("SC_CLK_TCK")
FILES = [
    {"path": "Q4/m-00001-of-00002.gguf", "size_bytes": 100 * GB},
    {"path": "Q4/m-00002-of-00002.gguf", "size_bytes": 40 * GB},
    {"path": "README.md", "size_bytes": 7},
]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock.json"
    path.write_text(json.dumps({"repo": "o/r", "revision": "a", "files": FILES}))
    return path


def a_parent(proc: Path, process: int, name: str, child: int) -> None:
    task = proc / f"{process}/task/{process}"
    task.mkdir(parents=True, exist_ok=True)
    (task / "children").write_text(f"{child} ")
    (proc / f"{process}/comm").write_text(f"{name}\n")


def a_process(proc: Path, *, mapped: int, read: int | None, began_s: float) -> None:
    """As proc(5) has it: process 1 with the child 7, 600 s after the host's start."""
    a_parent(proc, 1, "python3", 7)
    for folder in ("self", "7"):
        (proc / folder).mkdir(exist_ok=True)
    (proc / "self/comm").write_text("python3\n")
    (proc / "7/status").write_text(
        f"Name:\tpython3\nRssAnon:\t 12 kB\nRssFile:\t {mapped // 1024} kB\n"
    )
    rest = ["S", "1", *["0"] * 17, str(int(began_s * TICKS)), "0"]
    (proc / "7/stat").write_text(f"7 (llama server) {' '.join(rest)}\n")
    (proc / "uptime").write_text("600.00 1100.00\n")
    if read is not None:
        (proc / "7/io").write_text(f"rchar: 1\nread_bytes: {read}\nwrite_bytes: 0\n")


def test_a_load_is_told_in_bytes_with_the_time_that_is_left(tmp_path: Path, lock: Path) -> None:
    a_process(tmp_path, mapped=35 * 2**30, read=30 * GB, began_s=480)
    # 37.58 of 140 GB in 120 s: the other 102.42 GB in 327 s.
    assert progress({"LOCK_FILE": str(lock)}, tmp_path) == {
        "status": "loading",
        "loaded_bytes": 37_580_963_840,
        "total_bytes": 140 * GB,
        "read_bytes": 30 * GB,
        "eta_s": pytest.approx(327.0, abs=0.1),
    }


def test_before_the_first_byte_no_end_is_foretold(tmp_path: Path, lock: Path) -> None:
    a_process(tmp_path, mapped=0, read=None, began_s=599)
    found = progress({"LOCK_FILE": str(lock)}, tmp_path)
    assert found is not None
    assert (found["loaded_bytes"], found["eta_s"], found["read_bytes"]) == (0, None, None)


def test_more_than_the_files_is_not_loaded(tmp_path: Path, lock: Path) -> None:
    """Its libraries are mapped too."""
    a_process(tmp_path, mapped=200 * GB, read=0, began_s=0)
    found = progress({"LOCK_FILE": str(lock)}, tmp_path)
    assert found is not None
    assert (found["loaded_bytes"], found["eta_s"]) == (140 * GB, 0.0)


def test_what_is_read_before_it_is_mapped_counts_as_well(tmp_path: Path, lock: Path) -> None:
    """On several NUMA nodes the files are read into place first."""
    a_process(tmp_path, mapped=0, read=70 * GB, began_s=500)
    found = progress({"LOCK_FILE": str(lock)}, tmp_path)
    assert found is not None
    assert (found["loaded_bytes"], found["eta_s"]) == (70 * GB, 100.0)


def test_without_an_engine_or_a_lock_nothing_is_told(tmp_path: Path, lock: Path) -> None:
    assert progress({"LOCK_FILE": str(lock)}, tmp_path) is None
    a_process(tmp_path, mapped=1, read=1, began_s=0)
    assert progress({}, tmp_path) is None
    assert progress({"LOCK_FILE": str(tmp_path / "none")}, tmp_path) is None
    (tmp_path / "1/task/1/children").write_text("")
    assert progress({"LOCK_FILE": str(lock)}, tmp_path) is None


@pytest.mark.parametrize("init", ["docker-init", "tini", "catatonit"])
def test_behind_an_init_the_engine_is_told_of_and_not_what_watches_it(
    tmp_path: Path, lock: Path, init: str
) -> None:
    """compose.yaml has `init: true`: process 1 is Docker's, and its child watches the engine."""
    a_process(tmp_path, mapped=70 * GB, read=0, began_s=500)
    a_parent(tmp_path, 6, "python3", 7)
    a_parent(tmp_path, 1, init, 6)
    (tmp_path / "6/status").write_text("Name:\tpython3\nRssFile:\t 20000 kB\n")
    (tmp_path / "6/stat").write_text((tmp_path / "7/stat").read_text())
    found = progress({"LOCK_FILE": str(lock)}, tmp_path)
    assert found is not None
    assert (found["loaded_bytes"], found["eta_s"]) == (pytest.approx(70 * GB, abs=1024), 100.0)


def test_before_the_engine_there_is_nothing_to_tell_behind_an_init_either(
    tmp_path: Path, lock: Path
) -> None:
    a_process(tmp_path, mapped=70 * GB, read=0, began_s=500)
    a_parent(tmp_path, 1, "docker-init", 6)
    a_parent(tmp_path, 6, "python3", 7)
    (tmp_path / "6/task/6/children").write_text("")
    assert progress({"LOCK_FILE": str(lock)}, tmp_path) is None


def test_this_kernel_says_of_a_real_process_what_is_asked_of_it(lock: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", "input(1)"], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.read(1) == b"1"
        found = progress({"LOCK_FILE": str(lock)}, first=os.getpid())
        child.communicate(b"\n")
    assert found is not None
    assert 0 < found["loaded_bytes"] < GB
    assert found["eta_s"] >= 0


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(self.server.answers)  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1), (500, 1)])
def test_the_check_passes_only_what_is_loaded(
    server: http.server.HTTPServer, lock: Path, status: int, code: int
) -> None:
    server.answers = status  # type: ignore[attr-defined]
    done = subprocess.run(
        [sys.executable, "-m", "llamacpp_engine.health"],
        env={
            "PYTHONPATH": str(SOURCES),
            "LISTEN_PORT": str(server.server_port),
            "LOCK_FILE": str(lock),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    # Here process 1 is none of ours, and may be anything: JSON alone, or one line for people.
    if done.stdout:
        assert status == 503
        assert json.loads(done.stdout)["status"] == "loading"
        assert done.stderr == ""
    else:
        assert done.stderr == f"/health: {status}\n"
