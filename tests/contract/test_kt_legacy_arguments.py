"""Every flag that the orchestrator renders for kt-legacy is one that its program reads."""

from pathlib import Path

import pytest

from kt_legacy_engine.arguments import Arguments, parse
from orchestrator.core.kt_legacy.command import Command, arguments


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
