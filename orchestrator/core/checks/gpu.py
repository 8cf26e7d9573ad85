"""Checks of NVIDIA cards and their driver, whatever the profile. A host without a card passes."""

from orchestrator.core.checks.check import NOT_NEEDED, Check, Remedy, counted, gb, in_wsl
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import Gpu, HostFacts

NO_CARD = "0 GPUs"
# A100 and A30, H100 and H200, B200 (docs.nvidia.com/datacenter/tesla/mig-user-guide). An RTX PRO 6000
# can be cut too, but has the capability of cards for games, which can't.
MIG_CAPABILITIES = ((8, 0), (9, 0), (10, 0))
OLDEST_CAPABILITY = (8, 0)  # Ampere: what the engines' kernels are built for at the least

GPU_DRIVER = Check(
    name="gpu-driver",
    why=Said(
        "a card without NVIDIA's own driver (nouveau is not it) can't compute: every profile "
        "that needs a GPU is refused",
        "没有 NVIDIA 官方驱动（nouveau 不算）的显卡无法用于计算：所有需要 GPU 的配置都会被拒绝",
    ),
    ask="nvidia-smi",
)
PERSISTENCE = Check(
    name="persistence",
    why=Said(
        "without persistence mode the driver unloads when nothing uses the card, and the next "
        "start waits until it is set up again",
        "不开启持久模式时，显卡空闲后驱动会被卸载，下次启动要等它重新初始化",
    ),
    ask="nvidia-smi -q -d PERFORMANCE | grep -i persistence",
)
MIG = Check(
    name="mig",
    why=Said(
        "a card cut into MIG slices gives one program one slice at most: what counts is the "
        "VRAM of a slice, not of the card",
        "切成 MIG 切片的显卡最多只给一个程序一个切片：要看的是切片的显存，而不是整卡的显存",
    ),
    ask="nvidia-smi -L",
)
GPU_LOST = Check(
    name="gpu-lost",
    why=Said(
        "a card that its driver can't reach any more computes nothing, and often hides the other cards "
        "too, until the machine is started anew",
        "驱动再也访问不到的显卡无法计算，往往连其他显卡也一并看不到，直到重启机器",
    ),
    ask="nvidia-smi",
)
ECC = Check(
    name="ecc",
    why=Said(
        "memory errors that the card could not correct end the program that meets them, or spoil its "
        "answers; a card that has them again and again is worn out",
        "显卡无法纠正的显存错误会让遇到它的程序退出，或让回复出错；反复出现说明这张卡已经损坏",
    ),
    ask="nvidia-smi -q -d ECC",
)
GPU_GENERATION = Check(
    name="gpu-generation",
    why=Said(
        "V100 (7.0), T4 (7.5) and older cards end with `no kernel image is available`: "
        "the engines are built for Ampere (8.0) and later",
        "V100（7.0）、T4（7.5）及更早的显卡会报 no kernel image is available："
        "引擎只为 Ampere（8.0）及更新的显卡编译",
    ),
    ask="nvidia-smi --query-gpu=name,compute_cap --format=csv",
)


def lacks_driver(facts: HostFacts) -> bool:
    """A card is on the bus, and nothing that only a driver could tell is known of it."""
    if not facts.gpus or facts.driver_version is not None:
        return False
    return all(gpu.memory_bytes is None for gpu in facts.gpus)


def driver_remedy(facts: HostFacts) -> Remedy:
    if in_wsl(facts):
        windows = Said(
            "install NVIDIA's newest driver in Windows, none inside WSL2, then in PowerShell: "
            "wsl --shutdown",
            "请在 Windows 中安装最新的 NVIDIA 驱动（WSL2 里不要装），然后在 PowerShell 中运行 wsl --shutdown",
        )
        return Remedy(next_step=windows)
    install = "ubuntu-drivers install || apt-get install -y nvidia-driver"
    if facts.driver_version is None:
        return Remedy(install, "apt-get purge -y '^nvidia-driver.*'", _REBOOT)
    # To purge would leave a host that had a driver without any.
    return Remedy(install, f"apt-get install -y nvidia-driver-{_major(facts)}", _REBOOT)


def _major(facts: HostFacts) -> str:
    """Of `470.57.02` 470: Ubuntu has a package for each."""
    return (facts.driver_version or "").partition(".")[0]


_REBOOT = Said(
    "for Ubuntu, else Debian (with its section non-free); then reboot, and look at what `nvidia-smi` says "
    "beside CUDA Version: where the distribution's driver is too old, and on other systems, NVIDIA's data "
    "center driver guide has newer ones",
    "命令先按 Ubuntu 的方式尝试，失败则按 Debian（需启用 non-free）；完成后请重启，并查看 nvidia-smi 显示的 CUDA Version："
    "如果发行版的驱动太旧，或是其他系统，请按 NVIDIA 数据中心驱动安装文档安装更新的版本",
)


