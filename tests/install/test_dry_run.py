"""The plans of install.sh on recorded machines: what it would do, in which order, and why."""

from pathlib import Path

import pytest

from install.machine import Machine, Outcome, Recording, everything

SYSTEMS = ("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04")
COMPOSE = "`docker compose version` fails"
BUILDX = "`docker buildx version` fails"
NO_REGISTRY = "the image registry registry-1.docker.io does not answer"
NOT_YET = "(left out if Docker, once it answers, has it already)"
PLUGINS = "/usr/local/lib/docker/cli-plugins"
FROM_TRIXIE = "from Debian 13's packages, as Debian 12 has none"

ENGINE_AND_PLUGINS = {
    "debian-12": (
        "install docker.io — there is no Docker Engine here",
        f"put the docker compose plugin into {PLUGINS} — {COMPOSE}; {FROM_TRIXIE}",
        f"put the docker buildx plugin into {PLUGINS} — {BUILDX}; {FROM_TRIXIE}",
    ),
    "debian-13": (
        "install docker.io docker-cli — there is no Docker Engine here",
        f"install docker-compose — {COMPOSE}",
        f"install docker-buildx — {BUILDX}",
    ),
    "ubuntu-22.04": (
        "install docker.io — there is no Docker Engine here",
        f"install docker-compose-v2 — {COMPOSE}",
        f"install docker-buildx — {BUILDX}",
    ),
    "ubuntu-24.04": (
        "install docker.io — there is no Docker Engine here",
        f"install docker-compose-v2 — {COMPOSE}",
        f"install docker-buildx — {BUILDX}",
    ),
}
DEBOOTSTRAP = {
    "debian-12": "debootstrap",
    "debian-13": "debootstrap",
    "ubuntu-22.04": "debootstrap debian-archive-keyring",
    "ubuntu-24.04": "debootstrap debian-archive-keyring",
}


def dry_run(machine: Machine, folder: Path, *arguments: str) -> Outcome:
    outcome = Recording(machine, folder).dry_run(*arguments)
    assert outcome.touched == "", "a dry run changes nothing"
    return outcome


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_bare_machine_gets_what_its_system_lacks_in_order(system: str, tmp_path: Path) -> None:
    outcome = dry_run(Machine(system=system, certificates=False), tmp_path)
    only_if = "only if the image registry registry-1.docker.io does not answer"
    not_asked = f"{only_if}: not asked before Python is here"
    assert outcome.actions == (
        "install ca-certificates — HTTPS needs the system's certificates",
        "install python3-venv — no Python from 3.10 on here can make a virtual environment",
        *ENGINE_AND_PLUGINS[system],
        "start dockerd through systemd — no Docker daemon answers",
        f"install {DEBOOTSTRAP[system]} — {not_asked}",
        f"make the image appliance/rootfs:bookworm from Debian's packages — {not_asked} {NOT_YET}",
        "make .venv from requirements.lock — there is none",
        "run python3 -m orchestrator up — the machine is ready",
    )
    assert outcome.code == 0


