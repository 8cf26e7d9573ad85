"""Whether the GPUs of this host can be used, told before the engine is imported.

Without a driver that import ends in a traceback, which names no remedy.
"""

import re
from pathlib import Path

import torch

from kt_legacy_engine.refusals import NO_GPU, Refused

# The oldest that the kernels are compiled for.
_LEAST = (8, 0)
_DEVICE = re.compile(r"\bcuda:(\d+)")


def devices_of(rules: str) -> int:
    """How many GPUs a rule file places modules on."""
    return max((int(index) + 1 for index in _DEVICE.findall(rules)), default=1)


def refuse_unfit_gpus(rules_file: str) -> None:
    wanted = devices_of(Path(rules_file).read_text(encoding="utf-8"))
    if (why := _why_none()) is not None:
        raise _refused(why, "python3 -m orchestrator doctor (it says what the driver lacks)")
    here = torch.cuda.device_count()
    if here < wanted:
        raise _refused(
            f"the placement uses {wanted} GPUs, and {here} can be seen",
            "choose a placement for fewer GPUs, or give the container more of them",
        )
    for index in range(wanted):
        found = torch.cuda.get_device_capability(index)
        if found < _LEAST:
            name = torch.cuda.get_device_name(index)
            raise _refused(
                f"{name} has compute capability {found[0]}.{found[1]}, and the engine needs 8.0",
                "use a GPU of the Ampere generation or newer",
            )


def _why_none() -> str | None:
    if torch.cuda.is_available():
        return None
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return "torch sees no GPU"


def _refused(why: str, next_step: str) -> Refused:
    return Refused(
        "the engine does not start: there is no GPU that it can use",
        why=(why,),
        next_step=next_step,
        exit_code=NO_GPU,
    )
