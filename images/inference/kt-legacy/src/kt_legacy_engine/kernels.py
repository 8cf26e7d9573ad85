"""Which kernels are in the image, and which of them this processor can run."""

from collections.abc import Collection, Mapping
from pathlib import Path

from kt_legacy_engine.arguments import AUTO, VARIANTS
from kt_legacy_engine.refusals import NO_CPU_KERNELS, Refused

# Flags as /proc/cpuinfo has them. Best first, as VARIANTS.
_BASE = frozenset({"avx2", "fma", "f16c"})
_AVX512 = _BASE | {"avx512f", "avx512bw"}
_FANCY = _AVX512 | {"avx512vl", "avx512dq", "avx512_vnni"}
NEEDS: Mapping[str, frozenset[str]] = {
    "bf16": _FANCY | {"avx512_bf16"},
    "fancy": _FANCY,
    "avx512": _AVX512,
    "avx2": _BASE,
}
_OF_MARLIN = ("KLinearMarlin", "KExpertsMarlin")


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """The first processor's, of the text of /proc/cpuinfo."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((frozenset(v.split()) for k, _, v in lines if k.strip() == "flags"), frozenset())


def choose(
    wanted: str, flags: Collection[str], kernels_dir: Path, *, numa_copies: bool
) -> tuple[Path, str]:
    """The folder to import `cpuinfer_ext` from, and why this one."""
    suffix = "-numa" if numa_copies else ""
    here = [name for name in VARIANTS if (kernels_dir / f"{name}{suffix}").is_dir()]
    if wanted != AUTO and wanted in here:
        if missing := sorted(NEEDS[wanted] - set(flags)):
            raise _none(f"{wanted} was asked for, and this processor lacks {', '.join(missing)}")
        return kernels_dir / f"{wanted}{suffix}", f"{wanted}{suffix}, as asked for"
    if wanted != AUTO:
        raise _none(f"{wanted}{suffix} was asked for; {kernels_dir} has {_listed(here)}")
    for name in here:
        if NEEDS[name] <= set(flags):
            why = f"the best of {_listed(here)} that this processor can run"
            return kernels_dir / f"{name}{suffix}", f"{name}{suffix}, {why}"
    lacking = sorted(NEEDS["avx2"] - set(flags))
    raise _none(
        f"this processor lacks {', '.join(lacking)}"
        if lacking
        else f"{kernels_dir} has {_listed(here)}{suffix and f' with {suffix[1:]}'}"
    )


def check_placement(rules: Path, *, marlin: bool) -> None:
    """`rules`: the placement, as the engine reads it."""
    try:
        text = rules.read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(
            f"there is no rule file {rules}",
            why=("--optimize_config_path names it", str(error)),
            next_step="set it to a file of configs/placements, as the container sees it",
        ) from error
    if not marlin and any(kernel in text for kernel in _OF_MARLIN):
        raise Refused(
            "the placement asks for kernels that this image was built without",
            why=(f"{rules} names Marlin, and the image is the fast build for checks",),
            next_step="choose a placement without Marlin, or build the image with MARLIN=1",
        )


def about_gpu(*, marlin: bool) -> tuple[str, ...]:
    """What there is to say of the GPU's kernels: nothing, where all of them are there."""
    if marlin:
        return ()
    return ("built without Marlin: for checks only, it needs more VRAM and is slower",)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def _none(why: str) -> Refused:
    return Refused(
        "there are no CPU kernels for this processor",
        why=(why,),
        next_step="python3 -m orchestrator doctor (it says what this host can run)",
        exit_code=NO_CPU_KERNELS,
    )
