"""Agreements between what the gateway counts, what Prometheus collects and what the dashboard shows."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import engine_faults as faults
from gateway.admission.tickets import Open, Snapshot
from gateway.errors import ApiError
from gateway.metrics import Metrics
from gateway.scrape import ENGINE_PATH, OWN_PATH

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
RULES = CONFIGS / "prometheus.rules.yml"
DASHBOARD = json.loads((CONFIGS / "grafana" / "gateway.json").read_text(encoding="utf-8"))
# Debian's, put there by tests/setup.sh.
PROMTOOL = Path(sys.executable).with_name("promtool")
RATE = re.compile(r"_(total|bucket|count|sum|created)$")


def promtool(*arguments: str, said: str = "") -> str:
    done = subprocess.run(
        [PROMTOOL, *arguments], input=said, cwd=CONFIGS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def dashboard_expressions() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m").replace("$key", ".*")


def exposed() -> str:
    metrics = Metrics()
    line = Snapshot(state=Open(), capacity=1, running=0, queued={"k": 1}, overtaken={"class": 1})
    metrics.watch_line(lambda: line)
    metrics.gauge("gateway_ledger_unwritten_entries", "As the books say.", lambda: 0)
    return metrics.render().decode()


def counted() -> dict[str, str]:
    """Every metric of the gateway, by its base name, as it is exposed."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposed(), re.MULTILINE))


def test_prometheus_takes_its_configuration_and_its_rules() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")


def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    rules = [
        {"record": f"dashboard:{number}", "expr": text}
        for number, text in enumerate(dashboard_expressions())
    ]
    asked = tmp_path / "dashboard.yml"
    asked.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(rules)} rules found" in promtool("check", "rules", str(asked))


def test_the_gateways_metrics_are_named_as_prometheus_wants_them() -> None:
    assert promtool("check", "metrics", said=exposed()) == ""


@pytest.mark.parametrize("text", [RULES.read_text("utf-8"), " ".join(dashboard_expressions())])
def test_nothing_is_asked_for_that_the_gateway_does_not_count(text: str) -> None:
    names = counted()
    known = {RATE.sub("", name) for name in names}
    recorded = set(re.findall(r"record: (\S+)", RULES.read_text(encoding="utf-8")))
    asked = {name for name in re.findall(r"[\w:]*\bgateway[\w:]+", text) if "_" in name}
    unknown = {name for name in asked if RATE.sub("", name) not in known} - recorded
    assert unknown == set()


def alerts_after(minutes: int, alert: str, series: dict[str, str], tmp_path: Path) -> list[Any]:
    """What promtool says that fires, from samples every 15 s; none is expected, so all are told."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    asked = {"eval_time": f"{minutes}m", "alertname": alert, "exp_alerts": []}
    case = {"interval": "15s", "input_series": given, "alert_rule_test": [asked]}
    written = tmp_path / "case.yml"
    written.write_text(json.dumps({"rule_files": [str(RULES)], "tests": [case]}))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", written], capture_output=True, text=True, check=False
    )
    return re.findall(r'Labels:\{alertname="(\w+)"', done.stdout + done.stderr)


def test_an_engine_that_never_said_a_word_is_an_alert(tmp_path: Path) -> None:
    """What has not been counted yet is no series, and no series is no alert."""
    running = {"gateway_requests_running": "1x200"}
    assert alerts_after(40, "NothingComesOut", running, tmp_path) == ["NothingComesOut"]
    speaking = running | {"gateway_inter_token_seconds_count": "0+9x200"}
    assert alerts_after(40, "NothingComesOut", speaking, tmp_path) == []


def test_the_first_failures_are_an_alert_even_if_they_come_all_at_once(tmp_path: Path) -> None:
    """An increase is only seen from a sample before it: each code is there from the start."""
    failed = {'gateway_upstream_errors_total{code="engine_cut_off"}': "0x4 8x40"}
    assert alerts_after(5, "EngineFails", failed, tmp_path) == ["EngineFails"]
    late = [faults.connect_late(1), faults.first_token_late(1), faults.idle_late(1)]
    others = [each for each in vars(faults).values() if isinstance(each, ApiError)]
    for error in [*late, faults.total_late(1), *others]:
        assert f'gateway_upstream_errors_total{{code="{error.code}"}} 0.0' in exposed()


def test_prometheus_asks_the_gateway_where_it_answers() -> None:
    config = (CONFIGS / "prometheus.yml").read_text(encoding="utf-8")
    compose = (ROOT / "compose.yaml").read_text(encoding="utf-8")
    (port,) = re.findall(r"METRICS_PORT: (\d+)", compose)
    assert set(re.findall(r"gateway:(\d+)", config)) == {port}
    assert f"metrics_path: {ENGINE_PATH}" in config
    assert OWN_PATH == "/metrics"  # Prometheus' default


def test_panels_lie_side_by_side_and_nowhere_on_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        cells = {
            (place["x"] + column, place["y"] + line)
            for column in range(place["w"])
            for line in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
