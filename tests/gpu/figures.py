"""Figures of the GPU checks, for docs/gpu.md.

`python3 -m gpu.figures OUT` keeps the reports that lie in OUT in tests/gpu/measured, then writes the
tables of docs/gpu.md and docs/gpu-decode.svg anew from what is kept. Without OUT: only the latter.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu.llamacpp_figures import llamacpp
from gpu.marlin_figures import marlin
from gpu.tables import FORMS, Report, mib, or_missing, table

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path(__file__).with_name("measured")
DOC, PLOT = ROOT / "docs/gpu.md", ROOT / "docs/gpu-decode.svg"
NAMES = ("kt-legacy", "with-gateway", "synthetic", "marlin", "llamacpp")
# Paths of the machine, and pages of log.
_DROPPED = frozenset({"log", "said", "terms"})


def keep(out: Path) -> None:
    KEPT.mkdir(exist_ok=True)
    for name in NAMES:
        if (path := out / f"{name}.json").exists():
            report = _without(json.loads(path.read_text(encoding="utf-8")))
            text = json.dumps(report, indent=1, ensure_ascii=False)
            (KEPT / path.name).write_text(text + "\n", encoding="utf-8")


def _without(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    rest = {name: _without(one) for name, one in part.items() if name not in _DROPPED}
    if isinstance(failed := part.get("failed"), dict):
        # Of a traceback what was raised: the rest is paths.
        rest["failed"] = {name: said.strip().splitlines()[-1] for name, said in failed.items()}
    return rest


def kept(name: str) -> Report | None:
    path = KEPT / f"{name}.json"
    found: Report | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    return found


def document(text: str) -> str:
    """`text` with what stands between its marks made anew."""
    for name, made in (
        ("kt-legacy", engine),
        ("with-gateway", gateway),
        ("synthetic", synthetic),
        ("marlin", marlin),
        ("llamacpp", llamacpp),
    ):
        report = kept(name)
        lines = ["Not measured yet."] if report is None else list(made(report))
        mark, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        whole = "\n".join([mark, *lines, end])
        # No regular expression: what is made may hold backslashes.
        before, _, rest = text.partition(mark)
        text = before + whole + rest.partition(end)[2]
    return text


def engine(report: Report) -> Iterator[str]:
    older, newer = (report[form] for form in FORMS)

    def differs(form: Report) -> float:
        found = form["log_prob_difference"]
        return max(float(value) for name, value in found.items() if name != "prompt_tokens")

    def row(what: str, said: Any) -> tuple[object, ...]:
        return what, said(older), said(newer)

    yield from table(
        ("kt-legacy on TinySeek Q4_K_M", "`attn_kv_b`", "`attn_k_b`, `attn_v_b`"),
        (
            row("exact replies, streamed and not", lambda f: f["replies"]),
            row("checks that failed", lambda f: ", ".join(f["failed"]) or "none"),
            row("from the start to the first answer", lambda f: f"{f['ready_s']:.1f} s"),
            row("decode, alone", lambda f: f"{f['decode_tokens_per_s']:.0f} tokens/s"),
            row("tokens after its client left", lambda f: f"{f['leaving']['decoded_after']:.0f}"),
            row(
                "second turn: read anew, of the prompt",
                lambda f: f"{f['reuse']['prefilled_tokens']:.0f} of {f['reuse']['prompt_tokens']}",
            ),
            row(
                "its time, and that of the first turn",
                lambda f: f"{f['reuse']['reused_s']:.3f} s, {f['reuse']['fresh_s']:.3f} s",
            ),
            row(
                "log-probabilities with and without reuse", lambda f: f"differ by {differs(f):.3f}"
            ),
            row("VRAM, context full", lambda f: f"{f['vram_mib']['after']} MiB"),
        ),
    )


def gateway(report: Report) -> Iterator[str]:
    older, newer = (report[form] for form in FORMS)

    def row(what: str, said: Any) -> tuple[object, ...]:
        return what, or_missing(said, older), or_missing(said, newer)

    def after(form: Report, kind: str) -> str:
        return ", ".join(f"{one['decoded_after']:.0f}" for one in form["leaving"][kind])

    def ratio(name: str) -> Any:
        return lambda form: f"{form['memory'][name]['ratio']:.3f}"

    yield from table(
        ("through the gateway", "`attn_kv_b`", "`attn_k_b`, `attn_v_b`"),
        (
            row("checks that failed", lambda f: ", ".join(f["failed"]) or "none"),
            row("questions, exact by OpenAI's API", lambda f: f["OpenAI"]["questions"]),
            row("questions, exact by Ollama's API", lambda f: f["Ollama"]["questions"]),
            row("decode, alone", lambda f: f"{f['decode_tokens_per_s']:.0f} tokens/s"),
            row(
                "two at once: the second ends after the first by",
                lambda f: f"{f['two at once']['second_after_first_s']:.3f} s",
            ),
            row("tokens after its client left, model slow", lambda f: after(f, "slow")),
            row("tokens after its client left, model fast", lambda f: after(f, "fast")),
            row(
                "second turn: read anew, of the prompt",
                lambda f: (
                    f"{f['second turn']['second_prefilled_tokens']:.0f} of "
                    f"{f['second turn']['prompt_tokens']}"
                ),
            ),
            row(
                "first token of the second turn, of the first",
                lambda f: (
                    f"{f['second turn']['second_ttft_s']:.3f} s, "
                    f"{f['second turn']['first_ttft_s']:.3f} s"
                ),
            ),
            row("weights on the GPU, budget / torch", ratio("weights on the GPU")),
            row("KV cache, budget / torch", ratio("KV cache")),
            row(
                "context, kernels and graph, found",
                lambda f: mib(f["memory"]["CUDA context, kernels and graph"]["found_bytes"]),
            ),
            row(
                "Q4_K_M to Q5_K_M: new engine ready, then answered after",
                lambda f: (
                    f"{f['swap']['new_engine_ready_s']:.1f} s, "
                    f"{f['swap']['answer_after_release_s']:.2f} s"
                ),
            ),
        ),
    )


def synthetic(report: Report) -> Iterator[str]:
    shape, speed = report["shape"], report.get("speed", {})
    size = sum(report["files_bytes"].values())
    yield (
        f"{shape['layers']} layers, {shape['layers'] - shape['dense_layers']} of them with experts; "
        f"{size / 1e9:.1f} GB of files. Checks that failed: {', '.join(report['failed']) or 'none'}."
    )
    yield ""
    names = (
        "VRAM without headroom",
        "weights on the GPU",
        "KV cache",
        "CUDA context, kernels and graph",
        "activations and what torch keeps",
        "RAM of the engine",
        "routed experts, mapped",
    )
    rows = [
        (context, name, *(_gb(pair[key]) for key in ("budget_bytes", "found_bytes")), pair["ratio"])
        for context, compared in report.get("memory", {}).items()
        for name, pair in ((name, compared[name]) for name in names)
    ]
    yield from table(("context", "what", "budget", "found", "budget / found"), rows)
    yield ""
    sweep = sorted(_measured(report), key=lambda one: one["cpu_infer"])
    yield from table(
        ("`--cpu_infer`", "tokens/s", "drawn at temperature 0.6"),
        [
            (one["cpu_infer"], f"{one['tokens_per_s']:.1f}", f"{one['drawn_tokens_per_s']:.1f}")
            for one in sweep
        ],
    )
    if speed:
        yield ""
        yield (
            f"The planner's default is {speed['default']['cpu_infer']} "
            f"({report['planner']['why']}). The best is {speed['best']['cpu_infer']}: "
            f"{speed['best']['tokens_per_s']:.1f} tokens/s, "
            f"{100 * speed['share of the limit']:.0f} % of the "
            f"{speed['limit of the memory, tokens_per_s']:.1f} at which the memory could be read, "
            f"{speed['expert bytes of a token'] / 1e6:.0f} MB for each token."
        )
    yield ""
    yield from table(
        ("threads", "triad", "read"),
        [
            (one["threads"], f"{one['triad'] / 1e9:.1f} GB/s", f"{one['read'] / 1e9:.1f} GB/s")
            for one in report.get("bandwidth", ())
        ],
    )
    yield ""
    yield f"![Tokens a second by the number of threads]({PLOT.name})"


def _measured(report: Report) -> list[Report]:
    """Of the shorter context, which all have."""
    found = [one for one in report["sweep"] if "tokens_per_s" in one]
    shortest = min((one["context"] for one in found), default=0)
    return [one for one in found if one["context"] == shortest]


def plot(report: Report) -> str:
    """Tokens a second over --cpu_infer, and what the memory would allow."""
    points = sorted((one["cpu_infer"], one["tokens_per_s"]) for one in _measured(report))
    limit = report["speed"]["limit of the memory, tokens_per_s"]
    default = report["speed"]["default"]["cpu_infer"]
    width, height, left, below = 640, 360, 60, 50
    most = 1.1 * max(limit, *(rate for _, rate in points))
    last = max(value for value, _ in points)

    def x(value: float) -> float:
        return float(round(left + (width - left - 20) * value / last, 1))

    def y(rate: float) -> float:
        return float(round(height - below - (height - below - 20) * rate / most, 1))

    line = " ".join(f"{x(value)},{y(rate)}" for value, rate in points)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{left},20 V{y(0)} H{width - 20}" fill="none" stroke="black"/>',
        f'<path d="M{left},{y(limit)} H{width - 20}" stroke="#999" stroke-dasharray="6 4"/>',
        (
            f'<text x="{width - 24}" y="{y(limit) - 6}" text-anchor="end">'
            "as fast as the memory can be read</text>"
        ),
        f'<polyline points="{line}" fill="none" stroke="#06c" stroke-width="2"/>',
    ]
    for value, rate in points:
        colour = "#c30" if value == default else "#06c"
        parts.append(f'<circle cx="{x(value)}" cy="{y(rate)}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x(value)}" y="{y(0) + 16}" text-anchor="middle">{value}</text>')
    step = _step(most)
    for number in range(int(most / step) + 1):
        rate = number * step
        parts.append(f'<text x="{left - 8}" y="{y(rate) + 4}" text-anchor="end">{rate:g}</text>')
    parts += [
        (
            f'<text x="{width // 2}" y="{height - 10}" text-anchor="middle">'
            "--cpu_infer (the planner's default in red)</text>"
        ),
        (
            f'<text x="16" y="{height // 2}" text-anchor="middle" '
            f'transform="rotate(-90 16 {height // 2})">tokens/s</text>'
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _step(most: float) -> float:
    return next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if most / step < 10)


def _gb(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e9:.3f} GB"


def main(words: Sequence[str]) -> int:
    if words:
        keep(Path(words[0]))
    DOC.write_text(document(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    if (report := kept("synthetic")) is not None and "speed" in report:
        PLOT.write_text(plot(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
