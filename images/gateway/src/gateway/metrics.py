"""What the gateway counts. One registry an app, so two apps in one process do not mix."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

# A long prompt on a CPU engine takes minutes to its first token.
_FIRST_BYTE_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200)


class Metrics:
    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.requests = Counter(
            "gateway_requests",
            "Requests that have ended. Status 499: the client left before any answer.",
            ["route", "status"],
            registry=self._registry,
        )
        self.running = Gauge(
            "gateway_requests_running",
            "Requests that the engine is working on now.",
            registry=self._registry,
        )
        self.cancelled = Counter(
            "gateway_requests_cancelled",
            "Requests whose client left: uploading, queued, waiting for the first byte, or streaming.",
            ["phase"],
            registry=self._registry,
        )
        for phase in ("uploading", "queued", "waiting", "streaming"):
            self.cancelled.labels(phase)
        self.first_byte_s = Histogram(
            "gateway_first_byte_seconds",
            "From the request's last byte to the engine's first.",
            ["route"],
            buckets=_FIRST_BYTE_BUCKETS_S,
            registry=self._registry,
        )
        self.upstream_errors = Counter(
            "gateway_upstream_errors",
            "Requests that the engine failed, by the error's code.",
            ["code"],
            registry=self._registry,
        )

        self.waited_s = Histogram(
            "gateway_queue_wait_seconds",
            "From the end of a request's body to its permit, by the key's class.",
            ["key_class"],
            buckets=_FIRST_BYTE_BUCKETS_S,
            registry=self._registry,
        )
        self.tokens = Counter(
            "gateway_tokens",
            "Tokens by key, model and kind: prompt, completion, cached, wasted.",
            ["key_id", "model", "kind"],
            registry=self._registry,
        )
        self.queued = Gauge(
            "gateway_requests_queued",
            "Requests that wait for a permit.",
            registry=self._registry,
        )
        self.capacity = Gauge(
            "gateway_capacity",
            "Permits that there are.",
            registry=self._registry,
        )

    def render(self) -> bytes:
        return generate_latest(self._registry)
