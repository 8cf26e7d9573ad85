"""Settings: which layer wins, and what a bad value says."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator.adapters.environment import read_layers, read_proxies
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.settings import Layer, Settings, Settled, settle


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


def test_a_file_saved_on_windows_is_read_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "appliance.toml").write_bytes(b"\xef\xbb\xbfslots = 3\r\nthreads = 2\r\n")
    settings = settled(tmp_path).settings
    assert (settings.slots, settings.threads) == (3, 2)


def test_a_file_that_is_not_toml_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "appliance.toml").write_text("slots == 3")
    with pytest.raises(BadConfiguration, match=r"appliance\.toml"):
        settled(tmp_path)
    (tmp_path / "appliance.toml").unlink()
    (tmp_path / "appliance.toml").mkdir()
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


@pytest.mark.parametrize(
    ("text", "bytes_a_second"), [("20M", 20_000_000), ("500k", 500_000), ("1G", 10**9), ("7", 7)]
)
def test_a_rate_is_in_bytes_a_second(tmp_path: Path, text: str, bytes_a_second: int) -> None:
    assert settled(tmp_path, {"limit_rate": text}).settings.limit_rate == bytes_a_second


@pytest.mark.parametrize("text", ["20 MB", "0", "-1", "fast"])
def test_a_rate_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadConfiguration, match="--limit-rate"):
        settled(tmp_path, {"limit_rate": text})


def test_hubs_are_those_of_the_one_file_unless_a_variable_names_a_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.delenv("MODELSCOPE_ENDPOINT", raising=False)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "endpoints.env").write_text(
        "# why\nHF_ENDPOINT=https://hub.example\nMODELSCOPE_ENDPOINT=https://ms.example/\n"
    )
    found = settled(tmp_path)
    assert found.settings.hf_endpoint == "https://hub.example"
    assert found.settings.modelscope_endpoint == "https://ms.example"
    assert found.origins["hf_endpoint"] == "configs/endpoints.env"
    monkeypatch.setenv("HF_ENDPOINT", "https://mirror.example")
    assert settled(tmp_path).settings.hf_endpoint == "https://mirror.example"
    monkeypatch.setenv("ORCH_HF_ENDPOINT", "https://nearer.example")
    found = settled(tmp_path)
    assert found.settings.hf_endpoint == "https://nearer.example"
    assert found.origins["hf_endpoint"] == "ORCH_HF_ENDPOINT"


def test_proxies_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    assert read_proxies() == {}
    monkeypatch.setenv("https_proxy", "http://a:1")
    monkeypatch.setenv("ALL_PROXY", "http://b:2")
    monkeypatch.setenv("NO_PROXY", "localhost,10.0.0.0/8")
    assert read_proxies() == {
        "http": "http://b:2",
        "https": "http://a:1",
        "no": "localhost,10.0.0.0/8",
    }


def test_two_services_cannot_share_a_port(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match="both 8080"):
        settled(tmp_path, {"webui_port": "8080"})


def test_a_context_that_no_engine_can_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"2\^31"):
        settled(tmp_path, {"context_tokens": str(2**30), "slots": "2"})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("zh_CN", "zh"),
        ("zh-CN", "zh"),
        ("zh_CN.UTF-8", "zh"),
        ("ZH", "zh"),
        ("en_US", "en"),
        ("", ""),
    ],
)
def test_a_language_may_be_written_as_locales_are(given: str, meant: str) -> None:
    assert Settings.model_validate({"language": given}).language == meant


def test_a_language_that_is_not_spoken_here_is_told() -> None:
    with pytest.raises(ValidationError, match="'en' or 'zh'"):
        Settings.model_validate({"language": "fr_FR"})


@pytest.mark.parametrize("cpus", ["5-2", "0-3,9-8", "0-99999999999", "a", "1-"])
def test_cpus_that_docker_would_refuse_are_refused_here(cpus: str) -> None:
    with pytest.raises(BadConfiguration, match="inference_cpus"):
        settle((Layer(values={"inference_cpus": cpus}, origins={"inference_cpus": "--x"}),))


def test_a_mirror_with_a_password_is_refused_because_images_keep_it(tmp_path: Path) -> None:
    """Among apt's sources in each of them, and in what `docker history` shows."""
    with pytest.raises(BadConfiguration) as refusal:
        settled(tmp_path, {"debian_mirror": "https://user:password@mirror.example/debian"})
    assert "would end up in every image" in refusal.value.why
    found = settled(tmp_path, {"debian_mirror": "https://mirror.example/debian"}).settings
    assert found.debian_mirror == "https://mirror.example/debian"


@pytest.mark.parametrize(
    ("name", "value", "why", "meaning"),
    [
        ("gpus", "x", "it is not written as it must be", "indices of the cards"),
        ("threads", "many", "it is no whole number", "engine threads"),
        ("metrics", "perhaps", "it is neither true nor false", "start Prometheus"),
        ("gateway_port", "99999", "it should be less than or equal to 65535", "port of the API"),
    ],
)
def test_a_value_that_can_not_be_is_told_in_words_with_what_it_is_for(
    tmp_path: Path, name: str, value: str, why: str, meaning: str
) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        settled(tmp_path, {name: value})
    flag = name.replace("_", "-")
    assert refusal.value.why == f"{name} = {value!r}, from --{flag}: {why}"
    assert f"{name}: {meaning}" in refusal.value.next_step


def test_a_folder_whose_name_is_not_utf8_is_refused_before_it_meets_the_env_file() -> None:
    folder = "/srv/权重".encode("gbk").decode("utf-8", "surrogateescape")  # as Python has it
    layer = Layer(values={"weights_dir": folder}, origins={"weights_dir": "a test"})
    with pytest.raises(BadConfiguration, match="can't be used") as caught:
        settle((layer,))
    assert "UTF-8" in caught.value.why
