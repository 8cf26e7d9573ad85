"""Which paths exist, and the layers a request goes through. What is not named here is refused."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from gateway.accounts import Accounts
from gateway.admission.fair import FairCore
from gateway.admission.line import Line
from gateway.admission.tickets import Drain
from gateway.aftermath import Aftermath
from gateway.auth import Authenticated
from gateway.body import BodyRoom
from gateway.control import Control
from gateway.counting import prepare_counter
from gateway.dialects.table import DIALECTS, voice_of
from gateway.door import Door
from gateway.engine_counting import EngineCounter
from gateway.engine_watch import EngineWatch
from gateway.errors import INTERNAL, ApiError, unknown_path, wrong_method
from gateway.exchange import Exchange
from gateway.key_watch import KeyWatch
from gateway.keys import LOCAL, WEBUI, FileKeys, KeysFile
from gateway.ledger import open_ledger
from gateway.metrics import Metrics
from gateway.observing import Observed
from gateway.openapi import OPENAPI_PATH, document
from gateway.policy import Policy
from gateway.queue_route import QUEUE_PATH, queue_routes
from gateway.quota import KeyQuota
from gateway.readiness import STOPPING, readiness
from gateway.reloaded import Reloaded
from gateway.scrape import ENGINE_PATH, OWN_PATH, Page, Scrape, engine_page
from gateway.services import Services
from gateway.settings import Settings, read_key
from gateway.shortcut import Shortcut
from gateway.upstream import Engine
from gateway.waiting import WaitingRoom

_log = logging.getLogger(__name__)

OWN_PATHS = ("/healthz", "/readyz", QUEUE_PATH, OPENAPI_PATH)


def create_app(settings: Settings, door: Door) -> ASGIApp:
    """Reads every file at once, so that a gateway that can't serve does not start."""
    keys_file = Reloaded(settings.keys_file, KeysFile.model_validate_json, KeysFile())
    own_keys = [(LOCAL, read_key(settings.api_key_file))]
    if settings.webui_key_file is not None:
        own_keys.append((WEBUI, read_key(settings.webui_key_file)))
    keys = FileKeys(own_keys, keys_file)
    policy = Reloaded(settings.policy_file, Policy.model_validate_json, Policy())
    metrics = Metrics()
    line = Line(FairCore(policy.current().queue), time.monotonic)
    metrics.watch_line(line.snapshot)
    ledger = open_ledger(settings.ledger_file)
    unwritten = "Entries of the books that the disk has not taken yet."
    metrics.gauge("gateway_ledger_unwritten_entries", unwritten, ledger.unwritten)
    tasks_text = "Tasks of the event loop: as many when idle as after the start, or some leak."
    metrics.gauge("gateway_tasks", tasks_text, lambda: len(asyncio.all_tasks()))
    connections_text = "Open connections of clients."
    metrics.gauge("gateway_connections", connections_text, door.inside)
    strangers_text = "Those of which no request has shown a key yet."
    metrics.gauge("gateway_stranger_connections", strangers_text, door.strangers)
    engine = Engine(str(settings.upstream_url), read_key(settings.upstream_key_file))
    services = Services(
        engine=engine,
        counter=EngineCounter(engine),
        policy=policy,
        room=WaitingRoom(line, metrics),
        accounts=Accounts(
            KeyQuota(ledger, now_s=time.monotonic, wall_s=time.time),
            ledger,
            metrics,
            Aftermath(engine),
        ),
        metrics=metrics,
        max_body_bytes=settings.max_body_bytes,
        body_timeout_s=settings.body_timeout_s,
        bodies=BodyRoom(max(settings.max_bodies_bytes, settings.max_body_bytes)),
        watch=EngineWatch(engine, line),
        key_watch=KeyWatch(keys),
    )

    def reload() -> int:
        # First what a slip in the policy must not keep from its end: a revoked key.
        keys_file.reload()
        ended = services.key_watch.look()
        policy.reload()
        return ended

    exchanges = {(each.method, each.path): Exchange(each, services) for each in DIALECTS}
    api = _api(settings, services, Control(line, reload), exchanges)
    known_paths = frozenset({*OWN_PATHS, *(dialect.path for dialect in DIALECTS)})
    return Observed(Authenticated(Shortcut(exchanges, api), keys), metrics, known_paths)


def _api(
    settings: Settings,
    services: Services,
    control: Control,
    exchanges: Mapping[tuple[str, str], Exchange],
) -> FastAPI:
    api = FastAPI(
        lifespan=_lifespan(settings, services, control),
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        exception_handlers={HTTPException: _refused, Exception: _failed},
        routes=[
            *(
                Route(path, exchange, methods=[method])
                for (method, path), exchange in exchanges.items()
            ),
            *queue_routes(services.room.line),
        ],
    )

    @api.get("/healthz")
    async def healthz() -> Response:
        return Response(b'{"alive":true}', media_type="application/json")

    @api.get("/readyz")
    async def readyz() -> Response:
        if isinstance(services.room.line.snapshot().state, Drain):
            found = STOPPING
        else:
            found = await readiness(services.engine, timeout_s=settings.readiness_timeout_s)
        status = 200 if found.ready else 503
        return Response(found.body(), status, media_type="application/json")

    @api.get(OPENAPI_PATH)
    async def openapi() -> Response:
        return Response(orjson.dumps(document(api.routes)), media_type="application/json")

    return api


def _lifespan(
    settings: Settings, services: Services, control: Control
) -> Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Line]]]:
    async def own_page() -> Page:
        metrics = services.metrics
        return Page(HTTPStatus.OK, metrics.content_type, metrics.render())

    async def relayed_page() -> Page:
        return await engine_page(services.engine, services.policy.current())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[Mapping[str, Line]]:
        scrape = Scrape({OWN_PATH: own_page, ENGINE_PATH: relayed_page})
        # Not before: new limits may let requests go, which needs the running loop.
        services.policy.follow(lambda policy: services.room.line.set_limits(policy.queue))
        services.policy.follow(prepare_counter)
        if settings.control_socket is not None:
            await control.open(settings.control_socket)
        if settings.metrics_port is not None:
            port = await scrape.open(settings.listen_host, settings.metrics_port)
            _log.info("metrics on port %d", port)
        try:
            # For the server, which drains it.
            yield {"line": services.room.line}
        finally:
            await services.watch.close()
            await services.accounts.aftermath.close()
            await scrape.close()
            await control.close()
            services.engine.close()
            services.accounts.ledger.close()

    return lifespan


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        return _response(request, wrong_method(request.method, request.url.path, allowed))
    return _response(request, unknown_path(request.method, request.url.path))


async def _failed(request: Request, _error: Exception) -> Response:
    return _response(request, INTERNAL)


def _response(request: Request, error: ApiError) -> Response:
    refusal = voice_of(request.url.path).refusal(error)
    headers = {name.decode("ascii"): value.decode("ascii") for name, value in refusal.headers}
    return Response(refusal.body, refusal.status, headers=headers)
