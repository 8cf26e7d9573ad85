"""Settings: which layer wins, and what a bad value says."""

from pathlib import Path

import pytest

from orchestrator.adapters.environment import read_layers
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.settings import Layer, Settled, settle


def settled(root: Path, flags: dict[str, object] | None = None) -> Settled:
    profile = Layer(values={"slots": 4, "threads": 1}, origins={"slots": "profile x"})
    return settle((*read_layers(root, flags or {}), profile))


def test_a_flag_beats_a_variable_beats_the_file_beats_the_profile_beats_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "appliance.toml").write_text("slots = 3\ngateway_port = 1003\nwebui_port = 1004\n")
    monkeypatch.setenv("ORCH_GATEWAY_PORT", "1005")
    monkeypatch.setenv("ORCH_WEBUI_PORT", "1006")
    found = settled(tmp_path, {"webui_port": "1007", "project": None})
    settings, origins = found.settings, found.origins
    assert (settings.webui_port, origins["webui_port"]) == (1007, "--webui-port")
    assert (settings.gateway_port, origins["gateway_port"]) == (1005, "ORCH_GATEWAY_PORT")
    assert (settings.slots, origins["slots"]) == (3, "appliance.toml")
    assert settings.threads == 1
    assert (settings.project, origins["project"]) == ("appliance", "default")


def test_the_profile_decides_where_the_operator_says_nothing(tmp_path: Path) -> None:
    found = settled(tmp_path)
    assert (found.settings.slots, found.origins["slots"]) == (4, "profile x")


@pytest.mark.parametrize(
    ("variable", "suggestion"),
    [("ORCH_GATEWAY_PROT", "gateway_port"), ("ORCH_WEIGHT_DIR", "weights_dir")],
)
def test_a_misspelt_variable_is_refused_with_a_suggestion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, suggestion: str
) -> None:
    monkeypatch.setenv(variable, "1")
    with pytest.raises(BadConfiguration) as refusal:
        settled(tmp_path)
    assert refusal.value.exit_code == 2
    assert suggestion in refusal.value.next_step
    assert variable in refusal.value.why


def test_a_misspelt_name_in_the_file_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "appliance.toml").write_text("wieghts_dir = '/data'\n")
    with pytest.raises(BadConfiguration) as refusal:
        settled(tmp_path)
    assert refusal.value.why == "it comes from appliance.toml"
    assert "weights_dir" in refusal.value.next_step


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "appliance.toml").write_text("slots == 3")
    with pytest.raises(BadConfiguration, match=r"appliance\.toml"):
        settled(tmp_path)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ORCH_GATEWAY_PORT", "70000"),
        ("ORCH_GATEWAY_PORT", "http"),
        ("ORCH_INFERENCE_CPUS", "0-"),
        ("ORCH_MODEL_NAME", "a b"),
        ("ORCH_WEIGHTS_DIR", "/data/it's"),
        ("ORCH_PROJECT", "Upper"),
        ("ORCH_BASE_DIGEST", "sha256:12"),
    ],
)
def test_an_unusable_value_names_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadConfiguration) as refusal:
        settled(tmp_path)
    assert variable in refusal.value.why
    assert value in refusal.value.why


def test_two_services_cannot_share_a_port(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="both 8080"):
        settled(tmp_path, {"webui_port": "8080"})


def test_a_context_that_no_engine_can_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"2\^31"):
        settled(tmp_path, {"context_tokens": str(2**30), "slots": "2"})
