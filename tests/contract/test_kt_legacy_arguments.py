"""Every flag that the orchestrator renders for kt-legacy is one that its program reads."""

from collections.abc import Callable
from pathlib import Path

import pytest

import hosts
from fitting import ROOT, a_profile, deepseek_r1, settings_of
from kt_legacy_engine.arguments import Arguments, _parser, parse
from kt_legacy_engine.refusals import Refused
from orchestrator.adapters.profile_files import read_all
from orchestrator.core.argument_lint import problems
from orchestrator.core.facts import HostFacts
from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.placement import place
from orchestrator.core.profile import Engine, Profile


@pytest.mark.parametrize("numa_copies", [True, False])
def test_the_program_reads_what_is_rendered(numa_copies: bool) -> None:
    command = Command(
        model_dir="hf",
        gguf_dir="Q4_K_M",
        rules_file="/placement/rules.yaml",
        threads=1,
        context_tokens=4096,
        max_tokens=512,
        chunk_tokens=128,
        cpu_variant="avx2",
        numa_copies=numa_copies,
    )
    assert parse(arguments(command)) == Arguments(
        model_path=Path("hf"),
        gguf_path=Path("Q4_K_M"),
        optimize_config_path=Path("/placement/rules.yaml"),
        cpu_infer=2,
        cache_lens=4096,
        max_new_tokens=512,
        chunk_size=128,
        cpu_variant="avx2",
        numa_copies=numa_copies,
    )


PROFILES = [p for p in read_all(ROOT / "configs") if p.engine is Engine.KT_LEGACY]
# Said by whoever starts it, and by nobody else: the folder of a configuration of its own.
NOT_RENDERED = {"--model_path"}


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
@pytest.mark.parametrize("host", hosts.ALL, ids=lambda host: host.__name__)
def test_the_program_reads_what_is_planned_on_any_host(
    profile: Profile, host: Callable[[], HostFacts]
) -> None:
    placement = place(profile, settings_of(profile), host(), None)
    assert parse(placement.arguments).cpu_infer == placement.threads + 1


def test_every_flag_of_the_program_is_rendered_or_left_out_on_purpose() -> None:
    profile = a_profile("deepseek-r1-q4km")
    settings = settings_of(profile, memory_policy="replicate")
    rendered = place(profile, settings, hosts.rtx4090_480gb_two_sockets(), deepseek_r1())
    flags = {word for word in rendered.arguments if word.startswith("--")}
    known = {flag for action in _parser()._actions for flag in action.option_strings}
    assert known - {"-h", "--help"} - flags == NOT_RENDERED


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--cpu_infer", "1"),
        ("--cache_lens", "0"),
        ("--max_new_tokens", "9000"),
        ("--chunk_size", "0"),
        ("--gguf_path", None),
        ("--optimize_config_path", None),
        ("--cpu_infer", None),
        ("--cache_lens", None),
        ("--max_new_tokens", None),
    ],
)
def test_what_the_program_refuses_the_lint_names_before(flag: str, value: str | None) -> None:
    profile, facts = a_profile("deepseek-r1-q4km"), hosts.rtx4090_480gb_two_sockets()
    placement = place(profile, settings_of(profile), facts, deepseek_r1())
    at = placement.arguments.index(flag)
    given = () if value is None else (flag, value)
    arguments = (*placement.arguments[:at], *given, *placement.arguments[at + 2 :])
    with pytest.raises(Refused):
        parse(arguments)
    assert list(problems(Engine.KT_LEGACY, arguments, placement, facts))


@pytest.mark.parametrize("name", ["deepseek-r1-q4km", "deepseek-v3.1-q4km", "demo-gpu"])
@pytest.mark.parametrize("policy", ["", "replicate", "interleave"])
def test_the_program_reads_what_is_planned_for_a_profile(name: str, policy: str) -> None:
    profile = a_profile(name)
    settings = settings_of(profile, memory_policy=policy)
    placement = place(profile, settings, hosts.rtx4090_480gb_two_sockets(), deepseek_r1())
    found = parse(placement.arguments)
    assert found.model_path is None
    assert found.gguf_path == Path(profile.model_file).parent
    assert found.optimize_config_path == Path("/placement/single-gpu.yaml")
    assert found.cpu_infer == placement.threads + 1
    assert found.cache_lens == settings.context_tokens
    assert found.numa_copies == (policy == "replicate")
