"""What `execute` needs of the outside, and no more. ("Ports" is taken: Docker has those.)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.gates import Gate, Sighting
from orchestrator.core.images import Build
from orchestrator.core.locking import Listing, Published
from orchestrator.core.probes.nvidia_health import Ailment
from wire.order import Source


class Images(Protocol):
    """Makes images. Each yields the tool's output lines; ActionFailed when it did not work."""

    def assemble_rootfs(self, ref: str) -> Iterator[str]: ...
    def pull(self, ref: str) -> Iterator[str]: ...
    def build(self, build: Build) -> Iterator[str]: ...


class Stack(Protocol):
    """Changes containers. ActionFailed when Compose refuses."""

    def start(self, service: str) -> None: ...
    def stop(self, service: str) -> None: ...
    def remove(self, service: str) -> None: ...
    def is_current(self, service: str) -> bool:
        """Was the service's container made from exactly today's configuration?"""
        ...


class Lookout(Protocol):
    """Looks at the stack and changes nothing. DockerUnavailable when it can't look at all."""

    def look(self, gate: Gate) -> Sighting: ...
    def tail(self, service: str) -> str: ...
    def ailments(self, service: str) -> tuple[Ailment, ...]:
        """Of the cards that it works on. To be asked where it does not come up: it takes seconds."""
        ...


class Hubs(Protocol):
    """Says what sources hold. SourceUnavailable when one can't be asked, or refuses."""

    def listing(self, source: Source) -> Listing | None:
        """None where the source is of a kind that does not say."""
        ...

    def completed(self, source: Source, listing: Listing, file: Published) -> Published:
        """The file with the size and sha256 that its listing left out."""
        ...


class Clock(Protocol):
    def now(self) -> float: ...
    def sleep(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    images: Images
    stack: Stack
    lookout: Lookout
    clock: Clock
