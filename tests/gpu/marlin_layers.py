"""One of Marlin's layers of each shape, beside the same numbers multiplied by torch.

`python3 -m gpu.marlin_layers SPEC OUT`, in the environment of the process with the model; SPEC: as
`kt_legacy_engine.pipe.Spec`, in JSON. Writes a list to OUT, anew after each layer.

Of each: a kernel's error, against its own 4-bit numbers multiplied in 32 bits, the largest of batches
of 1 to 256 rows; what 4 bits change, against the numbers of the file; and what they must change, from
the numbers alone: inputs are random, so the relative error of a product is that of the matrix.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from ktransformers.server.config.config import Config

from kt_legacy_engine.shards import Shards

Report = dict[str, Any]
ROWS = 256
# Layer 1 has its down projections in Q6_K.
LAYERS = {
    "q_a": "blk.0.attn_q_a",
    "q_b": "blk.0.attn_q_b",
    "kv_a": "blk.0.attn_kv_a_mqa",
    "output": "blk.0.attn_output",
    "dense gate": "blk.0.ffn_gate",
    "dense down": "blk.0.ffn_down",
    "shared gate": "blk.1.ffn_gate_shexp",
    "shared down": "blk.1.ffn_down_shexp",
}
NORMAL = "normal numbers"
_TIMED = 50


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative, of all numbers together."""
    return float((found.float() - wanted).norm() / wanted.norm())


def measured(linear: Any, key: str, shards: Shards, given: torch.Tensor | None) -> Report:
    """`given`: numbers (out, in) in the place of the file's."""
    plain = linear.KLinearTorch(key, shards, None, device="cuda")
    marlin = linear.KLinearMarlin(key, shards, None, device="cuda")
    weight = None if given is None else torch.nn.Parameter(given, requires_grad=False)
    plain.load(weight)
    packed: list[torch.Tensor] = []
    quantise = linear.marlin_quantize

    def kept(*told: Any) -> Any:
        made = quantise(*told)
        packed.append(made[0])
        return made

    began = time.monotonic()
    linear.marlin_quantize = kept
    try:
        marlin.load(weight)
    finally:
        linear.marlin_quantize = quantise
    took_s = time.monotonic() - began
    own, file = packed[0].float(), plain.weight.float()
    rows = torch.randn(ROWS, own.shape[0], device="cuda", dtype=torch.bfloat16)
    wanted = rows.float() @ own
    products = {count: marlin.forward(rows[:count]) for count in range(1, ROWS + 1)}
    worst = max(products, key=lambda count: apart(products[count], wanted[:count]))
    whole = products[ROWS]
    parameters = own.numel()
    return {
        "in": own.shape[0],
        "out": own.shape[1],
        "type": "none"
        if given is not None
        else int(shards.tensor_info[f"{key}.weight"]["ggml_type"]),
        "kernel_error": apart(products[worst], wanted[:worst]),
        "of_rows": worst,
        "kernel_error_of_one_row": apart(products[1], wanted[:1]),
        "bf16_error": apart(rows @ own.to(torch.bfloat16), wanted),
        "four_bit_error": apart(whole, rows.float() @ file),
        "four_bit_error_of_numbers": apart(own, file),
        "finite": bool(torch.isfinite(whole).all()),
        "bits_of_a_number": 8 * _bytes(marlin) / parameters,
        "scales": str(marlin.marlin_s.dtype),
        "packing_s": took_s,
        "marlin_us": _microseconds(lambda: marlin.forward(rows[:1])),
        "bf16_us": _microseconds(lambda: plain.forward(rows[:1])),
    }


def _bytes(marlin: Any) -> int:
    held = (marlin.marlin_q_w, marlin.marlin_s, marlin.workspace.scratch)
    return sum(one.numel() * one.element_size() for one in held)


def _microseconds(work: Callable[[], object]) -> float:
    for _ in range(3):
        work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(_TIMED):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(1000 * begin.elapsed_time(end) / _TIMED)


def main(spec: Path, out: Path) -> None:
    torch.set_default_dtype(torch.bfloat16)
    torch.set_grad_enabled(False)
    torch.manual_seed(8)
    Config().cpu_infer = 3
    from ktransformers.operators import linear  # noqa: PLC0415 - its threads start with it

    said = json.loads(spec.read_text(encoding="utf-8"))
    shards = Shards(said["shards"], lambda _done, _all: None)
    reports: list[Report] = []
    for name, key in [*LAYERS.items(), (NORMAL, LAYERS["q_a"])]:
        given = None
        if name == NORMAL:
            sizes = shards.tensor_info[f"{key}.weight"]["shape"][::-1]
            given = torch.randn(*map(int, sizes), device="cuda", dtype=torch.float32)
        try:
            report = {"name": name, **measured(linear, key, shards, given)}
        except Exception:  # noqa: BLE001 - the other layers are worth their time
            report = {"name": name, "failed": traceback.format_exc()}
        reports.append(report)
        sys.stderr.write(f"{report}\n")
        out.write_text(json.dumps(reports, indent=1), encoding="utf-8")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
