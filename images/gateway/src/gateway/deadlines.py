"""How long the engine may take for one answer: to its first byte, between two of them, in all."""

from gateway.alarm import Alarm
from gateway.arrival_errors import client_late
from gateway.engine_faults import first_token_late, idle_late, total_late
from gateway.errors import ApiError, Refused
from gateway.policy import Timeouts
from gateway.upstream import EngineError


class EngineLateError(EngineError):
    """The engine was given its time and may still be working: the gateway leaves it."""

    engine_ended = False

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error


class Patience(Alarm):
    """Raises EngineLateError when a limit is over, or Refused for the client's.

    The alarm is not set anew for each token, nor for the first: when it rings it looks how long the
    engine really has been silent. A client that does not read is no silence of the engine, and has a limit of its own.
    """

    def __init__(self, limits: Timeouts, prompt_tokens: int, *, stream: bool) -> None:
        super().__init__()
        # The first byte of an answer without stream comes after its last token.
        self._first_s = limits.first_token_base_s if stream else None
        if self._first_s is not None:
            self._first_s += limits.first_token_per_prompt_token_s * prompt_tokens
        self._idle_s = limits.idle_s
        self._total_s = limits.total_s
        self._client_s = limits.client_s
        self._sending_since_s: float | None = None
        self._began_s = self._loop.time()
        self._listening_since_s: float | None = self._began_s
        self._heard = False
        self._set_to_next()

    def listens(self) -> None:
        """From here on a silence is the engine's."""
        self._listening_since_s = self._loop.time()
        self._sending_since_s = None

    def heard(self) -> float:
        """When that is, by the loop's clock."""
        self._listening_since_s = None
        self._sending_since_s = now_s = self._loop.time()
        self._heard = True
        return now_s

    def _set_to_next(self) -> None:
        """To when the first of all limits may be over, whatever happens until then."""
        ends = [self._silence_ends_s(), self._total_ends_s(), self._sending_ends_s()]
        if not self._heard:
            # From its first byte on, which may come at any time.
            now_s = self._loop.time()
            ends += [limit_s and now_s + limit_s for limit_s in (self._idle_s, self._client_s)]
        self._set(min([end_s for end_s in ends if end_s is not None], default=None))

    def _silence_ends_s(self) -> float | None:
        limit_s = self._idle_s if self._heard else self._first_s
        if limit_s is None:
            return None
        since_s = self._listening_since_s
        return limit_s + (self._loop.time() if since_s is None else since_s)

    def _total_ends_s(self) -> float | None:
        return None if self._total_s is None else self._began_s + self._total_s

    def _sending_ends_s(self) -> float | None:
        if self._client_s is None or not self._heard:
            return None
        since_s = self._sending_since_s
        return self._client_s + (self._loop.time() if since_s is None else since_s)

    def _rings(self) -> EngineLateError | Refused | None:
        now_s = self._loop.time()
        silence_ends_s, total_ends_s = self._silence_ends_s(), self._total_ends_s()
        if total_ends_s is not None and total_ends_s <= now_s:
            return EngineLateError(total_late(self._total_s or 0))
        sending_ends_s = self._sending_ends_s()
        if sending_ends_s is not None and sending_ends_s <= now_s:
            return Refused(client_late(self._client_s or 0))
        if silence_ends_s is None or silence_ends_s > now_s:
            self._set_to_next()
            return None
        late = idle_late(self._idle_s or 0) if self._heard else first_token_late(self._first_s or 0)
        return EngineLateError(late)
