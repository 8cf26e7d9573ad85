"""A world made of lists, and values to start from."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from orchestrator.core.advice import Advice, advise
from orchestrator.core.errors import ActionFailed
from orchestrator.core.facts import HostFacts
from orchestrator.core.gates import Gate, ImagePresent, Reply, Sighting
from orchestrator.core.images import BASE, RECIPES, Build, a_build
from orchestrator.core.plan import BaseSystem, Plan, make_steps
from orchestrator.core.probes.nvidia_health import Ailment
from orchestrator.core.profile import Profile
from orchestrator.core.settings import Layer, Settings
from orchestrator.world import World
from wire import Lock

PARIS = "The capital of France is Paris."
DONE = Sighting(status="exited", container_id="w1", exit_code=0, unproven=())
HEALTHY = Sighting(status="running", container_id="i1", health="healthy")
STARTING = Sighting(status="running", container_id="i1", health="starting")
CRASHED = Sighting(status="exited", container_id="i1", exit_code=137)
READY = Sighting(status="running", container_id="g1", http_status=200)
REPLIED = Sighting(
    status="running",
    container_id="i1",
    replies=(Reply(text=PARIS, first_token_s=0.2), Reply(text=PARIS, first_token_s=0.1)),
)
ABSENT = Sighting()
PRESENT = Sighting(image_present=True)


@dataclass
class FakeStack:
    """Remembers what it was told. `refusals`: what Compose says to a service's next starts."""

    current: bool = False
    refusals: dict[str, list[str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def start(self, service: str) -> None:
        self.calls.append(f"start {service}")
        if self.refusals.get(service):
            raise ActionFailed(self.refusals[service].pop(0))

    def stop(self, service: str) -> None:
        self.calls.append(f"stop {service}")

    def remove(self, service: str) -> None:
        self.calls.append(f"remove {service}")

    def is_current(self, service: str) -> bool:
        return self.current


@dataclass
class FakeImages:
    """Says one line, then has or has not made the image. `failures`: of the next builds."""

    failures: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def assemble_rootfs(self, ref: str) -> Iterator[str]:
        return self._make(ref)

    def pull(self, ref: str) -> Iterator[str]:
        return self._make(ref)

    def build(self, build: Build) -> Iterator[str]:
        return self._make(build.ref)

    def _make(self, ref: str) -> Iterator[str]:
        yield f"making {ref}"
        if self.failures:
            raise ActionFailed(self.failures.pop(0), "its last words")
        self.made.append(ref)


@dataclass
class ScriptedLookout:
    """Shows each service's sightings in order; the last one repeats. Images are as `images` says.

    The first token has a script of its own, "first token": its gate looks at inference too.
    """

    script: dict[str, list[Sighting]]
    images: FakeImages
    ills: tuple[Ailment, ...] = ()
    examined: list[str] = field(default_factory=list)

    def ailments(self, service: str) -> tuple[Ailment, ...]:
        self.examined.append(service)
        return self.ills if service == "inference" else ()

    def look(self, gate: Gate) -> Sighting:
        if isinstance(gate, ImagePresent):
            return Sighting(image_present=gate.ref in self.images.made)
        key = "first token" if type(gate).__name__ == "Generates" else gate.service
        sightings = self.script[key]
        return sightings.pop(0) if len(sightings) > 1 else sightings[0]

    def tail(self, service: str) -> str:
        return f"last words of {service}"


@dataclass
class FakeClock:
    time: float = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def a_lock() -> Lock:
    file = {"path": "m.gguf", "size_bytes": 2_000_000_000, "sha256": "0" * 64}
    return Lock.model_validate({"repo": "o/r", "revision": "a" * 40, "files": [file]})


def a_profile(**changes: Any) -> Profile:
    fields: dict[str, Any] = {
        "name": "tiny",
        "summary": "a tiny model",
        "engine": "llamacpp",
        "route": "small model",
        "status": "proven here",
        "rank": 0,
        "quality": "next to nothing",
        "model": {
            "family": "Tiny",
            "architecture": "llama",
            "quantisation": "Q4_0",
            "parameters": 1_000_000,
            "total_bytes": 2_000_000_000,
            "files": 1,
            "source": "a test",
        },
        "model_file": "m.gguf",
        "sources": [{"kind": "folder", "path": "here"}],
        "serving": {
            "context_tokens": 2048,
            "slots": 2,
            "max_tokens": 512,
            "load_timeout_s": 10,
        },
        "needs": {
            "memory": {"least_bytes": 2_000_000_000, "source": "a test"},
            "cpu_flags": ["avx2"],
            "source": "a test",
        },
        "acceptance": {
            "prompt": "What is the capital of France?",
            "contains": PARIS,
            "max_tokens": 32,
        },
    }
    return Profile.model_validate(fields | changes)


def a_host(**changes: Any) -> HostFacts:
    """A small host without a GPU: 16 GB of RAM free, 100 GB of disk."""
    fields: dict[str, Any] = {
        "cpu": {
            "architecture": "x86_64",
            "sockets": 1,
            "physical_cores": 4,
            "threads": 8,
            "threads_per_core": 2,
            "flags": ["avx2", "fma"],
        },
        "memory": {"total_bytes": 32_000_000_000, "available_bytes": 16_000_000_000},
        "nodes": [
            {
                "id": 0,
                "memory_bytes": 32_000_000_000,
                "memory_free_bytes": 16_000_000_000,
                "cpus": list(range(8)),
                "physical_cores": 4,
            }
        ],
        "gpus": [],
        "disk": {"path": "weights", "free_bytes": 100_000_000_000},
        "uid": 1000,
        "gid": 1000,
    }
    return HostFacts.model_validate(fields | changes)


def an_advice(**settings: Any) -> Advice:
    """The tiny profile on the small host. `settings`: the operator's own."""
    layer = Layer(values=settings, origins=dict.fromkeys(settings, "a test"))
    return advise(a_profile(), (layer,), a_host(), None, a_lock().total_bytes)


def a_plan(present: Collection[str] = (), /, **settings: Any) -> Plan:
    base = BaseSystem(ref="rootfs", from_registry=False)
    builds = (a_build(BASE, "digest", {}), a_build(RECIPES["gateway"], "digest", {}))
    chosen = Settings.model_validate({"load_timeout_s": 10} | settings)
    steps = make_steps(chosen, a_profile(), a_lock(), base, builds, present)
    return Plan(profile="tiny", env={}, steps=steps)


def a_world(
    stack: FakeStack | None = None,
    images: FakeImages | None = None,
    **script: list[Sighting],
) -> World:
    """A world where all goes well, but for what `script` says. `first_token`: the last proof."""
    images = images or FakeImages()
    calm = {
        "weights": [ABSENT, DONE],
        "inference": [ABSENT, HEALTHY],
        "gateway": [ABSENT, READY],
        "first token": [ABSENT, REPLIED],
        "webui": [ABSENT, READY],
        "prometheus": [ABSENT, READY],
    }
    said = {name.replace("_", " "): list(sightings) for name, sightings in script.items()}
    lookout = ScriptedLookout(calm | said, images)
    return World(images, stack or FakeStack(), lookout, FakeClock())
