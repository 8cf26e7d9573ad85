"""Can this profile run on these cards? A profile that needs none passes."""

from orchestrator.core.budget import Budget
from orchestrator.core.checks.check import Check, Remedy, gb
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.checks.gpu import card_count, dotted, driver_remedy, lacks_driver
from orchestrator.core.facts import Gpu, HostFacts
from orchestrator.core.gpu_choice import version_of
from orchestrator.core.placement import Placement
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings
from orchestrator.core.vram import LOADING

NO_CARD = NO_GPU_NEEDED = "0 GPUs"

GPU_COUNT = Check(
    name="gpu-count",
    why=Said(
        "the profile places its layers on so many cards; the engine ends at its start where one "
        "is missing",
        "该配置把各层分配到这么多张卡上；缺少一张，引擎启动时就会退出",
    ),
    ask="nvidia-smi -L",
)
TOOLKIT = Check(
    name="toolkit",
    why=Said(
        "a container sees a card only through NVIDIA's container toolkit (its runtime, or CDI): without "
        "it, `could not select device driver`",
        "容器只能通过 NVIDIA container toolkit（运行时或 CDI）看到显卡：没有它会报 could not select device driver",
    ),
    ask="docker info --format '{{json .Runtimes}}'",
)
VRAM = Check(
    name="vram",
    why=Said(
        "attention, shared experts and the KV cache must fit on the card together: otherwise the engine "
        "ends with `CUDA out of memory`, often only at the first long prompt",
        "注意力层、共享专家和 KV 缓存必须同时放进显存：否则引擎会报 CUDA out of memory，"
        "常常要到第一个长提示词才出现",
    ),
    ask="nvidia-smi --query-gpu=index,memory.total,memory.free --format=csv",
)
LONG_OUTPUT = Check(
    name="long-output",
    why=Said(
        "this VRAM was enough for short replies: the KV cache grows with each token, and a long chain of "
        "thought runs out of it in the middle",
        "这些显存只够短回复：KV 缓存随每个 token 增长，很长的思维链会在中途耗尽显存",
    ),
    ask="nvidia-smi --query-gpu=index,memory.total,memory.free --format=csv",
)
SEVERAL_GPUS = Check(
    name="several-gpus",
    why=Said(
        "several cards do not add their speed: layers run one after the other, and with experts in RAM the "
        "memory sets the pace; more cards give room for a longer context, not more tokens/s",
        "多张卡的速度不会相加：各层依次运行，专家在内存里时速度由内存决定；"
        "多卡只能放下更长的上下文，不会提高 token/s",
    ),
    ask="nvidia-smi -L",
)
COMPUTE_CAPABILITY = Check(
    name="compute-capability",
    why=Said(
        "the engine holds kernels for this generation and later: below it, `no kernel image is available` "
        "(T4), or `fp8e4nv not supported` for FP8 weights (RTX 3090, A100)",
        "引擎只含这一代及更新显卡的内核：更旧的卡会报 no kernel image is available（T4），"
        "FP8 权重会报 fp8e4nv not supported（RTX 3090、A100）",
    ),
    ask="nvidia-smi --query-gpu=name,compute_cap --format=csv",
)
DRIVER = Check(
    name="driver",
    why=Said(
        "the image brings its own CUDA, and a driver that does not know that version refuses it: "
        "`CUDA driver version is insufficient for CUDA runtime version`",
        "镜像自带 CUDA，驱动若不支持该版本就会拒绝："
        "CUDA driver version is insufficient for CUDA runtime version",
    ),
    ask="nvidia-smi",
)


def gpu_count(  # noqa: PLR0911 - an answer each
    profile: Profile, settings: Settings, placement: Placement, facts: HostFacts
) -> Finding:
    wanted = _wanted(profile, placement)
    needed = card_count(wanted)
    if wanted == 0:
        if not facts.gpus:
            return GPU_COUNT.ok(NO_GPU_NEEDED)
        unused = f"{card_count(len(facts.gpus))}, not used: {profile.engine.value} runs on the CPU"
        return GPU_COUNT.ok(unused, NO_GPU_NEEDED)
    if facts.gpus is None:
        return GPU_COUNT.unknown(needed)
    whole = {gpu.index for gpu in facts.gpus if not gpu.mig}
    usable = whole & (_indices(settings) or whole)
    found = card_count(len(usable))
    if len(usable) >= wanted:
        return GPU_COUNT.ok(found, needed)
    if len(whole) >= wanted:
        return GPU_COUNT.block(f"{found} (gpus = {settings.gpus})", needed, _OTHER_CARDS)
    if len(facts.gpus) >= wanted:
        return GPU_COUNT.block(f"{found} without MIG", needed, Remedy(next_step=_NO_SLICES))
    return GPU_COUNT.block(found, needed, Remedy(next_step=_NEEDS_A_CARD))


