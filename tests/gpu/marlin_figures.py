"""Tables of Marlin's check, for docs/gpu.md."""

from collections.abc import Iterator

from gpu.logits import FILE, MARLIN
from gpu.packed import times_on_gpu
from gpu.synthetic_model import Shape
from gpu.tables import Report, table

_MEMORY = (
    "VRAM without headroom",
    "weights on the GPU",
    "KV cache",
    "CUDA context, kernels and graph",
    "activations and what torch keeps",
    "RAM of the engine",
)


def marlin(report: Report) -> Iterator[str]:
    """Whatever part was not reached is left out, and named."""
    missing = ", ".join(report.get("left_out", ())) or "none"
    yield f"Checks that failed: {', '.join(report['failed']) or 'none'}. Not reached: {missing}."
    if code := report.get("machine code"):
        same, whole = code["the same here"], code["in the image"]
        yield f"Kernels with the machine code of the image's: {same} of {whole}."
    for made in (_layers, _runs, _memory, _logits, _tinyseek):
        yield from made(report)


def _layers(report: Report) -> Iterator[str]:
    measured = [one for one in report.get("layers", ()) if "failed" not in one]
    if measured:
        yield ""
        yield from table(
            (
                "layer",
                "in x out",
                "kernel's error, most of 1 to 256 rows",
                "what 4 bits change",
                "bits a number",
                "one row: Marlin, BF16",
            ),
            [
                (
                    one["name"],
                    f"{one['in']} x {one['out']}",
                    f"{100 * one['kernel_error']:.2f} %",
                    f"{100 * one['four_bit_error']:.1f} %",
                    f"{one['bits_of_a_number']:.3f}",
                    f"{one['marlin_us']:.0f} µs, {one['bf16_us']:.0f} µs",
                )
                for one in measured
            ],
        )


def _runs(report: Report) -> Iterator[str]:
    runs = [one for one in report.get("runs", ()) if "tokens_per_s" in one]
    if runs:
        yield ""
        yield from table(
            (
                "placement, context",
                "layers, as counted",
                "ready after",
                "prompt",
                "decode",
                "most while loading",
            ),
            [
                (
                    f"`{one['placement']}`, {one['context']}",
                    _counted(one["linears"]),
                    f"{one['ready_s']:.1f} s",
                    f"{one['prefill']['tokens_per_s']:.0f} tokens/s",
                    f"{one['tokens_per_s']:.1f} tokens/s",
                    f"{one['memory']['torch']['most_loading_bytes'] / 1e9:.2f} GB",
                )
                for one in runs
            ],
        )


def _memory(report: Report) -> Iterator[str]:
    runs = [
        one
        for one in report.get("runs", ())
        if "memory" in one and one["placement"] == "single-gpu"
    ]
    if runs:
        yield ""
        yield from table(
            ("context", "what", "budget", "found", "budget / found"),
            [
                (one["context"], name, _gb(pair["budget_bytes"]), _gb(pair["found_bytes"]), ratio)
                for one in runs
                for name in _MEMORY
                for pair in (one["memory"][name],)
                for ratio in (pair["ratio"],)
            ],
        )
        shape = Shape(**report["shape"])
        times = (times_on_gpu(shape, one["memory"]["weights on the GPU"]) for one in runs)
        yield ""
        yield (
            "By the bytes, the 4-bit weights of these layers are on the GPU "
            f"{' and '.join(f'{one:.3f}' for one in times)} times."
        )


def _logits(report: Report) -> Iterator[str]:
    if found := report.get("logits"):
        rows = [
            ("Marlin and its own numbers by torch, decoded", found["kernel"]["decoded"]),
            ("the same, read as a chunk", found["kernel"]["read"]),
            ("Marlin and the file's numbers in BF16, decoded", found["four bits"]["decoded"]),
            ("the same, read as a chunk", found["four bits"]["read"]),
        ]
        rows += [(f"{name}: one beside the other", one) for name, one in found["floor"].items()]
        yield ""
        yield from table(
            ("logits", "rows", "error, median", "same first token", "log-probability, median"),
            [
                (
                    name,
                    one["rows"],
                    f"{100 * one['median_error']:.1f} %",
                    f"{100 * one['same_first']:.0f} %",
                    f"{one['median_log_probability_difference']:.4f}",
                )
                for name, one in rows
            ],
        )
        pace = found["pace"]
        yield ""
        yield f"Decoding there: {pace[MARLIN]:.1f} tokens/s by Marlin, {pace[FILE]:.1f} in BF16."


def _tinyseek(report: Report) -> Iterator[str]:
    if found := report.get("tinyseek"):
        failed = ", ".join(found["failed"]) or "none"
        yield ""
        yield (
            f"TinySeek Q4_K_M, layers as counted: {_counted(found.get('linears') or {})}: "
            f"{found.get('replies', 'not all')} exact replies; checks that failed: {failed}."
        )


def _counted(linears: Report) -> str:
    return ", ".join(f"{count} `{kind}`" for kind, count in linears.items()) or "?"


def _gb(size: int | None) -> str:
    return "?" if size is None else f"{size / 1e9:.3f} GB"
