"""Checks of Docker and its parts, whatever the profile."""

from orchestrator.core.checks.check import NOT_NEEDED, Check, Remedy
from orchestrator.core.checks.finding import Finding, Said
from orchestrator.core.facts import HostFacts

INSTALL = "./install.sh --no-up"

DOCKER = Check(
    name="docker",
    why=Said(
        "every part of the stack is a container: without a Docker daemon that this user may "
        "talk to, nothing can start",
        "整套服务都运行在容器里：没有当前用户可用的 Docker 守护进程，什么都无法启动",
    ),
    ask="docker version",
    of_host=True,
)
COMPOSE = Check(
    name="compose",
    why=Said(
        "the stack is described for Compose v2, the plugin (`docker compose`); "
        "the old docker-compose (v1) can't read it",
        "服务栈使用 Compose v2 插件（docker compose）描述，旧版 docker-compose（v1）无法读取",
    ),
    ask="docker compose version",
    of_host=True,
)
BUILDX = Check(
    name="buildx",
    why=Said(
        "images are built with buildx, which hands over the host's certificates and the "
        "shared packages",
        "镜像用 buildx 构建，由它传入主机的证书和共享的软件包",
    ),
    ask="docker buildx version",
)
SYS_NICE = Check(
    name="sys-nice",
    why=Said(
        "rootless Docker can't grant SYS_NICE: the engine's binding of memory to nodes fails "
        "with `set_mempolicy: Operation not permitted`, and it goes on slower without it",
        "无 root 的 Docker 无法授予 SYS_NICE：引擎绑定内存节点时会报 "
        "set_mempolicy: Operation not permitted，然后在没有绑定的情况下变慢运行",
    ),
    ask="docker info --format '{{.SecurityOptions}}'",
)
GPU_AFTER_RELOAD = Check(
    name="gpu-after-reload",
    why=Said(
        "with the systemd cgroup driver and no CDI, each `systemctl daemon-reload` takes the GPU "
        "from running containers: `Failed to initialize NVML: Unknown Error`",
        "使用 systemd cgroup 驱动且没有 CDI 时，每次 systemctl daemon-reload 都会让运行中的容器"
        "失去 GPU：Failed to initialize NVML: Unknown Error",
    ),
    ask="docker info --format '{{.CgroupDriver}} {{.CDISpecDirs}}'",
)


def docker(facts: HostFacts) -> Finding:
    answers, version = facts.docker.answers, facts.docker.version
    if answers is None:
        return DOCKER.unknown("docker")
    if answers:
        return DOCKER.ok(version or "docker", "docker")
    if facts.limits.container:
        inside = Said(
            "Docker can't be had inside this rented container: see the check `container`",
            "在这个租用的容器里无法使用 Docker：见检查项 container",
        )
        return DOCKER.block(facts.limits.container, "docker", Remedy(next_step=inside))
    if version is None:
        return DOCKER.block("-", "docker", Remedy(INSTALL, next_step=_INSTALLS))
    return DOCKER.block(f"{version} (client)", "docker", _no_answer(facts.uid))


_INSTALLS = Said(
    "it installs what is missing, starts Docker, and leaves the rest as it is",
    "它会安装缺少的部分并启动 Docker，其余保持不变",
)


def _no_answer(uid: int) -> Remedy:
    context = Said(
        "if Docker runs and DOCKER_HOST or a context points elsewhere: docker context use default; "
        "a new group counts from the next log-in",
        "如果 Docker 已运行但 DOCKER_HOST 或 context 指向别处：docker context use default；"
        "加入用户组后需重新登录才生效",
    )
    if uid == 0:
        return Remedy("systemctl start docker", "systemctl stop docker", context)
    user = f'"$(id -un {uid})"'
    return Remedy(
        f"systemctl start docker && usermod -aG docker {user}", f"gpasswd -d {user} docker", context
    )


def compose(facts: HostFacts) -> Finding:
    version = facts.docker.compose_version
    if version is None:
        return COMPOSE.unknown(">= 2")
    if version.lstrip("v").split(".")[0] in {"0", "1"}:
        return COMPOSE.block(version, ">= 2", Remedy(INSTALL, next_step=_INSTALLS))
    return COMPOSE.ok(version, ">= 2")


def buildx(facts: HostFacts) -> Finding:
    version = facts.docker.buildx_version
    return BUILDX.unknown("buildx") if version is None else BUILDX.ok(version, "buildx")


def sys_nice(facts: HostFacts) -> Finding:
    rootless, nodes = facts.docker.rootless, facts.memory_nodes
    if nodes is not None and len(nodes) == 1:
        return SYS_NICE.ok("1 node")
    if rootless is None:
        return SYS_NICE.unknown("rootful")
    if not rootless:
        return SYS_NICE.ok("rootful", "rootful")
    remedy = Remedy("docker context use default", "docker context use rootless")
    return SYS_NICE.warn("rootless", "rootful", remedy)


def gpu_after_reload(facts: HostFacts) -> Finding:
    if facts.gpus == ():
        return GPU_AFTER_RELOAD.ok("0 GPUs")
    driver, cdi = facts.docker.cgroup_driver, facts.docker.cdi
    if driver == "cgroupfs" or cdi:
        return GPU_AFTER_RELOAD.ok("CDI" if cdi else "cgroupfs", NOT_NEEDED)
    if facts.gpus is None or driver is None or cdi is None:
        return GPU_AFTER_RELOAD.unknown("CDI")
    remedy = Remedy(
        "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", "rm /etc/cdi/nvidia.yaml"
    )
    return GPU_AFTER_RELOAD.warn(driver, "CDI", remedy)