def gpu_driver(facts: HostFacts) -> Finding:
    if facts.gpus is None:
        return GPU_DRIVER.unknown("nvidia")
    if not facts.gpus:
        return GPU_DRIVER.ok(NO_CARD)
    if lacks_driver(facts):
        return GPU_DRIVER.warn(
            f"{card_count(len(facts.gpus))}, 0 drivers", "nvidia", driver_remedy(facts)
        )
    if facts.driver_version is None:
        return GPU_DRIVER.unknown("nvidia")
    return GPU_DRIVER.ok(f"nvidia {facts.driver_version}", "nvidia")


def persistence(facts: HostFacts) -> Finding:
    if facts.gpus is None:
        return PERSISTENCE.unknown("on")
    if not facts.gpus:
        return PERSISTENCE.ok(NO_CARD)
    if in_wsl(facts):
        return PERSISTENCE.ok("wsl")
    off = [gpu for gpu in facts.gpus if gpu.persistence is False]
    if off:
        found = f"off: {_indices(off)}"
        return PERSISTENCE.warn(found, "on", Remedy("nvidia-smi -pm 1", "nvidia-smi -pm 0"))
    if any(gpu.persistence is None for gpu in facts.gpus):
        return PERSISTENCE.unknown("on")
    return PERSISTENCE.ok("on", "on")


def gpu_lost(facts: HostFacts) -> Finding:
    if facts.lost_gpus:
        reboot = Said(
            "reboot; if it happens again, look at the card's seat, power and cooling",
            "请重启；如果再次发生，请检查显卡的插槽、供电和散热",
        )
        return GPU_LOST.warn(card_count(facts.lost_gpus), "0", Remedy(next_step=reboot))
    if facts.gpus is None:
        return GPU_LOST.unknown("0")
    return GPU_LOST.ok("0" if facts.gpus else NO_CARD, "0")


def ecc(facts: HostFacts) -> Finding:
    """Cards for games have no ECC, and say nothing of it."""
    if facts.gpus is None:
        return ECC.unknown("0")
    counts = {gpu.index: gpu.ecc_errors for gpu in facts.gpus if gpu.ecc_errors is not None}
    if not counts:
        return ECC.ok(NOT_NEEDED if facts.gpus else NO_CARD)
    worn = [f"GPU {index}: {count}" for index, count in counts.items() if count]
    if not worn:
        return ECC.ok("0", "0")
    again = Said(
        "note the count, and look again after a day of work: where it grows, have the card replaced",
        "请记下这个数字，运行一天后再看：如果继续增长，请更换显卡",
    )
    return ECC.warn(", ".join(worn), "0", Remedy(next_step=again))


def mig(facts: HostFacts) -> Finding:
    if facts.gpus is None:
        return MIG.unknown("off")
    cut = [gpu for gpu in facts.gpus if gpu.mig or gpu.mig_slices_bytes]
    if not cut and any(_may_be_cut(gpu) for gpu in facts.gpus):
        return MIG.unknown("off")
    if not cut:
        return MIG.ok("off" if facts.gpus else NO_CARD, "off" if facts.gpus else NOT_NEEDED)
    slices = sorted({size for gpu in cut for size in gpu.mig_slices_bytes}, reverse=True)
    count = sum(len(gpu.mig_slices_bytes) for gpu in cut)
    found = f"{count} x {gb(slices[0])}" if slices else f"on: {_indices(cut)}"
    which = _indices(cut)
    again = Said(
        "stop what uses the card first; undo turns MIG on again, the slices are then to be made "
        "anew with nvidia-smi mig -cgi",
        "请先停掉正在使用该卡的程序；撤销命令只会重新打开 MIG，切片需用 nvidia-smi mig -cgi 重新创建",
    )
    remedy = Remedy(f"nvidia-smi -i {which} -mig 0", f"nvidia-smi -i {which} -mig 1", again)
    return MIG.warn(found, "off", remedy)


def _may_be_cut(gpu: Gpu) -> bool:
    """Of a generation that MIG can cut, and silent about it."""
    return gpu.mig is None and gpu.compute_capability in {None, *MIG_CAPABILITIES}


def gpu_generation(facts: HostFacts) -> Finding:
    needed = f">= {dotted(OLDEST_CAPABILITY)}"
    if facts.gpus is None:
        return GPU_GENERATION.unknown(needed)
    if not facts.gpus:
        return GPU_GENERATION.ok(NO_CARD)
    known = [gpu.compute_capability for gpu in facts.gpus if gpu.compute_capability is not None]
    if known and min(known) < OLDEST_CAPABILITY:
        old = Said(
            "profiles that need a GPU are refused on it; take a card from Ampere on "
            "(RTX 30, 40, 50, A10, A30, A100, L4, L40S, H100, H200)",
            "需要 GPU 的配置在这张卡上会被拒绝；请换用 Ampere 及更新的显卡"
            "（RTX 30、40、50 系，A10、A30、A100、L4、L40S、H100、H200）",
        )
        return GPU_GENERATION.warn(dotted(min(known)), needed, Remedy(next_step=old))
    if len(known) < len(facts.gpus):
        return GPU_GENERATION.unknown(needed)
    return GPU_GENERATION.ok(dotted(min(known)), needed)


def card_count(count: int) -> str:
    return counted(count, "GPU")


def dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _indices(gpus: list[Gpu]) -> str:
    return ",".join(str(gpu.index) for gpu in gpus)
