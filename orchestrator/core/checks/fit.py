"""Can this profile be fetched, and does it fit on this disk and into this RAM?"""

from collections.abc import Iterable

from orchestrator.core.budget import Budget
from orchestrator.core.checks.check import Check, Remedy, counted, gb
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts
from orchestrator.core.placement import Placement
from orchestrator.core.profile import (
    FolderSource,
    HttpSource,
    HuggingFaceSource,
    ModelScopeSource,
    Profile,
    ProfileSource,
)
from orchestrator.core.settings import Settings

# Terms of RAM that the engine's own container does not hold.
BESIDE_THE_ENGINE = frozenset({"chat page", "gateway", "left to the system"})

DISK = Check(
    name="disk",
    why=Said(
        "a download that fills the disk stops hours later, and takes the rest of the host with it",
        "写满磁盘的下载会在几个小时后失败，并影响主机上的其他程序",
    ),
    ask="df -B1 .",
)
MEMORY = Check(
    name="memory",
    why=Said(
        "with less RAM than the model takes, the kernel kills the engine while it loads (users report "
        "layer 40 of 61), or reads the weights from disk for each token: 0.5 tokens/s; swap does not help",
        "内存小于模型所需时，引擎会在加载途中被内核杀掉（有用户在 61 层中的第 40 层遇到），"
        "或者每个 token 都从磁盘读权重：0.5 token/s；交换分区没有帮助",
    ),
    ask="free -b",
)
MEMORY_NODES = Check(
    name="memory-nodes",
    why=Said(
        "free RAM in total is not free RAM on the node: a host of 512 GB runs out of memory when "
        "the weights are bound to one node of 256 GB",
        "总的空闲内存不等于单个节点的空闲内存：512 GB 的主机若把权重绑定到一个 256 GB 的节点，仍会内存不足",
    ),
    ask="numactl --hardware",
)
MEMORY_LIMIT = Check(
    name="memory-limit",
    why=Said(
        "the container's limit counts page cache too: below what the model takes, the engine is "
        "killed (exit 137) or pages from disk",
        "容器的内存限额也计入页缓存：低于模型所需时，引擎会被杀掉（退出码 137）或不断从磁盘换页",
    ),
    ask="python3 -m orchestrator plan --verbose",
)

SOURCES = Check(
    name="sources",
    why=Said(
        "weights are missing here, and none of the places that the profile names answers: "
        "the download ends with exit code 5",
        "本机缺少权重，而配置中列出的来源都连不上：下载会以退出码 5 结束",
    ),
    ask="python3 -m orchestrator doctor --only sources",
)


def disk(budget: Budget, settings: Settings, facts: HostFacts) -> Finding:
    share = budget.disk
    needed = gb(share.need_bytes)
    if share.have_bytes is None:
        return DISK.unknown(needed)
    where = facts.disk.path if facts.disk else settings.weights_dir
    found = f"{gb(share.have_bytes)} on {where}"
    if share.fits:
        return DISK.ok(found, needed)
    lacking = gb(share.need_bytes - share.have_bytes)
    more = Said(
        f"free {lacking} (python3 -m orchestrator weights list shows what is kept), or put the "
        "weights on a larger disk: ORCH_WEIGHTS_DIR=FOLDER",
        f"请腾出 {lacking}（用 python3 -m orchestrator weights list 查看已保存的权重），"
        "或把权重放到更大的磁盘：ORCH_WEIGHTS_DIR=目录",
    )
    return DISK.block(found, needed, Remedy(next_step=more))


def memory(profile: Profile, budget: Budget, facts: HostFacts) -> Finding:
    """Against what can be had now, which a cgroup may limit; swap does not count."""
    figure = profile.needs.memory
    # What is published of a profile that needs no card is for the CPU alone.
    beside_card = bool(profile.may_use_gpu and budget.vram)
    least = max(0 if beside_card else figure.least_bytes, _ram_bytes(budget))
    available, have = facts.memory.available_bytes, facts.usable_memory_bytes
    if have is None:
        return MEMORY.unknown(gb(least))
    found = gb(have) if have == available else f"{gb(have)} (cgroup)"
    if have < least:
        return MEMORY.block(found, gb(least), _more_memory(facts, have, least))
    recommended = 0 if beside_card else figure.recommended_bytes or 0
    if have < recommended:
        return MEMORY.warn(found, f"{gb(least)}, {gb(recommended)}", Remedy(next_step=_TIGHT))
    return MEMORY.ok(found, gb(least))


_TIGHT = Said(
    "it fits, and nothing large may run beside it: stop other programs before `up`",
    "放得下，但旁边不能再运行大程序：请在 up 之前停掉其他程序",
)


