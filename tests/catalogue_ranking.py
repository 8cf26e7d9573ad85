"""The whole catalogue ranked for a host, as `recommend` does it."""

from functools import lru_cache
from pathlib import Path

from orchestrator.adapters.profile_files import read_all
from orchestrator.core.advice import advise
from orchestrator.core.deriving import derived
from orchestrator.core.facts import HostFacts
from orchestrator.core.profile import Profile
from orchestrator.core.recommend import Ranked, rank

CONFIGS = Path(__file__).resolve().parents[1] / "configs"


@lru_cache(maxsize=1)
def profiles() -> tuple[Profile, ...]:
    return read_all(CONFIGS)


@lru_cache(maxsize=32)
def ranking(facts: HostFacts) -> tuple[Ranked, ...]:
    return rank(
        (
            advise(profile, (), facts, derived(profile.model), profile.model.total_bytes)
            for profile in profiles()
        ),
        facts,
    )
