"""Whether the GPUs of this host can be used, asked of the driver itself before the engine is imported.

Torch would say it after a minute of imports, in a traceback that names no remedy. The driver's
library is loaded by name: numbers and calls are of NVIDIA's cuda.h.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, Protocol

from kt_sglang_engine.refusals import NO_GPU, Refused, Verdict

LIBRARY = "libcuda.so.1"
# What nvcc in the image compiles for, which no older driver runs.
LEAST_CUDA = (13, 0)
# The oldest that the wheels' kernels are compiled for.
LEAST_CAPABILITY = (8, 0)
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_DOCTOR = "python3 -m orchestrator doctor (it says what the driver lacks)"


class Driver(Protocol):
    """The part of libcuda.so.1 that is asked. Every call returns 0, or CUDA's number of an error."""

    def cuInit(self, flags: int) -> int: ...  # noqa: N802 - NVIDIA's names
    def cuDriverGetVersion(self, version: Any) -> int: ...  # noqa: N802
    def cuDeviceGetCount(self, count: Any) -> int: ...  # noqa: N802
    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: int) -> int: ...  # noqa: N802


def load_driver() -> Driver | None:
    """None: this container has none."""
    try:
        driver: Driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return None
    return driver


def refuse_unfit_gpus(driver: Driver | None, wanted: int) -> None:
    """`wanted`: how many cards the command line uses."""
    if why := next(_objections(driver, wanted), None):
        reason, next_step = why
        raise Refused(
            Verdict(
                what="the engine does not start: there is no GPU that it can use",
                why=(reason,),
                next_step=next_step,
                exit_code=NO_GPU,
            )
        )


def _objections(driver: Driver | None, wanted: int) -> Iterator[tuple[str, str]]:
    """Each says why, and what to do. The first counts: the next questions hang on it."""
    if driver is None:
        yield f"there is no NVIDIA driver in the container ({LIBRARY})", _DOCTOR
        return
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    cuda = (version.value // 1000, version.value % 1000 // 10)
    if cuda < LEAST_CUDA:
        yield (
            f"the driver knows CUDA {_dotted(cuda)}, and the engine needs {_dotted(LEAST_CUDA)}",
            "install a driver of the 580 series or newer",
        )
    if error := driver.cuInit(0):
        yield f"the driver sees no GPU (CUDA's error {error})", _DOCTOR
    count = ctypes.c_int()
    driver.cuDeviceGetCount(ctypes.byref(count))
    if count.value < wanted:
        yield (
            f"the command line uses {wanted} GPUs, and {count.value} can be seen",
            "give the container more of them, or choose a profile for fewer",
        )
    for device in range(wanted):
        found = _capability(driver, device)
        if found < LEAST_CAPABILITY:
            least = _dotted(LEAST_CAPABILITY)
            yield (
                f"GPU {device} has compute capability {_dotted(found)}, and the engine needs {least}",
                "use a GPU of the Ampere generation or newer",
            )


def _capability(driver: Driver, device: int) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
    driver.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
    return major.value, minor.value


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
