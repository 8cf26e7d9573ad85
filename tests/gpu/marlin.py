"""Marlin's 4-bit layers on a GPU, under our serving layer: `python3 -m gpu.marlin WORK OUT`.

Started by run.sh. Writes OUT/marlin.json anew after each part, and ends with 1 when anything is not as
it must be. It ends by itself MARLIN_S after run.sh began (420 without it), and names what it left out.
`MARLIN_ONLY` names parts to run, with commas. SYNTHETIC_LAYERS: 5 layers without it.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from gpu import cubins, experts, kt_legacy
from gpu.engine import WITH_MARLIN, WITHOUT_MARLIN
from gpu.forms import older
from gpu.packed import linears_of, times_on_gpu
from gpu.parts import LAST_S, Parts, Report
from gpu.synthetic import CLOSE, CONTEXTS
from gpu.synthetic_model import Shape
from gpu.wide import Wide, in_the_engines_place, observed, written

# Of a product, relative: of Marlin's own numbers, multiplied in 32 bits.
KERNEL_CLOSE = 0.01
# 4 bits with a scale for 64 numbers change a product by so much. More, and something is wrong; less,
# and it was not Marlin that computed it.
FOUR_BITS = (0.04, 0.13)
# Logits by Marlin beside those of its own numbers by torch, of what two ways of torch are apart.
OF_FLOOR = 2.0
LEAST_S = 10.0
# Parts that do not run on the model of full width.
WITHOUT_WIDE = frozenset({"machine code", "tinyseek", "experts"})
# What the allocator rounds up, and workspaces, is 0.003. The smallest layer again would be as much more.
ONCE = 0.005


def machine_code(parts: Parts, work: Path) -> None:
    (library,) = (work / "kt").glob("KTransformersOps*.so")
    found = cubins.beside_image(cubins.digests(library, cubins.ARCHITECTURE))
    parts.report["machine code"] = found
    same = found["the same here"] == found["in the image"]
    parts.must("machine code is the image's", true=same, why=found)


def layers(parts: Parts, wide: Wide) -> None:
    out = wide.out / "marlin-layers.json"
    try:
        in_the_engines_place(wide, "marlin_layers", out)
    finally:
        # Some may have been measured before one of them ended the program.
        if out.exists():
            parts.report["layers"] = json.loads(out.read_text(encoding="utf-8"))
    for one in parts.report["layers"]:
        right = "failed" not in one and layer_is_right(one)
        parts.must(f"layer {one['name']}", true=right, why=one)


def layer_is_right(one: Report) -> bool:
    least, most = FOUR_BITS
    return bool(
        one["finite"]
        and one["kernel_error"] <= KERNEL_CLOSE
        and abs(one["four_bit_error"] - one["four_bit_error_of_numbers"]) <= KERNEL_CLOSE
        and least <= one["four_bit_error"] <= most
    )


def model(parts: Parts, wide: Wide) -> None:
    out = wide.out / "marlin-model.json"
    in_the_engines_place(wide, "marlin_model", out)
    found = json.loads(out.read_text(encoding="utf-8"))
    parts.report["logits"] = found
    for kind in ("decoded", "read"):
        why = {"kernel": found["kernel"][kind], "floor": found["floor"]}
        parts.must(f"logits, {kind}", true=logits_are_right(found, kind), why=why)


def logits_are_right(found: Report, kind: str) -> bool:
    """What 4 bits change is no measure: on random weights it is as much as the logits themselves."""
    kernel = found["kernel"][kind]
    floor = max(one["median_error"] for one in found["floor"].values())
    return bool(kernel["finite"] and kernel["median_error"] <= OF_FLOOR * floor)


def engine(parts: Parts, wide: Wide, context: int, placement: str) -> None:
    found: Report = {"placement": placement, "context": context, "cpu_infer": wide.cpu_infer}
    parts.report.setdefault("runs", []).append(found)
    observed(wide, context, placement, parts, found)
    where = f"at {context}, {placement}"
    for what in ("VRAM without headroom", "RAM of the engine"):
        pair = found["memory"][what]
        close = pair["ratio"] is not None and abs(pair["ratio"] - 1) <= CLOSE
        parts.must(f"{what} {where}", true=close, why=pair)
    kind = "KLinearMarlin" if placement == WITH_MARLIN else "KLinearTorch"
    wanted = {kind: linears_of(wide.shape)}
    parts.must(f"layers {where}", true=found["linears"] == wanted, why=found["linears"])
    if placement == WITH_MARLIN:
        times = times_on_gpu(wide.shape, found["memory"]["weights on the GPU"])
        parts.must(f"4-bit weights once {where}", true=abs(times - 1) <= ONCE, why=times)


def tinyseek(parts: Parts, work: Path, out: Path) -> None:
    """Weights that were trained, in 4 bits once more: the replies are to be the same."""
    weights = older(kt_legacy.FIXTURES, "Q4_K_M", work / "weights")
    found = kt_legacy.check("marlin", weights, work, out, placement=WITH_MARLIN)
    _told(parts, "tinyseek", found)


def experts_on_card(parts: Parts, work: Path, out: Path) -> None:
    weights = older(kt_legacy.FIXTURES, "Q4_K_M", work / "weights")
    _told(parts, "experts", experts.check(weights, work, out))


def _told(parts: Parts, part: str, found: Report) -> None:
    parts.report[part] = found
    for name, why in found["failed"].items():
        parts.must(f"{part}: {name}", true=False, why=why)


def main(work: Path, out: Path) -> int:
    since_s = time.time() - float(os.environ.get("GPU_BEGAN", time.time()))
    seconds = float(os.environ.get("MARLIN_S", "420"))
    parts = Parts(out / "marlin.json", time.monotonic() + seconds - since_s)
    parts.report["seconds"]["building"] = round(since_s, 1)
    shape = Shape(layers=int(os.environ.get("SYNTHETIC_LAYERS", "5")))
    parts.report["shape"] = asdict(shape)
    made: list[Wide] = []

    def writing() -> None:
        wide, told = written(shape, work, out, parts.deadline_s)
        parts.report |= told
        made.append(wide)

    wanted: tuple[tuple[str, float, Callable[[], None]], ...] = (
        ("machine code", 30, lambda: machine_code(parts, work)),
        ("writing", 60, writing),
        ("layers", 90, lambda: layers(parts, made[0])),
        ("8192", 110, lambda: engine(parts, made[0], CONTEXTS[0], WITH_MARLIN)),
        ("tinyseek", 70, lambda: tinyseek(parts, work, out)),
        ("experts", 70, lambda: experts_on_card(parts, work, out)),
        ("131072", 110, lambda: engine(parts, made[0], CONTEXTS[1], WITH_MARLIN)),
        ("model", 120, lambda: model(parts, made[0])),
        ("without", 80, lambda: engine(parts, made[0], CONTEXTS[0], WITHOUT_MARLIN)),
    )
    only = [name for name in os.environ.get("MARLIN_ONLY", "").split(",") if name]
    for name, at_most_s, check in wanted:
        if only and name not in only and (name != "writing" or WITHOUT_WIDE.issuperset(only)):
            continue
        if parts.left_s() < LAST_S + LEAST_S:
            parts.report["left_out"].append(name)
            continue
        with parts.part(name, at_most_s):
            check()
    parts.save()
    print(json.dumps({name: parts.report[name] for name in ("seconds", "left_out")}, indent=1))
    print("FAILED:", json.dumps({name: why[-300:] for name, why in parts.report["failed"].items()}))
    return 1 if parts.report["failed"] or parts.report["left_out"] else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
