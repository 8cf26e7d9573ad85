"""What the READMEs tell people to type is what the programs take."""

import re
from pathlib import Path

import pytest

from orchestrator.core import errors
from orchestrator.core.settings import Settings
from orchestrator.options import build_parser

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "README.zh.md", "docs/operations.md", "docs/profiles.md")


def commands(document: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"python3? -m orchestrator ([^`\n#|&]+)", text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_parses(document: str) -> None:
    found = commands(document)
    assert found
    for line in found:
        build_parser().parse_args(line.split())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_named_exists(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = {name.lower() for name in re.findall(r"\bORCH_([A-Z_]+[A-Z])\b", text)} - {"name"}
    assert named <= set(Settings.model_fields)


@pytest.mark.parametrize("document", ["README.md", "README.zh.md"])
def test_every_exit_code_has_its_row(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    ours = {
        kind.exit_code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.OrchestratorError)
    }
    assert rows >= ours | {0, errors.INTERRUPTED_EXIT_CODE}


def test_every_file_the_readme_links_to_exists() -> None:
    for document in DOCUMENTS:
        path = ROOT / document
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{document} links to {target}"


def test_the_chinese_readme_has_the_flagships_figures_and_one_word_for_each_thing() -> None:
    text = (ROOT / "README.zh.md").read_text(encoding="utf-8")
    english = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:RAM|GPU|disk) \| .*", english, re.MULTILINE)
    figures = {figure for row in rows for figure in re.findall(r"\d[\d.]* GB", row)}
    assert len(figures) >= 5
    for named in (*figures, "docs/profiles.md", "docs/budget.md"):
        assert named in text, named
    assert not set(re.findall("文件夹|方案|阻止|配置目录", text))


def test_the_chinese_readme_has_all_that_the_english_one_has() -> None:
    def parts(document: str) -> tuple[int, set[str], set[str], set[str]]:
        """Sections, commands, settings and commands that have a row, files that are linked."""
        text = (ROOT / document).read_text(encoding="utf-8")
        return (
            len(re.findall(r"^## ", text, re.MULTILINE)),
            {line.strip() for line in commands(document)},
            set(re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)),
            set(re.findall(r"\]\((?!README)([^)#]+)", text)),
        )

    assert parts("README.zh.md") == parts("README.md")
