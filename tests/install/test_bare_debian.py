"""install.sh for real, on bare Debian systems: containers that may run a Docker of their own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from install.machine import PROJECT

pytestmark = [pytest.mark.e2e, pytest.mark.long]

# Numbered from 0 as the kernel does.
CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE"
    " NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO"
    " SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME"
    " SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG"
    " WAKE_ALARM BLOCK_SUSPEND AUDIT_READ"
)
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_TRUSTED_HOST")
AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
KILL_DOCKERD = "kill -9 $(cat /var/run/docker.pid)"
STARTED = (
    "[install] start dockerd directly — no Docker daemon answers, and systemd does not run here\n"
)


@dataclass(frozen=True)
class BareMachine:
    container: str

    def sh(self, script: str, user: str = "root") -> subprocess.CompletedProcess[str]:
        passed = [f"--env={name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
        command = ["docker", "exec", "--env=PIP_CERT=/srv/ca.crt", *passed, "--workdir=/srv/app"]
        return subprocess.run(
            [*command, f"--user={user}", self.container, "bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )


def docker(*arguments: str) -> str:
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def import_bare(suite: str, image: str) -> None:
    """Debian as debootstrap leaves it: no Python, no curl, no certificates."""
    said = subprocess.run(
        [PROJECT / "images/base/rootfs.sh", "--print-mirror"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    mirror = [line.removeprefix("mirror=") for line in said.split() if line.startswith("mirror=h")]
    with tempfile.TemporaryDirectory(prefix="install-test-") as work:
        root = f"{work}/root"
        make = [*AS_ROOT, "debootstrap", "--variant=minbase", suite, root, *mirror]
        subprocess.run(make, stdout=subprocess.DEVNULL, check=True)
        pack = f'tar -C "{root}" -c . | docker import - {image}'
        subprocess.run([*AS_ROOT, "sh", "-c", pack], stdout=subprocess.DEVNULL, check=True)
        subprocess.run([*AS_ROOT, "rm", "-rf", root], check=True)


def almost_privileged() -> list[str]:
    """As `--privileged`, which fails where dockerd itself lacks a capability."""
    status = Path("/proc/1/status").read_text()
    bounding = int(status.split("CapBnd:")[1].split()[0], 16)
    held = [name for bit, name in enumerate(CAPABILITIES.split()) if bounding >> bit & 1]
    return [
        *(f"--cap-add={name}" for name in held),
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--security-opt=systempaths=unconfined",
        "--device-cgroup-rule=a *:* rwm",
        "--cgroupns=host",
        "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
        "--volume=/var/lib/docker",
    ]


def put_project(container: str) -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        check=True,
    ).stdout
    unpack = "mkdir -p /srv/app && tar -x -C /srv/app"
    pack = f"tar -c --null -T - | docker exec -i {container} sh -c '{unpack}'"
    subprocess.run(["sh", "-c", pack], cwd=PROJECT, input=files, check=True)
    certificates = os.environ.get("PIP_CERT", "/etc/ssl/certs/ca-certificates.crt")
    docker("cp", certificates, f"{container}:/srv/ca.crt")


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def bare(request: pytest.FixtureRequest) -> Iterator[BareMachine]:
    image, name = f"install-test:{request.param}", f"install-test-{request.param}-{os.getpid()}"
    import_bare(request.param, image)
    docker("run", "--detach", f"--name={name}", *almost_privileged(), image, "sleep", "infinity")
    try:
        put_project(name)
        yield BareMachine(name)
    finally:
        docker("rm", "--force", "--volumes", name)
        docker("rmi", image)


@pytest.fixture(scope="module")
def installed(bare: BareMachine) -> BareMachine:
    # The dry run must leave the machine bare.
    before = bare.sh("./install.sh --dry-run --no-up && ! command -v docker python3 && ! ls .venv")
    assert "there is no Docker Engine here" in before.stdout
    assert before.returncode == 0, before.stdout + before.stderr
    done = bare.sh("./install.sh --no-up")
    assert done.returncode == 0, done.stdout + done.stderr
    return bare


def test_a_bare_machine_has_docker_compose_buildx_and_packages_afterwards(
    installed: BareMachine,
) -> None:
    for command in ("docker info", "docker compose version", "docker buildx version"):
        done = installed.sh(command)
        assert done.returncode == 0, done.stderr
    done = installed.sh(".venv/bin/python -c 'import pydantic, rich, tenacity'")
    assert done.returncode == 0, done.stderr


def test_a_second_run_does_nothing(installed: BareMachine) -> None:
    done = installed.sh("./install.sh --no-up")
    assert done.stdout == "[install] nothing to do: all that the appliance needs is here\n"
    assert done.returncode == 0


def test_a_killed_dockerd_comes_up_again(installed: BareMachine) -> None:
    done = installed.sh(f"{KILL_DOCKERD} && ./install.sh --no-up && docker info >/dev/null")
    assert done.stdout == STARTED
    assert done.returncode == 0, done.stderr


def test_pid_files_that_name_a_stranger_are_not_believed(installed: BareMachine) -> None:
    containerd = "/var/run/docker/containerd/containerd.pid"
    stranger = f"echo 1 >/var/run/docker.pid; echo 1 >{containerd}"
    kill = f"{KILL_DOCKERD} $(cat {containerd})"
    done = installed.sh(f"{kill}; {stranger}; ./install.sh --no-up && docker info >/dev/null")
    assert done.stdout == STARTED
    assert done.returncode == 0, done.stderr


def test_a_dockerd_that_cannot_start_is_exit_10_with_its_last_words(
    installed: BareMachine,
) -> None:
    break_it = "mkdir -p /etc/docker && echo '{' >/etc/docker/daemon.json"
    done = installed.sh(f"{KILL_DOCKERD}; {break_it}; ./install.sh --no-up")
    assert done.returncode == 10
    assert "/etc/docker/daemon.json" in done.stderr
    assert installed.sh("rm /etc/docker/daemon.json; ./install.sh --no-up").returncode == 0


def test_a_user_without_root_is_told_what_to_ask_for(installed: BareMachine) -> None:
    installed.sh("id ada || useradd --create-home ada")
    done = installed.sh("./install.sh --no-up", user="ada")
    assert done.returncode == 3
    assert "usermod -aG docker ada" in done.stderr
    assert done.stdout == ""
