"""What was measured of llama.cpp on a card, beside what its budget says."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpu.tables import FORMS, Report, mib, or_missing, table
from orchestrator.core.offload import ON_CARD
from orchestrator.core.terms import MIB


def llamacpp(report: Report) -> Iterator[str]:
    compiled = report["compiled"]
    yield (
        f"Compiled for architecture {compiled['architecture']} in {compiled['seconds']} s on "
        f"{compiled['cores']} cores."
    )
    yield ""
    older, newer = (report[form] for form in FORMS)

    def row(what: str, said: Any) -> tuple[object, ...]:
        return what, or_missing(said, older), or_missing(said, newer)

    def logged(*names: str) -> Any:
        return lambda form: _logged(form, *names)

    yield from table(
        ("llama.cpp on TinySeek Q4_K_M", "`attn_kv_b`", "`attn_k_b`, `attn_v_b`"),
        (
            row("exact replies, streamed and not", lambda f: f["replies"]),
            row("checks that failed", lambda f: ", ".join(f["failed"]) or "none"),
            row("from the start to the first answer", lambda f: f"{f['ready_s']:.1f} s"),
            row("decode, alone", lambda f: f"{f['decode_tokens_per_s']:.0f} tokens/s"),
            row(
                "tensors of routed experts, and where they are",
                lambda f: f"{f['experts']['tensors']}, {', '.join(f['experts']['where'])}",
            ),
            row("weights on the card, by its log", logged("CUDA0 model")),
            row("those, budget / log", lambda f: _ratio(f, "CUDA0 model", *ON_CARD)),
            row("KV cache on the card, budget / log", lambda f: _ratio(f, "CUDA0 KV", "KV cache")),
            row(
                "compute buffer: on the card, in RAM", logged("CUDA0 compute", "CUDA_Host compute")
            ),
            row(
                "that on the card, budget / log",
                lambda f: _ratio(f, "CUDA0 compute", "compute buffer"),
            ),
            row("CUDA context and kernels, found", lambda f: mib(context_bytes(f["vram"]))),
            row("VRAM found, of the budget of that day", lambda f: _of_budget(f["vram"])),
            row("RSS, anonymous, of files and shared", lambda f: _rss(f["ram"]["rss"])),
            row("CUDA's own part in RAM, found", lambda f: mib(cudas_own_bytes(f))),
        ),
    )

    wide = {name: form for name, form in report.items() if name.startswith("wide ")}
    if wide:
        yield ""
        yield from _of_full_width(wide)


def _of_full_width(wide: Mapping[str, Report]) -> Iterator[str]:
    rows: tuple[tuple[str, Any], ...] = (
        ("checks that failed", lambda f: ", ".join(f["failed"]) or "none"),
        ("VRAM found, of the budget of that day", lambda f: _of_budget(f["vram"])),
        (
            "compute buffer: on the card, in RAM",
            lambda f: _logged(f, "CUDA0 compute", "CUDA_Host compute"),
        ),
        ("weights on the card, budget / log", lambda f: _ratio(f, "CUDA0 model", *ON_CARD)),
        ("KV cache, budget / log", lambda f: _ratio(f, "CUDA0 KV", "KV cache")),
        ("found beside these", lambda f: mib(context_bytes(f["vram"]))),
        ("a prompt of 1500 tokens", lambda f: _rate(f["timings"])),
        ("one that fills the context, the rest held", lambda f: _rate(f["timings, context full"])),
        ("RSS, anonymous, of files and shared", lambda f: _rss(f["ram"]["rss"])),
    )
    yield from table(
        ("full width, random weights", *(name.removeprefix("wide ") for name in wide)),
        [(what, *(or_missing(said, form) for form in wide.values())) for what, said in rows],
    )


def _logged(form: Report, *names: str) -> str:
    return ", ".join(f"{form['vram']['log_mib'][name]:.2f} MiB" for name in names)


def _rate(timings: Report) -> str:
    return f"{timings['prompt_per_second']:.0f} tokens/s"


def _of_budget(vram: Report) -> str:
    return f"{mib(vram['found_bytes'])} of {mib(vram['budget_bytes'])}"


def _rss(rss: Report) -> str:
    return ", ".join(mib(rss[kind]) for kind in ("RssAnon", "RssFile", "RssShmem"))


def _ratio(form: Report, logged: str, *terms: str) -> str:
    vram = form["vram"]
    budget = sum(vram["budget"].get(term, 0) for term in terms)
    return f"{budget / (vram['log_mib'][logged] * MIB):.3f}"


def context_bytes(vram: Report) -> int:
    """What is left of what was found, without the buffers that the engine's log names."""
    named = sum(size for name, size in vram["log_mib"].items() if name.startswith("CUDA0 "))
    return int(vram["found_bytes"] - named * MIB)


def cudas_own_bytes(form: Report) -> int:
    """What is left of the engine's RSS, without the budget's other terms and the log's buffers."""
    budget, said = form["ram"]["budget"], form["vram"]["log_mib"]
    others = sum(budget[term] for term in ("routed experts", "embedding", "engine's own"))
    named = sum(size for name, size in said.items() if name.startswith("CUDA_Host "))
    return int(sum(form["ram"]["rss"].values()) - others - named * MIB)
