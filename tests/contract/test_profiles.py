"""Every shipped profile says what it must, on somebody's word, and picks the files it means."""

import hashlib
import re
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from orchestrator.adapters.files import find_lock, read_lock
from orchestrator.adapters.profile_files import (
    profile_paths,
    profile_problems,
    read_all,
    read_profile,
)
from orchestrator.core.gateway_table import GatewayTable
from orchestrator.core.profile import (
    Engine,
    FolderSource,
    HuggingFaceSource,
    ModelScopeSource,
    Profile,
    Route,
    Status,
)
from orchestrator.core.schema import schema_text
from orchestrator.core.settings import settle
from published import R1_Q4_K_M

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"

SHIPPED = tuple(path for path in profile_paths(CONFIGS) if path.parent.name == "profiles")
PROFILES = tuple(read_profile(CONFIGS, path.stem) for path in SHIPPED)
every_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)


def shards(folder: str, name: str, count: int) -> list[str]:
    prefix = f"{folder}/" if folder else ""
    return [f"{prefix}{name}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]


# Names as the repositories have published them. R1's once held a stray shard of R1-Zero, and
# V3-0324's the last shard of an earlier split.
R1_FILES = [
    "README.md",
    "config.json",
    *shards("DeepSeek-R1-Q2_K", "DeepSeek-R1-Q2_K", 5),
    *shards("DeepSeek-R1-Q2_K_L", "DeepSeek-R1-Q2_K_L", 5),
    *shards("DeepSeek-R1-Q4_K_M", "DeepSeek-R1-Q4_K_M", 9),
    "DeepSeek-R1-Q4_K_M/DeepSeek-R1-Zero-Q4_K_M-00003-of-00009.gguf",
    *shards("DeepSeek-R1-Q8_0", "DeepSeek-R1.Q8_0", 15),
    *shards("DeepSeek-R1-UD-IQ1_M", "DeepSeek-R1-UD-IQ1_M", 4),
    *shards("DeepSeek-R1-UD-IQ1_S", "DeepSeek-R1-UD-IQ1_S", 3),
    *shards("DeepSeek-R1-UD-IQ2_XXS", "DeepSeek-R1-UD-IQ2_XXS", 4),
    *shards("DeepSeek-R1-UD-Q2_K_XL", "DeepSeek-R1-UD-Q2_K_XL", 5),
]
V3_FILES = [
    "README.md",
    *shards("Q4_K_M", "DeepSeek-V3-0324-Q4_K_M", 9),
    *shards("UD-Q2_K_XL", "DeepSeek-V3-0324-UD-Q2_K_XL", 6),
    "UD-Q2_K_XL/DeepSeek-V3-0324-UD-Q2_K_XL-00005-of-00005.gguf",
    *shards("UD-Q4_K_XL", "DeepSeek-V3-0324-UD-Q4_K_XL", 9),
]
DISTILL_FILES = [
    "README.md",
    "DeepSeek-R1-Distill-Llama-70B-Q2_K.gguf",
    "DeepSeek-R1-Distill-Llama-70B-Q4_K_M.gguf",
    "DeepSeek-R1-Distill-Llama-70B-Q5_K_M.gguf",
    *shards("DeepSeek-R1-Distill-Llama-70B-Q6_K", "DeepSeek-R1-Distill-Llama-70B-Q6_K", 2),
]
QWEN_FILES = [
    ".gitattributes",
    "LICENSE",
    "README.md",
    "config.json",
    "generation_config.json",
    "merges.txt",
    *(f"model-{number:05}-of-00016.safetensors" for number in range(1, 17)),
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
]


def test_the_published_schema_is_the_codes() -> None:
    assert (CONFIGS / "profile.schema.json").read_text(encoding="utf-8") == schema_text()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_profile_has_no_problem_and_tells_editors_its_schema(path: Path) -> None:
    assert profile_problems(path) == ()
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == "#:schema ../profile.schema.json"
    assert path.stem == read_profile(CONFIGS, path.stem).name


def templates(path: Path) -> list[str]:
    blocks = re.findall(r"```toml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [block for block in blocks if 'name = "my-14b"' in block]


def test_the_template_for_own_profiles_is_valid_and_the_same_in_both_places(tmp_path: Path) -> None:
    (documented,) = templates(ROOT / "docs" / "profiles.md")
    (beside,) = templates(CONFIGS / "profiles.d" / "README.md")
    assert documented == beside
    path = tmp_path / "my-14b.toml"
    path.write_text(documented, encoding="utf-8")
    assert profile_problems(path) == ()
    own = tomllib.loads(documented)
    # Its own formula: files, 2 slots x 8192 tokens x 48 layers x 2 x 8 heads x 128 x 2 bytes, 1 GB.
    cache = 2 * 8192 * 48 * 2 * 8 * 128 * 2
    assert own["needs"]["memory"]["least_bytes"] == own["model"]["total_bytes"] + cache + 10**9


@every_profile
def test_every_figure_has_its_source(profile: Profile) -> None:
    needs = profile.needs
    figures = [figure for figure in (needs.memory, needs.vram) if figure]
    sources = [profile.model.source, needs.source, *(figure.source for figure in figures)]
    assert all(len(source.split()) > 1 or "/" in source for source in sources)
    for figure in figures:
        assert figure.least_bytes <= (figure.recommended_bytes or figure.least_bytes)


@every_profile
def test_what_is_computed_adds_up_to_the_figure_it_explains(profile: Profile) -> None:
    """The source of a computed figure is a sum that a person can check: files, KV cache, program."""
    source = profile.needs.memory.source
    if "KV cache" not in source:
        return
    found = re.search(
        r"files? ([\d.]+) GB, KV cache .*? tokens ([\d.]+) GB .*, (\d) GB for", source
    )
    assert found
    assert sum(map(float, found.groups())) == pytest.approx(
        profile.needs.memory.least_bytes / 1e9, abs=0.11
    )


def test_the_flagship_is_the_sum_of_its_nine_published_shards() -> None:
    flagship = read_profile(CONFIGS, "deepseek-r1-q4km")
    assert flagship.model.total_bytes == sum(R1_Q4_K_M) == 404_430_187_616
    assert flagship.model.files == len(R1_Q4_K_M)
    assert flagship.needs.memory.least_bytes == 382_000_000_000
    assert flagship.needs.memory.recommended_bytes == 480_000_000_000
    assert flagship.needs.vram
    assert flagship.needs.vram.least_bytes == 14_000_000_000
    assert flagship.needs.cpu_flags == {"avx2"}


def test_no_two_profiles_claim_one_place_in_the_ranking() -> None:
    places = Counter((profile.route, profile.status, profile.rank) for profile in PROFILES)
    assert [place for place, count in places.items() if count > 1] == []


def test_the_flagship_is_the_first_full_model_and_test_models_come_last() -> None:
    full = [p for p in PROFILES if p.route is Route.FULL and p.status is Status.DOCUMENTED]
    assert min(full, key=lambda profile: profile.rank).name == "deepseek-r1-q4km"
    assert list(Route)[-2:] == [Route.SMALL, Route.TEST]
    assert {p.name for p in PROFILES if p.route is Route.TEST} == {"demo", "demo-q5", "demo-gpu"}
    assert {p.name for p in PROFILES if p.route is Route.SMALL} == {"smollm2-135m"}


@pytest.mark.parametrize(
    ("name", "published", "meant"),
    [
        ("deepseek-r1-q4km", R1_FILES, shards("DeepSeek-R1-Q4_K_M", "DeepSeek-R1-Q4_K_M", 9)),
        ("deepseek-r1-q4km-2gpu", R1_FILES, shards("DeepSeek-R1-Q4_K_M", "DeepSeek-R1-Q4_K_M", 9)),
        (
            "deepseek-r1-ud-q2kxl",
            R1_FILES,
            shards("DeepSeek-R1-UD-Q2_K_XL", "DeepSeek-R1-UD-Q2_K_XL", 5),
        ),
        (
            "deepseek-r1-ud-iq1m",
            R1_FILES,
            shards("DeepSeek-R1-UD-IQ1_M", "DeepSeek-R1-UD-IQ1_M", 4),
        ),
        (
            "deepseek-r1-ud-iq1s",
            R1_FILES,
            shards("DeepSeek-R1-UD-IQ1_S", "DeepSeek-R1-UD-IQ1_S", 3),
        ),
        ("deepseek-v3-0324-q4km", V3_FILES, shards("Q4_K_M", "DeepSeek-V3-0324-Q4_K_M", 9)),
        (
            "deepseek-v3-0324-ud-q2kxl",
            V3_FILES,
            shards("UD-Q2_K_XL", "DeepSeek-V3-0324-UD-Q2_K_XL", 6),
        ),
        (
            "deepseek-r1-distill-70b",
            DISTILL_FILES,
            ["DeepSeek-R1-Distill-Llama-70B-Q4_K_M.gguf"],
        ),
        (
            "qwen3-30b-a3b-bf16",
            QWEN_FILES,
            [name for name in QWEN_FILES if not re.match(r"\.|LICENSE|README", name)],
        ),
    ],
)
def test_patterns_pick_what_is_meant_and_nothing_else(
    name: str, published: list[str], meant: list[str]
) -> None:
    profile = read_profile(CONFIGS, name)
    for source in profile.sources:
        assert isinstance(source, HuggingFaceSource | ModelScopeSource)
        picked = [f for f in published if any(fnmatchcase(f, p) for p in source.patterns)]
        assert sorted(picked) == sorted(meant)
    assert profile.model_file in meant
    assert profile.model.files in {None, len(meant)}


@every_profile
def test_a_profile_fits_its_lock_and_the_settings(profile: Profile) -> None:
    settings = settle([profile.layer()]).settings
    assert settings.slots == profile.serving.slots
    assert settings.max_tokens == profile.serving.max_tokens
    if lock := find_lock(CONFIGS, profile):
        assert profile.model_file in {file.path for file in lock.files}
        assert profile.model.total_bytes == lock.total_bytes
        assert profile.model.files == len(lock.files)
    else:
        hubs = [s for s in profile.sources if isinstance(s, HuggingFaceSource | ModelScopeSource)]
        assert hubs, "nothing can make its lock"


@every_profile
def test_context_slots_and_replies_are_of_a_sane_size(profile: Profile) -> None:
    serving = profile.serving
    assert serving.max_tokens <= serving.context_tokens // 2 or profile.route is Route.TEST
    assert serving.context_tokens * serving.slots <= 131_072
    assert profile.acceptance.max_tokens <= serving.max_tokens
    assert serving.first_token_timeout_s <= serving.total_timeout_s
    # A disk of 200 MB/s, the slowest that upstream's users report, has to be enough.
    assert serving.load_timeout_s >= profile.model.total_bytes / 200e6


@every_profile
def test_what_needs_a_gpu_says_which(profile: Profile) -> None:
    needs, on_gpu = profile.needs, profile.engine is not Engine.LLAMACPP
    for stated in (needs.gpus, needs.vram):
        assert bool(stated) is on_gpu
    for version in (needs.compute_capability, needs.driver_cuda):
        assert bool(version) is (on_gpu or profile.may_use_gpu)
    assert "avx2" in needs.cpu_flags or "avx512f" in needs.cpu_flags


@every_profile
def test_kt_legacy_serves_one_at_a_time_and_keeps_room_for_the_reply(profile: Profile) -> None:
    """KTransformers 0.2.1 has a lock inside; `cache_lens > batch x max_new_tokens` is its rule."""
    if profile.engine is Engine.KT_LEGACY:
        assert profile.serving.slots == 1
        assert profile.serving.context_tokens > profile.serving.max_tokens
        assert profile.needs.driver_cuda == (13, 0)
        assert profile.needs.compute_capability == (8, 0)


NATIVE = {"RAWINT4", "FP8", "BF16", "FP8_PERCHANNEL", "GPTQ_INT4", "MXFP4", "MXFP8"}


@every_profile
def test_kt_sglang_options_obey_the_engine(profile: Profile) -> None:
    options = profile.kt_sglang
    if options is None:
        return
    # What the compiler in the image is of, and the oldest card of the wheels' kernels.
    assert profile.needs.driver_cuda == (13, 0)
    assert (profile.needs.compute_capability or (0, 0)) >= (8, 0)
    if options.method is None:
        return
    # The whole-layer prefill exists for native formats only, and AMX kernels for AMX alone.
    assert options.gpu_prefill_token_threshold == 0 or options.method in NATIVE
    if options.method.startswith("AMX"):
        assert {"amx_tile", "amx_int8", "amx_bf16"} <= profile.needs.cpu_flags
    # FP8 weights on a GPU: `fp8e4nv not supported` below 8.9.
    if "FP8" in options.method or profile.model.quantisation == "FP8":
        assert (profile.needs.compute_capability or (0, 0)) >= (8, 9)
    # A GGUF is only the CPU's part: the GPU's has to come from somewhere.
    if options.method == "LLAMAFILE":
        assert profile.model.also_needs
        assert profile.model_file.endswith(".gguf")


def test_the_documentation_lists_every_profile_with_its_size() -> None:
    page = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    for profile in PROFILES:
        row = re.search(rf"^\| `{re.escape(profile.name)}` \|(.+)$", page, re.MULTILINE)
        assert row, profile.name
        assert profile.status.value in row[1]
        assert profile.engine.value in row[1]
        disk_gb = float(row[1].split("|")[1])
        assert disk_gb == pytest.approx(profile.model.total_bytes / 1e9, abs=0.051)


def test_the_documentation_names_every_field_of_the_gateways_table() -> None:
    text = (ROOT / "docs/profiles.md").read_text(encoding="utf-8")
    row = next((line for line in text.splitlines() if line.startswith("| `gateway.*`")), "")
    assert not [name for name in GatewayTable.model_fields if f"`{name}`" not in row]


def test_all_profiles_can_be_read_together() -> None:
    assert {profile.name for profile in read_all(CONFIGS)} >= {path.stem for path in SHIPPED}


@pytest.mark.parametrize("name", ["demo", "demo-q5", "demo-gpu"])
def test_the_demo_locks_are_what_the_fixture_holds(name: str) -> None:
    profile = read_profile(CONFIGS, name)
    for file in read_lock(CONFIGS, profile).files:
        (source,) = profile.sources
        assert isinstance(source, FolderSource)
        content = (ROOT / source.path / file.path).read_bytes()
        assert len(content) == file.size_bytes
        assert hashlib.sha256(content).hexdigest() == file.sha256