_OTHER_CARDS = Remedy(
    "unset ORCH_GPUS",
    next_step=Said(
        "or name enough cards that are there (nvidia-smi -L), in appliance.toml or ORCH_GPUS",
        "或在 appliance.toml 或 ORCH_GPUS 中指定足够多的、实际存在的显卡（nvidia-smi -L）",
    ),
)
_NO_SLICES = Said(
    "a slice of a card is not used: turn MIG off (check `mig` has the command), or choose whole cards: "
    "ORCH_GPUS=N",
    "不使用显卡切片：请关闭 MIG（命令见检查项 mig），或选择整卡：ORCH_GPUS=N",
)
_NEEDS_A_CARD = Said(
    "put an NVIDIA card in, or choose a profile for the CPU: python3 -m orchestrator recommend",
    "请加装 NVIDIA 显卡，或选择只用 CPU 的配置：python3 -m orchestrator recommend",
)


def _wanted(profile: Profile, placement: Placement) -> int:
    """Cards. Of a profile that needs none: those that it is placed on all the same."""
    return profile.needs.gpus or (len(placement.gpus) if profile.may_use_gpu else 0)


def toolkit(profile: Profile, placement: Placement, facts: HostFacts) -> Finding:
    ways = {"runtime": facts.docker.nvidia_runtime, "CDI": facts.docker.cdi}
    needed = "runtime / CDI"
    working = [name for name, works in ways.items() if works]
    if working:
        return TOOLKIT.ok(" ".join([*working, facts.docker.toolkit_version or ""]).strip(), needed)
    wanted = _wanted(profile, placement)
    if facts.gpus == () or not (wanted or facts.gpus):
        return TOOLKIT.ok(NO_GPU_NEEDED)
    if None in ways.values():
        return TOOLKIT.unknown(needed)
    remedy = Remedy("./install.sh --no-up", "apt-get remove -y nvidia-container-toolkit")
    if wanted:
        return TOOLKIT.block("-", needed, remedy)
    return TOOLKIT.warn("-", needed, remedy)


def vram(profile: Profile, placement: Placement, budget: Budget, facts: HostFacts) -> Finding:
    """Card by card, and all of them against the published figure."""
    figure = profile.needs.vram
    if _wanted(profile, placement) == 0:
        return VRAM.ok(NO_GPU_NEEDED)
    needed = _vram_needed(profile, budget)
    if facts.gpus == ():
        return VRAM.block(NO_CARD, needed, Remedy(next_step=_NEEDS_A_CARD))
    have = _vram_bytes(budget, facts)
    found = ", ".join(
        f"{share.where}: {'?' if share.have_bytes is None else gb(share.have_bytes)}"
        for share in budget.vram
    )
    short = any(share.fits is False for share in budget.vram)
    if short or (figure and have is not None and have < figure.least_bytes):
        loading = any(term.name == LOADING for share in budget.vram for term in share.terms)
        remedy = Remedy(next_step=_LESS_TO_LOAD if loading else _LESS_VRAM)
        return VRAM.block(found or gb(have or 0), needed, remedy)
    if have is None:
        return VRAM.unknown(needed)
    return VRAM.ok(found or gb(have), needed)


def _vram_needed(profile: Profile, budget: Budget) -> str:
    """Of one card the larger of what is published and what was computed."""
    figure = profile.needs.vram
    least = figure.least_bytes if figure else 0
    if len(budget.vram) < 2:  # noqa: PLR2004
        return gb(max(least, *(share.need_bytes for share in budget.vram), 0))
    each = ", ".join(f"{share.where}: {gb(share.need_bytes)}" for share in budget.vram)
    return f"{gb(least)} in all; {each}" if least else each


_LESS_VRAM = Said(
    "stop what else uses the card (nvidia-smi), lower ORCH_CONTEXT_TOKENS or ORCH_GPU_EXPERTS, "
    "or take a card with more VRAM",
    "请停掉占用显卡的其他程序（nvidia-smi），调低 ORCH_CONTEXT_TOKENS 或 ORCH_GPU_EXPERTS，"
    "或换用显存更大的显卡",
)

