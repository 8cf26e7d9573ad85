"""Profiles as people write them: mistakes are named with line and cure, figures with their source."""

from pathlib import Path

import pytest

from orchestrator.adapters.profile_files import (
    known_profiles,
    left_out,
    profile_problems,
    read_all,
    read_profile,
)
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.schema import keys_at
from user_profiles import DEMO, SHIPPED, a_project, line_of, write


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_project(tmp_path)


def test_the_users_profiles_stand_beside_the_shipped_ones(root: Path) -> None:
    configs = root / "configs"
    assert known_profiles(configs) == ("deepseek-r1-q4km", "demo", "mine")
    assert read_profile(configs, "mine").name == "mine"
    assert [profile.name for profile in read_all(configs)] == list(known_profiles(configs))


def test_a_users_profile_can_not_silently_replace_a_shipped_one(root: Path) -> None:
    own = write(root, "demo", DEMO)
    with pytest.raises(BadConfiguration) as caught:
        read_profile(root / "configs", "demo")
    told = f"{caught.value.what} {caught.value.why} {caught.value.next_step}"
    assert str(root / "configs" / "profiles" / "demo.toml") in told
    assert str(own) in told
    assert [profile.name for profile in read_all(root / "configs")] == ["deepseek-r1-q4km", "mine"]
    (told,) = left_out(root / "configs").values()
    assert told.startswith(f"{own}: ")
    assert "rename yours" in told
    assert read_profile(root / "configs", "mine").name == "mine"


def test_a_folder_without_any_profile_is_no_catalogue_of_none(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="no profiles") as caught:
        read_all(tmp_path)
    assert "configs_dir" in caught.value.next_step


def test_an_unknown_profile_brings_a_suggestion(root: Path) -> None:
    with pytest.raises(BadConfiguration) as caught:
        read_profile(root / "configs", "deepseek-r1-q4m")
    assert caught.value.next_step == "did you mean deepseek-r1-q4km?"
    with pytest.raises(BadConfiguration) as caught:
        read_profile(root / "configs", "deep")
    assert caught.value.next_step == "did you mean deepseek-r1-q4km?"


@pytest.mark.parametrize(
    ("old", "new", "line_starts", "said"),
    [
        (
            "slots = 2",
            "slot = 2",
            "slot =",
            "serving.slot: there is no such key; did you mean 'slots'?",
        ),
        ("[needs.memory]", "[needs.memroy]", "[needs.memroy]", "did you mean 'memory'?"),
        (
            "least_bytes = 536_870_912",
            'least_bytes = "much"',
            "least_bytes",
            "needs.memory.least_bytes: ",
        ),
        (
            'path = "tests',
            'paht = "tests',
            "paht",
            "sources.0.paht: there is no such key; did you mean",
        ),
        (
            'engine = "llamacpp"',
            'engine = "vllm"',
            "engine",
            "engine: 'vllm' is none of 'llamacpp', 'kt-legacy' or 'kt-sglang'",
        ),
        ("quality = ", "quallity = ", "quallity", "did you mean 'quality'?"),
        ('name = "mine"', 'name = "yours"', "name", "it calls itself 'yours'"),
        ('source = "measured', 'source = ""#', "source", "needs.memory.source: "),
    ],
)
def test_a_mistake_is_named_with_file_line_field_and_cure(
    root: Path, old: str, new: str, line_starts: str, said: str
) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace(old, new, 1)
    path = write(root, "mine", text)
    candidates = {n for n, line in enumerate(text.splitlines(), 1) if line.startswith(line_starts)}
    problems = profile_problems(path)
    assert any(
        said in problem and int(problem.removeprefix(f"{path}:").split(":")[0]) in candidates
        for problem in problems
    ), problems


