"""The output in a file that somebody pasted: without what editors, terminals and Windows add to it."""

import codecs
import re

MARKS_OF_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# Colours, switches of the terminal, and the title of its window.
ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
PROMPT = re.compile(
    r"(?:\([^)]{1,40}\)\s*)?"  # a virtual environment
    r"(?:"
    r"\[?[\w.-]+@[\w.-]+(?:[:\s][^#$>]*?)?\]?\s?(?:[#$>]|(?<=\s)%)"  # root@gpu01:~#
    r"|[\w.-]+:[~/]\S*?[#$]"  # gpu01:~#
    r"|(?:ba|da|k|z)?sh-[\d.]+[#$]"
    r"|[#$%\u279c\u276f\u03bb]"  # alone, or one of zsh's arrows
    r")(?:\s.*)?"
    r"|(?:PS )?[A-Z]:\\[^<>|]*>.*"
)
# A list, of flags or CPUs, that breaks off looks like one that is whole.
LONG_LIST = re.compile(r"[^:\uff1a]+[:\uff1a]\s*(?:\S+\s+){8,}\S+\s*")


def text_of(data: bytes) -> str:
    """Its lines end with a line break, but for one that may go on."""
    rows = ESCAPES.sub("", _decoded(data)).replace("\u00a0", " ").splitlines(keepends=True)
    kept = [row for row in rows if not PROMPT.fullmatch(row.rstrip("\r\n"))]
    text = "".join(kept).replace("\r\n", "\n").lstrip("\n")
    if not text or text.endswith("\n") or LONG_LIST.fullmatch(text.rpartition("\n")[2]):
        return text
    return f"{text}\n"


def _decoded(data: bytes) -> str:
    """In Unicode, or in what Chinese systems wrote before it, which all ASCII is as well."""
    if data.startswith(MARKS_OF_UTF_16):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:  # ASCII in UTF-16 has one in each pair
        little = data[1::2].count(0) >= data[::2].count(0)
        return data.decode("utf-16-le" if little else "utf-16-be", errors="replace")
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(data)  # its end may be cut
    except UnicodeDecodeError:
        return data.decode("gb18030", errors="replace")
