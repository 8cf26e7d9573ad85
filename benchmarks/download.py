"""Our weights job beside other clients: the same repository, from one hub on loopback, in one run.

See README.md beside this file.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hub import Hub, refetched_bytes
from wire import Lock
from wire.order import Order

REPO = "bench/model"
# When this share of all bytes was sent, the client is killed.
KILL_AT = 0.4
_SHA256SUM = shutil.which("sha256sum") or "sha256sum"
IMAGES = Path(__file__).resolve().parent.parent / "images"


@dataclass(frozen=True, slots=True)
class Client:
    """`command` fetches the repository into its folder. `verifies`: compares sha256 by itself."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    verifies: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of clock and of CPU, to the client's end and in the sha256 pass after it."""

    fetch_s: float
    fetch_cpu_s: float
    pass_s: float
    pass_cpu_s: float
    peak_bytes: int
    right: bool

    @property
    def proven_s(self) -> float:
        return self.fetch_s + self.pass_s


@dataclass(frozen=True, slots=True)
class Killed:
    """What a SIGKILL in the middle costs. `peak_bytes`: on disk, up to the end of the second run."""

    refetched_bytes: int
    peak_bytes: int
    right: bool


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=1.0, help="GB in all (default 1)")
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3, help="medians are taken of so many")
    parser.add_argument("--streams", type=int, default=4, help="connections in all, where settable")
    parser.add_argument("--peers", type=Path, help="folder with hf, aria2c, modelscope")
    parser.add_argument("--work", type=Path, help="where to write (default: the temporary folder)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="download-", dir=asked.work) as name:
        work = Path(name)
        total = _make_repository(work / "root" / REPO, int(asked.size * 1e9), asked.files)
        with Hub(work / "root") as hub:
            lock = hub.lock(REPO)
            clients = list(_clients(hub, lock, work, asked.streams, asked.peers))
            runs: dict[str, list[Run]] = {client.name: [] for client in clients}
            # Round by round, so that a busy minute of the machine hits all of them.
            for _ in range(asked.rounds):
                for client in clients:
                    runs[client.name].append(_measured(client, lock, work))
            killed = {client.name: _killed(client, hub, lock, work) for client in clients}
    _say("\n".join(_table(clients, runs, killed, total)))
    wrong = [name for name, all_ in runs.items() if not all(run.right for run in all_)]
    return 1 if wrong or not all(end.right for end in killed.values()) else 0


def _make_repository(folder: Path, total: int, files: int) -> int:
    """Random bytes: nothing on the way can make them fewer."""
    folder.mkdir(parents=True)
    source = random.Random(0)  # noqa: S311 - the same bytes every time
    size = total // files
    for number in range(1, files + 1):
        with (folder / f"model-{number:05}-of-{files:05}.bin").open("wb") as file:
            for start in range(0, size, 1 << 20):
                file.write(source.randbytes(min(1 << 20, size - start)))
    return size * files


# --- the clients ---


def _clients(
    hub: Hub, lock: Lock, work: Path, streams: int, peers: Path | None
) -> Iterator[Client]:
    into = work / "into"
    tuning = {"streams": streams}
    order = Order.model_validate(
        {"lock": lock.model_dump(), "sources": [hub.huggingface(REPO)], "tuning": tuning}
    )
    (work / "order.json").write_text(order.model_dump_json())
    packages = (IMAGES / "wire/src", IMAGES / "downloader/src")
    ours = {
        "ORDER_FILE": str(work / "order.json"),
        "WEIGHTS_DIR": str(into),
        "PYTHONPATH": os.pathsep.join(map(str, packages)),
    }
    yield Client("ours", [sys.executable, "-m", "downloader"], ours, verifies=True)
    if program := _found("hf", peers):
        command = [program, "download", REPO, "--revision", lock.revision, "--local-dir", str(into)]
        plain = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(into / "home"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        yield Client(
            "hf download", [*command, "--max-workers", str(streams)], plain, verifies=False
        )
    if program := _found("aria2c", peers):
        listing = work / "aria2.txt"
        listing.write_text(
            "".join(f"{hub.folder(REPO).url}/{f.path}\n out={f.path}\n" for f in lock.files)
        )
        command = [program, "--input-file", str(listing), "--dir", str(into), "--continue=true"]
        command += ["--max-concurrent-downloads=1", f"--max-connection-per-server={streams}"]
        command += [f"--split={streams}", "--file-allocation=falloc", "--quiet"]
        yield Client("aria2c", command, {}, verifies=False)
    if program := _found("modelscope", peers):
        command = [program, "download", REPO, "--local-dir", str(into)]
        scope = {"MODELSCOPE_ENDPOINT": hub.url, "MODELSCOPE_CACHE": str(into / "home")}
        workers = ["--max-workers", str(streams)]
        yield Client("modelscope", [*command, *workers], scope, verifies=True)


def _found(program: str, peers: Path | None) -> str | None:
    path = os.pathsep.join([str(peers), os.environ["PATH"]] if peers else [os.environ["PATH"]])
    found = shutil.which(program, path=path)
    if found is None:
        _say(f"{program} is not installed here: left out")
    return found


# --- measuring ---


def _measured(client: Client, lock: Lock, work: Path) -> Run:
    into = _emptied(work)
    with _watched(into) as peak:
        started = time.monotonic()
        code, fetch_cpu_s = _waited(_started(client))
        fetch_s = time.monotonic() - started
    started = time.monotonic()
    same, pass_cpu_s = _compared(client, lock, work)
    pass_s = time.monotonic() - started
    return Run(
        fetch_s=fetch_s,
        fetch_cpu_s=fetch_cpu_s,
        pass_s=0 if client.verifies else pass_s,
        pass_cpu_s=0 if client.verifies else pass_cpu_s,
        peak_bytes=max(peak),
        right=code == 0 and same,
    )


def _killed(client: Client, hub: Hub, lock: Lock, work: Path) -> Killed:
    into = _emptied(work)
    hub.forget()
    total = lock.total_bytes
    with _watched(into) as peak:
        process = _started(client)
        hub.wait(lambda seen: sum(entry.sent for entry in seen) > KILL_AT * total, within_s=300)
        os.killpg(process.pid, signal.SIGKILL)
        _waited(process)
        hub.wait(lambda seen: all(entry.ended for entry in seen), within_s=60)
        code, _ = _waited(_started(client))
    refetched = sum(refetched_bytes(hub.seen, file.path) for file in lock.files)
    same, _ = _compared(client, lock, work)
    return Killed(refetched, max(peak), code == 0 and same)


def _compared(client: Client, lock: Lock, work: Path) -> tuple[bool, float]:
    """Whether every file has the lock's sha256, and the seconds of CPU that it took to say so."""
    sums = work / "sums"
    sums.write_text("".join(f"{file.sha256}  {file.path}\n" for file in lock.files))
    folder = _folder(client, lock, work / "into")
    if not folder.is_dir():
        return False, 0
    checker = subprocess.Popen(  # noqa: S603 - arguments of our own
        [_SHA256SUM, "--check", "--quiet", "--strict", str(sums)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    code, cpu_s = _waited(checker)
    return code == 0, cpu_s


def _folder(client: Client, lock: Lock, into: Path) -> Path:
    return into / lock.folder if client.name == "ours" else into


def _emptied(work: Path) -> Path:
    into = work / "into"
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    # What the last client left for the disk to do is not the next one's business.
    os.sync()
    return into


def _started(client: Client) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - the client that is measured
        client.command,
        env={**os.environ, "no_proxy": "*", **client.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _waited(process: "subprocess.Popen[bytes]") -> tuple[int, float]:
    """Exit code, and seconds of CPU of the process and of those that it started and waited for."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


@contextlib.contextmanager
def _watched(folder: Path) -> Iterator[list[int]]:
    """Bytes that the folder takes on disk, ten times a second while the block runs, and at its end."""
    sizes: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            sizes.append(_on_disk(folder))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield sizes
    finally:
        done.set()
        watcher.join()
        sizes.append(_on_disk(folder))


def _on_disk(folder: Path) -> int:
    taken = 0
    for where, _, names in os.walk(folder):
        for name in names:
            # Partial files are renamed and removed while this looks.
            with contextlib.suppress(FileNotFoundError):
                taken += os.lstat(f"{where}/{name}").st_blocks * 512
    return taken


# --- telling ---


def _table(
    clients: Sequence[Client],
    runs: Mapping[str, Sequence[Run]],
    killed: Mapping[str, Killed],
    total: int,
) -> Iterator[str]:
    def rate(client: Client, seconds: Callable[[Run], float]) -> float:
        return total / 1e6 / statistics.median(map(seconds, runs[client.name]))

    yield f"{total / 1e9:.2f} GB, medians of {len(runs[clients[0].name])}, {os.cpu_count()} CPUs\n"
    yield (
        "| client | MB/s unverified | MB/s proven | ours is"
        " | CPU s proven | peak disk | sent again after SIGKILL | peak disk with the kill | right |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for client in clients:
        mine, end = runs[client.name], killed[client.name]
        bare = "-" if client.verifies else f"{rate(client, lambda run: run.fetch_s):.0f}"
        cells = [client.name, bare]
        proven = rate(client, lambda run: run.proven_s)
        cpu = statistics.median(run.fetch_cpu_s + run.pass_cpu_s for run in mine)
        cells += [
            f"{proven:.0f}",
            f"{rate(clients[0], lambda run: run.proven_s) / proven:.2f}x",
            f"{cpu:.1f}",
            f"{max(run.peak_bytes for run in mine) / total:.2f}x",
            f"{end.refetched_bytes / 1e6:.0f} MB",
            f"{end.peak_bytes / total:.2f}x",
            "yes" if end.right and all(run.right for run in mine) else "NO",
        ]
        yield f"| {' | '.join(cells)} |"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