@pytest.mark.parametrize(
    ("old", "new", "line_starts", "said"),
    [
        ("rank = 1", "rank = -1", "rank", "rank: -1 is too small: at least 0"),
        ("slots = 2", "slots = 65", "slots", "serving.slots: 65 is too large: at most 64"),
        (
            "total_bytes = 12_349_824",
            'total_bytes = "12 MB"',
            "total_bytes",
            (
                "model.total_bytes: it must be a whole number without quotes (of all files that the "
                "patterns name)"
            ),
        ),
        (
            'cpu_flags = ["avx2"]',
            'cpu_flags = ["avx2"]\ncompute_capability = 8.9',
            "compute_capability",
            "needs.compute_capability: it must be a list in brackets (at the least, as [8, 9])",
        ),
        (
            'cpu_flags = ["avx2"]',
            'cpu_flags = ["avx2"]\ncompute_capability = [8]',
            "compute_capability",
            "needs.compute_capability: it must be a list of two numbers (at the least, as [8, 9])",
        ),
        (
            'quality = "recites ten answers and knows nothing else"',
            'quality = ""',
            "quality",
            "quality: it is empty (what is lost against the full model)",
        ),
        (
            'quality = "recites ten answers and knows nothing else"',
            "quality = 4",
            "quality",
            "quality: it must be text in quotes (what is lost against the full model)",
        ),
        (
            'kind = "folder"\n',
            "",
            "[[sources]]",
            (
                "sources.0.kind: it is missing: one of 'huggingface', 'modelscope', 'http', 'folder' or "
                "'wheel'"
            ),
        ),
        (
            'kind = "folder"',
            'knid = "folder"',
            "knid",
            "sources.0.knid: there is no such key; did you mean 'kind'?",
        ),
        (
            'kind = "folder"',
            'kind = "disk"',
            "kind",
            "sources.0.kind: 'disk' is none of 'huggingface', 'modelscope', 'http', 'folder' or 'wheel'",
        ),
        (
            'kind = "folder"\npath = "tests/fixtures/tinyseek"',
            'kind = "huggingface"\nrepo = "TinySeek"\npatterns = ["*"]',
            "repo",
            "sources.0.repo: 'TinySeek' is not of the form OWNER/NAME",
        ),
        (
            'kind = "folder"\npath = "tests/fixtures/tinyseek"',
            'kind = "huggingface"\nrepo = "a/b"\npatterns = []',
            "patterns",
            "sources.0.patterns: it is empty: at least one is needed",
        ),
        (
            'engine = "llamacpp"',
            'engine = "kt-legacy"',
            "engine",
            "engine: kt-legacy needs a table [kt_legacy]",
        ),
        (
            "[acceptance]",
            "[kt_legacy]\n[acceptance]",
            "[kt_legacy]",
            "kt_legacy: this table is for the engine kt-legacy, and this profile's is llamacpp",
        ),
    ],
)
def test_one_mistake_is_one_line_that_says_what_is_allowed(
    root: Path, old: str, new: str, line_starts: str, said: str
) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace(old, new, 1)
    path = write(root, "mine", text)
    assert profile_problems(path) == (f"{path}:{line_of(text, line_starts)}: {said}",)


def test_a_misspelt_key_is_not_told_again_as_a_missing_one(root: Path) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"')
    text = text.replace("[needs.memory]", "[needs.memroy]").replace("slots =", "slot =")
    path = write(root, "mine", text)
    assert profile_problems(path) == (
        f"{path}:{line_of(text, 'slot =')}: serving.slot: there is no such key; did you mean 'slots'?",
        (
            f"{path}:{line_of(text, '[needs.memroy]')}: needs.memroy: there is no such key; "
            "did you mean 'memory'?"
        ),
    )


def test_what_is_missing_in_one_table_is_told_in_one_line_and_lines_come_in_order(
    root: Path,
) -> None:
    path = write(root, "mine", 'name = "mine"\nrank = -1\n\n[serving]\nslots = 2\n')
    assert profile_problems(path) == (
        (
            f"{path}: missing: summary, engine, route, status, quality, model, model_file, sources, needs, "
            "acceptance"
        ),
        f"{path}:2: rank: -1 is too small: at least 0",
        f"{path}:4: serving: missing: context_tokens, max_tokens, load_timeout_s",
    )


# 319 GB of files, and the RAM of the profile that it was copied from: 249.1 GB.
COPIED = (SHIPPED / "deepseek-r1-ud-q2kxl.toml").read_text(encoding="utf-8")
COPIED = COPIED.replace('name = "deepseek-r1-ud-q2kxl"', 'name = "mine"').replace(
    "total_bytes = 227_633_266_688", "total_bytes = 319_000_000_000"
)


def test_ram_that_is_less_than_the_files_is_a_mistake_where_the_engine_holds_them_in_ram(
    root: Path,
) -> None:
    path = write(root, "mine", COPIED)
    table = COPIED.index("[needs.memory]")
    line = COPIED[:table].count("\n") + line_of(COPIED[table:], "least_bytes")
    assert profile_problems(path) == (
        (
            f"{path}:{line}: needs.memory.least_bytes: 249,101,470,208 is too little for the 319,000,000,000 of "
            "model.total_bytes: llamacpp holds all files in RAM, so at least 319,000,000,000"
        ),
    )


