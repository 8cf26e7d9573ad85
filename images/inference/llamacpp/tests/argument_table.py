"""The flags of llama.cpp's server, read from the table in its source (common/arg.cpp).

`python3 argument_table.py ARG_CPP` prints them as recorded/llama-server-flags.json keeps them.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

_NAMES = re.compile(r'\s*\{\s*("-[^{}]*")\s*\},')
# On the same line as the names; a description has a line of its own.
_VALUE = re.compile(r' "[^"\n]*",\n')
_PROGRAMS = re.compile(r"\.set_examples\(\{(.*?)\}\)")


def flags_of(source: str) -> Mapping[str, bool]:
    """Flag -> whether a value follows it. Only those that the server knows."""
    found: dict[str, bool] = {}
    for entry in source.split("add_opt(common_arg(")[1:]:
        programs = _PROGRAMS.search(entry)
        if programs is not None and not {"LLAMA_EXAMPLE_SERVER", "LLAMA_EXAMPLE_COMMON"} & set(
            re.split(r",\s*", programs[1])
        ):
            continue
        at = 0
        names: list[str] = []
        while listed := _NAMES.match(entry, at):
            names += re.findall(r'"(-[^"]+)"', listed[1])
            at = listed.end()
        found |= dict.fromkeys(names, _VALUE.match(entry, at) is not None)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    print(json.dumps(flags_of(Path(sys.argv[1]).read_text(encoding="utf-8")), indent=1))
