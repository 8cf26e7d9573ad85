"""Which paths exist, and the layers a request goes through. What is not named here is refused."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.auth import Authenticated, Keys
from gateway.errors import INTERNAL, ApiError, unknown_path, wrong_method
from gateway.metrics import Metrics
from gateway.observing import Observed
from gateway.passthrough import Passthrough
from gateway.readiness import readiness
from gateway.settings import Settings, read_key
from gateway.upstream import Engine

ENGINE_PATHS = (("GET", "/v1/models"), ("POST", "/v1/chat/completions"))
OWN_PATHS = ("/healthz", "/readyz", "/metrics")


def create_app(settings: Settings) -> ASGIApp:
    """Reads the key files at once, so that a gateway without keys does not start."""
    keys = Keys([read_key(settings.api_key_file)])
    engine = Engine(
        str(settings.upstream_url),
        read_key(settings.upstream_key_file),
        connect_timeout_s=settings.connect_timeout_s,
    )
    metrics = Metrics()
    known_paths = frozenset({*OWN_PATHS, *(path for _, path in ENGINE_PATHS)})
    api = _api(settings, engine, metrics)
    return Observed(Authenticated(api, keys), metrics, known_paths)


def _api(settings: Settings, engine: Engine, metrics: Metrics) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await engine.open()
        try:
            yield
        finally:
            await engine.close()

    api = FastAPI(
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers={HTTPException: _refused, Exception: _failed},
        routes=[
            Route(
                path,
                Passthrough(
                    engine,
                    metrics,
                    method=method,
                    path=path,
                    max_body_bytes=settings.max_body_bytes,
                ),
                methods=[method],
            )
            for method, path in ENGINE_PATHS
        ],
    )

    @api.get("/healthz")
    async def healthz() -> Response:
        return Response(b'{"alive":true}', media_type="application/json")

    @api.get("/readyz")
    async def readyz() -> Response:
        found = await readiness(engine, timeout_s=settings.readiness_timeout_s)
        status = 200 if found.ready else 503
        return Response(found.body(), status, media_type="application/json")

    @api.get("/metrics")
    async def scrape() -> Response:
        return Response(metrics.render(), headers={"content-type": metrics.content_type})

    return api


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return _response(wrong_method(request.method, request.url.path, allowed))
    return _response(unknown_path(request.method, request.url.path))


async def _failed(_request: Request, _error: Exception) -> Response:
    return _response(INTERNAL)


def _response(error: ApiError) -> Response:
    headers = {"content-type": "application/json", **dict(error.headers)}
    return Response(error.body(), error.status, headers=headers)
