"""What images start from, and that every package is pinned with its hash and without an address."""

import json
import re
from pathlib import Path

import pytest

from composed import ROOT
from orchestrator.core.images import RECIPES


@pytest.mark.parametrize("name", [*RECIPES, "base"])
def test_images_start_from_the_base_they_are_given(name: str) -> None:
    path = RECIPES[name].dockerfile if name in RECIPES else "base/Dockerfile"
    text = (ROOT / "images" / path).read_text(encoding="utf-8")
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    starts = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) - stages
    assert starts == ({"${ROOTFS}"} if name == "base" else {"${BASE}"})


@pytest.mark.parametrize("name", RECIPES)
def test_an_image_can_be_read_by_its_user_whatever_umask_this_checkout_was_made_under(
    name: str,
) -> None:
    """A build keeps the modes of files, and makes them root's: under umask 027 they are root's alone."""
    text = (ROOT / "images" / RECIPES[name].dockerfile).read_text(encoding="utf-8")
    targets = re.findall(r"^COPY (?!--from)[^\n]*/src [^\n]*?(\S+?)/?$", text, re.MULTILINE)
    assert targets
    for target in targets:
        assert re.search(
            rf"(chmod -R a\+rX {target}|find {target} ! -perm -a\+r -exec chmod a\+rX {{}} \+) && "
            r".*python3 -m compileall",
            text.replace("\\\n", ""),
        )


@pytest.mark.parametrize(
    "lock",
    [
        *sorted(ROOT.glob("*.lock")),
        *sorted(ROOT.glob("images/**/*.lock")),
        *sorted(ROOT.glob("tests/clients/*.lock")),
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_package_is_pinned_with_hashes_and_without_an_address(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert not re.search(r"https?://|--index|--find-links", text)
    packages = re.split(
        r"\n(?=[a-zA-Z0-9])",
        "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")).strip(),
    )
    assert packages
    for package in packages:
        assert re.match(r"[A-Za-z0-9._-]+(\[[^]]+\])?==\S+", package), package
        assert "--hash=sha256:" in package, package


def test_every_package_of_node_is_pinned_with_its_hash_and_without_an_address() -> None:
    lock = json.loads((ROOT / "tests/clients/package-lock.json").read_text(encoding="utf-8"))
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages)
    assert not any("resolved" in package for package in packages)
