"""Findings as a table that reads at 80 columns, and as records."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypedDict

from rich.cells import cell_len
from rich.text import Text

from orchestrator.aligning import GAP, padded
from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.core.errors import UnfitHost

Language = Literal["en", "zh"]

LEAST_WIDTH = 60
INDENT = "    "
STYLES = {
    Severity.OK: "green",
    Severity.UNKNOWN: "dim",
    Severity.WARN: "yellow",
    Severity.BLOCK: "bold red",
}
RESULTS = {
    Severity.OK: Said("ok", "正常"),
    Severity.UNKNOWN: Said("unknown", "未知"),
    Severity.WARN: Said("warn", "警告"),
    Severity.BLOCK: Said("block", "阻断"),
}
HEADER = (
    Said("check", "检查项"),
    Said("result", "结果"),
    Said("found", "实际"),
    Said("needed", "需要"),
)
WHY, FIX, UNDO, NEXT = (
    Said("why", "原因"),
    Said("fix", "修复"),
    Said("undo", "撤销"),
    Said("next", "下一步"),
)
AS_ROOT = Said(
    "Commands under fix and undo that change the system need root: sudo -i.",
    "“修复”和“撤销”中修改系统的命令需要 root 权限：sudo -i。",
)
UNKNOWN_MEANS = Said(
    "Unknown: it could not be found out here, which stops nothing by itself. The command under next "
    "tells; compare with what is needed.",
    "“未知”：在这里查不到，本身不影响启动。请用“下一步”中的命令查看，再与“需要”一栏比较。",
)
# A line may end at a space and between two Chinese characters, but closing signs stay with what is
# before them, and opening ones with what follows.
_PIECE = re.compile(r"\s+|[（“]*(?:[^\s\u2e80-\uffef]+|[\u2e80-\uffef])[，。；：、）！？”]*")


class CheckRecord(TypedDict):
    check: str
    result: str
    found: str
    needed: str
    why: dict[str, str]
    fix: str
    undo: str
    next_step: dict[str, str]
    of_host: bool


def doctor_record(findings: Sequence[Finding]) -> list[CheckRecord]:
    return [
        CheckRecord(
            check=finding.check,
            result=finding.severity.value,
            found=finding.found,
            needed=finding.needed,
            why={"en": finding.why.en, "zh": finding.why.zh},
            fix=finding.fix,
            undo=finding.undo,
            next_step={"en": finding.next_step.en, "zh": finding.next_step.zh},
            of_host=finding.of_host,
        )
        for finding in findings
    ]


def exit_code(findings: Sequence[Finding]) -> int:
    blocked = any(finding.severity is Severity.BLOCK for finding in findings)
    return UnfitHost.exit_code if blocked else 0


def doctor_title(profile: str, how: Said, language: Language) -> str:
    """For which profile the checks are, and how it came to be this one."""
    if language == "zh":
        return f"针对配置 {profile} 的检查（{how.zh}）"
    return f"Checks for the profile {profile} ({how.en})"


def doctor_text(findings: Sequence[Finding], language: Language, width: int) -> str:
    return doctor_view(findings, language, width).plain


def doctor_view(findings: Sequence[Finding], language: Language, width: int) -> Text:
    """The same text with styles: a rich console draws them on a terminal, and drops them elsewhere."""
    columns = _columns(findings, language, max(width, LEAST_WIDTH))
    view = Text()
    header = tuple(_say(said, language) for said in HEADER)
    for line in _row(header, columns):
        view.append(f"{line}\n", "bold")
    for finding in findings:
        _append(view, finding, language, columns)
    view.append("\n" + _summary(findings, language))
    if any(finding.severity is Severity.UNKNOWN for finding in findings):
        lines = wrapped(_say(UNKNOWN_MEANS, language), max(width, LEAST_WIDTH))
        view.append("".join(f"{line}\n" for line in lines), "dim")
    if any(finding.fix for finding in findings):
        view.append(_say(AS_ROOT, language) + "\n", "dim")
    return view


def _append(view: Text, finding: Finding, language: Language, columns: tuple[int, ...]) -> None:
    cells = (
        finding.check,
        _say(RESULTS[finding.severity], language),
        finding.found,
        finding.needed,
    )
    start = len(view.plain)
    for line in _row(cells, columns):
        view.append(f"{line}\n")
    # Every cell before it is padded to its column, and names are plain ASCII.
    result_at = start + columns[0] + len(GAP)
    view.stylize(STYLES[finding.severity], result_at, result_at + len(cells[1]))
    if finding.severity is not Severity.OK:
        room = sum(columns) + len(GAP) * (len(columns) - 1)
        view.append("".join(f"{line}\n" for line in _details(finding, language, room)))


def _details(finding: Finding, language: Language, width: int) -> Iterator[str]:
    """A command stays in one line, however long, so that it can be copied."""
    told = (
        (WHY, _say(finding.why, language), True),
        (FIX, finding.fix, False),
        (UNDO, finding.undo, False),
        (NEXT, _say(finding.next_step, language), True),
    )
    labels = [_say(label, language) for label, _, _ in told]
    label_width = max(map(cell_len, labels)) + (3 if language == "zh" else 2)
    for label, (_, text, folds) in zip(labels, told, strict=True):
        if not text:
            continue
        room = width - len(INDENT) - label_width
        lines = wrapped(text, room) if folds else [text]
        colon = "：" if language == "zh" else ":"
        yield INDENT + padded(label + colon, label_width) + lines[0]
        yield from (INDENT + " " * label_width + line for line in lines[1:])


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many columns, a Chinese character being two; longer words are cut."""
    lines, line = [], ""
    for piece in _pieces(text, width):
        if cell_len(line + piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = piece.lstrip()
        else:
            line += piece
    return [*lines, line.rstrip()]


def _pieces(text: str, width: int) -> Iterator[str]:
    for piece in _PIECE.findall(text):
        rest: str = piece
        while cell_len(rest) > width:
            cut = next(n for n in range(len(rest), 0, -1) if cell_len(rest[:n]) <= width)
            yield rest[:cut]
            rest = rest[cut:]
        yield rest


def _columns(findings: Sequence[Finding], language: Language, width: int) -> tuple[int, ...]:
    names = max(map(cell_len, (_say(HEADER[0], language), *(found.check for found in findings))))
    results = (HEADER[1], *RESULTS.values())
    result = max(cell_len(_say(said, language)) for said in results)
    rest = width - names - result - 3 * len(GAP)
    return names, result, rest - rest // 2, rest // 2


def _row(cells: tuple[str, ...], columns: tuple[int, ...]) -> Iterator[str]:
    folded = [wrapped(cell, column) for cell, column in zip(cells, columns, strict=True)]
    for number in range(max(map(len, folded))):
        texts = (lines[number] if number < len(lines) else "" for lines in folded)
        yield GAP.join(map(padded, texts, columns)).rstrip()


def _summary(findings: Sequence[Finding], language: Language) -> str:
    counts = Counter(finding.severity for finding in findings)
    ends = exit_code(findings)
    if language == "zh":
        told = "、".join(f"{said.zh} {counts[severity]}" for severity, said in RESULTS.items())
        return f"共 {len(findings)} 项检查：{told}。退出码 {ends}。\n"
    told = ", ".join(f"{counts[severity]} {said.en}" for severity, said in RESULTS.items())
    return f"{len(findings)} checks: {told}. Exit code {ends}.\n"


def _say(said: Said, language: Language) -> str:
    return said.zh if language == "zh" else said.en