@pytest.mark.parametrize("user", ["root", "sudo", "plain"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_machine_that_has_everything_is_left_alone(
    system: str, user: str, tmp_path: Path
) -> None:
    outcome = dry_run(everything(system, user=user), tmp_path, "--no-up")
    assert outcome.actions == ()
    assert "nothing to do" in outcome.stdout
    assert outcome.code == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_client_without_a_daemon_is_no_engine(system: str, tmp_path: Path) -> None:
    machine = everything(system, docker="stray client", engine="other", client="28.2")
    outcome = dry_run(machine, tmp_path)
    assert outcome.actions[0] == ENGINE_AND_PLUGINS[system][0]


@pytest.mark.parametrize("engine", ["docker.io", "docker-ce"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_an_engine_that_does_not_run_is_started_and_not_replaced(
    system: str, engine: str, tmp_path: Path
) -> None:
    machine = everything(
        system, docker="stopped", engine=engine, reachable=("registry-1.docker.io",)
    )
    outcome = dry_run(machine, tmp_path, "--no-up")
    assert outcome.actions == ("start dockerd through systemd — no Docker daemon answers",)


@pytest.mark.parametrize("system", SYSTEMS)
def test_docker_ce_gets_its_own_plugins_where_apt_knows_them(system: str, tmp_path: Path) -> None:
    plugins = ("docker-compose-plugin", "docker-buildx-plugin")
    machine = everything(system, engine="docker-ce", plugins=(), apt_knows=plugins)
    outcome = dry_run(machine, tmp_path, "--no-up")
    assert outcome.actions == (
        f"install docker-compose-plugin — {COMPOSE}; Docker is docker-ce",
        f"install docker-buildx-plugin — {BUILDX}; Docker is docker-ce",
    )


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_docker_of_another_origin_gets_single_binaries_and_no_second_engine(
    system: str, tmp_path: Path
) -> None:
    machine = everything(system, engine="other", plugins=("buildx",))
    outcome = dry_run(machine, tmp_path, "--no-up")
    (action,) = outcome.actions
    assert action.startswith(f"put the docker compose plugin into {PLUGINS} — {COMPOSE}; from ")


@pytest.mark.parametrize("system", SYSTEMS)
def test_without_root_plugins_go_into_the_users_own_folder(system: str, tmp_path: Path) -> None:
    outcome = dry_run(everything(system, user="plain", plugins=()), tmp_path, "--no-up")
    assert [action.split(" — ")[0] for action in outcome.actions] == [
        f"put the docker compose plugin into {tmp_path}/home/.docker/cli-plugins",
        f"put the docker buildx plugin into {tmp_path}/home/.docker/cli-plugins",
    ]
    assert outcome.code == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_without_root_and_sudo_the_admin_gets_the_exact_commands(
    system: str, tmp_path: Path
) -> None:
    outcome = dry_run(Machine(system=system, user="plain", python=True), tmp_path)
    packages = ENGINE_AND_PLUGINS[system][0].split(" — ")[0]
    apt = "apt-get update && apt-get install -y"
    rootfs = f"{tmp_path}/project/images/base/rootfs.sh appliance/rootfs:bookworm"
    requests = outcome.stderr.split("as root, in this order, then run ./install.sh again:\n")[1]
    assert [line.strip() for line in requests.splitlines()] == [
        f"{apt} {packages.removeprefix('install ')}",
        "systemctl enable --now docker",
        "usermod -aG docker ada",
        f"{apt} {DEBOOTSTRAP[system]}",
        f"docker image inspect appliance/rootfs:bookworm >/dev/null || {rootfs}",
    ]
    assert outcome.code == 3


def test_a_user_with_sudo_is_added_to_the_group(tmp_path: Path) -> None:
    machine = everything("ubuntu-24.04", user="sudo", docker="denied", client="26.1")
    outcome = dry_run(machine, tmp_path)
    why = "only its members may use Docker, which equals root here"
    assert outcome.actions[0] == f"add ada to the group docker — {why}"
    assert outcome.code == 0


@pytest.mark.parametrize("client", ["20.10", "26.1", "28.2"])
def test_a_refused_socket_is_not_taken_for_a_missing_daemon(client: str, tmp_path: Path) -> None:
    machine = everything(
        "debian-12", user="sudo", groups="ada docker", docker="denied", client=client
    )
    outcome = dry_run(machine, tmp_path, "--no-up")
    assert not [action for action in outcome.actions if "dockerd" in action or "group" in action]


@pytest.mark.parametrize("client", ["20.10", "26.1", "28.2"])
def test_a_daemon_that_does_not_answer_is_started_directly_where_systemd_does_not_run(
    client: str, tmp_path: Path
) -> None:
    machine = everything("debian-12", docker="stopped", client=client, systemd=False)
    outcome = dry_run(machine, tmp_path, "--no-up")
    why = "no Docker daemon answers, and systemd does not run here"
    assert outcome.actions[0] == f"start dockerd directly — {why}"


@pytest.mark.parametrize(
    "elsewhere", [{"docker_host": "tcp://gpu-box:2376"}, {"context": "desktop-linux"}]
)
def test_a_chosen_docker_elsewhere_that_is_down_is_named_and_nothing_is_installed(
    elsewhere: dict[str, str], tmp_path: Path
) -> None:
    machine = everything("debian-12", docker="stray client", engine="other", **elsewhere)
    outcome = dry_run(machine, tmp_path)
    assert outcome.code == 10
    assert (elsewhere.get("docker_host") or elsewhere["context"]) in outcome.stderr
    assert outcome.actions == ()


def test_the_parser_of_apparmor_comes_along_where_the_kernel_asks_for_it(tmp_path: Path) -> None:
    outcome = dry_run(Machine(system="debian-12", apparmor=True), tmp_path)
    assert "install docker.io apparmor — there is no Docker Engine here" in outcome.actions


@pytest.mark.parametrize(
    ("base_image", "registry"),
    [
        ("", "registry-1.docker.io"),
        ("debian:bookworm-slim", "registry-1.docker.io"),
        ("docker.io/library/debian@sha256:00", "registry-1.docker.io"),
        ("mirror.example:5000/debian:12", "mirror.example:5000"),
        ("mirror.example/debian:12", "mirror.example"),
        ("localhost/debian", "localhost"),
        ("registry:5000/debian:12", "registry:5000"),
        ("library/debian.slim:12", "registry-1.docker.io"),
    ],
)
def test_the_registry_of_the_base_image_is_asked_before_debootstrap(
    base_image: str, registry: str, tmp_path: Path
) -> None:
    silent, answering = tmp_path / "silent", tmp_path / "answering"
    silent.mkdir()
    answering.mkdir()
    settings = {"ORCH_BASE_IMAGE": base_image} if base_image else {}
    machine = everything("debian-12", images=())
    recording = Recording(machine, silent)
    outcome = recording.run("--dry-run", "--no-up", INSTALL_ROOT=str(recording.root), **settings)
    why = f"the image registry {registry} does not answer"
    assert outcome.actions == (
        f"install debootstrap — {why}",
        f"make the image appliance/rootfs:bookworm from Debian's packages — {why}",
    )
    machine = everything("debian-12", images=(), reachable=(f"https://{registry}/v2/",))
    recording = Recording(machine, answering)
    outcome = recording.run("--dry-run", "--no-up", INSTALL_ROOT=str(recording.root), **settings)
    assert outcome.actions == ()


@pytest.mark.parametrize(
    ("image", "settings"),
    [
        ("docker.io/library/debian:bookworm-slim", {}),
        ("mirror.example/debian:12", {"ORCH_BASE_IMAGE": "mirror.example/debian:12"}),
        (
            "docker.io/library/debian:bookworm-slim@sha256:00",
            {"ORCH_BASE_DIGEST": "sha256:00"},
        ),
    ],
)
def test_a_base_image_that_is_here_needs_no_registry(
    image: str, settings: dict[str, str], tmp_path: Path
) -> None:
    recording = Recording(everything("debian-12", images=(image,)), tmp_path)
    outcome = recording.run("--dry-run", "--no-up", INSTALL_ROOT=str(recording.root), **settings)
    assert outcome.actions == ()


# --- systems that are not supported ---


@pytest.mark.parametrize("system", ["fedora-40", "linuxmint-21"])
def test_another_system_is_told_what_is_missing_and_what_is_supported(
    system: str, tmp_path: Path
) -> None:
    outcome = dry_run(Machine(system=system, python=True), tmp_path)
    assert outcome.code == 3
    for said in (
        "Debian 12 and 13, Ubuntu 22.04 and 24.04",
        "Docker Engine — there is no Docker Engine here",
        f"the docker compose plugin — {COMPOSE}",
        f"the docker buildx plugin — {BUILDX}",
        f"debootstrap — {NO_REGISTRY}",
    ):
        assert said in outcome.stderr


@pytest.mark.parametrize("system", ["fedora-40", "linuxmint-21"])
def test_another_system_that_has_everything_goes_on(system: str, tmp_path: Path) -> None:
    outcome = dry_run(everything(system, venv=False), tmp_path)
    assert outcome.code == 0
    assert outcome.actions == (
        "make .venv from requirements.lock — there is none",
        "run python3 -m orchestrator up — the machine is ready",
    )


# --- NVIDIA ---

NVIDIA = "https://nvidia.github.io/libnvidia-container"
GPU = "there is an NVIDIA GPU, and nvidia-ctk is not here"
RUNTIME = (
    "register NVIDIA's runtime in /etc/docker/daemon.json"
    " — Docker does not know it (running containers go on)"
)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_gpu_whose_repository_is_out_of_reach_gets_the_next_step_and_nothing_else(
    system: str, tmp_path: Path
) -> None:
    outcome = dry_run(everything(system, gpu="driver"), tmp_path, "--no-up")
    assert outcome.actions == ()
    assert f"why:  {NVIDIA} does not answer" in outcome.stderr
    assert f"NVIDIA_TOOLKIT_REPO=<a mirror of {NVIDIA}> ./install.sh" in outcome.stderr
    assert outcome.code == 0


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_gpu_gets_the_toolkit_from_nvidias_repository(system: str, tmp_path: Path) -> None:
    machine = everything(system, gpu="driver", reachable=(f"{NVIDIA}/gpgkey",))
    outcome = dry_run(machine, tmp_path, "--no-up")
    add = f"add {NVIDIA} and install nvidia-container-toolkit — {GPU}"
    assert outcome.actions == (add, RUNTIME)
    assert outcome.stderr == ""


def test_a_mirror_of_nvidias_repository_can_be_named(tmp_path: Path) -> None:
    mirror = "https://mirror.example/nvidia"
    machine = everything("debian-12", gpu="driver", reachable=(f"{mirror}/gpgkey",))
    recording = Recording(machine, tmp_path)
    outcome = recording.run(
        "--dry-run", "--no-up", INSTALL_ROOT=str(recording.root), NVIDIA_TOOLKIT_REPO=mirror
    )
    assert outcome.actions[0].startswith(f"add {mirror} and install nvidia-container-toolkit")


def test_a_toolkit_that_apt_knows_already_needs_no_new_repository(tmp_path: Path) -> None:
    machine = everything("ubuntu-22.04", gpu="driver", apt_knows=("nvidia-container-toolkit",))
    outcome = dry_run(machine, tmp_path, "--no-up")
    assert outcome.actions == (f"install nvidia-container-toolkit — {GPU}", RUNTIME)


@pytest.mark.parametrize(("gpu", "actions"), [("toolkit", (RUNTIME,)), ("runtime", ())])
def test_the_runtime_is_registered_once(gpu: str, actions: tuple[str, ...], tmp_path: Path) -> None:
    assert dry_run(everything("debian-13", gpu=gpu), tmp_path, "--no-up").actions == actions


def test_a_missing_driver_is_a_warning_with_the_next_step(tmp_path: Path) -> None:
    machine = everything("debian-12", gpu="no driver", apt_knows=("nvidia-container-toolkit",))
    outcome = dry_run(machine, tmp_path, "--no-up")
    assert "warning: an NVIDIA GPU without its driver" in outcome.stderr
    assert "reboot, run ./install.sh" in outcome.stderr
    assert outcome.code == 0
