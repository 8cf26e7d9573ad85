"""What the running stack gives away and may do, as Docker and the kernel show it."""

import json
from collections.abc import Mapping

import pytest
from docker.models.containers import Container

from e2e.inspecting import RUNNING, SERVICES, inside
from e2e.scenario import Appliance

SECRETS = (
    "engine_api_key",
    "gateway_api_key",
    "webui_api_key",
    "webui_admin_password",
    "webui_secret_key",
)
GIVEN = "hf_token"  # the operator's to fill: empty here

# Everything a container is given from outside: where it stands there, and whether it is writable.
MOUNTS = {
    "weights": {
        "/job": False,
        "/source": False,
        "/weights": True,
        "/etc/ssl/host-ca.crt": False,
        "/run/secrets/hf_token": False,
    },
    "inference": {"/locks": False, "/weights": False, "/run/secrets/engine_api_key": False},
    "gateway": {
        "/control": True,
        "/usage": True,
        "/run/secrets/engine_api_key": False,
        "/run/secrets/gateway_api_key": False,
        "/run/secrets/webui_api_key": False,
    },
    "webui": {
        "/data": True,
        "/run/secrets/webui_api_key": False,
        "/run/secrets/webui_admin_password": False,
        "/run/secrets/webui_secret_key": False,
    },
}

# Each prints one JSON value. They run inside containers, which have Python and little else.
STANDING = """
import glob, json
wanted = "Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs"
def fields(path):
    pairs = (line.split(":", 1) for line in open(path))
    return {name: value.split() for name, value in pairs if name in wanted}
print(json.dumps([fields(path) for path in glob.glob("/proc/[0-9]*/status")]))
"""
MEMORY_LIMIT = """
import os
v1, v2 = "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"
print(open(v2 if os.path.exists(v2) else v1).read())
"""
WRITE = """
import errno, json, os, sys
def attempt(folder):
    path = os.path.join(folder, "written-by-a-test")
    try:
        open(path, "w").close()
    except OSError as error:
        return errno.errorcode[error.errno]
    os.unlink(path)
    return "written"
print(json.dumps({folder: attempt(folder) for folder in sys.argv[1:]}))
"""


# --- secrets


def test_no_secret_can_be_read_from_docker_compose_logs_or_state(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    assert set(containers) == set(SERVICES)
    config = appliance.compose("config")
    assert "gateway_api_key" in config.stdout
    said = {"docker compose config": config.stdout + config.stderr}
    for service, container in containers.items():
        image = container.image
        assert image is not None
        said |= {
            f"docker inspect {service}": json.dumps(container.attrs),
            f"docker logs {service}": container.logs().decode(errors="replace"),
            f"image inspect {service}": json.dumps(image.attrs),
            f"image history {service}": json.dumps(image.history()),
        }
    for service in RUNNING:
        said[f"docker top {service}"] = json.dumps(containers[service].top())
    for file in (appliance.home / "state").rglob("*"):
        if file.is_file():
            said[str(file)] = file.read_text(errors="replace")
    leaks = [
        (where, name)
        for where, text in said.items()
        for name in SECRETS
        if appliance.secret(name) in text
    ]
    assert leaks == []


def test_secrets_are_files_that_only_the_stacks_user_reads(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    folder = appliance.home / "secrets"
    assert {file.name for file in folder.iterdir()} == {*SECRETS, GIVEN}
    assert folder.stat().st_mode & 0o777 == 0o700
    for name in (*SECRETS, GIVEN):
        file = (folder / name).stat()
        assert file.st_mode & 0o777 == 0o600
        assert containers["gateway"].attrs["Config"]["User"] == f"{file.st_uid}:{file.st_gid}"


# --- what a container may do


@pytest.mark.parametrize("service", SERVICES)
def test_docker_confines_a_container_to_what_it_needs(
    containers: Mapping[str, Container], service: str
) -> None:
    attributes = containers[service].attrs
    bounds = attributes["HostConfig"]
    uid, _, gid = attributes["Config"]["User"].partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    assert bounds["ReadonlyRootfs"] is True
    assert bounds["Privileged"] is False
    assert bounds["CapDrop"] == ["ALL"]
    added = {name.removeprefix("CAP_") for name in bounds["CapAdd"] or ()}
    assert added == ({"SYS_NICE"} if service == "inference" else set())
    assert bounds["SecurityOpt"] == ["no-new-privileges:true"]
    assert (bounds["Memory"] or 0) > 0
    assert (bounds["PidsLimit"] or 0) > 0
    assert bounds["PidMode"] == ""
    assert bounds["IpcMode"] == "private"
    assert not bounds["Devices"]
    given = {mount["Destination"]: mount["RW"] for mount in attributes["Mounts"]}
    assert given == MOUNTS[service]
    assert not [mount for mount in attributes["Mounts"] if mount["Source"].endswith(".sock")]


@pytest.mark.parametrize("service", RUNNING)
def test_the_kernel_holds_every_process_of_a_container_to_it(
    containers: Mapping[str, Container], service: str
) -> None:
    processes = inside(containers[service], STANDING)
    assert len(processes) > 1
    sys_nice = 1 << 23
    for process in processes:
        assert "0" not in process["Uid"] + process["Gid"]
        assert process["NoNewPrivs"] == ["1"]
        for held in ("CapPrm", "CapEff", "CapAmb"):
            assert int(process[held][0], 16) == 0
        assert int(process["CapBnd"][0], 16) == (sys_nice if service == "inference" else 0)
    limit = inside(containers[service], MEMORY_LIMIT)
    assert limit == containers[service].attrs["HostConfig"]["Memory"]


@pytest.mark.parametrize("service", RUNNING)
def test_nothing_is_written_beside_tmp_and_data_not_even_by_root(
    containers: Mapping[str, Container], service: str
) -> None:
    closed = ["/", "/etc", "/usr/bin", "/opt/app", "/opt/app/src", "/run/secrets"]
    closed += [path for path in MOUNTS[service] if path in ("/locks", "/weights")]
    attempts = inside(containers[service], WRITE, "/tmp", *closed, user="0")
    assert attempts == {"/tmp": "written"} | dict.fromkeys(closed, "EROFS")
