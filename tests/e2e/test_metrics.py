"""`metrics` on and off again, with a real Prometheus beside a real stack."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import docker
import httpx
import pytest
from docker.errors import NotFound

from e2e.scenario import ROOT, Appliance, eventually
from ports import free_port

pytestmark = pytest.mark.long

DASHBOARD = json.loads((ROOT / "configs/grafana/gateway.json").read_text(encoding="utf-8"))
# Prometheus asks four times a minute.
TWO_SCRAPES_S = 60.0
# What a family of histograms or counters is called where one of its series is meant.
SERIES = re.compile(r"_(bucket|count|sum)$")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    """A stack that was told to watch itself, and that was used once."""
    settings = {"metrics": "true", "prometheus_port": str(free_port())}
    appliance = Appliance(tmp_path_factory.mktemp("watched"), settings)
    try:
        appliance.up()
        assert appliance.ask(stream=True).status_code == 200
        yield appliance
    finally:
        appliance.remove()


def _asked(appliance: Appliance, path: str, **query: str) -> Any:
    answer = httpx.get(
        f"http://127.0.0.1:{appliance.settings['prometheus_port']}/api/v1/{path}",
        params=query,
        timeout=30,
        trust_env=False,
    )
    said = answer.json()
    assert said["status"] == "success", (path, query, said)
    return said["data"]


def _found(appliance: Appliance, expression: str) -> Any:
    return _asked(appliance, "query", query=expression)["result"]


def _dashboard() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$key", ".*")


def test_prometheus_is_healthy_and_reaches_all_that_it_watches(watched: Appliance) -> None:
    def healthy() -> bool:
        container = watched.running("prometheus")
        return container is not None and container.attrs["State"]["Health"]["Status"] == "healthy"

    eventually(healthy, "Prometheus' own healthcheck")

    def up() -> bool:
        targets = _asked(watched, "targets")["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in targets} == {
            "gateway": "up",
            "engine": "up",
            "prometheus": "up",
        }

    eventually(up, "every target is up", within_s=TWO_SCRAPES_S)


def test_the_gateways_numbers_and_the_engines_own_are_there(watched: Appliance) -> None:
    def counted(expression: str) -> Any:
        return eventually(lambda: _found(watched, expression), expression, within_s=TWO_SCRAPES_S)

    (asked,) = counted('gateway_requests_total{route="/v1/chat/completions",status="200"}')
    assert float(asked["value"][1]) >= 1
    (written,) = counted('llamacpp:tokens_predicted_total{job="engine"}')
    assert float(written["value"][1]) > 0


def test_the_rules_are_taken_and_can_be_worked_out(watched: Appliance) -> None:
    container = watched.running("prometheus")
    assert container is not None
    checked = container.exec_run(["promtool", "check", "config", "/etc/prometheus/prometheus.yml"])
    assert checked.exit_code == 0, checked.output

    def healths() -> set[str]:
        groups = _asked(watched, "rules")["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    eventually(lambda: healths() == {"ok"}, "every rule was evaluated", within_s=TWO_SCRAPES_S)


def test_what_the_dashboard_asks_for_is_what_is_counted(watched: Appliance) -> None:
    families = eventually(
        lambda: {name for name in _asked(watched, "metadata") if name.startswith("gateway_")},
        "Prometheus knows the gateway's metrics",
        within_s=TWO_SCRAPES_S,
    )
    recorded = {
        rule["name"]
        for group in _asked(watched, "rules")["groups"]
        for rule in group["rules"]
        if rule["type"] == "recording"
    }
    expressions = list(_dashboard())
    assert expressions
    for expression in expressions:
        _found(watched, expression)
        for name in re.findall(r"[a-z_0-9:]*gateway[a-z_0-9:]+", expression):
            assert name in recorded or {name, SERIES.sub("", name)} & families, expression


def test_turned_off_it_goes_and_keeps_what_it_has_collected(watched: Appliance) -> None:
    volume = f"{watched.project}_prometheus-data"
    eventually(lambda: _found(watched, "gateway_connections"), "a scrape", within_s=TWO_SCRAPES_S)
    before_s = time.time()
    off = watched.run("up", "--metrics", "false")
    assert off.returncode == 0, off.stderr
    assert watched.container("prometheus") is None
    docker.from_env().volumes.get(volume)
    assert watched.ask().status_code == 200
    assert "Nothing to do" in watched.run("up", "--metrics", "false").stdout

    del watched.settings["metrics"]  # nobody asks for it, and none runs
    watched.up()
    assert watched.container("prometheus") is None
    watched.up("--metrics", "true")
    said = watched.up().stderr
    assert "Prometheus stays, as last time" in said
    assert watched.running("prometheus") is not None
    kept = _asked(watched, "query", query="gateway_connections", time=str(before_s))["result"]
    assert kept, "what was collected before"
    watched.up("--metrics", "false")
    assert watched.run("down", "--volumes").returncode == 0
    with pytest.raises(NotFound):
        docker.from_env().volumes.get(volume)
