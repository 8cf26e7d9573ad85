"""How each engine is told its placement: an environment, or a command with its flags."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from typing_extensions import assert_never

from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.profile import Engine, KtLegacyOptions, KtSglangOptions, Profile

PLACEMENT = PurePosixPath("/placement")  # the rendered rules of kt-legacy, likewise
PORT = 8000
WATCHDOG_S = 3000  # sglang ends itself when a batch takes longer; upstream's recipes say 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was decided for an engine. `nodes`: NUMA nodes; () where they are not known.

    `copies`: the experts once on each of them.
    """

    model_name: str
    threads: int
    nodes: tuple[int, ...]
    cards: int
    gpu_experts: int
    slots: int
    context_tokens: int
    max_tokens: int
    copies: bool = False

    @property
    def kv_tokens(self) -> int:
        return self.context_tokens * self.slots


def engine_arguments(profile: Profile, told: Told) -> tuple[str, ...]:
    match profile.engine:
        case Engine.LLAMACPP:
            return tuple(_llamacpp(profile, told))
        case Engine.KT_LEGACY:
            return _kt_legacy(profile, profile.kt_legacy or KtLegacyOptions(), told)
        case Engine.KT_SGLANG:
            if (
                profile.kt_sglang is None
            ):  # a profile without its options is refused when it is read
                return ()
            return tuple(_kt_sglang(profile, profile.kt_sglang, told))
        case _:
            assert_never(profile.engine)


def cpu_infer(threads: int) -> int:
    """KTransformers 0.2 makes one thread less than it is told, and dies of a division when told 1."""
    return threads + 1


def _llamacpp(profile: Profile, told: Told) -> Iterator[str]:
    yield f"MODEL_FILE={profile.model_file}"
    yield f"MODEL_NAME={told.model_name}"
    yield f"CONTEXT_TOKENS={told.context_tokens}"
    yield f"SLOTS={told.slots}"
    yield f"THREADS={told.threads}"
    yield f"MAX_TOKENS={told.max_tokens}"


def _kt_legacy(profile: Profile, options: KtLegacyOptions, told: Told) -> tuple[str, ...]:
    """Without the program's own name, which its image has. Name, key and port are in the environment."""
    return arguments(
        Command(
            gguf_dir=str(PurePosixPath(profile.model_file).parent),
            rules_file=str(PLACEMENT / rules_name(options)),
            threads=told.threads,
            context_tokens=told.kv_tokens,
            max_tokens=told.max_tokens,
            chunk_tokens=options.chunk_tokens,
            cpu_variant=options.cpu_variant,
            numa_copies=told.copies,
        )
    )


def rules_name(options: KtLegacyOptions) -> str:
    return f"{options.rules}.yaml"


def _kt_sglang(profile: Profile, options: KtSglangOptions, told: Told) -> Iterator[str]:
    """Without the program's own name, which its image has. The key is in a file.

    Folders are relative to that of the proven weights.
    """
    yield from ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 - the container's own network
    yield from ("--model", _folder(profile), "--served-model-name", told.model_name)
    if options.method is not None:
        yield from _experts(profile, options, options.method, told)
    yield from ("--attention-backend", options.attention_backend)
    yield "--enable-mixed-chunk"
    yield from ("--mem-fraction-static", f"{options.mem_fraction_static:g}")
    yield from ("--chunked-prefill-size", str(options.chunked_prefill_size))
    yield from ("--max-running-requests", str(told.slots))
    yield from ("--max-queued-requests", str(told.slots))
    yield from ("--max-total-tokens", str(told.kv_tokens))
    yield from ("--context-length", str(told.context_tokens))
    yield from ("--cuda-graph-max-bs", str(told.slots))
    yield from ("--tensor-parallel-size", str(told.cards))
    yield from ("--watchdog-timeout", str(WATCHDOG_S))
    if options.reasoning_parser:
        yield from ("--reasoning-parser", options.reasoning_parser)
    if options.tool_call_parser:
        yield from ("--tool-call-parser", options.tool_call_parser)
    yield "--enable-metrics"


def _experts(profile: Profile, options: KtSglangOptions, method: str, told: Told) -> Iterator[str]:
    """Without a number of GPU experts sglang would leave out KTransformers, and only warn."""
    yield from ("--kt-method", method, "--kt-weight-path", _folder(profile))
    yield from ("--kt-cpuinfer", str(told.threads))
    yield from ("--kt-threadpool-count", str(max(1, len(told.nodes))))
    if told.nodes:
        yield from ("--kt-numa-nodes", *_texts(told.nodes))
    yield from ("--kt-num-gpu-experts", str(told.gpu_experts))
    yield from ("--kt-max-deferred-experts-per-token", str(options.deferred_experts_per_token))
    yield from ("--kt-expert-placement-strategy", "uniform")
    if options.gpu_prefill_token_threshold:
        threshold = str(options.gpu_prefill_token_threshold)
        yield from ("--kt-gpu-prefill-token-threshold", threshold)
        yield "--kt-enable-dynamic-expert-update"
    # As in upstream's recipes for models of experts.
    yield from ("--trust-remote-code", "--disable-shared-experts-fusion")


def _texts(numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))


def _folder(profile: Profile) -> str:
    return str(PurePosixPath(profile.model_file).parent)
