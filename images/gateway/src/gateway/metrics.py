"""What the gateway counts. One registry an app, so two apps in one process do not mix."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.admission.tickets import Snapshot
from gateway.engine_faults import CODES
from gateway.tallies import Counts, Durations

# A long prompt on a CPU engine takes minutes to its first token.
_FIRST_BYTE_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)
# From a card that is idle to a CPU that swaps.
_TOKEN_BUCKETS_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60)


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = Counts(
            "gateway_requests",
            "Requests that have ended. Status 499: the client left before any answer.",
            ["route", "status"],
        )
        self.cancelled = Counter(
            "gateway_requests_cancelled",
            "Requests whose client left: uploading, queued, waiting for the first byte, or streaming.",
            ["phase"],
            registry=self._registry,
        )
        for phase in ("uploading", "queued", "waiting", "streaming"):
            self.cancelled.labels(phase)
        self.first_byte_s = Durations(
            "gateway_first_byte_seconds",
            "From the asking of the engine to its first byte. The wait in line before is gateway_queue_wait_seconds.",
            _FIRST_BYTE_BUCKETS_S,
            ["route"],
        )
        self.upstream_errors = Counter(
            "gateway_upstream_errors",
            "Requests that the engine failed, by the error's code.",
            ["code"],
            registry=self._registry,
        )
        for code in CODES:
            # From the start: an alert sees no increase in what begins with the failures.
            self.upstream_errors.labels(code)

        self.waited_s = Durations(
            "gateway_queue_wait_seconds",
            "From the end of a request's body to its permit, by the key's class.",
            _FIRST_BYTE_BUCKETS_S,
            ["key_class"],
        )
        self.tokens = Counts(
            "gateway_tokens",
            "Tokens by key, model and kind: prompt, completion, cached, wasted.",
            ["key_id", "model", "kind"],
        )
        self.inter_token_s = Durations(
            "gateway_inter_token_seconds",
            "Between two pieces of a streamed answer, as they come from the engine.",
            _TOKEN_BUCKETS_S,
        )
        of_every_request: Sequence[Collector] = (
            self.requests,
            self.first_byte_s,
            self.waited_s,
            self.tokens,
            self.inter_token_s,
        )
        for each in of_every_request:
            self._registry.register(each)

    def watch_line(self, snapshot: Callable[[], Snapshot]) -> None:
        """What the line says of itself is read at each scrape, and counted nowhere twice."""
        self._registry.register(_LineCollector(snapshot))

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A number that somebody else keeps."""
        Gauge(name, text, registry=self._registry).set_function(value)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _LineCollector(Collector):
    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        now = self._snapshot()
        yield GaugeMetricFamily(
            "gateway_requests_running",
            "Requests that the engine is working on now.",
            value=now.running,
        )
        queued = sum(now.queued.values())
        yield GaugeMetricFamily(
            "gateway_requests_queued", "Requests that wait for a permit.", value=queued
        )
        yield GaugeMetricFamily("gateway_capacity", "Permits that there are.", value=now.capacity)
        by_key = GaugeMetricFamily(
            "gateway_key_requests_queued", "Those of one key.", labels=["key_id"]
        )
        for key_id, number in now.queued.items():
            by_key.add_metric([key_id], number)
        yield by_key
        state = GaugeMetricFamily(
            "gateway_line_state", "1 for the state that the line is in.", labels=["state"]
        )
        for name in ("open", "hold", "drain"):
            state.add_metric([name], type(now.state).__name__.lower() == name)
        yield state
        overtaken = CounterMetricFamily(
            "gateway_overtaken",
            "How often a place in the line got worse, and why.",
            labels=["reason"],
        )
        for reason, number in now.overtaken.items():
            overtaken.add_metric([reason], number)
        yield overtaken
