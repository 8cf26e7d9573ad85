"""Checks of the system around: what kind of host this is, its disk, ports, clock and network."""

from orchestrator.core.checks.check import Check, Remedy, gb, in_wsl
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts
from orchestrator.core.settings import Settings

CLOCK_TOLERANCE_S = 300
FOREIGN_SYSTEMS = ("windows", "freebsd", "darwin", "macos")

OPERATING_SYSTEM = Check(
    name="operating-system",
    why=Said(
        "the containers are Linux containers that use the host's own kernel and GPU driver",
        "容器是 Linux 容器，直接使用主机的内核和 GPU 驱动",
    ),
    ask="cat /etc/os-release",
    of_host=True,
)
CONTAINER = Check(
    name="container",
    why=Said(
        "a rented container (AutoDL, vast.ai, RunPod and the like) gives no Docker, shows the RAM of the "
        "whole machine and grants a part of it: the stack can't start, or is killed while it loads",
        "租用的容器（AutoDL、vast.ai、RunPod 等）不提供 Docker，显示的是整机内存，实际只给其中一部分："
        "服务要么无法启动，要么在加载时被杀掉",
    ),
    ask="systemd-detect-virt --container",
    of_host=True,
)
WSL = Check(
    name="wsl",
    why=Said(
        "WSL2 takes half of Windows' RAM unless told otherwise, and weights under /mnt/c are read "
        "through a network file system",
        "WSL2 默认只使用 Windows 一半的内存；放在 /mnt/c 下的权重要经过网络文件系统读取",
    ),
    ask="uname -r",
)
DISK_KIND = Check(
    name="disk-kind",
    why=Said(
        "the whole model is read at each start: users report more than 30 minutes from hard disks "
        "and NFS; weights in a RAM disk take the RAM that the engine needs",
        "每次启动都要读取整个模型：有用户反映机械硬盘和 NFS 需要 30 分钟以上；"
        "放在内存盘里的权重会占掉引擎需要的内存",
    ),
    ask="lsblk -d -o NAME,ROTA,SIZE && df -hT",
)
PORTS = Check(
    name="ports",
    why=Said(
        "another program listens there, so that the API or the chat page can't",
        "已有其他程序监听该端口，API 或聊天页面无法使用",
    ),
    ask="ss -ltnp",
)
CLOCK = Check(
    name="clock",
    why=Said(
        "a wrong clock makes valid certificates look expired or not yet valid: each download "
        "over TLS fails",
        "时钟不准会让有效证书看起来已过期或尚未生效：所有通过 TLS 的下载都会失败",
    ),
    ask="date -u && timedatectl",
)
NETWORK = Check(
    name="network",
    why=Said(
        "weights come from Hugging Face or ModelScope: with neither, only a mirror or a folder "
        "can give them",
        "权重来自 Hugging Face 或 ModelScope：两者都不通时，只能用镜像站或本地目录",
    ),
    ask="python3 -m orchestrator doctor --only network",
)
IMAGE_REGISTRY = Check(
    name="image-registry",
    why=Said(
        "without an image registry the base image is assembled from Debian packages: "
        "that works, and needs debootstrap and a Debian mirror",
        "没有镜像仓库时，基础镜像会用 Debian 软件包组装：可以工作，但需要 debootstrap 和 Debian 镜像源",
    ),
    ask="docker pull docker.io/library/debian:bookworm-slim",
)


def operating_system(facts: HostFacts) -> Finding:
    if facts.system is None:
        return OPERATING_SYSTEM.unknown("Linux")
    if not facts.system.lower().startswith(FOREIGN_SYSTEMS):
        return OPERATING_SYSTEM.ok(facts.system, "Linux")
    linux = Said(
        "run it on Debian 12 or 13, or Ubuntu 22.04 or 24.04; on Windows inside WSL2, for small "
        "models: wsl --install",
        "请在 Debian 12/13 或 Ubuntu 22.04/24.04 上运行；在 Windows 上可在 WSL2 中运行小模型：wsl --install",
    )
    return OPERATING_SYSTEM.block(facts.system, "Linux", Remedy(next_step=linux))


def container(facts: HostFacts) -> Finding:
    kind, needed = facts.limits.container, "VM / bare metal"
    if kind is None:
        return CONTAINER.unknown(needed)
    if not kind:
        return CONTAINER.ok(facts.limits.virtual or "bare metal", needed)
    if facts.docker.answers:
        return CONTAINER.warn(kind, needed, Remedy(next_step=_LIMITS_LIE))
    return CONTAINER.block(kind, needed, Remedy(next_step=_WHAT_TO_RENT))


_LIMITS_LIE = Said(
    "paths and limits that the Docker daemon sees may be others than those seen here: run this "
    "on the host itself",
    "Docker 守护进程看到的路径和限额可能与这里不同：请直接在主机上运行",
)
_WHAT_TO_RENT = Said(
    "rent a virtual machine or bare metal with root and Docker, not a container instance. For the full "
    "R1 at Q4_K_M: 480 GB of RAM, of which 402 GB must be available, a card with 14 GB of VRAM at the "
    "least (20 GB for long replies), an SSD with room for 404.4 GB of weights and 20 GB of images; "
    "for less: python3 -m orchestrator recommend",
    "请租用带 root 权限和 Docker 的虚拟机或裸金属服务器，不要租容器实例。运行 R1 Q4_K_M 满血版："
    "内存 480 GB，其中可用内存至少 402 GB，显存至少 14 GB（长回复需 20 GB），SSD 要放得下 404.4 GB 权重和 20 GB 镜像；"
    "更小的主机请看：python3 -m orchestrator recommend",
)


