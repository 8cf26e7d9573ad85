"""On which NUMA nodes the pages of a process lie, as `/proc/PID/numa_maps` shows them.

That file counts what is in the process's page tables, so pages of the page cache too: see proc(5),
and fs/proc/task_mmu.c (show_numa_map) for what it prints. A line that says something else says nothing.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from pydantic import BaseModel, ConfigDict

DELETED = " (deleted)"
# A policy's own name may hold a blank and its text a "=": "prefer (many):0-1", "bind=static:0".
_KNOWN = re.compile(
    r"(?:file|anon|dirty|mapped|mapmax|swapcache|active|writeback|N\d+|kernelpagesize_kB)=.*"
    r"|heap|stack|huge"
)
_PAGES = re.compile(r"N([0-9]{1,5})=([0-9]{1,18})")
_PAGE_SIZE = re.compile(r"kernelpagesize_kB=([0-9]{1,9})")
_ESCAPE = re.compile(r"\\([0-7]{3})")
# Memory that the kernel calls a file, though it lies on no disk.
_NO_FILES = ("/dev/", "/memfd:", "/anon_hugepage", "/SYSV")


# Threads wait for the node that holds most: a tenth more there is at most a tenth more time a token.
UNEVEN = 1.1
# What may lie on other nodes: pages that were read before the policy was in force.
ELSEWHERE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """One line: `policy` as the kernel writes it, `file` without escapes, bytes by node."""

    policy: str
    file: str | None
    huge: bool
    page_bytes: int
    node_bytes: Mapping[int, int]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shard(_Value):
    """A file of the weights folder that the engine maps: bytes of it in page tables, by node."""

    path: str
    size_bytes: int | None
    page_bytes: int
    node_bytes: Mapping[int, int]

    @property
    def mapped_bytes(self) -> int:
        return sum(self.node_bytes.values())


class PageReport(_Value):
    """Where an engine's memory lies, in bytes by node.

    `own_bytes`: what it holds beside files: copied weights, KV cache, buffers. `huge_bytes`: of all
    this, what lies in reserved huge pages. `policies`: in force for the shards' pages, as the kernel writes them. `cpus`: allowed CPUs, as in
    0-15 -> number of threads held to them. `may_set_policy`: whether a program in this container can;
    `has_sys_nice`: whether the container was given that capability. `trouble`: why there is no more.
    """

    shards: tuple[Shard, ...] = ()
    own_bytes: Mapping[int, int] = {}
    huge_bytes: int = 0
    rss_bytes: int | None = None
    policies: tuple[str, ...] = ()
    cpus: Mapping[str, int] = {}
    may_set_policy: bool | None = None
    has_sys_nice: bool | None = None
    trouble: str = ""

    @property
    def shard_bytes(self) -> Mapping[int, int]:
        """Of all shards together, by node."""
        total: Counter[int] = Counter()
        for shard in self.shards:
            total.update(shard.node_bytes)
        return dict(total)


def as_planned(node_bytes: Mapping[int, int], nodes: Collection[int], slack_bytes: int) -> bool:
    """Does memory lie on these nodes, in equal parts? `slack_bytes`: what may be by chance."""
    total = sum(node_bytes.values())
    on_them = [node_bytes.get(node, 0) for node in nodes]
    elsewhere = total - sum(on_them)
    return (
        elsewhere <= ELSEWHERE * total + slack_bytes
        and max(on_them) <= UNEVEN * total / len(on_them) + slack_bytes
    )


def areas(numa_maps: str) -> Iterator[Area]:
    """The lines that say on which nodes their pages lie; any other is passed over."""
    for line in numa_maps.split("\n")[:-1]:  # what follows the last line break was cut
        if found := _area(line.split()[1:]):
            yield found


def page_report(
    numa_maps: str, weights_dir: PurePosixPath, sizes: Mapping[str, int | None]
) -> PageReport:
    """What one process's numa_maps says of it. `sizes`: of files, by path below the weights folder."""
    own: Counter[int] = Counter()
    shards: dict[str, Shard] = {}
    policies: set[str] = set()
    huge = 0
    for area in areas(numa_maps):
        huge += sum(area.node_bytes.values()) if area.huge else 0
        path = below(area.file, weights_dir)
        if path is not None:
            shards[path] = _with(shards.get(path), path, sizes.get(path), area)
            policies.add(area.policy)
        elif area.file is None or area.file.startswith(_NO_FILES):
            own.update(area.node_bytes)
    return PageReport(
        shards=tuple(shards[path] for path in sorted(shards)),
        own_bytes=dict(own),
        huge_bytes=huge,
        policies=tuple(sorted(policies)),
    )


def below(file: str | None, folder: PurePosixPath) -> str | None:
    """The file's path below the folder; None where it lies elsewhere."""
    if file is None:
        return None
    path = PurePosixPath(file.removesuffix(DELETED))
    return str(path.relative_to(folder)) if folder in path.parents else None


def _area(words: list[str]) -> Area | None:
    start = next((at for at, word in enumerate(words) if _KNOWN.fullmatch(word)), len(words))
    said = words[start:]
    sizes = [int(found[1]) * 1024 for word in said if (found := _PAGE_SIZE.fullmatch(word))]
    counts = [(int(found[1]), int(found[2])) for word in said if (found := _PAGES.fullmatch(word))]
    if len(sizes) != 1 or not counts:
        return None
    (page_bytes,) = sizes
    files = [word.removeprefix("file=") for word in said if word.startswith("file=")]
    return Area(
        policy=" ".join(words[:start]),
        file=_ESCAPE.sub(lambda found: chr(int(found[1], 8)), files[0]) if files else None,
        huge="huge" in said,
        page_bytes=page_bytes,
        node_bytes={node: pages * page_bytes for node, pages in counts},
    )


def _with(known: Shard | None, path: str, size_bytes: int | None, area: Area) -> Shard:
    total = Counter(known.node_bytes if known else {})
    total.update(area.node_bytes)
    return Shard(
        path=path,
        size_bytes=size_bytes,
        page_bytes=max(area.page_bytes, known.page_bytes if known else 0),
        node_bytes=dict(total),
    )
