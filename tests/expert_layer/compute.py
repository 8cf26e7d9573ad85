"""`python3 -m expert_layer.compute FOLDER`: the layer by the kernels in FOLDER, as base64 of bfloat16 in prompts' order.

Run where the kernels were built, which has neither this project nor any package but Python's own.
"""

import base64
import ctypes
import struct
import sys
from itertools import chain

from expert_layer.drawn import (
    EXPERTS,
    HIDDEN,
    INNER,
    PROMPTS,
    USED,
    activations,
    chosen,
    q4_k,
    weights,
)

Q4_K, BF16 = 12, 30  # as ggml numbers them
STRIDE, GROUP_MIN, GROUP_MAX = 64, 10, 1024  # as the engine has them
THREADS = 3  # one more than computes


def main(folder: str) -> None:
    sys.path.insert(0, folder)
    import cpuinfer_ext  # noqa: PLC0415 - which one, is only known now

    pool = cpuinfer_ext.CPUInfer(THREADS)
    projections = [_memory(q4_k(name)) for name in ("gate", "up", "down")]
    shape = (EXPERTS, USED, HIDDEN, INNER, STRIDE, GROUP_MIN, GROUP_MAX)
    pointers = [ctypes.addressof(one) for one in projections]
    layer = cpuinfer_ext.moe.MOE(
        cpuinfer_ext.moe.MOEConfig(*shape, *pointers, Q4_K, Q4_K, Q4_K, BF16)
    )
    found = b""
    for tokens in PROMPTS:
        experts = _memory(struct.pack(f"<{USED * tokens}Q", *chain(*chosen(tokens))))
        shares = _memory(struct.pack(f"<{USED * tokens}f", *chain(*weights(tokens))))
        x = _memory(activations(tokens))
        y = _memory(bytes(len(x)))
        places = [ctypes.addressof(one) for one in (experts, shares, x, y)]
        pool.submit(layer.forward(tokens, USED, *places))
        pool.sync()
        found += bytes(y)
    print(base64.b64encode(found).decode())


def _memory(content: bytes) -> "ctypes.Array[ctypes.c_ubyte]":
    return (ctypes.c_ubyte * len(content)).from_buffer_copy(content)


if __name__ == "__main__":
    main(sys.argv[1])
