"""Recorded machines for install.sh: a folder that stands for /, and commands that answer as they did there."""

import hashlib
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

PROJECT = Path(__file__).resolve().parents[2]
RECORDED = Path(__file__).resolve().parent / "recorded"

# install.sh may read with these; everything else on a recorded machine is made here.
READERS: tuple[str, ...] = ("awk", "bash", "cat", "cp", "dirname", "env", "flock", "grep", "head")
READERS += ("mktemp", "mv", "rm", "sed", "sh", "sha256sum", "tail", "timeout", "tr")
# Calling one of these is a change of the machine.
CHANGERS: tuple[str, ...] = ("apt-get", "dpkg", "dpkg-deb", "install", "kill", "mkdir", "nohup")
CHANGERS += ("systemctl", "usermod")

Docker = Literal["none", "stray client", "stopped", "denied", "answers"]
Engine = Literal["docker.io", "docker-ce", "other"]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A bare machine, unless said otherwise."""

    system: str
    user: Literal["root", "sudo", "plain"] = "root"
    groups: str = "ada"
    docker: Docker = "none"
    engine: Engine = "other"
    client: str = "20.10"
    context: str = "default"
    docker_host: str = ""
    plugins: tuple[str, ...] = ()
    python: bool = False
    certificates: bool = True
    venv: bool = False
    images: tuple[str, ...] = ()
    reachable: tuple[str, ...] = ()
    apt_knows: tuple[str, ...] = ()
    systemd: bool = True
    apparmor: bool = False
    gpu: Literal["none", "no driver", "driver", "toolkit", "runtime"] = "none"


@dataclass(frozen=True)
class Outcome:
    code: int
    actions: tuple[str, ...]
    stderr: str
    stdout: str
    touched: str


class Recording:
    """One machine laid out in a folder, with a copy of the project on it."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.root = folder / "root"
        self.commands = folder / "commands"
        self.project = folder / "project"
        self.touched = folder / "touched"
        for made in (self.root, self.commands, self.project):
            made.mkdir()
        self._lay_out_project()
        self._lay_out_root()
        self._lay_out_commands()

    def dry_run(self, *arguments: str) -> Outcome:
        return self.run("--dry-run", *arguments, INSTALL_ROOT=str(self.root))

    def run(self, *arguments: str, **environment: str) -> Outcome:
        home = self.project.parent / "home"
        home.mkdir(exist_ok=True)
        base = {"PATH": str(self.commands), "HOME": str(home), "LC_ALL": "C.UTF-8"}
        if self.machine.docker_host:
            base["DOCKER_HOST"] = self.machine.docker_host
        done = subprocess.run(
            [self.commands / "bash", self.project / "install.sh", *arguments],
            env=base | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        mark = "[install] "
        lines = [line for line in done.stdout.splitlines() if line.startswith(mark)]
        actions = tuple(line.removeprefix(mark) for line in lines if " — " in line)
        touched = self.touched.read_text() if self.touched.exists() else ""
        return Outcome(done.returncode, actions, done.stderr, done.stdout, touched)

    def command(self, name: str, script: str) -> None:
        path = self.commands / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def _lay_out_project(self) -> None:
        shutil.copy(PROJECT / "install.sh", self.project)
        shutil.copytree(PROJECT / "install", self.project / "install")
        for folder in ("orchestrator", "configs", "images/base"):
            (self.project / folder).mkdir(parents=True)
        shutil.copy(PROJECT / "configs" / "endpoints.env", self.project / "configs")
        lock = self.project / "requirements.lock"
        lock.write_text("rich==13.0.0 --hash=sha256:00\n")
        if self.machine.venv:
            python = self.project / ".venv" / "bin" / "python"
            python.parent.mkdir(parents=True)
            python.write_text(VENV_PYTHON)
            python.chmod(0o755)
            digest = hashlib.sha256(lock.read_bytes()).hexdigest()
            stamp = f"Python 3 11\n{digest}  requirements.lock\n"
            (self.project / ".venv" / ".made-from").write_text(stamp)

    def _lay_out_root(self) -> None:
        machine = self.machine
        self._file("etc/os-release", (RECORDED / "os-release" / machine.system).read_text())
        if machine.certificates:
            self._file("etc/ssl/certs/ca-certificates.crt", "")
        if machine.systemd:
            self._file("run/systemd/system/.here", "")
        if machine.apparmor:
            self._file("sys/module/apparmor/parameters/enabled", "Y\n")
        if machine.docker in ("denied", "answers") and machine.engine != "other":
            self._file("proc/77/status", "Name:\tdockerd\nUmask:\t0022\nState:\tS (sleeping)\n")
        if machine.gpu != "none":
            self._file("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
            self._file("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n")
        if machine.gpu not in ("none", "no driver"):
            self._file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64\n")

    def _file(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _lay_out_commands(self) -> None:
        machine = self.machine
        for name in READERS:
            found = shutil.which(name)
            assert found is not None, f"this machine has no {name}"
            (self.commands / name).symlink_to(found)
        for name in CHANGERS:
            self.command(name, f'echo "{name} $*" >>{self.touched}; exit 99')
        if machine.docker not in ("none", "stray client") and machine.engine != "other":
            self.command("dockerd", "exit 99")
        if machine.docker != "none":
            self.command("docker", self._docker())
        self.command(
            "id", ID.format(uid=0 if machine.user == "root" else 1000, groups=machine.groups)
        )
        if machine.user == "sudo":
            self.command("sudo", 'if [ "$*" = "-n true" ]; then exit 0; fi; exit 99')
        if machine.python:
            self.command("python3", self._python())
        self.command("apt-cache", self._apt_cache())
        self.command(
            "dpkg-query", f'case "$*" in *" {machine.engine}") echo installed ;; *) exit 1 ;; esac'
        )
        if machine.gpu in ("toolkit", "runtime"):
            self.command("nvidia-ctk", f'echo "nvidia-ctk $*" >>{self.touched}; exit 99')

    def _docker(self) -> str:
        machine = self.machine
        state = {"answers": "answers", "denied": "denied"}.get(machine.docker, "silent")
        said = f"cat {RECORDED}/docker/{state}-{machine.client} >&2; exit 1"
        if state == "answers":
            said = "echo 20.10.24"
        cases = [f'"version --format {{{{.Server.Version}}}}") {said} ;;']
        cases += [f'"{plugin} version") echo v2 ;;' for plugin in machine.plugins]
        cases += [f'"context inspect --format {{{{.Name}}}}") echo {machine.context} ;;']
        if state == "answers":
            cases += [f'"image inspect {image}") echo [] ;;' for image in machine.images]
            runtimes = '{"nvidia":{},"runc":{}}' if machine.gpu == "runtime" else '{"runc":{}}'
            cases += [f"\"info --format {{{{json .Runtimes}}}}\") echo '{runtimes}' ;;"]
        return 'case "$*" in\n' + "\n".join(cases) + "\n*) exit 1 ;;\nesac"

    def _python(self) -> str:
        answers = "".join(f"*{address}*) exit 0 ;; " for address in self.machine.reachable)
        return f'case "$2" in -c) exit 0 ;; -) case "$3" in {answers}*) exit 1 ;; esac ;; esac; exit 99'

    def _apt_cache(self) -> str:
        known = "".join(
            f'"policy {name}") echo "  Candidate: 1.0" ;; ' for name in self.machine.apt_knows
        )
        return f'case "$*" in {known}*) echo "  Candidate: (none)" ;; esac'


ID = """case "$*" in
-u) echo {uid} ;;
-un) echo ada ;;
"-nG ada") echo {groups} ;;
*) exit 99 ;;
esac"""

VENV_PYTHON = """#!/bin/sh
case "$1 $2" in
"-c ") exit 0 ;;
"-c "*) echo "Python 3 11" ;;
"-m orchestrator") shift 2; printf 'orchestrator:'; printf ' <%s>' "$@"; echo ;;
*) exit 99 ;;
esac
"""


def everything(system: str, **differences: Any) -> Machine:
    """A machine that lacks nothing but for these differences."""
    complete = Machine(
        system=system,
        docker="answers",
        engine="docker.io",
        plugins=("compose", "buildx"),
        python=True,
        venv=True,
        images=("appliance/rootfs:bookworm",),
    )
    return replace(complete, **differences)
