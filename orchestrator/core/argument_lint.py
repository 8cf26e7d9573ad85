"""What is wrong with an engine's arguments: mistakes that engines answer late, silently or by dying."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import get_args

from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import ModelShape
from orchestrator.core.kt_legacy.command import fits_a_line
from orchestrator.core.pins import cores_on
from orchestrator.core.placement import Placement
from orchestrator.core.profile import Engine, ExpertMethod

METHODS = frozenset(get_args(ExpertMethod))
# Those that the full-GPU prefill can write back from: kt_kernel's NativeMoEWrapper.
NATIVE_METHODS = frozenset(
    {"RAWINT4", "FP8", "BF16", "FP8_PERCHANNEL", "GPTQ_INT4", "MXFP4", "MXFP8"}
)
LEAST_WATCHDOG_S = 1800
SPLIT_COLUMNS = 256  # LLAMAFILE splits experts over pools in units of it

Flags = Mapping[str, str]


def problems(  # noqa: PLR0913 - all that decides
    engine: Engine,
    arguments: Sequence[str],
    placement: Placement,
    facts: HostFacts,
    shape: ModelShape | None = None,
    *,
    experts: bool = True,
) -> Iterator[str]:
    """Each in one sentence. `shape`: the model's, where it is known. `experts`: has it any?"""
    if engine is Engine.LLAMACPP:
        yield from _llamacpp(
            dict(argument.partition("=")[::2] for argument in arguments), placement
        )
        return
    flags = _flags(arguments)
    if engine is Engine.KT_LEGACY:
        yield from _kt_legacy(arguments, flags, placement, facts)
    else:
        yield from _kt_sglang(arguments, flags, placement)
        yield from _kt_experts(flags, facts, shape) if experts else _no_experts(flags)


def _flags(arguments: Sequence[str]) -> Flags:
    """`--flag value` and `--flag`; of several values the flag has them all, separated by spaces."""
    found: dict[str, str] = {}
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, _, value = argument.partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {argument}".strip()
    return found


def _number(flags: Flags, name: str) -> int | None:
    text = flags.get(name, "").removeprefix("-")
    return int(flags[name]) if text.isdecimal() else None


def _llamacpp(given: Flags, placement: Placement) -> Iterator[str]:
    for name in ("MODEL_FILE", "MODEL_NAME", "CONTEXT_TOKENS", "SLOTS", "THREADS"):
        if not given.get(name):
            yield f"{name} is not set"
    context, most = _number(given, "CONTEXT_TOKENS"), _number(given, "MAX_TOKENS")
    if context is not None and most is not None and most >= context:
        yield f"MAX_TOKENS {most} leaves no room for a prompt in CONTEXT_TOKENS {context}"
    threads = _number(given, "THREADS")
    if threads is not None and threads < 1:
        yield f"THREADS is {threads}: the engine would take every hyperthread"
    if threads is not None and threads != placement.threads:
        yield f"THREADS is {threads}, planned are {placement.threads}"


def _kt_legacy(
    arguments: Sequence[str], flags: Flags, placement: Placement, facts: HostFacts
) -> Iterator[str]:
    if PurePosixPath(flags.get("--gguf_path", "")).suffix == ".gguf":
        yield "--gguf_path must be the folder of the shards, not one of them"
    for name in ("--gguf_path", "--optimize_config_path"):
        if not flags.get(name):
            yield f"{name} must be given"
    if _on_a_hub(flags.get("--model_path", ".")):
        yield f"--model_path {flags['--model_path']} is no folder here: no hub is asked at a start"
    yield from (f"{word} can't be passed on" for word in arguments if not fits_a_line(word))
    cache, most = _number(flags, "--cache_lens"), _number(flags, "--max_new_tokens")
    if cache is None or most is None:
        yield "--cache_lens and --max_new_tokens must both be given"
    elif cache <= most:
        yield f"--cache_lens {cache} must exceed --max_new_tokens {most}"
    if placement.slots > 1:
        yield f"{placement.slots} slots, and it works on one request at a time: set slots = 1"
    if (_number(flags, "--chunk_size") or 0) < 1:
        yield "--chunk_size must be 1 or more"
    yield from _cpu_infer(_number(flags, "--cpu_infer"), placement, facts)


def _cpu_infer(given: int | None, placement: Placement, facts: HostFacts) -> Iterator[str]:
    if given is None:
        yield "--cpu_infer must be given: the default counts the host's cores, not the container's"
        return
    if given < 2:  # noqa: PLR2004
        yield f"--cpu_infer {given} ends the engine: it makes one thread less, and divides by them"
    cores = cores_on(placement.nodes, facts)
    if cores is not None and given - 1 > cores:
        yield f"--cpu_infer {given} makes {given - 1} threads on {cores} physical cores"


