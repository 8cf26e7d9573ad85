"""A project whose catalogue holds a profile of the user's own."""

import shutil
from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[1] / "configs" / "profiles"
DEMO = (SHIPPED / "demo.toml").read_text(encoding="utf-8")


def a_project(folder: Path) -> Path:
    """A project with two shipped profiles and one of the user's."""
    for part in ("profiles", "profiles.d"):
        (folder / "configs" / part).mkdir(parents=True)
    for name in ("demo", "deepseek-r1-q4km"):
        shutil.copy(SHIPPED / f"{name}.toml", folder / "configs" / "profiles")
    write(
        folder,
        "mine",
        DEMO.replace('name = "demo"', 'name = "mine"').replace("rank = 1", "rank = 9"),
    )
    return folder


def write(root: Path, name: str, text: str) -> Path:
    path = root / "configs" / "profiles.d" / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def line_of(text: str, start: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if line.startswith(start))
