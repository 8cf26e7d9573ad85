"""Which Debian mirror a host's apt sources name.

The sources are as installers and cloud images of each release write them.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "rootfs.sh"

# Reserved names: no mirror is called so.
ARCHIVE, SECURITY = "http://archive.example", "http://security.example"
GRAFANA, MIRROR = "https://grafana.example", "https://mirror.example"
UBUNTU = "http://archive.ubuntu.example"

DEBIAN_12_INSTALLER = {
    "os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n',
    "sources.list": f"""\
#deb cdrom:[Debian GNU/Linux 12.0.0 _Bookworm_ - Official amd64 NETINST]/ bookworm contrib main non-free-firmware

deb {ARCHIVE}/debian/ bookworm main non-free-firmware
deb-src {ARCHIVE}/debian/ bookworm main non-free-firmware

deb {SECURITY}/debian-security bookworm-security main non-free-firmware
deb-src {SECURITY}/debian-security bookworm-security main non-free-firmware

# bookworm-updates, to get updates before a point release is made
deb {ARCHIVE}/debian/ bookworm-updates main non-free-firmware
""",
}

DEBIAN_12_CONTAINER = {
    "os-release": "ID=debian\n",
    "sources.list.d/debian.sources": f"""\
Types: deb
# a comment
URIs: {ARCHIVE}/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
# a comment
URIs: {ARCHIVE}/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
""",
}

DEBIAN_13_CLOUD = {
    "os-release": "ID=debian\nVERSION_CODENAME=trixie\n",
    "sources.list": "# See /etc/apt/sources.list.d/debian.sources\n",
    "mirrors/debian.list": "# chosen by cloud-init\nhttps://archive.example/debian\n",
    "mirrors/debian-security.list": "https://archive.example/debian-security\n",
    "sources.list.d/debian.sources": """\
Types: deb deb-src
URIs: mirror+file://{apt}/mirrors/debian.list
Suites:
# was: bookworm bookworm-updates bookworm-backports
 trixie trixie-updates trixie-backports
Components: main
Signed-By:
 /usr/share/keyrings/debian-archive-keyring.pgp

Types: deb deb-src
URIs: mirror+file://{apt}/mirrors/debian-security.list
Suites: trixie-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp
""",
}

# A campus mirror, over https, beside repositories that also say "bookworm" and "stable".
DEBIAN_12_MIRRORED = {
    "os-release": 'ID="debian"\n',
    "sources.list": f"""\
deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://mirror.example/docker-ce/linux/debian bookworm stable
deb [signed-by=/usr/share/keyrings/tailscale-archive-keyring.gpg] https://pkgs.example/stable/debian bookworm main
deb {GRAFANA} stable main
deb [ arch=amd64  signed-by=/usr/share/keyrings/debian-archive-keyring.gpg ] https://mirror.example/debian/ bookworm main contrib
deb {MIRROR}/debian/ bookworm-updates main contrib # every day
deb {MIRROR}/debian-security bookworm-security main contrib
""",
    "sources.list.d/nvidia.list": "deb [signed-by=/usr/share/keyrings/nvidia.gpg] https://nvidia.example/deb/$(ARCH) /\n",
}

UBUNTU_22_04 = {
    "os-release": "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=jammy\n",
    "sources.list": f"deb {UBUNTU}/ubuntu/ jammy main restricted\n"
    "deb http://security.ubuntu.example/ubuntu/ jammy-security main restricted\n",
}

UBUNTU_24_04 = {
    "os-release": "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n",
    "sources.list.d/ubuntu.sources": f"""\
