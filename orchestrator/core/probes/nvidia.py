"""The table that `nvidia-smi` prints, as drivers of many years draw it."""

import re
from dataclasses import dataclass

from orchestrator.core.facts import Gpu
from orchestrator.core.probes.capability import capability_of
from orchestrator.core.probes.nvidia_health import lost_cards
from orchestrator.core.probes.text import MIB, lines, whole_lines

# Up to driver 610 "Driver Version" and "CUDA Version", since then "KMD" and "CUDA UMD".
DRIVER = re.compile(r"\b(?:Driver|KMD) Version: (\d[\d.]*)\s")
CUDA = re.compile(r"\bCUDA (?:UMD )?Version: (\d+\.\d+)\s")
# | index  name  persistence or driver model | bus id  display | uncorrected ECC errors |
CARD = re.compile(
    r"\|\s+(\d{1,3})\s+(\S.*?)\s+(On|Off|N/A|TCC|WDDM|MCDM)\s*\|"
    r"\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d\s+\S+\s*\|(?:\s*(\d{1,18})\s*\|)?.*",
    re.ASCII,
)
USAGE = re.compile(r"\|[^|]*\|\s*(\d{1,9})MiB\s*/\s*(\d{1,9})MiB\s*\|.*", re.ASCII)
MIG_MODE = re.compile(r"\|\s*\|\s*\|\s*(Enabled|Disabled|N/A)\*?\s*\|", re.ASCII)
# | card  instance  compute instance  device | used / total | ...
SLICE = re.compile(
    r"\|\s*(\d{1,3})\s+\d+\s+\d+\s+\d+\s*\|\s*\d{1,9}MiB\s*/\s*(\d{1,9})MiB\s*\|.*", re.ASCII
)
NO_CARDS = "No devices were found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Smi:
    """`gpus`: None where the text lists none and doesn't say that there is none.

    `lost`: how many cards the driver knows and can't reach.
    """

    gpus: tuple[Gpu, ...] | None = None
    lost: int = 0
    driver_version: str | None = None
    driver_cuda: str | None = None
    windows: bool = False


def parse_table(text: str) -> Smi:
    driver = next((found for line in lines(text) if (found := DRIVER.search(line))), None)
    cuda = next((found for line in lines(text) if (found := CUDA.search(line))), None)
    return Smi(
        gpus=() if NO_CARDS in text else _cards(whole_lines(text)),
        lost=len(lost_cards(text)),
        driver_version=driver[1] if driver else None,
        driver_cuda=cuda[1] if cuda else None,
        windows=any(found[3] == "WDDM" for found in map(CARD.fullmatch, lines(text)) if found),
    )


def _cards(rows: list[str]) -> tuple[Gpu, ...] | None:
    """Each card has up to three rows: its name, its memory, its MIG mode."""
    found: list[dict[str, object]] = []
    slices: dict[int, list[int]] = {}
    card: dict[str, object] = {}
    for row in rows:
        if row.startswith("+"):
            card = {}  # what follows is no longer about the card above
        elif named := CARD.fullmatch(row):
            card = _named(named)
            found.append(card)
        elif part := SLICE.fullmatch(row):
            slices.setdefault(int(part[1]), []).append(int(part[2]) * MIB)
        elif card and (usage := USAGE.fullmatch(row)):
            card |= _memory(int(usage[1]) * MIB, int(usage[2]) * MIB)
        elif card and (mode := MIG_MODE.fullmatch(row)):
            card["mig"] = mode[1] == "Enabled"
    gpus = [Gpu.model_validate(fields) for fields in found]
    if not gpus or len({gpu.index for gpu in gpus}) != len(gpus):
        return None
    return tuple(
        gpu.model_copy(update={"mig_slices_bytes": tuple(slices.get(gpu.index, ()))})
        for gpu in gpus
    )


def _named(card: re.Match[str]) -> dict[str, object]:
    return {
        "index": int(card[1]),
        "name": card[2],
        "compute_capability": capability_of(card[2]),
        "persistence": {"On": True, "Off": False}.get(card[3]),
        "ecc_errors": None if card[4] is None else int(card[4]),
    }


def _memory(used: int, total: int) -> dict[str, object]:
    if used > total:
        return {}
    return {
        "memory_bytes": total,
        "memory_used_bytes": used,
        "memory_free_bytes": total - used,
    }
