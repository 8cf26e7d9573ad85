"""The commands about profiles: which there are, what one says and on whose word, and is it right?"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from orchestrator.adapters import profile_files
from orchestrator.adapters.profile_files import OWN
from orchestrator.choosing import warn_of_left_out
from orchestrator.commands import Typed, print_json
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.profile import (
    Figure,
    FolderSource,
    HttpSource,
    HuggingFaceSource,
    ModelScopeSource,
    Profile,
    ProfileSource,
    Route,
    WheelSource,
)
from orchestrator.place import Place, settings_without_profile

WIDTH = 80
LABEL = 12
ROW = "{:<27} {:<10}{:>7}{:>7}{:>7}  {}"
UNKNOWN = "-"


def list_profiles(typed: Typed) -> int:
    place = _place(typed)
    warn_of_left_out(place)
    profiles = profile_files.read_all(place.configs)
    if typed.as_json:
        print_json({"profiles": [_record(profile, place) for profile in profiles]}, indent=2)
        return 0
    for line in _table(profiles, place):
        print(line)
    return 0


def _place(typed: Typed) -> Place:
    return settings_without_profile(typed.root, typed.flags)[2]


def _record(profile: Profile, place: Place) -> dict[str, Any]:
    path = profile_files.profile_path(place.configs, profile.name)
    return {"file": str(path), **profile.model_dump(mode="json")}


def _table(profiles: Sequence[Profile], place: Place) -> Iterator[str]:
    yield ROW.format("", "", "disk", "RAM", "VRAM", "").rstrip()
    yield ROW.format("profile", "engine", "GB", "GB", "GB", "status")
    for route in Route:
        on_it = sorted((p for p in profiles if p.route is route), key=_merit)
        if on_it:
            yield f"\n{route.value}"
        for profile in on_it:
            yield _row(profile, place).rstrip()
    yield "\nRAM and VRAM at the least. More: python3 -m orchestrator profiles show NAME"


def _merit(profile: Profile) -> tuple[int, int, str]:
    return list(type(profile.status)).index(profile.status), profile.rank, profile.name


def _row(profile: Profile, place: Place) -> str:
    vram = profile.needs.vram
    own = profile_files.profile_path(place.configs, profile.name).parent.name == OWN
    return ROW.format(
        profile.name,
        profile.engine.value,
        _gb(profile.model.total_bytes),
        _gb(profile.needs.memory.least_bytes),
        _gb(vram.least_bytes) if vram else UNKNOWN,
        profile.status.value.split()[0] + (", yours" if own else ""),
    )


def _gb(size_bytes: int) -> str:
    gb = size_bytes / 1e9
    return f"{gb:.1f}" if gb >= 100 else f"{gb:.2f}"  # noqa: PLR2004 - as many digits as matter


def show_profile(typed: Typed, name: str) -> int:
    place = _place(typed)
    profile = profile_files.read_profile(place.configs, name)
    if typed.as_json:
        print_json(_record(profile, place), indent=2)
        return 0
    print("\n".join(wrap(f"{profile.name}: {profile.summary}", WIDTH)) + "\n")
    path = profile_files.profile_path(place.configs, name)
    where = path.relative_to(typed.root) if path.is_relative_to(typed.root) else path
    for label, text in _facts(profile, where):
        print(_paragraph(label, text))
    return 0


def _paragraph(label: str, text: str) -> str:
    indent = " " * LABEL
    start = f"{label:<{LABEL}}"
    lines = wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return "\n".join(lines)


def _facts(profile: Profile, path: Path) -> Iterator[tuple[str, str]]:
    model, serving, needs = profile.model, profile.serving, profile.needs
    yield "file", str(path)
    yield "route", f"{profile.route.value}; {profile.status.value}; rank {profile.rank}"
    yield "quality", profile.quality
    yield "engine", profile.engine.value
    yield from _options(profile)
    yield "", ""
    active = f", {model.active_parameters:,} of them for a token" if model.active_parameters else ""
    yield "model", f"{model.family}, {model.architecture}, {model.quantisation}"
    yield "", f"{model.parameters:,} parameters{active}"
    files = f" in {model.files} file(s)" if model.files else ""
    yield "disk", f"{_exactly(model.total_bytes)}{files}"
    yield "", f"source: {model.source}"
    if model.also_needs:
        yield "also needs", model.also_needs
    for source in profile.sources:
        yield "from", _in_words(source)
    yield "", ""
    yield from _figure("RAM", needs.memory)
    if needs.vram:
        yield from _figure("VRAM", needs.vram)
    yield "hardware", _hardware(profile)
    yield "", f"source: {needs.source}"
    yield "", ""
    yield (
        "serves",
        (
            f"{serving.slots} request(s) at once, context of {serving.context_tokens} tokens each, "
            f"replies of up to {serving.max_tokens}"
        ),
    )
    yield (
        "patience",
        (
            f"start {serving.load_timeout_s} s, first token {serving.first_token_timeout_s} s, "
            f"between tokens {serving.idle_timeout_s} s, reply {serving.total_timeout_s} s"
        ),
    )
    yield "proof", f"{profile.acceptance.prompt!r} must bring {profile.acceptance.contains!r}"


def _options(profile: Profile) -> Iterator[tuple[str, str]]:
    options = profile.kt_legacy or profile.kt_sglang
    if options:
        said = {key: value for key, value in options.model_dump().items() if value not in {"", 0}}
        yield "", ", ".join(f"{key} {value}" for key, value in said.items())


def _figure(name: str, figure: Figure) -> Iterator[tuple[str, str]]:
    yield name, f"at least {_exactly(figure.least_bytes)}"
    if figure.recommended_bytes:
        yield "", f"recommended {_exactly(figure.recommended_bytes)}"
    yield "", f"source: {figure.source}"


def _exactly(size_bytes: int) -> str:
    if size_bytes < 10**8:
        return f"{size_bytes / 1e6:.1f} MB ({size_bytes:,} bytes)"
    return f"{_gb(size_bytes)} GB = {size_bytes / 2**30:.2f} GiB ({size_bytes:,} bytes)"


def _hardware(profile: Profile) -> str:
    needs = profile.needs
    said = [f"CPU with {', '.join(sorted(needs.cpu_flags))}"] if needs.cpu_flags else []
    if needs.gpus:
        said.append(f"{needs.gpus} NVIDIA card(s)")
    if needs.compute_capability:
        said.append("compute capability {}.{} or higher".format(*needs.compute_capability))
    if needs.driver_cuda:
        said.append("a driver for CUDA {}.{} or newer".format(*needs.driver_cuda))
    return ", ".join(said) or "any"


def _in_words(source: ProfileSource) -> str:
    match source:
        case HuggingFaceSource() | ModelScopeSource():
            return f"{source.kind} {source.repo}@{source.revision}: {', '.join(source.patterns)}"
        case HttpSource():
            return f"{source.url}: {', '.join(source.patterns)}"
        case FolderSource():
            return f"the folder {source.path}"
        case WheelSource():
            return f"the wheel {source.package} {source.version}: {source.member}"


def validate_profiles(typed: Typed, names_or_paths: Sequence[str]) -> int:
    """Everything that is wrong, at once. Exit code 2 where anything is."""
    place = _place(typed)
    problems = {
        str(path): profile_files.profile_problems(path)
        for path in _chosen(place.configs, names_or_paths)
    }
    shadows = tuple(_shadows(place.configs))
    found = [problem for several in problems.values() for problem in several] + list(shadows)
    if typed.as_json:
        print_json({"valid": not found, "files": list(problems), "problems": found}, indent=2)
    else:
        for problem in found:
            print(problem)
        print(f"{len(problems)} profile(s) read, {len(found)} problem(s).")
    return BadConfiguration.exit_code if found else 0


def _chosen(configs: Path, names_or_paths: Sequence[str]) -> tuple[Path, ...]:
    if not names_or_paths:
        return profile_files.profile_paths(configs)
    return tuple(
        Path(given)
        if "/" in given or given.endswith(".toml")
        else profile_files.profile_path(configs, given)
        for given in names_or_paths
    )


def _shadows(configs: Path) -> Iterator[str]:
    for name in profile_files.known_profiles(configs):
        try:
            profile_files.profile_path(configs, name)
        except BadConfiguration as error:
            yield f"{error.what}: {error.why}"
