"""What is done to sglang's server before it runs: its key is hidden, and most of its doors are shut."""

import copy
import dataclasses
import json
import pickle
import secrets
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.testclient import TestClient

from kt_sglang_engine.hidden import Hidden
from kt_sglang_engine.server import keep_few_routes

KEY = "sk-of-the-engine"


@dataclasses.dataclass
class ServerArgs:
    """As sglang's: a dataclass that is logged whole, asked for whole, and handed to every process."""

    model_path: str
    api_key: str | None = None


@pytest.fixture
def told() -> ServerArgs:
    return ServerArgs("/weights", Hidden(KEY))


def test_the_log_shows_no_key(told: ServerArgs) -> None:
    assert KEY not in f"{told=}"
    assert "***" in f"{told=}"


def test_whoever_asks_for_the_arguments_gets_no_key(told: ServerArgs) -> None:
    assert KEY not in json.dumps(dataclasses.asdict(told))
    assert copy.deepcopy(told).api_key == ""


def test_no_other_process_gets_the_key(told: ServerArgs) -> None:
    assert KEY.encode() not in pickle.dumps(told)
    assert pickle.loads(pickle.dumps(told)) == ServerArgs("/weights", "")  # noqa: S301 - our own


def test_in_its_own_process_it_is_the_key(told: ServerArgs) -> None:
    assert told.api_key
    assert secrets.compare_digest(KEY, told.api_key)
    assert f"Bearer {told.api_key}" == f"Bearer {KEY}"


def an_app() -> FastAPI:
    app, router = FastAPI(), APIRouter()

    def answer() -> str:
        return "answered"

    for path in ("/health", "/v1/models", "/v1/chat/completions", "/generate", "/abort_request"):
        app.add_api_route(path, answer)
    for path in ("/server_info", "/get_server_info", "/flush_cache", "/update_weights_from_disk"):
        app.add_api_route(path, answer)
    app.add_api_route("/v1/models/{model:path}", answer)
    router.add_api_route("/v1/loads", answer)
    app.include_router(router)
    return app


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/health", 200),
        ("/v1/models", 200),
        ("/v1/models/a/b", 200),
        ("/v1/chat/completions", 200),
        ("/abort_request", 200),
        ("/server_info", 404),
        ("/get_server_info", 404),
        ("/flush_cache", 404),
        ("/update_weights_from_disk", 404),
        ("/v1/loads", 404),
        ("/openapi.json", 404),
        ("/docs", 404),
    ],
)
def test_only_what_the_gateway_asks_for_is_left(path: str, status: int) -> None:
    app = an_app()
    keep_few_routes(app)
    assert TestClient(app).get(path).status_code == status


def test_what_is_added_later_stays() -> None:
    app = an_app()
    keep_few_routes(app)
    app.add_api_route("/metrics", lambda: "counted")
    assert TestClient(app).get("/metrics").status_code == 200


def test_a_route_without_a_path_does_not_stay() -> None:
    app = SimpleNamespace(router=SimpleNamespace(routes=[SimpleNamespace()]))
    keep_few_routes(app)
    assert app.router.routes == []
