"""Is this engine right for this profile, these files and this CPU?"""

from collections.abc import Sequence

from orchestrator.core.argument_lint import problems
from orchestrator.core.budget import Budget
from orchestrator.core.checks.check import Check, Remedy
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.engines import ABILITIES
from orchestrator.core.facts import HostFacts
from orchestrator.core.placement import Placement
from orchestrator.core.profile import Profile, Status
from orchestrator.core.settings import Settings

CPU_INSTRUCTIONS = Check(
    name="cpu-instructions",
    why=Said(
        "an engine built for AMX or AVX-512 ends with `Illegal instruction` (exit 132) on a CPU "
        "without them, often only after the load",
        "为 AMX 或 AVX-512 编译的引擎在不支持的 CPU 上会以 Illegal instruction 退出（退出码 132），"
        "常常在加载完成之后才出现",
    ),
    ask="grep -m 1 ^flags /proc/cpuinfo",
)
ENGINE_IMAGE = Check(
    name="engine-image",
    why=Said(
        "this version has no image for the profile's engine: the weights could be fetched, and "
        "nothing would serve them",
        "当前版本没有该配置所用引擎的镜像：权重可以下载，但没有程序能运行它",
    ),
    ask="python3 -m orchestrator profiles list",
)
ALSO_NEEDS = Check(
    name="also-needs",
    why=Said(
        "the engine needs files beside those of the profile, which this version neither fetches nor "
        "makes: the weights could be fetched, and nothing would serve them",
        "该引擎还需要配置之外的文件，当前版本既不下载也不生成：权重可以下载，但没有程序能运行它",
    ),
    ask="python3 -m orchestrator profiles list",
)
ENGINE_READS = Check(
    name="engine-reads",
    why=Said(
        "what an engine can't read shows minutes into the load, as a missing tensor or as gibberish",
        "引擎读不了的权重要到加载几分钟后才会暴露：缺少张量，或输出乱码",
    ),
    ask="python3 -m orchestrator plan",
)
ENGINE_ARGUMENTS = Check(
    name="engine-arguments",
    why=Said(
        "engines answer a wrong argument late, silently or by dying: a KV cache for fewer requests, "
        "a thread too many, experts that never reach the CPU",
        "参数有误时，引擎可能很久以后才报错、不报错或直接退出：KV 缓存容不下全部请求、线程多了一个、"
        "专家没有分到 CPU",
    ),
    ask="python3 -m orchestrator plan --verbose",
)
CONTEXT = Check(
    name="context",
    why=Said(
        "RAM and VRAM of this profile are published figures for its own context, not computed: what more "
        "context or slots take is in none of them, and may not fit",
        "该配置的内存和显存是按其自带上下文公布的数字，不是计算值：更长的上下文或更多并发所需的部分不在其中，可能放不下",
    ),
    ask="python3 -m orchestrator plan --verbose",
)
TRAINED_CONTEXT = Check(
    name="context",
    why=Said(
        "the model was trained with fewer tokens than one context has here: past them its replies get worse, "
        "up to nonsense, and the memory for them is taken all the same",
        "单个上下文的长度超过了模型训练时的长度：超出部分的回复质量会下降，甚至变成乱码，而内存照样占用",
    ),
    ask="python3 -m orchestrator plan --verbose",
)
PROFILE_STATUS = Check(
    name="profile-status",
    why=Said(
        "nobody has shown yet that an experimental profile, or an engine not yet run, works as described",
        "实验性配置或尚未运行过的引擎是否能按描述工作，还没有人验证过",
    ),
    ask="python3 -m orchestrator profiles list",
)


def cpu_instructions(profile: Profile, facts: HostFacts) -> Finding:
    needed = " ".join(sorted(profile.needs.cpu_flags)) or "-"
    has = {flag: facts.cpu.has(flag) for flag in sorted(profile.needs.cpu_flags)}
    lacking = [flag for flag, there in has.items() if there is False]
    if not lacking and None in has.values():
        return CPU_INSTRUCTIONS.unknown(needed)
    if not lacking:
        return CPU_INSTRUCTIONS.ok(needed, needed)
    other = Said(
        f"this CPU lacks {', '.join(lacking)}: choose a profile without them; in a virtual machine, "
        "pass the host's CPU through (QEMU: -cpu host)",
        f"这个 CPU 缺少 {', '.join(lacking)}：请选择不需要它们的配置；虚拟机请直通宿主机 CPU（QEMU：-cpu host）",
    )
    present = " ".join(sorted(profile.needs.cpu_flags - set(lacking)))
    return CPU_INSTRUCTIONS.block(present or "-", needed, Remedy(next_step=other))


