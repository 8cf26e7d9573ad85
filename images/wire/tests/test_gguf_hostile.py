"""Files that only look like model files: every one ends in NotGguf, soon and in little memory."""

import io
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.wire.tests.gguf_files import LLAMA, NAMES, Q4_K, SHARDS, a_file, text, value
from wire.gguf import NotGguf, read_header
from wire.gguf_checks import problems

HUGE = struct.pack("<Q", 1 << 60)
START = b"GGUF" + struct.pack("<I", 3)
ONE_VALUE = START + struct.pack("<QQ", 0, 1)
ONE_TENSOR = START + struct.pack("<QQ", 1, 0)
KEY = text("k")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(b"", "it ends after 0 bytes", id="empty"),
        pytest.param(b"<!DOCTYPE html>", "it starts with b'<!DO'", id="a page"),
        pytest.param(b"FUGG" + START[4:], "it starts with b'FUGG'", id="wrong magic"),
        pytest.param(b"GGUF" + struct.pack(">I", 3), "big-endian", id="big-endian"),
        pytest.param(b"GGUF" + struct.pack("<I", 1), "version 1", id="an old version"),
        pytest.param(START + HUGE + HUGE, "announces 1152921504606846976 tensors", id="2^60"),
        pytest.param(
            START + struct.pack("<QQ", 10**9, 0), "announces 1000000000 tensors", id="10^9 tensors"
        ),
        pytest.param(START + bytes(8) + HUGE, "1152921504606846976 values", id="2^60 values"),
        pytest.param(ONE_VALUE + HUGE, "1152921504606846976 bytes of text", id="a huge key"),
        pytest.param(ONE_VALUE + KEY + struct.pack("<I", 77), "unknown type 77", id="a new type"),
        pytest.param(
            ONE_VALUE + KEY + struct.pack("<II", 9, 9), "an array of arrays", id="nested arrays"
        ),
        pytest.param(
            ONE_VALUE + KEY + 10_000 * struct.pack("<IIQ", 9, 9, 1), "an array of", id="recursion"
        ),
        pytest.param(
            ONE_VALUE + KEY + struct.pack("<II", 9, 4) + HUGE, "would exceed", id="2^60 numbers"
        ),
        pytest.param(
            ONE_VALUE + KEY + struct.pack("<II", 9, 8) + HUGE, "k has 11529215046", id="2^60 texts"
        ),
        pytest.param(
            ONE_TENSOR + text("t") + struct.pack("<I", 9), "9 dimensions", id="9 dimensions"
        ),
        pytest.param(
            ONE_TENSOR + text("t") + struct.pack("<IQIQ", 1, 8, Q4_K, 0),
            "rows of 8, but Q4_K packs 256",
            id="half a block",
        ),
        pytest.param(
            ONE_TENSOR + text("t") + struct.pack("<I3QIQ", 3, 1 << 40, 1 << 40, 1 << 40, 0, 0),
            "larger than anything real",
            id="a product of 2^120",
        ),
        pytest.param(
            ONE_TENSOR + text("t") + struct.pack("<I2QIQ", 2, 1 << 63, 0, 0, 0),
            "larger than anything real",
            id="an empty tensor with a huge side",
        ),
        pytest.param(
            ONE_TENSOR + text("t") + struct.pack("<IQIQ", 1, 8, 0, (1 << 64) - 1),
            "larger than anything real",
            id="an offset of 2^64 - 1",
        ),
        pytest.param(
            a_file({"general.alignment": 24}, ()), "general.alignment is 24", id="alignment 24"
        ),
        pytest.param(
            a_file({"general.alignment": 0}, ()), "general.alignment is 0", id="alignment 0"
        ),
        pytest.param(
            START + struct.pack("<QQ", 0, 2) + 2 * (KEY + value(1)), "it has k twice", id="k twice"
        ),
    ],
)
def test_what_no_real_file_has_is_refused_with_the_reason(content: bytes, why: str) -> None:
    with pytest.raises(NotGguf, match=why):
        read_header(io.BytesIO(content))


def test_a_name_that_is_no_utf_8_is_kept_in_a_form_that_can_be_printed() -> None:
    content = a_file({}, ["xxxx"]).replace(b"xxxx", b"\xff\xfe\x00a")
    (tensor,) = read_header(io.BytesIO(content)).tensors
    assert tensor.name == "\\xff\\xfe\x00a"


def test_an_error_quotes_no_more_than_the_start_of_a_name_of_megabytes() -> None:
    content = ONE_VALUE + text("k" * (1 << 20)) + struct.pack("<I", 77)
    with pytest.raises(NotGguf) as caught:
        read_header(io.BytesIO(content))
    assert str(caught.value) == f"{'k' * 100}... has the unknown type 77"


@pytest.mark.parametrize("end", [*range(0, 500, 7), 1000, 5000, 200_000, 273_000])
def test_a_header_that_is_cut_short_says_where_it_ends(end: int) -> None:
    with pytest.raises(NotGguf, match=f"after {end} bytes|it starts with"):
        read_header(io.BytesIO(SHARDS[0].read_bytes()[:end]))


