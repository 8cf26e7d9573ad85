"""Compute capability by a card's name, where the name leaves no doubt.

From NVIDIA's own lists, developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus. Cards that those leave
out (export and cloud variants, laptops' own chips) are unknown here: the driver knows them.
"""

from collections.abc import Mapping

Capability = tuple[int, int]

# Names as NVIDIA lists them, without the maker. A name matches where it begins with these words.
CARDS: Mapping[Capability, tuple[str, ...]] = {
    (12, 1): ("GB10",),
    (12, 0): (
        *(f"RTX PRO {size} Blackwell" for size in (6000, 5000, 4500, 4000, 2000)),
        *(f"GeForce RTX {size}" for size in (5090, 5080, 5070, 5060, 5050)),
    ),
    (10, 3): ("GB300", "B300"),
    (10, 0): ("GB200", "B200"),
    (9, 0): ("GH200", "H200", "H100"),
    (8, 9): (
        "L4",
        "L40",
        "L40S",
        *(f"RTX {size} Ada" for size in (6000, 5000, 4500, 4000, 2000)),
        "RTX 4000 SFF Ada",
        *(f"GeForce RTX {size}" for size in (4090, 4080, 4070, 4060, 4050)),
    ),
    (8, 6): (
        "A40",
        "A16",
        "A10",
        "A2",
        *(f"RTX A{size}" for size in (6000, 5000, 4000, 3000, 2000)),
        *(f"GeForce RTX {size}" for size in (3090, 3080, 3070, 3060)),
        "GeForce RTX 3050 Ti",
    ),
    (8, 0): ("A100", "A30"),
    (7, 5): (
        "T4",
        "T1000",
        "T600",
        "T400",
        "TITAN RTX",
        *(f"Quadro RTX {size}" for size in (8000, 6000, 5000, 4000)),
        *(f"GeForce RTX {size}" for size in (2080, 2070, 2060)),
        *(f"GeForce GTX {size}" for size in (1660, 1650)),
    ),
    (7, 0): ("V100", "Quadro GV100", "TITAN V"),
    (6, 1): (
        "P40",
        "P4",
        "TITAN Xp",
        *(f"GeForce GTX {size}" for size in (1080, 1070, 1060, 1050)),
    ),
    (6, 0): ("P100", "Quadro GP100"),
    (5, 2): ("M60", "M40", *(f"GeForce GTX {size}" for size in (980, 970, 960, 950))),
}
# The driver puts one of these before the names of some.
MAKERS = ("NVIDIA", "Tesla")
CUT = "..."


def capability_of(name: str) -> Capability | None:
    """`NVIDIA A100-SXM4-80GB`, or what a narrow table leaves of it: `NVIDIA A100-SXM...`."""
    words = tuple(name.removesuffix(CUT).replace("-", " ").split())
    if name.endswith(CUT) and not name.endswith(f" {CUT}"):
        words = words[:-1]  # cut in the middle of a word: A10... may be an A100
    while words and words[0] in MAKERS:
        words = words[1:]
    found = {
        capability
        for capability, cards in CARDS.items()
        for card in cards
        if words[: len(card.split())] == tuple(card.split())
    }
    return found.pop() if len(found) == 1 else None