def _more_memory(facts: HostFacts, have: int, least: int) -> Remedy:
    lacking, total = gb(least - have), facts.memory.total_bytes
    if facts.memory.available_bytes != have:
        text = Said(
            f"raise the cgroup's limit by {lacking}, or choose a smaller profile: "
            "python3 -m orchestrator recommend",
            f"请把 cgroup 限额提高 {lacking}，或选择更小的配置：python3 -m orchestrator recommend",
        )
    elif total is not None and total >= least:
        text = Said(
            f"this host has {gb(total)} in all: stop other programs (ps aux --sort=-rss | head) "
            f"or release huge pages until {lacking} more are available",
            f"主机共有 {gb(total)}：请停掉其他程序（ps aux --sort=-rss | head）或释放大页，再腾出 {lacking}",
        )
    else:
        text = Said(
            f"add {lacking} of RAM, or choose a smaller profile: python3 -m orchestrator recommend",
            f"请增加 {lacking} 内存，或选择更小的配置：python3 -m orchestrator recommend",
        )
    return Remedy(next_step=text)


def memory_nodes(budget: Budget, facts: HostFacts) -> Finding:
    """Node by node: on a host of one node the check `memory` has said it all."""
    if [share.where for share in budget.ram] == ["RAM"]:
        count = facts.node_count if facts.memory_nodes is None else len(facts.memory_nodes)
        known = count == 1 or facts.memory_nodes is not None
        return MEMORY_NODES.ok(counted(count or 0, "node")) if known else MEMORY_NODES.unknown("-")
    needed = _listed((share.where, share.need_bytes) for share in budget.ram)
    found = _listed((share.where, share.have_bytes) for share in budget.ram)
    if all(share.fits for share in budget.ram):
        return MEMORY_NODES.ok(found, needed)
    if not any(share.fits is False for share in budget.ram):
        return MEMORY_NODES.unknown(needed)
    return MEMORY_NODES.block(found, needed, Remedy(next_step=_OTHER_POLICY))


_OTHER_POLICY = Said(
    "spread the weights over all nodes (ORCH_MEMORY_POLICY=interleave) where all of them together have "
    "room, or stop what fills the node: numastat -m",
    "若所有节点合计放得下，请把权重分布到全部节点（ORCH_MEMORY_POLICY=interleave），"
    "或停掉占用该节点的程序：numastat -m",
)


def memory_limit(budget: Budget, settings: Settings, placement: Placement) -> Finding:
    limit, needed = placement.memory_limit_bytes, _engine_bytes(budget)
    if settings.inference_memory_bytes:
        limit = settings.inference_memory_bytes
    if limit >= needed:
        return MEMORY_LIMIT.ok(gb(limit), gb(needed))
    if not settings.inference_memory_bytes:
        return MEMORY_LIMIT.block(gb(limit), gb(needed), Remedy(next_step=_HOST_LIMITS))
    remedy = Remedy(
        "unset ORCH_INFERENCE_MEMORY_BYTES",
        f"export ORCH_INFERENCE_MEMORY_BYTES={limit}",
        Said(
            "or take the line out of appliance.toml: the limit is then computed",
            "或从 appliance.toml 中删掉该行：限额会自动计算",
        ),
    )
    return MEMORY_LIMIT.block(gb(limit), gb(needed), remedy)


_HOST_LIMITS = Said(
    "this host can't give the container more: see the check `memory`",
    "主机无法给容器更多内存：见检查项 memory",
)


def sources(profile: Profile, budget: Budget, settings: Settings, facts: HostFacts) -> Finding:
    """Only where weights are still to come: a stack that has its weights needs no network."""
    names = " / ".join(dict.fromkeys(source.kind for source in profile.sources))
    if not any(term.name.startswith("weights") and term.size_bytes for term in budget.disk.terms):
        return SOURCES.ok(names)
    if settings.source_dir is not None:
        return SOURCES.ok(str(settings.source_dir))
    heard = [answers(source, facts) for source in profile.sources]
    if any(heard):
        return SOURCES.ok(names, names)
    if None in heard:
        return SOURCES.unknown(names)
    folder = Said(
        "name a mirror (ORCH_HF_ENDPOINT=https://...), or copy the weights here and name the folder: "
        "ORCH_SOURCE_DIR=FOLDER",
        "请指定镜像站（ORCH_HF_ENDPOINT=https://...），或把权重拷贝到本机并指定目录：ORCH_SOURCE_DIR=目录",
    )
    return SOURCES.warn(f"0 of {len(heard)}", names, Remedy(next_step=folder))


def answers(source: ProfileSource, facts: HostFacts) -> bool | None:
    """Does the place where it is answer from here? None: nobody asked."""
    match source:
        case HuggingFaceSource():
            return facts.reach.huggingface
        case ModelScopeSource():
            return facts.reach.modelscope
        case FolderSource():
            return True
        case HttpSource():
            return None
        case _:
            return facts.reach.python_index


def _engine_bytes(budget: Budget) -> int:
    terms = (term for share in budget.ram for term in share.terms)
    return sum(term.size_bytes for term in terms if term.name not in BESIDE_THE_ENGINE)


def _ram_bytes(budget: Budget) -> int:
    return sum(share.need_bytes for share in budget.ram)


def _listed(amounts: Iterable[tuple[str, int | None]]) -> str:
    """`RAM node 0` is `node 0` here: the check's name says the rest."""
    return ", ".join(
        f"{where.removeprefix('RAM ')}: {'?' if size is None else gb(size)}"
        for where, size in amounts
    )