def engine_image(profile: Profile) -> Finding:
    name = profile.engine.value
    if ABILITIES[profile.engine].has_image:
        return ENGINE_IMAGE.ok(name, name)
    able = " ".join(engine.value for engine in ABILITIES if ABILITIES[engine].has_image)
    other = Said(
        f"choose a profile for {able}: python3 -m orchestrator recommend",
        f"请选择使用 {able} 的配置：python3 -m orchestrator recommend",
    )
    return ENGINE_IMAGE.block(able, name, Remedy(next_step=other))


def also_needs(profile: Profile) -> Finding:
    if not profile.model.also_needs:
        return ALSO_NEEDS.ok("-")
    other = Said(
        "choose another profile: python3 -m orchestrator recommend",
        "请选择其他配置：python3 -m orchestrator recommend",
    )
    return ALSO_NEEDS.block("-", profile.model.also_needs, Remedy(next_step=other))


def engine_reads(profile: Profile, unreadable: Sequence[str]) -> Finding:
    if not unreadable:
        return ENGINE_READS.ok("0", "0")
    other = Said(
        "choose a profile at a quantisation that this engine reads: python3 -m orchestrator profiles list",
        "请选择该引擎能读取的量化版本的配置：python3 -m orchestrator profiles list",
    )
    needed = f"{profile.engine.value} / {profile.model.quantisation}"
    return ENGINE_READS.block("; ".join(unreadable), needed, Remedy(next_step=other))


def engine_arguments(profile: Profile, placement: Placement, facts: HostFacts) -> Finding:
    options = profile.kt_sglang
    experts = options is None or options.method is not None
    wrong = tuple(problems(profile.engine, placement.arguments, placement, facts, experts=experts))
    if not wrong:
        return ENGINE_ARGUMENTS.ok("0", "0")
    settings = Said(
        "change the setting that it follows from (plan --verbose shows where each comes from): "
        "ORCH_THREADS, ORCH_SLOTS, ORCH_CONTEXT_TOKENS, ORCH_MAX_TOKENS, ORCH_GPU_EXPERTS",
        "请修改对应的设置（plan --verbose 会显示每项的来源）："
        "ORCH_THREADS、ORCH_SLOTS、ORCH_CONTEXT_TOKENS、ORCH_MAX_TOKENS、ORCH_GPU_EXPERTS",
    )
    return ENGINE_ARGUMENTS.warn("; ".join(wrong), "0", Remedy(next_step=settings))


def context(profile: Profile, settings: Settings, budget: Budget, trained: int | None) -> Finding:
    """More than what the published figures are for; where terms are computed, they have it all.

    `trained`: tokens that the model was trained with, where its files say so.
    """
    if trained is not None and settings.context_tokens > trained:
        return _beyond_training(settings.context_tokens, trained)
    serving, asked = profile.serving, settings.context_tokens * settings.slots
    own = serving.context_tokens * serving.slots
    found, needed = f"{asked:,} tokens", f"<= {own:,}"
    terms = (term for share in budget.shares for term in share.terms)
    if asked <= own or all(term.certainty != "documented" for term in terms):
        return CONTEXT.ok(found)
    remedy = Remedy(
        f"export ORCH_CONTEXT_TOKENS={serving.context_tokens} ORCH_SLOTS={serving.slots}",
        f"export ORCH_CONTEXT_TOKENS={settings.context_tokens} ORCH_SLOTS={settings.slots}",
    )
    return CONTEXT.warn(found, needed, remedy)


def _beyond_training(asked: int, trained: int) -> Finding:
    remedy = Remedy(f"export ORCH_CONTEXT_TOKENS={trained}", f"export ORCH_CONTEXT_TOKENS={asked}")
    return TRAINED_CONTEXT.warn(f"{asked:,} tokens", f"<= {trained:,}", remedy)


def profile_status(profile: Profile) -> Finding:
    found, needed = profile.status.value, Status.PROVEN.value
    seen = ABILITIES[profile.engine].seen
    if not seen:
        found += f"; {profile.engine.value}: not run on any GPU yet"
    elif profile.status is not Status.EXPERIMENTAL:
        return PROFILE_STATUS.ok(found)
    known = Said(
        "try it, or choose another: python3 -m orchestrator recommend",
        "可以试用，或选择其他配置：python3 -m orchestrator recommend",
    )
    return PROFILE_STATUS.warn(found, needed, Remedy(next_step=known))
