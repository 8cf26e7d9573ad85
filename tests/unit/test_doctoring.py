"""The doctor's table: readable at 80 columns, in both languages, without colours."""

import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.doctoring import (
    Language,
    doctor_record,
    doctor_text,
    doctor_title,
    doctor_view,
    exit_code,
    wrapped,
)

FINE = Finding(
    check="docker", severity=Severity.OK, found="28.3.3", needed="docker", why=Said("w", "为")
)
GOVERNOR = Finding(
    check="governor",
    severity=Severity.WARN,
    found="powersave",
    needed="performance",
    why=Said(
        "an energy-saving governor clocks cores down between two tokens, and each token waits",
        "节能调频策略会在两个 token 之间降低核心频率，每个 token 都要等核心重新升频，因此生成速度会明显变慢",
    ),
    fix="cpupower frequency-set -g performance",
    undo="cpupower frequency-set -g powersave",
)
TOO_SMALL = Finding(
    check="memory-nodes",
    severity=Severity.BLOCK,
    found="node 0: 250.2 GB, node 1: 250.2 GB",
    needed="node 0: 391.0 GB",
    why=Said("too little on one node", "单个节点的内存不足"),
    next_step=Said("spread it", "请分布到全部节点"),
)


def test_the_table_in_english_is_as_it_was_meant() -> None:
    assert doctor_text((FINE, GOVERNOR, TOO_SMALL), "en", 80) == (
        """\
check         result   found                         needed
docker        ok       28.3.3                        docker
governor      warn     powersave                     performance
    why:  an energy-saving governor clocks cores down between two tokens, and
          each token waits
    fix:  cpupower frequency-set -g performance
    undo: cpupower frequency-set -g powersave
memory-nodes  block    node 0: 250.2 GB, node 1:     node 0: 391.0 GB
                       250.2 GB
    why:  too little on one node
    next: spread it

3 checks: 1 ok, 0 unknown, 1 warn, 1 block. Exit code 3.
Commands under fix and undo that change the system need root: sudo -i.
"""
    )


def test_the_table_in_chinese_keeps_its_columns() -> None:
    lines = doctor_text((FINE, GOVERNOR, TOO_SMALL), "zh", 80).splitlines()
    # 12 for names, 4 for results (a character is two wide), and (80 - 12 - 4 - 3 x 2) / 2 = 29 each.
    assert lines[0] == "检查项        结果  " + "实际" + " " * 27 + "需要"
    assert lines[2] == "governor      警告  " + "powersave" + " " * 22 + "performance"
    assert "    修复：   cpupower frequency-set -g performance" in lines
    assert lines[-2] == "共 3 项检查：正常 1、未知 0、警告 1、阻断 1。退出码 3。"


def test_the_title_is_in_the_language_of_the_table() -> None:
    how = Said("as you asked", "由你指定")
    assert doctor_title("demo", how, "en") == "Checks for the profile demo (as you asked)"
    assert doctor_title("demo", how, "zh") == "针对配置 demo 的检查（由你指定）"


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(language: Language, width: int) -> None:
    for line in doctor_text((FINE, GOVERNOR, TOO_SMALL), language, width).splitlines():
        assert cell_len(line) <= width or line.startswith("Commands under"), line


def test_a_long_command_stays_in_one_line_to_be_copied() -> None:
    command = "for f in " + "/sys/kernel/mm/hugepages/x " * 5 + "; do echo 0 > $f; done"
    finding = Finding(
        check="x",
        severity=Severity.WARN,
        found="a",
        needed="b",
        why=Said("w", "为"),
        fix=command,
    )
    assert f"fix:  {command}\n" in doctor_text((finding,), "en", 80)


def test_chinese_breaks_anywhere_but_before_a_closing_and_after_an_opening_sign() -> None:
    # Two columns a character: three fit into seven, and 。 may not begin a line.
    assert wrapped("内存不足。请加", 7) == ["内存不", "足。请", "加"]
    assert wrapped("内存不。请加", 7) == ["内存", "不。请", "加"]
    assert wrapped("内存（大）", 7) == ["内存", "（大）"]


def test_a_word_wider_than_its_column_is_cut_not_lost() -> None:
    assert wrapped("a 1234567890", 4) == ["a", "1234", "5678", "90"]
    assert wrapped("", 4) == [""]


def test_colours_are_for_terminals_only() -> None:
    view = doctor_view((GOVERNOR,), "en", 80)
    plain = Console(force_terminal=False, width=80)
    with plain.capture() as drawn:
        plain.print(view, end="")
    assert "\x1b" not in drawn.get()
    terminal = Console(force_terminal=True, color_system="standard", width=80)
    with terminal.capture() as drawn:
        terminal.print(view, end="")
    assert "\x1b[33mwarn" in drawn.get()


def test_a_blocker_ends_with_3_and_nothing_else_does() -> None:
    assert exit_code((FINE, GOVERNOR, TOO_SMALL)) == 3
    assert exit_code((FINE, GOVERNOR)) == 0


def test_the_record_holds_all_that_the_table_says_in_both_languages() -> None:
    (record,) = json.loads(json.dumps(doctor_record((GOVERNOR,))))
    assert record == {
        "check": "governor",
        "result": "warn",
        "found": "powersave",
        "needed": "performance",
        "why": {"en": GOVERNOR.why.en, "zh": GOVERNOR.why.zh},
        "fix": "cpupower frequency-set -g performance",
        "undo": "cpupower frequency-set -g powersave",
        "next_step": {"en": "", "zh": ""},
        "of_host": False,
    }


def test_what_unknown_means_is_said_where_something_is() -> None:
    unknown = Finding(
        check="clock",
        severity=Severity.UNKNOWN,
        found="?",
        needed="+-300 s",
        why=Said("x", "x"),
        next_step=Said("find out with: date -u", "查看方法：date -u"),
    )
    assert "stops nothing by itself" in " ".join(doctor_text([unknown], "en", 60).split())
    assert "本身不影响启动" in "".join(doctor_text([unknown], "zh", 60).split())
    assert "by itself" not in doctor_text([FINE, GOVERNOR], "en", 80)
