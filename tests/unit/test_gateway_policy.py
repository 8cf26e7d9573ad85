"""What the gateway is told about the model that serves."""

from pathlib import Path
from typing import Any

import pytest

from fakes import a_host, a_profile
from orchestrator.core.advice import advise
from orchestrator.core.gateway_policy import gateway_policy
from orchestrator.core.settings import Layer, Settings

ROOT = Path(__file__).resolve().parents[2]

SGLANG = {
    "attention_backend": "triton",
    "mem_fraction_static": 0.8,
    "chunked_prefill_size": 4096,
    "tool_call_parser": "deepseekv3",
}


def told(profile: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    layer = Layer(values=settings, origins=dict.fromkeys(settings, "a test"))
    advice = advise(a_profile(**(profile or {})), (layer,), a_host(), None, 0)
    return gateway_policy(advice.profile, advice.settled.settings, advice.placement)


def test_the_line_lets_through_as_many_as_the_engine_works_on() -> None:
    assert told()["queue"]["capacity"] == 2
    assert told(slots=5)["queue"]["capacity"] == 5


def test_what_the_operator_says_wins_over_the_profile() -> None:
    found = told(model_name="house", context_tokens=1024, max_tokens=100, idle_timeout_s=7)
    assert found["model"]["public"] == "house"
    assert found["model"]["context_tokens"] == 1024
    assert found["model"]["max_tokens"] == 100
    assert found["timeouts"]["idle_s"] == 7


def test_of_limits_that_the_gateway_keeps_nobody_says_that_nothing_enforces_them() -> None:
    found = told(idle_timeout_s=7, total_timeout_s=8)["timeouts"]
    assert (found["idle_s"], found["total_s"]) == (7, 8)
    for name in ("idle_timeout_s", "total_timeout_s"):
        assert "nothing enforces" not in f"{Settings.model_fields[name].description}"
    for name, words in (("README.md", "nothing enforces"), ("README.zh.md", "还不会执行")):
        assert words not in (ROOT / name).read_text(encoding="utf-8")


def test_no_system_message_is_none_and_not_an_empty_one() -> None:
    assert told()["defaults"]["system_message"] is None
    assert told(system_message="Be brief.")["defaults"]["system_message"] == "Be brief."


@pytest.mark.parametrize(("slots", "queued"), [(1, 64), (8, 64), (16, 128)])
def test_the_line_is_as_long_as_the_engine_is_wide_and_nobody_fills_it_alone(
    slots: int, queued: int
) -> None:
    queue = told(slots=slots)["queue"]
    assert (queue["max_queued"], queue["max_queued_per_key"]) == (queued, queued // 2)


def test_a_profile_says_what_its_model_needs() -> None:
    wishes = {"think": "split", "sampling": {"temperature": 0.6}, "max_queued": 0}
    found = told({"gateway": wishes})
    assert found["model"]["think"] == "split"
    assert found["defaults"]["sampling"] == {"temperature": 0.6}
    assert (found["queue"]["max_queued"], found["queue"]["max_queued_per_key"]) == (0, 0)


def test_each_engine_is_asked_for_what_it_can_do() -> None:
    legacy = told({"engine": "kt-legacy", "kt_legacy": {}})
    assert legacy["capabilities"]["tools"] is False
    assert legacy["model"]["think"] == "split"
    sglang = told({"engine": "kt-sglang", "kt_sglang": SGLANG})["capabilities"]
    assert (sglang["tools"], sglang["abort_path"]) == (True, "/abort_request")
    without = told({"engine": "kt-sglang", "kt_sglang": SGLANG | {"tool_call_parser": ""}})
    assert without["capabilities"]["tools"] is False
    assert told()["capabilities"]["metrics_path"] == "/metrics"


def test_engines_that_can_count_are_asked_to() -> None:
    legacy = told({"engine": "kt-legacy", "kt_legacy": {}})
    sglang = told({"engine": "kt-sglang", "kt_sglang": SGLANG})
    assert told()["capabilities"]["tokenize"] == "llama.cpp"
    assert legacy["capabilities"]["tokenize"] == "kt-legacy"
    assert sglang["capabilities"]["tokenize"] is None