def wsl(facts: HostFacts) -> Finding:
    # lscpu names Microsoft's hypervisor alike in WSL and in a virtual machine.
    if facts.kernel is None and facts.limits.virtual in {None, "microsoft"}:
        return WSL.unknown("Linux")
    if not in_wsl(facts):
        return WSL.ok("Linux", "Linux")
    total = facts.memory.total_bytes
    more = Said(
        "in Windows: write [wsl2] and memory=..GB (what Windows can spare) into %UserProfile%\\.wslconfig, "
        "then run wsl --shutdown; keep the weights in WSL2's own file system",
        "在 Windows 中：在 %UserProfile%\\.wslconfig 里写入 [wsl2] 和 memory=..GB（按 Windows 可让出的内存），"
        "再运行 wsl --shutdown；权重请放在 WSL2 自己的文件系统里",
    )
    found = "WSL2" if total is None else f"WSL2, {gb(total)}"
    return WSL.warn(found, "Linux", Remedy(next_step=more))


def disk_kind(facts: HostFacts) -> Finding:
    disk = facts.disk
    if disk is None or disk.kind is None:
        return DISK_KIND.unknown("ssd")
    if disk.kind == "ssd":
        return DISK_KIND.ok(f"ssd ({disk.path})", "ssd")
    move = Said(
        "put the weights on a local SSD: ORCH_WEIGHTS_DIR=FOLDER; files that are there already "
        "can be moved with it",
        "请把权重放到本地 SSD：ORCH_WEIGHTS_DIR=目录；已下载的文件可以一起移过去",
    )
    return DISK_KIND.warn(f"{disk.kind} ({disk.path})", "ssd", Remedy(next_step=move))


def ports(facts: HostFacts, settings: Settings) -> Finding:
    ours = {"GATEWAY": settings.gateway_port, "WEBUI": settings.webui_port}
    needed = " ".join(str(port) for port in ours.values())
    if facts.busy_ports is None:
        return PORTS.unknown(needed)
    busy = {name: port for name, port in ours.items() if port in facts.busy_ports}
    if not busy:
        return PORTS.ok(needed, needed)
    taken = facts.busy_ports | set(ours.values())
    moves, names = [], []
    for name, port in busy.items():
        free = next(other for other in range(port + 1, 1 << 16) if other not in taken)
        taken |= {free}
        moves.append(f"ORCH_{name}_PORT={free}")
        names.append(f"ORCH_{name}_PORT")
    who = Said(
        f"or stop what listens there: ss -ltnp | grep -E ':({'|'.join(map(str, busy.values()))}) '",
        f"或停掉占用它的程序：ss -ltnp | grep -E ':({'|'.join(map(str, busy.values()))}) '",
    )
    remedy = Remedy(f"export {' '.join(moves)}", f"unset {' '.join(names)}", who)
    found = " ".join(str(port) for port in busy.values())
    return PORTS.block(f"{found}: in use", needed, remedy)


def clock(facts: HostFacts) -> Finding:
    ahead, needed = facts.reach.clock_ahead_s, f"+-{CLOCK_TOLERANCE_S} s"
    if ahead is None:
        return CLOCK.unknown(needed)
    found = f"{ahead:+.0f} s"
    if abs(ahead) <= CLOCK_TOLERANCE_S:
        return CLOCK.ok(found, needed)
    return CLOCK.warn(
        found, needed, Remedy("timedatectl set-ntp true", "timedatectl set-ntp false")
    )


def network(facts: HostFacts) -> Finding:
    hubs = {"huggingface": facts.reach.huggingface, "modelscope": facts.reach.modelscope}
    needed = "huggingface / modelscope"
    answering = [name for name, answers in hubs.items() if answers]
    if answering:
        return NETWORK.ok(" ".join(answering), needed)
    if None in hubs.values():
        return NETWORK.unknown(needed)
    mirror = Said(
        "name a mirror (ORCH_HF_ENDPOINT=https://..., ORCH_MODELSCOPE_ENDPOINT=https://...), set "
        "HTTPS_PROXY, or copy the weights to a folder: ORCH_SOURCE_DIR=FOLDER",
        "请指定镜像站（ORCH_HF_ENDPOINT=https://...、ORCH_MODELSCOPE_ENDPOINT=https://...），设置 HTTPS_PROXY，"
        "或把权重拷贝到目录：ORCH_SOURCE_DIR=目录",
    )
    return NETWORK.warn("0 of 2", needed, Remedy(next_step=mirror))


def image_registry(facts: HostFacts, settings: Settings) -> Finding:
    answers, needed = facts.reach.image_registry, settings.base_image.split("/")[0]
    if answers is None:
        return IMAGE_REGISTRY.unknown(needed)
    if answers:
        return IMAGE_REGISTRY.ok(needed, needed)
    other = Said(
        "nothing to do, or name an image that a mirror has: ORCH_BASE_IMAGE=MIRROR/debian:bookworm-slim",
        "无需处理；也可指定镜像站上的镜像：ORCH_BASE_IMAGE=镜像站/debian:bookworm-slim",
    )
    return IMAGE_REGISTRY.warn("-", needed, Remedy(INSTALL_DEBOOTSTRAP, next_step=other))


INSTALL_DEBOOTSTRAP = "./install.sh --no-up"