def outcome(content: bytes) -> str:
    """Whatever the bytes are: NotGguf, or a header that can be checked."""
    try:
        header = read_header(io.BytesIO(content))
    except NotGguf:
        return "refused"
    assert all(isinstance(told, str) for told in problems({"m.gguf": (header, len(content))}))
    return "read"


SMALL = a_file({**LLAMA, "tokenizer.ggml.tokens": ["a", "b"], "llama.heads": [1, 2]}, NAMES)
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**60, 2**63, 2**64 - 1]), st.integers(0, 2**64 - 1)
)


@settings(deadline=None)
@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_one_wrong_byte_in_a_header_never_ends_in_another_error(place: int, byte: int) -> None:
    spoiled = bytearray(SMALL)
    spoiled[place] = byte
    assert outcome(bytes(spoiled)) in {"read", "refused"}


@settings(deadline=None)
@given(st.integers(0, len(SMALL) - 8), NUMBERS)
def test_a_wrong_number_anywhere_never_ends_in_another_error(place: int, number: int) -> None:
    spoiled = SMALL[:place] + struct.pack("<Q", number) + SMALL[place + 8 :]
    assert outcome(spoiled) in {"read", "refused"}


@settings(deadline=None)
@given(st.integers(0, len(SMALL) - 1))
def test_a_file_that_is_cut_anywhere_is_refused_or_told_to_end_too_soon(end: int) -> None:
    # The header's last fields: name, 1 dimension (4 + 8 bytes), type (4), offset (8).
    header_end = SMALL.rindex(NAMES[-1].encode()) + len(NAMES[-1]) + 24
    if end < header_end:
        with pytest.raises(NotGguf):
            read_header(io.BytesIO(SMALL[:end]))
        return
    header = read_header(io.BytesIO(SMALL[:end]))
    (told,) = problems({"m.gguf": (header, end)})
    assert told.endswith(f"but the file at {end}")


@settings(deadline=None)
@given(st.integers(0, 3), st.integers(0, 3), st.binary(max_size=400))
def test_noise_behind_a_good_start_never_ends_in_another_error(
    tensors: int, values: int, noise: bytes
) -> None:
    assert outcome(START + struct.pack("<QQ", tensors, values) + noise) in {"read", "refused"}


# Each as large as it gets before it is refused, or just small enough to be read.
WORST = {
    "texts that are no UTF-8": (
        "tokens = struct.pack('<Q', 20) + b'\\xff' * 20\n"
        "stream = Stream(start({}, 0)[:16] + struct.pack('<Q', 1) + text('tokenizer.ggml.tokens')"
        " + struct.pack('<IIQ', 9, 8, 1_000_000), tokens)"
    ),
    "values of 4 MB": (
        "one = lambda n: text(f'{n:08}') + struct.pack('<IQ', 8, 4 << 20) + b'\\xff' * (4 << 20)\n"
        "stream = Stream(start({}, 0)[:16] + struct.pack('<Q', 10_000), *map(one, range(8)))"
    ),
    "tensors without end": (
        "one = lambda n: text(f'{n:08}') + struct.pack('<I4QIQ', 4, 1, 1, 1, 1, 0, 0)\n"
        "stream = Stream(start({}, 100_000), *map(one, range(100_000)))"
    ),
    "a list without end": (
        "stream = Stream(start({}, 0)[:16] + struct.pack('<Q', 1) + text('k')"
        " + struct.pack('<IIQ', 9, 0, 1 << 40), bytes(1 << 20))"
    ),
}
CHILD = """
import itertools, resource, struct, sys
from images.wire.tests.gguf_files import start, text
from wire.gguf import NotGguf, read_header

class Stream:
    def __init__(self, head, *pieces):
        self.left, self.pieces = bytearray(head), itertools.cycle(pieces)
    def read(self, size):
        while len(self.left) < size:
            self.left += next(self.pieces)
        taken = bytes(self.left[:size])
        del self.left[:size]
        return taken

{stream}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    header = read_header(stream)
except NotGguf as error:
    print(error)
else:
    print("read")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("kind", WORST)
def test_the_worst_file_takes_no_more_than_200_mb(kind: str) -> None:
    """Every byte of 32 MiB can become four characters, and a short text is an object of 60 bytes."""
    roots = [str(root) for root in Path(__file__).parents[:4]]
    paths = [roots[3], str(Path(roots[3]) / "images" / "wire" / "src")]
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(stream=WORST[kind])],
        env={"PYTHONPATH": ":".join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told, grown_kib = done.stdout.splitlines()
    assert told == "read" or "would exceed 33554432 bytes" in told
    assert int(grown_kib) < 200_000_000 // 1024


def test_a_header_that_never_ends_is_given_up_after_32_mib() -> None:
    taken = 0

    class Endless:
        head = io.BytesIO(ONE_VALUE + KEY + struct.pack("<IIQ", 9, 8, 1_000_000))

        def read(self, size: int, /) -> bytes:
            nonlocal taken
            taken += size
            # After the head: texts of 2^20 bytes each.
            return self.head.read(size) or (b"\0\0\x10\0\0\0\0\0" if size == 8 else bytes(size))

    with pytest.raises(NotGguf, match="would exceed"):
        read_header(Endless())
    assert taken <= 32 << 20
