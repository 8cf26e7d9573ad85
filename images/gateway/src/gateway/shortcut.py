"""The way of most requests: to their route without the framework's layers.

Each of those wraps every send, which for a stream is every token; together they cost more than the
token itself. What is no exact match goes through them, and is refused there.
"""

from collections.abc import Awaitable, Mapping

from starlette.types import ASGIApp, Receive, Scope, Send


class Shortcut:
    def __init__(self, routes: Mapping[tuple[str, str], ASGIApp], rest: ASGIApp) -> None:
        """`routes` by method and path; they deal with their own failures."""
        self._routes = routes
        self._rest = rest

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        # No coroutine of its own: each is passed through again for every token.
        route = None
        if scope["type"] == "http":
            route = self._routes.get((scope["method"], scope["path"]))
        return (route or self._rest)(scope, receive, send)
