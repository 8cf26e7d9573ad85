"""`python3 -m orchestrator`, from any Python: re-runs itself in `.venv` where its packages are.

Everything up to `_main` is for an interpreter that has the standard library alone.
"""

import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("docker", "httpx", "pydantic_settings", "python_on_whales", "rich", "tenacity")
# The folder's own interpreter, not what it links to: a link to the system's Python has no packages.
VENV_PYTHON = ROOT / ".venv" / "bin" / "python"
RERUN_MARK = "APPLIANCE_RERUN"


def _rerun_or_explain() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if not missing:
        return
    if _is_there(VENV_PYTHON) and RERUN_MARK not in os.environ:
        os.environ[RERUN_MARK] = "1"
        # `-m` finds the package through the working folder, which need not be the project's.
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        )
        command = [str(VENV_PYTHON), "-m", "orchestrator", *sys.argv[1:]]
        os.execv(VENV_PYTHON, command)  # noqa: S606 - our own interpreter
    print("error: the orchestrator is not installed", file=sys.stderr)
    print(f"  why: this Python has no {', '.join(missing)}", file=sys.stderr)
    print(f"  next: cd {ROOT} && ./install.sh", file=sys.stderr)
    sys.exit(2)


def _is_there(python: Path) -> bool:
    try:
        return python.exists()
    except PermissionError as error:
        print("error: this installation belongs to another user", file=sys.stderr)
        print(f"  why: {error}", file=sys.stderr)
        print("  next: run it as the user who installed, or with sudo", file=sys.stderr)
        sys.exit(2)


def _main() -> None:
    os.environ.pop(RERUN_MARK, None)
    # A name in Chinese on a terminal of another language: escaped, as on standard error.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.path.insert(0, str(ROOT / "images" / "wire" / "src"))
    try:
        from orchestrator.cli import main  # noqa: PLC0415 - only now are its packages there

        code = main()
    except KeyboardInterrupt:  # before `main` listens for it
        print("Interrupted. Nothing has begun yet.", file=sys.stderr)
        code = 130
    sys.exit(code)


_rerun_or_explain()
_main()
