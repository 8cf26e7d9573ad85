"""Columns as terminals draw them."""

from orchestrator.aligning import aligned


def test_a_chinese_character_takes_two_cells() -> None:
    # Unicode, East Asian Width: W is two columns.
    rows = [("name", "class"), ("lab", "batch"), ("\u5b9e\u9a8c\u5ba4", "interactive")]
    assert list(aligned(rows)) == [
        "name    class",
        "lab     batch",
        "\u5b9e\u9a8c\u5ba4  interactive",
    ]


def test_of_no_rows_there_is_no_line() -> None:
    assert list(aligned([])) == []