def test_ram_and_vram_together_hold_what_kt_legacy_reads(root: Path) -> None:
    text = (SHIPPED / "deepseek-r1-q4km.toml").read_text(encoding="utf-8")
    text = text.replace('name = "deepseek-r1-q4km"', 'name = "mine"').replace(
        "total_bytes = 404_430_187_616", "total_bytes = 713_000_000_000"
    )
    (problem,) = profile_problems(write(root, "mine", text))
    # 95 % of 713 GB less the 14 GB of VRAM: what lies on the card takes less there than in the file.
    assert "needs.memory.least_bytes: 382,000,000,000" in problem
    assert "at least 663,350,000,000" in problem


def test_a_missing_field_is_told_with_the_line_of_its_table(root: Path) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace("max_tokens = 1024\n", "")
    path = write(root, "mine", text)
    assert profile_problems(path) == (
        f"{path}:{line_of(text, '[serving]')}: serving: missing: max_tokens",
    )


def test_text_in_a_string_is_not_taken_for_a_key(root: Path) -> None:
    text = DEMO.replace('name = "demo"', 'name = "mine"').replace(
        "rank = 1", 'rnk = 1\nrank = 1\nnote = """\nrnk = 2\n"""'
    )
    path = write(root, "mine", text)
    assert f"{path}:{line_of(text, 'rnk')}: rnk: there is no such key; did you mean 'rank'?" in (
        profile_problems(path)
    )


def test_what_is_no_toml_is_told_with_its_line(root: Path) -> None:
    path = write(root, "mine", 'name = "mine"\nrank = \n')
    (problem,) = profile_problems(path)
    assert "line 2" in problem
    assert str(path) in problem


def test_a_profile_saved_on_windows_is_read_as_any_other(root: Path) -> None:
    shipped = root / "configs" / "profiles" / "demo.toml"
    text = shipped.read_text(encoding="utf-8").replace("\n", "\r\n")
    shipped.write_bytes(f"\ufeff{text}".encode())
    assert read_profile(root / "configs", "demo").name == "demo"


def test_a_file_that_is_not_text_is_told_without_a_traceback(root: Path) -> None:
    path = root / "configs" / "profiles.d" / "mine.toml"
    path.write_bytes(b"\xff\xfe")
    (problem,) = profile_problems(path)
    assert problem.startswith(f"{path}: can't be read")
    with pytest.raises(BadConfiguration, match="mine"):
        read_profile(root / "configs", "mine")


def test_every_place_knows_its_own_keys() -> None:
    assert {"name", "engine", "sources"} <= keys_at(())
    assert {"repo", "patterns", "url", "path"} <= keys_at(("sources", 0))
    assert keys_at(("needs", "vram")) == {"least_bytes", "recommended_bytes", "source"}
    assert keys_at(("nothing", "here")) == frozenset()


EXPERTS = (SHIPPED / "qwen3-30b-a3b-bf16.toml").read_text(encoding="utf-8")
DENSE = (SHIPPED / "deepseek-r1-distill-7b-gpu.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "old", "new", "said"),
    [
        (EXPERTS, 'method = "BF16"\n', "", "kt_sglang.method: it is missing"),
        (EXPERTS, "active_parameters = 3_300_000_000\n", "", "it is for models of experts"),
        (DENSE, "[kt_sglang]", '[kt_sglang]\nmethod = "BF16"', "it is for models of experts"),
        (
            DENSE,
            "[kt_sglang]",
            "[kt_sglang]\ndeferred_experts_per_token = 2",
            "kt_sglang.deferred_experts_per_token: 2, and the model has no experts",
        ),
        (
            DENSE,
            "[kt_sglang]",
            "[kt_sglang]\ngpu_prefill_token_threshold = 400",
            "kt_sglang.gpu_prefill_token_threshold: 400, and the model has no experts",
        ),
        (
            DENSE,
            "slots = 4",
            "slots = 4\ngpu_experts = 1",
            "serving.gpu_experts: 1, and the model has no experts",
        ),
    ],
)
def test_options_of_experts_go_with_models_of_experts_alone(
    root: Path, text: str, old: str, new: str, said: str
) -> None:
    assert old in text
    name = next(line for line in text.splitlines() if line.startswith("name = "))
    own = text.replace(name, 'name = "mine"').replace(old, new, 1)
    (problem,) = profile_problems(write(root, "mine", own))
    assert said in problem