def _on_a_hub(path: str) -> bool:
    return "://" in path or not path


def _folder(name: str, flags: Flags) -> Iterator[str]:
    """The launcher puts the folder of the proven weights before it."""
    given = flags.get(name, "")
    if _on_a_hub(given):
        yield f"{name} {given or 'is not given'}: it must be a folder here, no hub is asked at a start"


def _kt_sglang(arguments: Sequence[str], flags: Flags, placement: Placement) -> Iterator[str]:
    yield from _folder("--model", flags)
    if PurePosixPath(flags.get("--model", "")).suffix == ".gguf":
        yield "--model must be a folder of safetensors: sglang reads no GGUF of these models"
    if not flags.get("--served-model-name"):
        yield "--served-model-name is not set: clients would have to know the path"
    yield from (f"{word} can't be passed on" for word in arguments if not fits_a_line(word))
    for name in ("--api-key", "--admin-api-key"):
        if name in flags:
            yield f"{name} would be shown by ps, docker inspect and the log: the key is in a file"
    if (_number(flags, "--chunked-prefill-size") or 0) < 1:
        yield "--chunked-prefill-size must be 1 or more: LLAMAFILE's buffer follows from it"
    if (_number(flags, "--watchdog-timeout") or 0) < LEAST_WATCHDOG_S:
        yield f"--watchdog-timeout must be {LEAST_WATCHDOG_S} or more: a long prefill would end it"
    if _number(flags, "--max-queued-requests") is None:
        yield "--max-queued-requests is not given: the queue would have no end"
    cards = _number(flags, "--tensor-parallel-size")
    if cards is not None and cards != max(1, len(placement.gpus)):
        yield f"--tensor-parallel-size {cards}, planned are {max(1, len(placement.gpus))} cards"


def _no_experts(flags: Flags) -> Iterator[str]:
    for name in flags:
        if name.startswith("--kt-"):
            yield f"{name} is for models of experts, and this one is dense"


def _kt_experts(flags: Flags, facts: HostFacts, shape: ModelShape | None) -> Iterator[str]:
    if _number(flags, "--kt-num-gpu-experts") is None and not flags.get("--kt-gpu-experts-ratio"):
        yield "--kt-num-gpu-experts is not given: sglang then leaves KTransformers out, and warns"
    yield from _folder("--kt-weight-path", flags)
    yield from _method(flags)
    yield from _pools(flags, facts, shape)


def _method(flags: Flags) -> Iterator[str]:
    method = flags.get("--kt-method", "")
    if method not in METHODS:
        yield f"--kt-method {method or 'is not given'}: known are {', '.join(sorted(METHODS))}"
    threshold = _number(flags, "--kt-gpu-prefill-token-threshold") or 0
    if threshold > 0 and method not in NATIVE_METHODS:
        yield f"--kt-gpu-prefill-token-threshold {threshold}: {method} can't prefill on the GPU"
    if "--kt-enable-dynamic-expert-update" in flags and threshold < 1:
        yield "--kt-enable-dynamic-expert-update needs --kt-gpu-prefill-token-threshold"


def _pools(flags: Flags, facts: HostFacts, shape: ModelShape | None) -> Iterator[str]:
    pools, threads = _number(flags, "--kt-threadpool-count"), _number(flags, "--kt-cpuinfer")
    if pools is None or threads is None:
        yield "--kt-cpuinfer and --kt-threadpool-count must both be given"
        return
    if threads < pools or pools < 1:
        yield f"--kt-cpuinfer {threads} leaves a pool of {pools} without a thread"
        return
    named = flags.get("--kt-numa-nodes", "").split()
    if named and len(named) != pools:
        yield f"--kt-numa-nodes names {len(named)} nodes for {pools} pools"
    nodes = facts.memory_nodes
    if nodes is not None and pools > max(1, len(nodes)):
        yield f"--kt-threadpool-count {pools}, but the host has {len(nodes)} memory nodes"
    cores = [node.physical_cores for node in nodes or () if node.physical_cores]
    if cores and -(-threads // pools) > min(cores):
        yield f"--kt-cpuinfer {threads} / {pools} pools: a node has {min(cores)} physical cores"
    if flags.get("--kt-method") == "LLAMAFILE" and shape is not None and shape.expert_ff:
        most = shape.expert_ff // SPLIT_COLUMNS
        if pools > most:
            yield f"--kt-threadpool-count {pools}: experts {shape.expert_ff} wide split {most} ways"
