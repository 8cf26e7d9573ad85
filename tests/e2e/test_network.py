"""What reaches what in the running stack, and what the gateway lets through, as network and kernel show it."""

import json
from collections.abc import Mapping

import docker
import pytest
from docker.models.containers import Container

from e2e.inspecting import CONNECT, Doors, ask, inside, listening, opens
from e2e.scenario import Appliance

# Each prints one JSON value. They run inside containers, which have Python and little else.
METRICS = """
import json, urllib.request
def page(path):
    return urllib.request.urlopen("http://gateway:9100" + path, timeout=30).read().decode()
print(json.dumps({path: page(path) for path in ("/metrics", "/metrics/engine")}))
"""
ENGINE_STATUS = """
import json, sys, urllib.error, urllib.request
def status(path, key):
    header = {"Authorization": "Bearer " + key} if key else {}
    request = urllib.request.Request("http://inference:8000" + path, headers=header)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
key = open(sys.argv[1]).read().strip() if sys.argv[1] else ""
print(json.dumps({path: status(path, key) for path in sys.argv[2:]}))
"""


# --- what reaches what


@pytest.mark.parametrize(
    ("service", "neighbours"),
    [
        ("inference", {"inference@engine", "gateway@engine"}),
        ("gateway", {"inference@engine", "gateway@engine", "gateway@edge", "webui@edge"}),
        ("webui", {"gateway@edge", "webui@edge"}),
    ],
)
def test_a_service_reaches_its_neighbours_and_neither_the_rest_nor_the_internet(
    containers: Mapping[str, Container],
    doors: Doors,
    outside: list[str],
    service: str,
    neighbours: set[str],
) -> None:
    reached = inside(containers[service], CONNECT, *doors.values(), *outside)
    assert set(reached) == {doors[neighbour] for neighbour in neighbours}


def test_only_gateway_and_chat_page_are_published_and_on_the_loopback_alone(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    published = {
        service: [
            (binding["HostIp"], binding["HostPort"])
            for bindings in container.attrs["NetworkSettings"]["Ports"].values()
            for binding in bindings or ()
        ]
        for service, container in containers.items()
    }
    gateway, webui = appliance.settings["gateway_port"], appliance.settings["webui_port"]
    assert published == {
        "weights": [],
        "inference": [],
        "gateway": [("127.0.0.1", gateway)],
        "webui": [("127.0.0.1", webui)],
    }
    for port in (int(gateway), int(webui)):
        assert listening(port) == {"127.0.0.1"}


def test_the_ports_are_closed_on_every_other_address_of_this_host(
    appliance: Appliance, engine: docker.DockerClient
) -> None:
    bridge = engine.networks.get(f"{appliance.project}_edge")
    host = bridge.attrs["IPAM"]["Config"][0]["Gateway"]
    for port in (appliance.settings["gateway_port"], appliance.settings["webui_port"]):
        assert opens("127.0.0.1", port)
        assert not opens(host, port)


def test_the_engine_asks_even_its_neighbours_for_its_own_key(
    containers: Mapping[str, Container],
) -> None:
    paths = ("/v1/models", "/props", "/metrics")
    keys = "/run/secrets"
    with_its_key = inside(
        containers["gateway"], ENGINE_STATUS, f"{keys}/engine_api_key", *paths, "/health"
    )
    assert with_its_key == dict.fromkeys([*paths, "/health"], 200)
    for wrong in ("", f"{keys}/gateway_api_key"):
        found = inside(containers["gateway"], ENGINE_STATUS, wrong, *paths)
        assert found == dict.fromkeys(paths, 401)


# --- what the gateway lets through


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/"),
        ("GET", "/health"),
        ("GET", "/slots"),
        ("GET", "/metrics"),
        ("GET", "/props"),
        ("POST", "/props"),
        ("POST", "/completion"),
        ("POST", "/v1/embeddings"),
        ("GET", "/models"),
        ("GET", "/v1/models/"),
        ("GET", "//v1/models"),
        ("GET", "/v1//models"),
        ("GET", "/v1/../health"),
        ("GET", "/v1/models/../../slots"),
        ("GET", "/v1/%2e%2e/props"),
        ("GET", "http://inference:8000/props"),
        ("POST", "/v1/chat/completions/../../completion"),
        ("GET", "/docs"),
    ],
)
def test_the_gateway_passes_on_nothing_that_it_does_not_name(
    appliance: Appliance, method: str, target: str
) -> None:
    status, body = ask(appliance, method, target, appliance.secret("gateway_api_key"))
    assert status == 404
    assert json.loads(body)["error"]["code"] == "unknown_url"  # in the gateway's own words
    assert ask(appliance, method, target)[0] == 401


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/v1/chat/completions"), ("POST", "/v1/models"), ("DELETE", "/v1/models")],
)
def test_the_gateway_passes_on_no_other_method(
    appliance: Appliance, method: str, target: str
) -> None:
    assert ask(appliance, method, target, appliance.secret("gateway_api_key"))[0] == 405


def test_the_gateway_opens_to_its_own_key_only(appliance: Appliance) -> None:
    assert ask(appliance, "GET", "/v1/models", appliance.secret("gateway_api_key"))[0] == 200
    for wrong in ("", "sk-wrong", appliance.secret("engine_api_key")):
        assert ask(appliance, "GET", "/v1/models", wrong)[0] == 401
        assert ask(appliance, "POST", "/v1/chat/completions", wrong)[0] == 401


def test_the_chat_pages_key_opens_the_gateway_too(appliance: Appliance) -> None:
    assert ask(appliance, "GET", "/v1/models", appliance.secret("webui_api_key"))[0] == 200


def test_metrics_are_for_the_network_inside_alone(
    appliance: Appliance, containers: Mapping[str, Container]
) -> None:
    assert ask(appliance, "GET", "/metrics", appliance.secret("gateway_api_key"))[0] == 404
    pages = inside(containers["webui"], METRICS)
    assert "\ngateway_requests_total{" in pages["/metrics"]
    assert "llamacpp" not in pages["/metrics"]
    assert "llamacpp" in pages["/metrics/engine"]
