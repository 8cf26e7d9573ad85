"""Every profile loads, is named as its file, and finds its lock and its model file in it."""

import hashlib
from pathlib import Path

import pytest

from orchestrator.adapters.files import known_profiles, read_lock, read_profile
from orchestrator.core.profile import FolderSource
from orchestrator.core.settings import settle

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"


@pytest.mark.parametrize("name", known_profiles(CONFIGS))
def test_a_profile_loads_and_fits_its_lock(name: str) -> None:
    profile = read_profile(CONFIGS, name)
    lock = read_lock(CONFIGS, profile)
    assert profile.model_file in {file.path for file in lock.files}
    assert settle([profile.layer()]).settings.slots == profile.serving.slots
    assert profile.serving.inference_memory_bytes >= profile.needs.memory_bytes


def test_the_profiles_are_those_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in known_profiles(CONFIGS):
        assert f"`{name}`" in readme


@pytest.mark.parametrize("name", ["demo", "demo-q5"])
def test_the_demo_locks_are_what_the_fixture_holds(name: str) -> None:
    profile = read_profile(CONFIGS, name)
    for file in read_lock(CONFIGS, profile).files:
        (source,) = profile.sources
        assert isinstance(source, FolderSource)
        content = (ROOT / source.path / file.path).read_bytes()
        assert len(content) == file.size_bytes
        assert hashlib.sha256(content).hexdigest() == file.sha256
