"""What Open-WebUI is told."""

import json
from pathlib import Path

from webui_launcher.environment import environment
from webui_launcher.settings import Secrets, Settings

SETTINGS = Settings(
    gateway_url="http://gateway:8080/v1",
    model_name="some-model",
    admin_email="admin@example.com",
    public_port=3000,
    api_key_file=Path("/run/secrets/gateway_api_key"),
    admin_password_file=Path("/run/secrets/webui_admin_password"),
    secret_key_file=Path("/run/secrets/webui_secret_key"),
)
SECRETS = Secrets(api_key="the-key", admin_password="the-password", secret_key="the-signature")


def told(**inherited: str) -> dict[str, str]:
    return environment(SETTINGS, SECRETS, inherited)


def test_the_gateway_is_the_only_engine() -> None:
    assert told()["OPENAI_API_BASE_URLS"] == "http://gateway:8080/v1"
    assert told()["OPENAI_API_KEYS"] == "the-key"
    assert told()["ENABLE_OLLAMA_API"] == "false"


def test_the_admin_comes_from_the_secret_and_nobody_else_signs_up() -> None:
    assert told()["WEBUI_ADMIN_EMAIL"] == "admin@example.com"
    assert told()["WEBUI_ADMIN_PASSWORD"] == "the-password"
    assert told()["ENABLE_SIGNUP"] == "false"


def test_sessions_are_signed_with_the_secret() -> None:
    assert told()["WEBUI_SECRET_KEY"] == "the-signature"


def test_each_chat_is_one_request() -> None:
    for background_call in (
        "TITLE",
        "TAGS",
        "FOLLOW_UP",
        "SEARCH_QUERY",
        "RETRIEVAL_QUERY",
        "IMAGE_PROMPT",
    ):
        assert told()[f"ENABLE_{background_call}_GENERATION"] == "false"
    metadata = json.loads(told()["DEFAULT_MODEL_METADATA"])
    assert metadata["capabilities"]["builtin_tools"] is False


def test_a_call_that_the_page_makes_for_itself_says_so() -> None:
    (config,) = json.loads(told()["OPENAI_API_CONFIGS"]).values()
    assert config == {"headers": {"X-Background-Task": "{{TASK}}"}}


def test_everybody_starts_with_the_one_model() -> None:
    assert told()["DEFAULT_MODELS"] == "some-model"
    assert told()["BYPASS_MODEL_ACCESS_CONTROL"] == "true"


def test_both_ways_to_write_the_local_address_may_open_the_websocket() -> None:
    assert told()["CORS_ALLOW_ORIGIN"] == "http://127.0.0.1:3000;http://localhost:3000"


def test_it_stays_offline_and_takes_its_settings_from_here_at_every_start() -> None:
    assert told()["OFFLINE_MODE"] == "true"
    assert told()["ENABLE_PERSISTENT_CONFIG"] == "false"


def test_a_long_reply_has_no_deadline() -> None:
    assert "AIOHTTP_CLIENT_TIMEOUT" not in told()


def test_only_harmless_variables_of_the_container_get_through() -> None:
    seen = told(
        PATH="/opt/app/bin:/usr/bin",
        TZ="Asia/Shanghai",
        HTTP_PROXY="http://proxy:3128",
        http_proxy="http://proxy:3128",
        ENABLE_SIGNUP="true",
        ADMIN_EMAIL="admin@example.com",
    )
    assert seen["PATH"] == "/opt/app/bin:/usr/bin"
    assert seen["TZ"] == "Asia/Shanghai"
    assert seen["ENABLE_SIGNUP"] == "false"
    assert not {"HTTP_PROXY", "http_proxy", "ADMIN_EMAIL"} & seen.keys()
