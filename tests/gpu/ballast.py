"""Holds all of a card's memory but LEFT bytes, until its input ends: `python3 -m gpu.ballast LEFT`."""

import ctypes
import sys


def hold(left: int) -> None:
    cuda = ctypes.CDLL("libcudart.so.13")
    free, total, held = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    _done(cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
    _done(cuda.cudaMalloc(ctypes.byref(held), ctypes.c_size_t(free.value - left)))
    _done(cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)))
    print(f"{free.value} bytes are free, {left} were to be", file=sys.stderr, flush=True)
    print("held", flush=True)
    sys.stdin.read()


def _done(error: int) -> None:
    if error:
        raise OSError(error, "CUDA refused")


if __name__ == "__main__":
    hold(int(sys.argv[1]))
