"""What /metrics tells, in Prometheus' text format."""

from dataclasses import dataclass, field

from kt_legacy_engine.conversation import Counters
from kt_legacy_engine.generating import Finish


@dataclass(slots=True)
class Metrics:
    """Counted since the start, the warm-up left out."""

    tokens: Counters = field(default_factory=Counters)
    refused: int = 0
    failed: int = 0
    finished: dict[Finish, int] = field(default_factory=lambda: dict.fromkeys(Finish, 0))
    prefill_s: float = 0.0
    decode_s: float = 0.0

    def text(self, *, ready: bool, running: bool, cached_tokens: int) -> str:
        counted = {
            "prefilled_tokens": self.tokens.prefilled,
            "reused_tokens": self.tokens.reused,
            "decoded_tokens": self.tokens.decoded,
            "refused_requests": self.refused,
            "failed_requests": self.failed,
            "prefill_seconds": self.prefill_s,
            "decode_seconds": self.decode_s,
        }
        now = {
            "ready": int(ready),
            "running_requests": int(running),
            "cached_tokens": cached_tokens,
            "waiting_prefill_tokens": self.tokens.to_prefill,
        }
        lines = []
        for name, value in counted.items():
            lines += [f"# TYPE kt_{name}_total counter", f"kt_{name}_total {value}"]
        lines.append("# TYPE kt_finished_requests_total counter")
        for finish, count in self.finished.items():
            lines.append(f'kt_finished_requests_total{{reason="{finish.value}"}} {count}')
        for name, value in now.items():
            lines += [f"# TYPE kt_{name} gauge", f"kt_{name} {value}"]
        return "\n".join(lines) + "\n"
