"""What all routes share."""

from dataclasses import dataclass, field

from gateway.accounts import Accounts
from gateway.body import BodyRoom
from gateway.engine_counting import EngineCounter
from gateway.engine_watch import EngineWatch
from gateway.key_watch import KeyWatch
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.relay import Relay
from gateway.reloaded import Reloaded
from gateway.upstream import Engine
from gateway.waiting import WaitingRoom


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    engine: Engine
    counter: EngineCounter
    policy: Reloaded[Policy]
    room: WaitingRoom
    accounts: Accounts
    metrics: Metrics
    max_body_bytes: int
    body_timeout_s: float
    bodies: BodyRoom
    watch: EngineWatch
    key_watch: KeyWatch
    prefilling: set[Relay] = field(default_factory=set)
    """Answers that the engine has not begun: each new one waits for all of them."""
