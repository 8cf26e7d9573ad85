"""The OpenAPI document against the gateway it describes: requests made of it find no failure."""

import re
import subprocess
import sys
from pathlib import Path

from images.gateway.tests.support import GATEWAY_KEY, Gateway

SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")


def test_schemathesis_finds_nothing(gateway: Gateway, tmp_path: Path) -> None:
    answer = gateway.ask("GET", "/openapi.json")
    document = tmp_path / "openapi.json"
    document.write_bytes(answer.body)
    found = subprocess.run(
        [
            *(SCHEMATHESIS, "run", document, "--url", gateway.url),
            *("--header", f"Authorization: Bearer {GATEWAY_KEY}"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "10"),
            *("--seed", "1", "--no-color"),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stdout
    operations = sum(len(methods) for methods in answer.json()["paths"].values())
    assert re.search(rf"Selected: {operations}/{operations}", found.stdout), found.stdout
    assert re.search(rf"Tested: {operations}\b", found.stdout), found.stdout
    assert "Traceback" not in "".join(gateway.log)
