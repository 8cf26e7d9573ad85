"""Small pieces of plain ASGI that several modules share."""

from starlette.types import Scope, Send

from gateway.errors import Refusal

SHOWS_KEY = "shows_key"
"""In the scope of a request: (key id) -> bool, to be asked once its key is known to be good."""


BODY_IS_HERE = "body_is_here"
"""In the scope of a request whose body came with its head: nothing of it can be late."""
ON_LEAVING = "on_leaving"
"""In the scope of a request: (callback or None) -> None. Called if its client leaves from then on."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """The value of the request header `name`; None where it is missing or came more than once."""
    found: bytes | None = None
    for key, value in scope["headers"]:
        if key == name:
            if found is not None:
                return None
            found = value
    return found


async def send_refusal(send: Send, refusal: Refusal) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": refusal.status,
            "headers": refusal.headers,
        }
    )
    await send({"type": "http.response.body", "body": refusal.body, "more_body": False})
