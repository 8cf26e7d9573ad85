"""What an engine's container says for itself, on standard error, where the engine writes too."""

import sys


def tell(*lines: str) -> None:
    """Each on a line of its own: readers look for `error: ` and `why: ` where a line begins.

    In one write, and after a line break: the log thread of llama.cpp and the C++ of KTransformers
    write a line in pieces, so one of theirs may stand open when ours comes.
    """
    sys.stderr.write("\n" + "".join(f"{line}\n" for line in lines))
    sys.stderr.flush()
