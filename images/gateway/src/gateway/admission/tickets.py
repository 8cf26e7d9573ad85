"""The words of admission: what waits, where it stands, what it cost, and why the line is shut."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from gateway.caller import KeyClass, Limits
from gateway.policy import Queue
from gateway.usage import Usage

Outcome = Literal["finished", "cancelled", "failed"]
HoldReason = Literal["loading", "switching", "restarting"]
Holder = Literal["admin", "engine"]
"""Who asked for a hold: the control socket, or the watch on the engine. Neither ends the other's."""


class Ticket(NamedTuple):
    """One request that wants a permit. `number` is ours: clients may send one id twice."""

    number: int
    request_id: str
    key_id: str
    key_class: KeyClass
    limits: Limits
    prompt_tokens_estimate: int
    max_tokens_cap: int
    background: bool = False
    """A call that a user interface makes for itself: served when nothing else waits."""
    prefix: tuple[bytes, ...] = ()
    """Digests of the conversation up to each of its messages, the oldest first."""
    stream: bool = False


class Place(NamedTuple):
    """How many go first, and in how many seconds this one is expected to; None: nobody knows."""

    position: int
    eta_s: float | None


class Spent(NamedTuple):
    """What a permit was used for; times from its grant."""

    usage: Usage
    outcome: Outcome
    first_token_s: float | None = None
    held_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Open:
    pass


@dataclass(frozen=True, slots=True)
class Hold:
    """Requests queue and none is dispatched."""

    reason: HoldReason
    progress: str = ""


@dataclass(frozen=True, slots=True)
class Drain:
    """Nobody is let in any more; who waits is served until the process ends."""

    held: bool = False
    """There is nothing to serve them: the engine is away, or not to be asked."""


State = Open | Hold | Drain


def dispatches(state: State) -> bool:
    return not (isinstance(state, Hold) or (isinstance(state, Drain) and state.held))


TurnedAway = Literal["queue_full", "key_queue_full", "draining"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    state: State
    capacity: int
    running: int
    queued: dict[str, int]
    """By key id."""
    overtaken: dict[str, int]
    """How often a position rose, by the reason."""


class Core(Protocol):
    """Pure decisions over time that is handed in. `line` asks; nothing here waits or reads a clock.

    A request is queued from `enqueue` to `dispatch`, `expire` or `leave`, and running from
    `dispatch` to `finish` or `put_back`. After each call but `place` and `snapshot`, ask `dispatch`.
    """

    def enqueue(self, ticket: Ticket, now_s: float) -> TurnedAway | None: ...

    def dispatch(self, now_s: float) -> list[int]:
        """Numbers of those that run from now on."""

    def expire(self, now_s: float) -> list[int]:
        """Numbers of those that have waited too long and are out of the line."""

    def next_change_s(self, now_s: float) -> float | None:
        """When time alone changes something: a wait is over, a batch request is promoted."""

    def leave(self, number: int, now_s: float) -> None: ...

    def finish(self, number: int, spent: Spent, now_s: float) -> None: ...

    def put_back(self, number: int, now_s: float) -> None:
        """A running request queues again, at the place it had, as if it had not been dispatched."""

    def set_limits(self, limits: Queue) -> None: ...

    def set_capacity(self, capacity: int) -> None: ...

    def set_state(self, state: State) -> None: ...

    def place(self, number: int, now_s: float) -> Place | None: ...

    def retry_after_s(self, now_s: float) -> float:
        """When one that is turned away now has a chance."""

    def snapshot(self) -> Snapshot: ...
