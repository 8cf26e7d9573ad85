"""A request that a test does not wait for."""

import threading

from images.gateway.tests.support import CHAT, Answer, Gateway, chat_body


class Asking:
    """A request in a thread."""

    def __init__(self, gateway: Gateway, request_id: str, **paced: object) -> None:
        self.answer: Answer | None = None
        self._gateway = gateway
        self._request_id = request_id
        self._body = chat_body(stream=False, **{"tick_s": 0.0, **paced})
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        headers = {"x-request-id": self._request_id}
        self.answer = self._gateway.ask("POST", CHAT, self._body, headers)

    def ended(self) -> Answer:
        self._thread.join(30)
        assert self.answer is not None
        return self.answer
