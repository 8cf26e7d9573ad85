"""Text out of tokens: whole characters, and never any of a stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kt_legacy_engine.words import Stops, Words
from reciting import Bytes


def test_a_character_split_over_tokens_comes_once_it_is_whole() -> None:
    words = Words(Bytes())
    assert [words.push(byte) for byte in "a é 中".encode()] == [
        "a",
        " ",
        "",
        "é",
        " ",
        "",
        "",
        "中",
    ]


def test_half_a_character_at_the_end_is_said_to_be_unreadable() -> None:
    words = Words(Bytes())
    assert words.push("中".encode()[0]) == ""
    assert words.end() == "\N{REPLACEMENT CHARACTER}"


def test_bytes_that_will_never_be_a_character_are_not_held_for_ever() -> None:
    words = Words(Bytes())
    said = [words.push(0x80) for _ in range(9)]
    assert "".join(said) + words.end() == "\N{REPLACEMENT CHARACTER}" * 9
    assert any(said)


@given(st.text())
def test_all_pieces_together_are_the_text(text: str) -> None:
    words = Words(Bytes())
    assert "".join([*(words.push(byte) for byte in text.encode()), words.end()]) == text


class Cut(Bytes):
    """Its tokens are the bytes of `text`, cut anywhere: so are those of scripts that are rare."""

    def __init__(self, text: str, first: int, size: int) -> None:
        data = text.encode()
        rest = range(first, len(data), size)
        self._tokens = [data[:first], *(data[at : at + size] for at in rest)]

    @property
    def tokens(self) -> range:
        return range(len(self._tokens))

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.raw, tokens)).decode(errors="replace")

    def raw(self, token: int) -> bytes:
        return self._tokens[token]


@given(st.text(alphabet="a ส中🐼\N{REPLACEMENT CHARACTER}"), st.integers(1, 6), st.integers(1, 6))
@example("กรุงเทพมหานคร", 2, 3)
def test_tokens_that_all_end_within_a_character_lose_none(text: str, first: int, size: int) -> None:
    cut = Cut(text, first, size)
    words = Words(cut)
    assert "".join([*(words.push(token) for token in cut.tokens), words.end()]) == text


def test_what_is_whole_before_half_a_character_is_said_at_once() -> None:
    cut = Cut("กขคงจฉชซ", 2, 3)
    words = Words(cut)
    assert [words.push(token) for token in cut.tokens] == ["", *"กขคงจฉชซ"]


@pytest.mark.parametrize(
    ("pieces", "sent", "stopped"),
    [
        pytest.param(["Once", " upon", " a time"], "Once upon a time", False, id="none"),
        pytest.param(["one", "EN", "D two"], "one", True, id="across pieces"),
        pytest.param(["one E", "ND", " two"], "one ", True, id="after other text"),
        pytest.param(["a EEN", "D b"], "a E", True, id="after its own first letter"),
        pytest.param(["a EN", "B"], "a ENB", False, id="almost"),
        pytest.param(["a EN"], "a EN", False, id="almost at the end"),
        pytest.param(["x.y", "END"], "x", True, id="the earliest of two in one piece"),
    ],
)
def test_a_stop_string_ends_the_text_before_it(pieces: list[str], sent: str, stopped: bool) -> None:
    stops = Stops(["END", "."] if "x.y" in pieces else ["END"])
    found = ""
    for piece in pieces:
        text, met = stops.push(piece)
        found += text
        if met:
            break
    else:
        met = False
        found += stops.end()
    assert (found, met) == (sent, stopped)


@given(st.text(alphabet="abX", max_size=40), st.integers(1, 5))
def test_however_a_text_is_cut_what_is_sent_is_the_same(text: str, size: int) -> None:
    stops = Stops(["aXb", "Xa"])
    sent, met = "", False
    for at in range(0, len(text), size):
        piece, met = stops.push(text[at : at + size])
        sent += piece
        if met:
            break
    if not met:
        sent += stops.end()
    ends = [at for stop in ("aXb", "Xa") if (at := text.find(stop)) >= 0]
    if not ends:
        assert sent == text
    else:
        # Two stops may overlap: the one that is whole first ends it.
        assert met
        assert text.startswith(sent)
        assert "aXb" not in sent
        assert "Xa" not in sent


@given(st.text(alphabet="abX", max_size=40), st.integers(1, 5), st.integers(0, 40))
def test_a_stop_string_that_ends_early_is_passed_over_however_a_text_is_cut(
    text: str, size: int, early: int
) -> None:
    stops = Stops(["aXb", "abXab", "Xa"])
    pieces = [text[:early], *(text[at : at + size] for at in range(early, len(text), size))]
    sent, met = "", False
    for number, piece in enumerate(pieces):
        said, met = stops.push(piece, early=number == 0)
        sent += said
        if met:
            break
    if not met:
        sent += stops.end()
    ends = [
        at + len(stop)
        for stop in ("aXb", "abXab", "Xa")
        for at in range(len(text))
        if text.startswith(stop, at) and at + len(stop) > early
    ]
    assert met == bool(ends)
    assert text.startswith(sent)
    if not ends:
        assert sent == text
    else:
        assert len(sent) < min(ends) + size


def test_what_can_not_become_a_stop_is_not_held_back() -> None:
    assert Stops(["END"]).push("a b c") == ("a b c", False)
