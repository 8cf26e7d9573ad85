"""Leaves in Marlin's source the kernels that the engine calls: `python3 -m gpu.marlin_source SOURCE`.

20 of 400: numbers of 4 bits, a scale for 64 of them, in their own order, times BF16. Nothing is written
in their place, so what is compiled is what the image has of them, in a minute and not in fifteen. For
all others the source itself says that the shape is not supported.
"""

import re
import sys
from pathlib import Path

FILE = Path("ktransformers/ktransformers_ext/cuda/gptq_marlin/gptq_marlin.cu")
# A line for each size of a block: whether rows are reordered, and a scale's group, in 16 rows.
_KERNEL = re.compile(
    r"\s+__CALL_IF\(NUM_BITS, \d, N_BLOCKS, K_BLOCKS, (?P<order>\w+), (?P<group>-?\d), "
)
_EIGHT_BITS = re.compile(r"\s+CALL_IF\(8, ")
_HALF = "  if (a.scalar_type() == at::ScalarType::Half) {"
_BF16 = "if (a.scalar_type() == at::ScalarType::BFloat16) {"
LEFT_OUT = {"kernels of a macro": 16, "configurations of 8 bits": 5}


def called(source: str) -> str:
    """`source` without the rest. ValueError: it is not the source that this is for."""
    kept: list[str] = []
    dropped = dict.fromkeys(LEFT_OUT, 0)
    for line in source.splitlines(keepends=True):
        found = _KERNEL.match(line)
        if found is not None and (found["order"], found["group"]) != ("false", "4"):
            dropped["kernels of a macro"] += 1
        elif _EIGHT_BITS.match(line):
            dropped["configurations of 8 bits"] += 1
        else:
            kept.append(line)
    text = "".join(kept)
    if dropped != LEFT_OUT or text.count(_HALF) != 1 or text.count(_BF16) != 1:
        raise ValueError(f"Marlin's source is another: {dropped}")
    before, _, rest = text.partition(_HALF)
    return f"{before}  {_BF16}{rest.partition(_BF16)[2]}"


def main(source: Path) -> None:
    path = source / FILE
    path.write_text(called(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