# Neither a shorter context nor fewer experts make what loading takes smaller.
_LESS_TO_LOAD = Said(
    "stop what else uses the card (nvidia-smi), or take a card with more VRAM: most is needed "
    "while the model loads, whatever ORCH_CONTEXT_TOKENS is",
    "请停掉占用显卡的其他程序（nvidia-smi），或换用显存更大的显卡：加载模型时所需显存最多，"
    "与 ORCH_CONTEXT_TOKENS 无关",
)


def long_output(
    profile: Profile, placement: Placement, budget: Budget, facts: HostFacts
) -> Finding:
    figure = profile.needs.vram
    if figure is None or figure.recommended_bytes is None:
        return LONG_OUTPUT.ok(NO_GPU_NEEDED if figure is None else gb(figure.least_bytes))
    have, needed = _vram_bytes(budget, facts), gb(figure.recommended_bytes)
    if have is None:
        return LONG_OUTPUT.unknown(needed)
    if have >= figure.recommended_bytes:
        return LONG_OUTPUT.ok(gb(have), needed)
    shorter = Said(
        "keep replies short, or take a card with that much VRAM",
        "请限制回复长度，或换用显存足够的显卡",
    )
    half = max(1, placement.max_tokens // 2)
    remedy = Remedy(f"export ORCH_MAX_TOKENS={half}", "unset ORCH_MAX_TOKENS", shorter)
    return LONG_OUTPUT.warn(gb(have), needed, remedy)


def several_gpus(profile: Profile, settings: Settings, facts: HostFacts) -> Finding:
    wanted = profile.needs.gpus
    if wanted == 0:
        return SEVERAL_GPUS.ok(NO_GPU_NEEDED)
    if facts.gpus is None:
        return SEVERAL_GPUS.unknown(card_count(wanted))
    chosen = _indices(settings) or {gpu.index for gpu in facts.gpus}
    found, needed = card_count(len(chosen)), card_count(wanted)
    if len(chosen) <= wanted:
        return SEVERAL_GPUS.ok(found, needed)
    some = ",".join(map(str, sorted(chosen)[:wanted]))
    remedy = Remedy(f"export ORCH_GPUS={some}", "unset ORCH_GPUS")
    return SEVERAL_GPUS.warn(found, needed, remedy)


def compute_capability(profile: Profile, placement: Placement, facts: HostFacts) -> Finding:
    least = profile.needs.compute_capability
    if least is None or facts.gpus == () or _wanted(profile, placement) == 0:
        return COMPUTE_CAPABILITY.ok(NO_GPU_NEEDED)
    needed = f">= {dotted(least)}"
    known = [gpu.compute_capability for gpu in _used(placement, facts)]
    capabilities = [capability for capability in known if capability is not None]
    if capabilities and min(capabilities) < least:
        newer = Said(
            f"take a card of capability {dotted(least)} or later, or a profile for this one: "
            "python3 -m orchestrator recommend",
            f"请换用计算能力 {dotted(least)} 以上的显卡，或适合这张卡的配置：python3 -m orchestrator recommend",
        )
        return COMPUTE_CAPABILITY.block(dotted(min(capabilities)), needed, Remedy(next_step=newer))
    if not capabilities or len(capabilities) < len(known):
        return COMPUTE_CAPABILITY.unknown(needed)
    return COMPUTE_CAPABILITY.ok(dotted(min(capabilities)), needed)


def driver(profile: Profile, placement: Placement, facts: HostFacts) -> Finding:
    least = profile.needs.driver_cuda
    if _wanted(profile, placement) == 0 or facts.gpus == ():
        return DRIVER.ok(NO_GPU_NEEDED)
    needed = "nvidia" if least is None else f"CUDA {dotted(least)}"
    if lacks_driver(facts):
        return DRIVER.block("0", needed, driver_remedy(facts))
    knows = version_of(facts.driver_cuda)
    if knows is None:
        return DRIVER.unknown(needed)
    found = f"CUDA {dotted(knows)} ({facts.driver_version or '?'})"
    if least is not None and knows < least:
        return DRIVER.block(found, needed, driver_remedy(facts))
    return DRIVER.ok(found, needed)


def _indices(settings: Settings) -> set[int]:
    return {int(index) for index in filter(None, settings.gpus.split(","))}


def _used(placement: Placement, facts: HostFacts) -> list[Gpu]:
    gpus = facts.gpus or ()
    return [gpu for gpu in gpus if gpu.index in placement.gpus] or list(gpus)


def _vram_bytes(budget: Budget, facts: HostFacts) -> int | None:
    if not budget.vram:
        return 0 if facts.gpus == () else None
    rooms = [share.have_bytes for share in budget.vram]
    known = [room for room in rooms if room is not None]
    return sum(known) if len(known) == len(rooms) else None
