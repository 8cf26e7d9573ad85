"""Each client's packages, from its lock into an environment of its own, kept until the lock changes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".state" / "clients"


def python_of(client: str) -> Path:
    """The interpreter that has what tests/clients/CLIENT.lock names, and nothing else."""
    lock = HERE / f"{client}.lock"
    folder = _folder(client, lock, f"{sys.version_info.major}.{sys.version_info.minor}")
    python = folder / "bin" / "python"
    if not _is_made(folder):
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        hashes = ("--require-hashes", "--no-deps", "--requirements", lock)
        _run(uv, "pip", "install", "--quiet", "--python", python, *hashes)
        _made(folder)
    return python


def node_packages() -> Path:
    """A folder with what tests/clients/package-lock.json names in its node_modules."""
    lock = HERE / "package-lock.json"
    folder = _folder("node", lock, "")
    if not _is_made(folder):
        folder.mkdir(parents=True)
        shutil.copy(lock, folder)
        shutil.copy(HERE / "package.json", folder)
        _run("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
        _made(folder)
    return folder


def _folder(client: str, lock: Path, version: str) -> Path:
    digest = hashlib.sha256(lock.read_bytes() + version.encode()).hexdigest()
    return CACHE / f"{client}-{digest[:12]}"


def _is_made(folder: Path) -> bool:
    """What an interrupted installation has left is taken away."""
    if (folder / "made").exists():
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _made(folder: Path) -> None:
    (folder / "made").touch()


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=cwd, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout + done.stderr
