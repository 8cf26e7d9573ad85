"""Do the engine's weights lie on the NUMA nodes they were planned for? In words, with what to do."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from orchestrator.core.placement import MemoryPolicy
from wire.numa import PageReport, as_planned

# The page cache may hold a file in pieces of this size, each wholly on one node.
PIECE_BYTES = 2 << 20
# A program holds so much before it loads anything: 115 MB were seen with a model of 12.
PROGRAM_BYTES = 128 << 20
# Of what the engine holds, the least that is worth a word: less can't cost a tenth of the speed.
PART = 0.1
CLEAR = "python3 -m orchestrator down && sudo sysctl vm.drop_caches=1 && python3 -m orchestrator up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intended:
    """The part of a placement that pages can be held against."""

    policy: MemoryPolicy
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """`as_planned`: None where it can't be told. `planned`, `found`: node -> share of the weights.

    `words`: a line for `status`. `warnings`: what is wrong, what it costs, and what to do.
    """

    as_planned: bool | None
    planned: Mapping[int, float]
    found: Mapping[int, float]
    words: str
    warnings: tuple[str, ...] = ()


def judge(intended: Intended, report: PageReport | None) -> Spread:
    planned = {node: 1 / len(intended.nodes) for node in intended.nodes}
    if report is None:
        return _untold(planned, "the engine does not run, or gives no report")
    if report.trouble:
        return _untold(planned, report.trouble, _rights(intended, report))
    weights, name = _weights(intended, report)
    if not sum(weights.values()):
        return _untold(planned, "the engine has none in memory yet", _rights(intended, report))
    found = _shares(weights)
    slack = PIECE_BYTES * max(1, len(report.shards))
    if not planned:
        return Spread(
            as_planned=None,
            planned=planned,
            found=found,
            words=f"{name}: {_listed(found)}, where the kernel put them",
            warnings=_rights(intended, report),
        )
    well = as_planned(weights, intended.nodes, slack)
    words = f"{name}: {_listed(found)}, as planned" if well else _otherwise(name, planned, found)
    return Spread(
        as_planned=well,
        planned=planned,
        found=found,
        words=words,
        warnings=(
            *_rights(intended, report),
            *_policy(intended, report),
            *(() if well else (f"{words}: {_remedy(report)}",)),
            *_own(intended, report),
        ),
    )


def _untold(planned: Mapping[int, float], why: str, warnings: tuple[str, ...] = ()) -> Spread:
    return Spread(
        as_planned=None,
        planned=planned,
        found={},
        words=f"weights: not known where they lie: {why}",
        warnings=warnings,
    )


def _weights(intended: Intended, report: PageReport) -> tuple[Mapping[int, int], str]:
    """Copies on each node are the engine's own memory; else the weights are the files it maps."""
    if intended.policy is MemoryPolicy.REPLICATE:
        return report.own_bytes, "copies of the weights"
    return report.shard_bytes, "weights"


def _own(intended: Intended, report: PageReport) -> tuple[str, ...]:
    """Beside mapped files: KV cache, buffers, and weights that the engine has copied."""
    own, everything = sum(report.own_bytes.values()), sum(report.shard_bytes.values())
    if intended.policy is MemoryPolicy.REPLICATE or own < PART * (own + everything):
        return ()
    if as_planned(report.own_bytes, intended.nodes, PROGRAM_BYTES):
        return ()
    planned = {node: 1 / len(intended.nodes) for node in intended.nodes}
    name = "the engine's own memory (KV cache, buffers, copied weights)"
    return (f"{_otherwise(name, planned, _shares(report.own_bytes))}: {_remedy(report)}",)


def _rights(intended: Intended, report: PageReport) -> tuple[str, ...]:
    if report.may_set_policy is not False:
        return ()
    cost = (
        "on one node this costs nothing"
        if intended.policy is MemoryPolicy.LOCAL
        else "weights and buffers go where the kernel puts them: replies stay right, but threads "
        "wait for memory of other nodes"
    )
    if report.has_sys_nice:
        why = "it has SYS_NICE, so a seccomp profile forbids it"
        cure = "allow set_mempolicy, get_mempolicy and mbind in the profile that dockerd was given"
    else:
        why = "its container has lost SYS_NICE"
        cure = "give inference cap_add: [SYS_NICE] in compose.yaml"
    up = "then: python3 -m orchestrator up"
    return (f"the engine may set no memory policy: {why}; {cost}: {cure}, {up}",)


def _policy(intended: Intended, report: PageReport) -> tuple[str, ...]:
    """Pages read from now on go where this says, whatever lies well today."""
    modes = {MemoryPolicy.ONE_NODE: "bind", MemoryPolicy.INTERLEAVE: "interleave"}
    wanted = modes.get(intended.policy)
    if wanted is None or report.may_set_policy is False or not report.policies:
        return ()
    if all(policy.startswith(wanted) for policy in report.policies):
        return ()
    runs = f"the engine runs under the memory policy {' and '.join(report.policies)}"
    plan = f"planned {wanted} on {_nodes(intended.nodes)}"
    return (f"{runs}, {plan}: python3 -m orchestrator logs inference says why",)


def _remedy(report: PageReport) -> str:
    if report.may_set_policy is False:
        return "it can't be mended before the engine may set a memory policy"
    return f"start again with the cache dropped: {CLEAR}"


def _otherwise(name: str, planned: Mapping[int, float], found: Mapping[int, float]) -> str:
    return f"{name}: planned {_parts(tuple(planned))}, found {_listed(found)}"


def _parts(nodes: Collection[int]) -> str:
    if len(nodes) == 1:
        return f"all on {_nodes(nodes)}"
    part = "half" if len(nodes) == 2 else f"1/{len(nodes)}"  # noqa: PLR2004 - a half has a word
    return f"{part} on each of {_nodes(nodes)}"


def _nodes(nodes: Collection[int]) -> str:
    listed = ",".join(str(node) for node in sorted(nodes))
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"


def _shares(node_bytes: Mapping[int, int]) -> Mapping[int, float]:
    total = sum(node_bytes.values())
    return {node: size / total for node, size in sorted(node_bytes.items()) if size}


def _listed(found: Mapping[int, float]) -> str:
    said = [f"{100 * share:.0f} % on node {node}" for node, share in found.items()]
    return ", ".join(part for part in said if not part.startswith("0 %"))
