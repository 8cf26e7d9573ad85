"""What was measured of llama.cpp on a card, beside what its budget says."""

from collections.abc import Iterator
from typing import Any

from gpu.tables import FORMS, Report, mib, or_missing, table
from orchestrator.core.offload import CONTEXT, CONTEXT_BYTES, HEADROOM, ON_CARD
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
        return lambda form: ", ".join(f"{form['vram']['log_mib'][name]:.2f} MiB" for name in names)

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
            row("VRAM, the budget of today / found", lambda f: f"{_now(f['vram']):.3f}"),
            row("RSS, anonymous, of files and shared", lambda f: _rss(f["ram"]["rss"])),
            row("CUDA's own part in RAM, found", lambda f: mib(cudas_own_bytes(f))),
        ),
    )

    wide = [form for name, form in report.items() if name.startswith("wide ")]
    if not wide:
        return
    yield ""
    yield from table(
        (
            "two layers of full width, files with `attn_kv_b`",
            *(f"{f['context']} tokens" for f in wide),
        ),
        [
            (what, *(or_missing(said, form) for form in wide))
            for what, said in (
                ("checks that failed", lambda f: ", ".join(f["failed"]) or "none"),
                ("VRAM found, of the budget", lambda f: _of_budget(f["vram"])),
                ("compute buffer on the card, by its log", logged("CUDA0 compute")),
                (
                    "budget: compute buffer + experts for long prompts",
                    lambda f: " + ".join(
                        mib(f["vram"]["budget"][term])
                        for term in ("compute buffer", "experts for long prompts")
                    ),
                ),
                (
                    "a prompt of 1500 tokens",
                    lambda f: f"{f['timings']['prompt_per_second']:.0f} tokens/s",
                ),
                ("RSS, anonymous, of files and shared", lambda f: _rss(f["ram"]["rss"])),
            )
        ],
    )


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


def budget_now(vram: Report) -> int:
    """The budget that was kept, with what is now said of the one term that was measured by it."""
    kept = {name: size for name, size in vram["budget"].items() if name != "headroom"}
    total = sum((kept | {CONTEXT: CONTEXT_BYTES}).values())
    return int(total + total * HEADROOM // 100)


def _now(vram: Report) -> float:
    return float(budget_now(vram) / vram["found_bytes"])


def cudas_own_bytes(form: Report) -> int:
    """What is left of the engine's RSS, without the budget's other terms and the log's buffers."""
    budget, said = form["ram"]["budget"], form["vram"]["log_mib"]
    others = sum(budget[term] for term in ("routed experts", "embedding", "engine's own"))
    named = sum(size for name, size in said.items() if name.startswith("CUDA_Host "))
    return int(sum(form["ram"]["rss"].values()) - others - named * MIB)
