"""Every flag that the orchestrator renders for kt-legacy is one that its program reads."""

from pathlib import Path

import pytest

import hosts
from fitting import a_profile, deepseek_r1, settings_of
from kt_legacy_engine.arguments import Arguments, parse
from orchestrator.core.kt_legacy.command import Command, arguments
from orchestrator.core.placement import place


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
