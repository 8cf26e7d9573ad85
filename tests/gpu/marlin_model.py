"""A whole model's next-token logits by Marlin, beside the same model by torch.

`python3 -m gpu.marlin_model SPEC OUT`, in the environment of the process with the model; SPEC: as
`kt_legacy_engine.pipe.Spec`, in JSON. Writes a report to OUT.

The model is loaded once, and each of Marlin's layers keeps its numbers in BF16 beside: its own, of 4
bits, and those of the file. So the same model computes in three ways, by the engine's own code: chunks
of a prompt, and decoding through the captured graph.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu.logits import FILE, MARLIN, OWN, Logits, compared, report_of
from kt_legacy_engine import engine
from kt_legacy_engine.pipe import Spec

CHUNK, DECODED = 256, 128
# Batches that other kernels compute, and such as no block divides.
PREFIXES = (2, 16, 17, 33, 64, 100, 255)


class Ways:
    """Which numbers a layer of Marlin computes with."""

    def __init__(self, linear: Any) -> None:
        self.way = MARLIN
        kernel, plain, quantise = (
            linear.KLinearMarlin,
            linear.KLinearMarlin.forward,
            linear.marlin_quantize,
        )
        load = kernel.load
        packed: list[torch.Tensor] = []

        def kept(*told: Any) -> Any:
            made = quantise(*told)
            packed.append(made[0].to(torch.bfloat16))
            return made

        def loaded(one: Any, w: Any = None, device: str | None = None) -> None:
            weight = one.load_weight(device=device or one.device) if w is None else w
            load(one, weight, device)
            shaped = weight.view(one.out_features, one.in_features).T
            one.numbers = {OWN: packed.pop(), FILE: shaped.to(torch.bfloat16)}

        def forward(one: Any, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = plain(one, x) if self.way == MARLIN else x @ one.numbers[self.way]
            return found

        linear.marlin_quantize = kept
        kernel.load, kernel.forward = loaded, forward


def logits(model: engine.KtModel, prompt: Sequence[int]) -> dict[str, Logits]:
    """`decoded`: one row a token; `read`: the last token of each prefix, read as a chunk."""
    vars(model).update(_graph=None, _eager_steps=1)
    read = []
    for count in PREFIXES:
        model.truncate(0)
        read.append(model.extend(prompt[:count]))
    model.truncate(0)
    model.extend(prompt[:1])
    decoded = [model.extend([token]) for token in prompt[1:CHUNK]]
    beginning = [decoded[count - 2] for count in PREFIXES]
    model.truncate(0)
    model.extend(prompt[:CHUNK])
    began = time.monotonic()
    decoded = [model.extend([token]) for token in prompt[CHUNK:]]
    pace = np.array([len(decoded) / (time.monotonic() - began)], dtype=np.float32)
    rows = {"decoded": decoded, "read": read, "beginning": beginning}
    return {name: np.stack(found) for name, found in rows.items()} | {"pace": pace}


def main(spec: Path, out: Path) -> None:
    said = json.loads(spec.read_text(encoding="utf-8"))
    wanted = Spec(**said | {"shards": tuple(said["shards"])})
    from ktransformers.server.config.config import Config  # noqa: PLC0415

    Config().cpu_infer = wanted.cpu_infer
    from ktransformers.operators import linear  # noqa: PLC0415 - its threads start with it

    ways = Ways(linear)
    began = time.monotonic()
    model, _ = engine.load(wanted, lambda _done, _all: None)
    loading_s = time.monotonic() - began
    random = np.random.default_rng(7)
    prompt = random.integers(10, model.vocabulary, CHUNK + DECODED).tolist()
    found: dict[str, dict[str, Logits]] = {}
    for way in (MARLIN, OWN, FILE):
        ways.way = way
        found[way] = logits(model, prompt)
        sys.stderr.write(f"{way}: {time.monotonic() - began:.1f} s since the start\n")
    again = compared(logits(model, prompt)["decoded"], found[FILE]["decoded"])
    report = report_of(found) | {"the same again": again, "loading_s": loading_s}
    out.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
