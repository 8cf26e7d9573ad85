"""Profiles and inventories to fit into hosts: TinySeek's from its files, DeepSeek-R1's as derived."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.deriving import derived
from orchestrator.core.inventory import Inventory, Weight, inventory_of
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Settings, settle
from wire.gguf import read_header

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TINYSEEK = ROOT / "tests" / "fixtures" / "tinyseek"


def a_profile(name: str, **changes: Any) -> Profile:
    text = (ROOT / "configs" / "profiles" / f"{name}.toml").read_text(encoding="utf-8")
    return Profile.model_validate(tomllib.loads(text) | changes)


def settings_of(profile: Profile, **chosen: Any) -> Settings:
    """The profile's own, under what an operator chose."""
    settings = settle((profile.layer(),)).settings
    return Settings.model_validate(settings.model_dump() | chosen)


def tinyseek(quantisation: str = "Q4_K_M") -> Inventory:
    headers = {}
    for path in sorted((TINYSEEK / quantisation).glob("*.gguf")):
        with path.open("rb") as file:
            headers[path.name] = (read_header(file), path.stat().st_size)
    return inventory_of(headers)


def deepseek_r1_newer() -> Inventory:
    """As the uploads since R1-0528 have it: keys and values apart, of the same size together."""
    older, (heads, length, cached) = deepseek_r1(), (128, 128, 512)
    weights: list[Weight] = []
    for weight in older.weights:
        if not weight.name.endswith("attn_kv_b.weight"):
            weights.append(weight)
            continue
        for part, shape in (
            ("attn_k_b", (length, cached, heads)),
            ("attn_v_b", (cached, length, heads)),
        ):
            name, half = weight.name.replace("attn_kv_b", part), weight.size_bytes // 2
            weights.append(replace(weight, name=name, shape=shape, size_bytes=half))
    return replace(older, weights=tuple(weights))


def deepseek_r1() -> Inventory:
    found = derived(a_profile("deepseek-r1-q4km").model)
    assert found is not None
    return found
