"""Which conversations the engine surely still holds: those that its permits were last used for."""

from gateway.admission.tickets import Ticket


class HeldPrefixes:
    def __init__(self) -> None:
        self._last_digests: dict[bytes, None] = {}

    def remember(self, ticket: Ticket, at_most: int) -> None:
        if not ticket.prefix:
            return
        # The whole conversation, not its beginning: a system message is everybody's.
        self._last_digests.pop(ticket.prefix[-1], None)
        self._last_digests[ticket.prefix[-1]] = None
        while len(self._last_digests) > at_most:
            del self._last_digests[next(iter(self._last_digests))]

    def continued_by(self, ticket: Ticket) -> bool:
        return not self._last_digests.keys().isdisjoint(ticket.prefix)
