"""What sglang's and KTransformers' last words mean, and what to do: the causes that users report."""

import re
import signal
from dataclasses import dataclass, replace

from kt_sglang_engine.refusals import CONFIGURATION, FAILED, NO_GPU, Verdict

_UP = "then: python3 -m orchestrator up"
_SMALLER = (
    "lower ORCH_GPU_EXPERTS, ORCH_CONTEXT_TOKENS or ORCH_SLOTS, or choose a profile for smaller "
    f"cards; {_UP}"
)


@dataclass(frozen=True, slots=True)
class _Cause:
    pattern: re.Pattern[str]
    what: str
    next_step: str
    exit_code: int = CONFIGURATION


def _cause(pattern: str, what: str, next_step: str, exit_code: int = CONFIGURATION) -> _Cause:
    return _Cause(re.compile(pattern), what, next_step, exit_code)


# The first that any line matches is the cause: what follows is its wake. From engine.md, 8 and 9.
_CAUSES = (
    _cause(
        r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: out of memory",
        "the memory of the GPU is full",
        _SMALLER,
    ),
    _cause(
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "the weights leave no room on the GPU for the KV cache",
        f"raise mem_fraction_static in the profile, or {_SMALLER}",
    ),
    _cause(
        r"fp8e4nv not supported",
        "this GPU can't compute in FP8, which needs compute capability 8.9",
        "choose a profile whose weights are not FP8: python3 -m orchestrator recommend",
        NO_GPU,
    ),
    _cause(
        r"not found in GGUF files|can't find .* in GGUF",
        "a tensor is missing: the weights are not those that the profile means",
        "python3 -m orchestrator verify --full",
    ),
    _cause(
        r"Either kt_num_gpu_experts or kt_gpu_experts_ratio is required",
        "KTransformers is left out: it was told no number of experts for the GPU",
        "start this container through compose.yaml",
    ),
    _cause(
        r"Missing KT CUDA payload package|No writable sgl-kernel-kt payload cache",
        "kernels are missing in the image",
        "make images-gpu, and start again",
    ),
    _cause(
        r"Could not find CUDA installation|Could not find nvcc|ninja: build stopped|"
        r"No space left on device",
        "a kernel could not be compiled",
        "see the compiler's lines above; the folder /cache needs 4 GB, and programs in it must run",
    ),
    _cause(
        r"watchdog timeout",
        "a batch took longer than --watchdog-timeout, and the engine ended itself",
        "lower chunked_prefill_size in the profile",
        FAILED,
    ),
    # It then kills itself, which must not be taken for the kernel's doing.
    _cause(
        r"(?i)sigquit.* child failed|warmup error: |TokenizerManager hit an exception",
        "a process of the engine failed, and the engine ended itself",
        f"see its traceback above, {_UP}",
        FAILED,
    ),
)
_WARNINGS = (
    (
        re.compile(r"set_mempolicy: Operation not permitted"),
        "warning: the container lacks SYS_NICE: experts lie on any node, and cost speed",
    ),
    (
        re.compile(r"Core \d+ inside NUMA node \d+ not found"),
        "warning: more threads than the node has cores: lower ORCH_THREADS",
    ),
    (
        re.compile(r"NUMA node \d+ not found"),
        "warning: more thread pools than NUMA nodes: ORCH_MEMORY_POLICY says which are used",
    ),
)
_ENDED_BY = {
    signal.SIGKILL: "the kernel ended the engine, which it does where RAM runs out: see dmesg",
    signal.SIGILL: "the engine was ended by SIGILL: this CPU lacks instructions that it uses",
}


@dataclass(slots=True)
class Listener:
    """Hears every line of the engine. `ready`: it has answered its own first request."""

    cause: Verdict | None = None
    ready: bool = False
    _warned: int = 0

    def hear(self, line: str) -> str | None:
        """A warning that the line is worth, once."""
        if self.cause is None:
            self.cause = next((_verdict(c, line) for c in _CAUSES if c.pattern.search(line)), None)
        for number, (pattern, warning) in enumerate(_WARNINGS):
            if pattern.search(line):
                first = not self._warned >> number & 1
                self._warned |= 1 << number
                return warning if first else None
        return None

    def verdict(self, returncode: int) -> Verdict:
        """Why it ended. `returncode`: below 0 it is the number of a signal."""
        if self.cause is not None:
            # It has run with this configuration before, and will again.
            return replace(self.cause, exit_code=FAILED) if self.ready else self.cause
        if returncode < 0:
            number = signal.Signals(-returncode)
            what = _ENDED_BY.get(number, f"the engine was ended by {number.name}")
            return _unknown(what, 128 + number)
        return _unknown(
            f"the engine ended by itself with exit code {returncode}", returncode or FAILED
        )


def _verdict(cause: _Cause, line: str) -> Verdict:
    why = (line.strip()[:300],)
    return Verdict(what=cause.what, why=why, next_step=cause.next_step, exit_code=cause.exit_code)


def _unknown(what: str, exit_code: int) -> Verdict:
    why = ("its own lines above say more",)
    return Verdict(what=what, why=why, next_step=f"see them, {_UP}", exit_code=exit_code)
