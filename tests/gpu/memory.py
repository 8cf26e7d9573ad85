"""What a running engine takes of RAM and VRAM, beside what the budget says that it takes.

VRAM: the card's used memory as nvidia-smi tells it, less what was used before the engine started;
weights and cache as torch counts what it allocated for them. RAM: RSS of both processes, less the
pages of tensors that were read once, to be copied to the GPU: they are page cache that nobody needs
any more. Which pages of a file a process has mapped is read from /proc/PID/pagemap.
"""

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fitting import a_profile, settings_of
from gpu.engine import WITHOUT_MARLIN, Engine
from orchestrator.core.budget import Budget, budget_of
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory, WeightClass, classify, inventory_of
from orchestrator.core.kt_legacy.form import Form
from orchestrator.core.offload import ON_CARD
from orchestrator.core.placement import Placement, place
from orchestrator.core.vram import EXPERTS_ON_CARD, LOADING
from wire.gguf import Header, read_header

PAGE = 4096
_MAPPED = re.compile(r"(?P<from>[0-9a-f]+)-(?P<to>[0-9a-f]+) \S+ (?P<offset>[0-9a-f]+) \S+ \S+ +")
_ENGINES_RAM = ("routed experts", "embedding", "buffers of the CPU experts", "engine's own")
Report = dict[str, Any]
Files = Mapping[Path, Header]


def headers_of(paths: Sequence[Path]) -> dict[Path, Header]:
    found = {}
    for path in paths:
        with path.open("rb") as file:
            found[path] = read_header(file)
    return found


def inventory(files: Files) -> Inventory:
    return inventory_of(
        {path.name: (header, path.stat().st_size) for path, header in files.items()}
    )


def planned(  # noqa: PLR0913 - what an engine is started by
    profile: str,
    held: Inventory,
    facts: HostFacts,
    *,
    context_tokens: int,
    chunk_tokens: int,
    rules: str = WITHOUT_MARLIN,
    form: Form | None = None,
) -> tuple[Placement, Budget]:
    """By the profile's settings, but for the placement and the lengths. `form`: one's own placement."""
    options = {"rules": rules, "chunk_tokens": chunk_tokens}
    chosen = a_profile(profile, kt_legacy=options)
    settings = settings_of(chosen, context_tokens=context_tokens)
    placement = place(chosen, settings, facts, held, form=form)
    return placement, budget_of(chosen, settings, placement, held, facts, 0, form=form)


def used_mib() -> int:
    return _of_card("memory.used")


def free_mib() -> int:
    return _of_card("memory.free")


def _of_card(what: str) -> int:
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


@dataclass(frozen=True)
class Taken:
    """Bytes. `torch`: as watched_worker wrote it. `experts`: of the mapped pages, those of experts."""

    vram: int
    torch: Mapping[str, Any]
    rss: int
    rss_parts: Mapping[str, int]
    experts: int | None
    read_once: int | None


def taken(engine: Engine, watched: Path, before_mib: int, files: Files) -> Taken:
    # It writes every half second.
    time.sleep(1.2)
    torch: dict[str, Any] = json.loads(watched.read_text(encoding="utf-8"))
    parts: dict[str, int] = {}
    for name, pid in (("model", torch["pid"]), ("server", engine.process.pid)):
        parts |= {f"{name} {kind}": size for kind, size in rss(pid).items()}
    experts, rest = _mapped(torch["pid"], files)
    return Taken(
        vram=(used_mib() - before_mib) << 20,
        torch=torch,
        rss=sum(parts.values()),
        rss_parts=parts,
        experts=experts,
        read_once=rest,
    )


def rss(pid: int) -> dict[str, int]:
    found = {}
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name in {"RssAnon", "RssFile", "RssShmem"}:
            found[name] = int(rest.split()[0]) * 1024
    return found


def _mapped(pid: int, files: Files) -> tuple[int | None, int | None]:
    experts = rest = 0
    try:
        for path, header in files.items():
            here = present(pid, path)
            for tensor in header.tensors:
                pages = here[tensor.offset // PAGE : -(-tensor.end // PAGE)]
                size = int(np.count_nonzero(pages)) * PAGE
                if classify(tensor.name)[0] is WeightClass.ROUTED_EXPERTS:
                    experts += size
                else:
                    rest += size
    except (OSError, LookupError, ValueError):
        return None, None
    return experts, rest


def present(pid: int, path: Path) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """For each page of the file, whether the process has it mapped and in memory."""
    pages = np.zeros(-(-path.stat().st_size // PAGE), dtype=bool)
    for line in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8").splitlines():
        if not line.endswith(str(path)) or (found := _MAPPED.match(line)) is None:
            continue
        first, last, offset = (int(found[name], 16) for name in ("from", "to", "offset"))
        with Path(f"/proc/{pid}/pagemap").open("rb") as pagemap:
            pagemap.seek(first // PAGE * 8)
            entries = np.frombuffer(pagemap.read((last - first) // PAGE * 8), dtype=np.uint64)
        at = offset // PAGE
        count = min(len(entries), len(pages) - at)
        pages[at : at + count] |= (entries[:count] >> np.uint64(63)).astype(bool)
    return pages


def compared(budget: Budget, found: Taken) -> Report:
    """Ratios: what the budget says over what was found."""
    (card,) = budget.vram
    vram = {term.name: term.size_bytes for term in card.terms}
    ram = {term.name: term.size_bytes for share in budget.ram for term in share.terms}
    # What loading takes at most is over by the time that is looked at.
    serving = card.need_bytes - vram.get(LOADING, 0)
    headroom = vram["headroom"]
    on_card = (*(kind.value for kind in ON_CARD), EXPERTS_ON_CARD)
    weights = sum(vram.get(name, 0) for name in on_card)
    engines = sum(ram[name] for name in _ENGINES_RAM)
    read_once = found.read_once
    needed = None if read_once is None else found.rss - read_once
    return {
        "terms": {"VRAM": vram, "RAM": ram},
        "weights on the GPU": _pair(weights, found.torch["weights_bytes"]),
        "KV cache": _pair(vram["KV cache"], found.torch["cache_bytes"]),
        "VRAM without headroom": _pair(serving - headroom, found.vram),
        "VRAM": _pair(serving, found.vram),
        "CUDA context, kernels and graph": _pair(
            vram["CUDA context, kernels and graph"], found.vram - found.torch["reserved_bytes"]
        ),
        "activations and what torch keeps": _pair(
            vram["activations"],
            found.torch["reserved_bytes"]
            - found.torch["weights_bytes"]
            - found.torch["cache_bytes"],
        ),
        "RAM of the engine": _pair(engines, needed),
        "routed experts, mapped": _pair(ram["routed experts"], found.experts),
        "RSS": found.rss,
        "RSS by part": dict(found.rss_parts),
        "RSS of tensors read once": read_once,
        "torch": dict(found.torch),
    }


def _pair(said: int, found: int | None) -> Report:
    ratio = round(said / found, 4) if found else None
    return {"budget_bytes": said, "found_bytes": found, "ratio": ratio}