Types: deb
URIs: {UBUNTU}/ubuntu/
Suites: noble noble-updates noble-backports
Components: main restricted universe multiverse
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg
""",
}


@pytest.mark.parametrize(
    ("host", "mirror", "securities"),
    [
        pytest.param(
            DEBIAN_12_INSTALLER,
            "http://archive.example/debian",
            [
                "http://security.example/debian-security",
                "http://archive.example/debian-security",
            ],
            id="Debian 12, one-line sources of the installer",
        ),
        pytest.param(
            DEBIAN_12_CONTAINER,
            "http://archive.example/debian",
            ["http://archive.example/debian-security"],
            id="Debian 12, deb822 sources",
        ),
        pytest.param(
            DEBIAN_13_CLOUD,
            "https://archive.example/debian",
            ["https://archive.example/debian-security"],
            id="Debian 13, deb822 sources that name mirror lists",
        ),
        pytest.param(
            DEBIAN_12_MIRRORED,
            "https://mirror.example/debian",
            ["https://mirror.example/debian-security"],
            id="Debian 12 with a campus mirror beside other repositories",
        ),
        pytest.param(UBUNTU_22_04, "", [], id="Ubuntu 22.04: debootstrap's own default"),
        pytest.param(UBUNTU_24_04, "", [], id="Ubuntu 24.04: debootstrap's own default"),
    ],
)
def test_the_mirror_is_the_one_that_the_host_uses_for_debian_itself(
    tmp_path: Path, host: Mapping[str, str], mirror: str, securities: list[str]
) -> None:
    assert chosen(tmp_path, host) == (mirror, securities)


def test_a_mirror_that_was_asked_for_wins_and_its_own_security_archive_comes_first(
    tmp_path: Path,
) -> None:
    assert chosen(
        tmp_path, DEBIAN_12_CONTAINER, DEBIAN_MIRROR="https://mirror.example/debian/"
    ) == (
        "https://mirror.example/debian",
        ["https://mirror.example/debian-security", "http://archive.example/debian-security"],
    )


def test_a_source_with_a_password_is_passed_over_because_it_would_end_up_in_the_image(
    tmp_path: Path,
) -> None:
    host = {
        "os-release": "ID=debian\n",
        "sources.list": "deb https://user:hunter2@mirror.example/debian bookworm main\n",
    }
    assert chosen(tmp_path, host) == ("", [])


def test_a_corporate_mirror_with_any_path_is_taken_when_its_suite_is_a_debian_release(
    tmp_path: Path,
) -> None:
    host = {
        "os-release": "ID=debian\n",
        "sources.list": "deb https://artifacts.example/deb-remote bookworm main\n",
    }
    assert chosen(tmp_path, host) == ("https://artifacts.example/deb-remote", [])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(
            "sources.list.d/old.sources",
            f"Enabled: no\nTypes: deb\nURIs: {MIRROR}/debian\nSuites: bookworm\nComponents: main\n",
            id="switched off",
        ),
        pytest.param(
            "sources.list.d/grafana.list",
            f"deb {GRAFANA} stable main\n",
            id="'stable' of somebody else",
        ),
        pytest.param("sources.list", "deb file:/srv/debian bookworm main\n", id="a folder"),
        pytest.param(
            "sources.list", "deb-src http://archive.example/debian bookworm main\n", id="sources"
        ),
    ],
)
def test_what_no_image_can_be_made_from_is_not_a_mirror(
    tmp_path: Path, name: str, text: str
) -> None:
    assert chosen(tmp_path, {"os-release": "ID=debian\n", name: text}) == ("", [])


def test_a_host_without_any_apt_source_names_no_mirror(tmp_path: Path) -> None:
    assert chosen(tmp_path, {"os-release": "ID=debian\n"}) == ("", [])


@pytest.mark.parametrize(
    "wanted", ["ftp://mirror.example/debian", "https://u:p@mirror.example/debian", "mirror.example"]
)
def test_a_wanted_mirror_that_is_no_plain_web_address_is_refused(
    tmp_path: Path, wanted: str
) -> None:
    done = print_mirror(tmp_path, DEBIAN_12_CONTAINER, DEBIAN_MIRROR=wanted)
    assert done.returncode == 2
    assert "DEBIAN_MIRROR can't be used" in done.stderr


def chosen(folder: Path, host: Mapping[str, str], **environment: str) -> tuple[str, list[str]]:
    done = print_mirror(folder, host, **environment)
    assert done.returncode == 0, done.stderr
    lines = [line.partition("=") for line in done.stdout.splitlines()]
    (mirror,) = (value for name, _, value in lines if name == "mirror")
    return mirror, [value for name, _, value in lines if name == "security"]


def print_mirror(
    folder: Path, host: Mapping[str, str], **environment: str
) -> subprocess.CompletedProcess[str]:
    for name, text in host.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{apt}", str(folder)), encoding="utf-8")
    return subprocess.run(
        [SCRIPT, "--print-mirror"],
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "APT_DIR": str(folder),
            "OS_RELEASE_FILE": str(folder / "os-release"),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
