"""Checks of RAM as the kernel manages it, whatever the profile."""

from orchestrator.core.checks.check import Check, Remedy, gb
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts

HUGE_PAGE_BYTES = 2 << 20
# What systemd grants a service by default; less is somebody's choice.

HUGEPAGES = Check(
    name="hugepages",
    why=Said(
        "RAM reserved for huge pages is gone for everything else, also while nothing uses it: "
        "the weights can't go there",
        "预留给大页的内存即使空闲也不能挪作他用，模型权重放不进去",
    ),
    ask="grep -i hugetlb /proc/meminfo",
)
THP = Check(
    name="thp",
    why=Said(
        "without transparent huge pages the CPU looks up an address for every 4 kB of weights "
        "rather than 2 MB, and experts that are copied to RAM are read slower",
        "关闭透明大页后，CPU 每 4 kB 权重就要做一次地址转换（而不是每 2 MB 一次），读取内存中的专家权重会变慢",
    ),
    ask="cat /sys/kernel/mm/transparent_hugepage/enabled",
)
FRAGMENTATION = Check(
    name="fragmentation",
    why=Said(
        "free memory is in pieces smaller than a huge page (2 MB), so that none can be made "
        "for the weights; typical after weeks of uptime",
        "空闲内存已碎成小于一个大页（2 MB）的小块，无法为权重分配大页；主机长期运行后常见",
    ),
    ask="cat /proc/buddyinfo",
)
SWAP = Check(
    name="swap",
    why=Said(
        "once memory is tight the kernel moves pages to disk, and a model that waits for them "
        "answers at 0.5 tokens/s; the engine's container may not swap, but what runs beside it may",
        "内存紧张时内核会把内存页换到磁盘，模型等待换页时速度会掉到 0.5 token/s；"
        "引擎容器已禁止换页，但同一主机上的其他程序仍会",
    ),
    ask="swapon --show",
)
NUMA_BALANCING = Check(
    name="numa-balancing",
    why=Said(
        "the kernel keeps moving pages between the nodes, against the placement that was "
        "computed, and each move halts the thread that reads the page",
        "内核会不断在 NUMA 节点之间迁移内存页，打乱已算好的放置方案，每次迁移都会暂停正在读取的线程",
    ),
    ask="cat /proc/sys/kernel/numa_balancing",
)
MEMLOCK = Check(
    name="memlock",
    why=Said(
        "CUDA locks the buffers that a GPU reads straight from RAM through its driver, which this limit does not "
        "count, and the engines map the weights without locking them: nothing to do",
        "GPU 直接读取的内存缓冲区由 CUDA 通过驱动锁定，不受此限额约束；引擎映射权重时不锁定内存：无需处理",
    ),
    ask="ulimit -l",
)


def hugepages(facts: HostFacts) -> Finding:
    reserved = facts.memory.hugepages_bytes
    if reserved is None:
        return HUGEPAGES.unknown(gb(0))
    if reserved == 0:
        return HUGEPAGES.ok(gb(0), gb(0))
    pages = reserved // HUGE_PAGE_BYTES
    remedy = Remedy(
        "for f in /sys/kernel/mm/hugepages/*/nr_hugepages; do echo 0 > $f; done",
        f"sysctl -w vm.nr_hugepages={pages}",
        Said(
            f"make sure that no program needs them; the undo command counts {pages} pages of 2 MiB "
            "(the usual size: grep Hugepagesize /proc/meminfo)",
            f"请先确认没有程序在用；撤销命令按 2 MiB 大小的页计 {pages} 页"
            "（查看页大小：grep Hugepagesize /proc/meminfo）",
        ),
    )
    return HUGEPAGES.warn(gb(reserved), gb(0), remedy)


def thp(facts: HostFacts) -> Finding:
    found, needed = facts.memory.thp, "madvise / always"
    if found is None:
        return THP.unknown(needed)
    if found != "never":
        return THP.ok(found, needed)
    setting = "/sys/kernel/mm/transparent_hugepage/enabled"
    return THP.warn(found, needed, Remedy(f"echo always > {setting}", f"echo {found} > {setting}"))


def fragmentation(facts: HostFacts) -> Finding:
    found, needed = facts.memory.largest_free_block_bytes, "2 MiB"
    if found is None:
        return FRAGMENTATION.unknown(needed)
    largest = f"{found >> 20} MiB" if found >= 1 << 20 else f"{found >> 10} KiB"
    if found >= HUGE_PAGE_BYTES:
        return FRAGMENTATION.ok(largest, needed)
    no_undo = Said(
        "run it just before `python3 -m orchestrator up`; there is nothing to undo",
        "请在 python3 -m orchestrator up 之前运行；无需撤销",
    )
    remedy = Remedy("echo 1 > /proc/sys/vm/compact_memory", next_step=no_undo)
    return FRAGMENTATION.warn(largest, needed, remedy)


def swap(facts: HostFacts) -> Finding:
    memory = facts.memory
    total, free, available = memory.swap_total_bytes, memory.swap_free_bytes, memory.available_bytes
    if total is None:
        return SWAP.unknown(gb(0))
    if total == 0:
        return SWAP.ok(gb(0), gb(0))
    used = None if free is None else total - free
    if used and (available is None or used > available):
        full = Said(
            f"{gb(used)} of it is in use, more than RAM has room for: stop other programs first",
            f"其中 {gb(used)} 正在使用，内存放不下：请先停掉其他程序",
        )
        return SWAP.warn(gb(total), gb(0), Remedy(next_step=full))
    return SWAP.warn(gb(total), gb(0), Remedy("swapoff -a", "swapon -a"))


def numa_balancing(facts: HostFacts) -> Finding:
    nodes, on = facts.memory_nodes, facts.numa_balancing
    if nodes is not None and len(nodes) < 2:  # noqa: PLR2004  # nothing to move pages between
        return NUMA_BALANCING.ok(f"{len(nodes)} node")
    if on is None:
        return NUMA_BALANCING.unknown("0")
    if not on:
        return NUMA_BALANCING.ok("0", "0")
    remedy = Remedy("sysctl -w kernel.numa_balancing=0", "sysctl -w kernel.numa_balancing=1")
    return NUMA_BALANCING.warn("1", "0", remedy)


def memlock(facts: HostFacts) -> Finding:
    limit = facts.limits.memlock_bytes
    if limit is None:
        return MEMLOCK.unknown("-")
    return MEMLOCK.ok("unlimited" if limit < 0 else f"{limit >> 10} KiB")
