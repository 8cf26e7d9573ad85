"""Our gateway beside other proxies: what each adds to a stream, what it costs, who sees who left.

See README.md beside this file.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.gateway_bench import load, proxies, stub
from benchmarks.gateway_bench.processes import cpu_s, pss_bytes
from benchmarks.gateway_bench.proxies import Proxy

# A whole core more than the least that a proxy in Python needs would be waste.
MOST_TIMES_BARE = 2.0
PHASES = ("before the first token", "mid-stream", "without stream")
TICK_S = 1 / 15
# Two hundred a second and stream: the processor does not fall asleep between two of them.
DENSE_TICK_S = 1 / 200
DENSE_TICKS = 400


@dataclass(frozen=True, slots=True)
class Counts:
    """How much of everything in one round."""

    alone: int
    clients: int
    ticks: int
    whole: int
    leavers: int


@dataclass(slots=True)
class Figures:
    """Of one proxy: one value a round, in the units of the names."""

    alone_ms: list[float] = field(default_factory=list)
    together_ms: list[float] = field(default_factory=list)
    event_us: list[float] = field(default_factory=list)
    dense_us: list[float] = field(default_factory=list)
    request_us: list[float] = field(default_factory=list)
    requests_per_s: list[float] = field(default_factory=list)
    pss_mb: list[float] = field(default_factory=list)
    left_ms: dict[str, list[float | None]] = field(default_factory=dict)
    queued_ms: list[float] = field(default_factory=list)
    exact: bool = True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="medians are taken of so many")
    parser.add_argument("--alone", type=int, default=300, help="streams one after another")
    parser.add_argument("--clients", type=int, default=32, help="streams at once")
    parser.add_argument(
        "--ticks", type=int, default=60, help="events of each of these, 15 a second"
    )
    parser.add_argument("--whole", type=int, default=1600, help="answers without stream")
    parser.add_argument("--leavers", type=int, default=4, help="clients that leave, each phase")
    parser.add_argument("--peers", type=Path, help="folder for what is compared; made if missing")
    parser.add_argument("--work", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument(
        "--python",
        default=sys.executable,
        help="runs ours and the bare proxy (the gateway's image has Debian's: /usr/bin/python3)",
    )
    parser.add_argument("--quick", action="store_true", help="CPU per event beside a bare proxy's")
    asked = parser.parse_args()
    proxies.check_python(asked.python)
    if asked.peers is not None:
        proxies.get_peers(asked.peers)
    counts = Counts(asked.alone, asked.clients, asked.ticks, asked.whole, asked.leavers)
    uvloop.install()
    with (
        tempfile.TemporaryDirectory(prefix="gateway-", dir=asked.work) as name,
        _all(Path(name), asked.peers, asked.python, quick=asked.quick) as found,
    ):
        runs = {proxy.name: Figures() for proxy in found}
        for _ in range(asked.rounds):
            asyncio.run(_round(found, runs, counts, quick=asked.quick))
    if asked.quick:
        return _verdict(runs)
    sys.stdout.write("\n".join(_table(runs)) + "\n")
    mine = runs["ours, everything on"]
    stopped = all(value is not None for values in mine.left_ms.values() for value in values)
    return 0 if mine.exact and stopped else 1


@contextlib.contextmanager
def _all(work: Path, folder: Path | None, python: str, *, quick: bool) -> Iterator[list[Proxy]]:
    with contextlib.ExitStack() as stack:
        direct = stack.enter_context(proxies.engine(work))
        engine_port = direct.target.port
        found = [direct]
        found.append(stack.enter_context(proxies.bare(engine_port, work, python)))
        found.append(stack.enter_context(proxies.ours(engine_port, work, python)))
        if not quick:
            found += map(stack.enter_context, proxies.peers(engine_port, work, folder))
        asyncio.run(_all_answer(found))
        yield found


async def _all_answer(found: Sequence[Proxy]) -> None:
    """Some listen before they know their engine. The first answers warm them all up too."""
    for proxy in found:
        deadline_s = time.monotonic() + 60
        while True:
            try:
                await load.one_after_another(proxy.target, count=20)
                break
            except (RuntimeError, OSError, EOFError) as error:
                if time.monotonic() > deadline_s:
                    message = f"{proxy.name} does not answer: {error}"
                    raise RuntimeError(message) from error
                await asyncio.sleep(0.5)


# --- one round ---


async def _round(
    found: Sequence[Proxy], runs: dict[str, Figures], counts: Counts, *, quick: bool
) -> None:
    """Measure by measure over all proxies, so that a busy minute of the machine hits all of them."""
    for proxy in found:
        await _together(proxy, runs[proxy.name], counts)
    if quick:
        return
    for proxy in found:
        await _dense(proxy, runs[proxy.name], counts)
    for proxy in found:
        answers = await load.one_after_another(proxy.target, count=counts.alone)
        runs[proxy.name].alone_ms.append(_median_ms(answers))
    for proxy in found:
        await _whole(proxy, runs[proxy.name], counts)
    for proxy in found:
        await _leavers(proxy, found[0].target.port, runs[proxy.name], counts)
    for proxy in found:
        if proxy.pid is not None:
            runs[proxy.name].pss_mb.append(pss_bytes(proxy.pid) / 1e6)


async def _together(proxy: Proxy, figures: Figures, counts: Counts) -> None:
    before_s = 0.0 if proxy.pid is None else cpu_s(proxy.pid)
    answers = await load.together(
        proxy.target, clients=counts.clients, ticks=counts.ticks, tick_s=TICK_S
    )
    if proxy.pid is not None:
        events = counts.clients * (counts.ticks + 1)
        figures.event_us.append((cpu_s(proxy.pid) - before_s) / events * 1e6)
    figures.together_ms.append(_median_ms(answers))
    expected = stub.stream(counts.ticks)
    figures.exact = figures.exact and all(answer.body == expected for answer in answers)


async def _dense(proxy: Proxy, figures: Figures, counts: Counts) -> None:
    if proxy.pid is None:
        return
    before_s = cpu_s(proxy.pid)
    answers = await load.together(
        proxy.target, clients=counts.clients, ticks=DENSE_TICKS, tick_s=DENSE_TICK_S
    )
    events = counts.clients * (DENSE_TICKS + 1)
    figures.dense_us.append((cpu_s(proxy.pid) - before_s) / events * 1e6)
    expected = stub.stream(DENSE_TICKS)
    figures.exact = figures.exact and all(answer.body == expected for answer in answers)


async def _whole(proxy: Proxy, figures: Figures, counts: Counts) -> None:
    before_s = 0.0 if proxy.pid is None else cpu_s(proxy.pid)
    took_s = await load.whole_answers(proxy.target, clients=16, count=counts.whole)
    if proxy.pid is not None:
        figures.request_us.append((cpu_s(proxy.pid) - before_s) / counts.whole * 1e6)
    figures.requests_per_s.append(counts.whole / took_s)


async def _leavers(proxy: Proxy, engine_port: int, figures: Figures, counts: Counts) -> None:
    for phase in PHASES:
        for _ in range(counts.leavers):
            seconds = await load.leave(proxy.target, engine_port, phase=phase)
            figures.left_ms.setdefault(phase, []).append(seconds and seconds * 1e3)
    if proxy.control is not None:
        for _ in range(counts.leavers):
            figures.queued_ms.append(await _leave_the_line(proxy, proxy.control) * 1e3)


async def _leave_the_line(proxy: Proxy, control: Path) -> float:
    """Seconds from a client's leaving to its place's being gone. The engine never hears of it."""
    reader, writer = await asyncio.open_unix_connection(str(control))

    async def tell(**order: str) -> dict[str, dict[str, int]]:
        writer.write(json.dumps(order).encode() + b"\n")
        said: dict[str, dict[str, int]] = json.loads(await reader.readline())
        return said

    await tell(do="hold", reason="loading", progress="")
    connection = load.Connection(proxy.target)
    await connection.send(stream=True, pace="0:0:1")
    while not sum((await tell(do="status"))["queued"].values()):  # noqa: ASYNC110 - in a process
        await asyncio.sleep(0.001)
    left_s = time.monotonic()
    connection.close()
    # `close` only asks for it: the loop has to turn once.
    await asyncio.sleep(0)
    while sum((await tell(do="status"))["queued"].values()):
        pass
    took_s = time.monotonic() - left_s
    await tell(do="release")
    writer.close()
    return took_s


def _median_ms(answers: Sequence[load.Streamed]) -> float:
    return statistics.median(answer.first_s for answer in answers) * 1e3


# --- what is said ---


def _verdict(runs: dict[str, Figures]) -> int:
    bare = statistics.median(runs["bare ASGI + aiohttp"].event_us)
    mine = statistics.median(runs["ours, everything on"].event_us)
    times = mine / bare
    said = f"CPU per event: ours {mine:.0f} us, bare {bare:.0f} us, {times:.2f}x\n"
    sys.stdout.write(said)
    if not all(figures.exact for figures in runs.values()):
        sys.stdout.write("a stream came out with other bytes\n")
        return 1
    return 0 if times <= MOST_TIMES_BARE else 1


def _table(runs: dict[str, Figures]) -> Iterator[str]:
    direct = runs["direct"]
    yield (
        "| proxy | first event, 1 stream, ms added | of 32, ms added | CPU us an event "
        "| the same, dense | CPU us a request | requests/s | PSS MB | bytes exact | seen that the client left, ms: "
        + " / ".join(("queued", *PHASES))
        + " |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, figures in runs.items():
        cells = [
            name,
            _added(figures.alone_ms, direct.alone_ms, absolute=figures is direct),
            _added(figures.together_ms, direct.together_ms, absolute=figures is direct),
            _middle(figures.event_us, "{:.0f}"),
            _middle(figures.dense_us, "{:.0f}"),
            _middle(figures.request_us, "{:.0f}"),
            _middle(figures.requests_per_s, "{:.0f}"),
            _middle(figures.pss_mb, "{:.0f}"),
            "yes" if figures.exact else "NO",
            " / ".join([_middle(figures.queued_ms, "{:.1f}"), *_left(figures)]),
        ]
        yield "| " + " | ".join(cells) + " |"


def _added(values: Sequence[float], direct: Sequence[float], *, absolute: bool) -> str:
    """Of each round the difference to the same round's direct way."""
    if absolute:
        return f"({statistics.median(values):.2f} in all)"
    added = [value - base for value, base in zip(values, direct, strict=True)]
    return f"{statistics.median(added):+.2f}"


def _middle(values: Sequence[float], form: str) -> str:
    return form.format(statistics.median(values)) if values else "-"


def _left(figures: Figures) -> Iterator[str]:
    for phase in PHASES:
        seen = figures.left_ms[phase]
        never = seen.count(None)
        middle = _middle([value for value in seen if value is not None], "{:.1f}")
        yield middle if not never else f"never in {never} of {len(seen)}"


if __name__ == "__main__":
    sys.exit(main())
