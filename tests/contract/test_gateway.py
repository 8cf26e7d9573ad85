"""What the orchestrator writes for the gateway is what the gateway reads."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import a_host
from gateway.caller import Limits
from gateway.keys import LOCAL, WEBUI, KeysFile
from gateway.ledger import Entry, SqliteLedger
from gateway.policy import Policy
from gateway.usage import Usage
from images.gateway.tests.support import (
    CHAT,
    ENGINE_KEY,
    LONG_TICK_S,
    Client,
    chat_body,
    chat_head,
    environment,
    running_gateway,
)
from orchestrator.adapters import control_socket, key_files
from orchestrator.adapters.profile_files import known_profiles, read_profile
from orchestrator.cli import main
from orchestrator.core.advice import advise
from orchestrator.core.gateway_policy import gateway_policy
from orchestrator.core.key_words import LIMIT_WORDS
from orchestrator.core.keys import OWN_IDS, Key, KeyLimits, Keys, KeyUsage
from orchestrator.core.profile import Engine
from paced_engine.running import running_engine

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
OWNER = key_files.this_user()


@pytest.mark.parametrize("name", known_profiles(CONFIGS))
def test_the_gateway_takes_what_is_said_of_every_profile(name: str, tmp_path: Path) -> None:
    advice = advise(read_profile(CONFIGS, name), (), a_host(), None, 0)
    settings, placement = advice.settled.settings, advice.placement
    key_files.write_policy(tmp_path, gateway_policy(advice.profile, settings, placement), OWNER)
    policy = Policy.model_validate_json((tmp_path / "policy.json").read_text(encoding="utf-8"))
    assert policy.profile == name
    # GGUF profiles have no tokenizer.json: their engine counts.
    counts = {Engine.LLAMACPP: "llama.cpp", Engine.KT_LEGACY: "kt-legacy"}
    assert policy.capabilities.tokenize == counts.get(advice.profile.engine)
    assert policy.model.tokenizer_file is None
    assert policy.model.public == settings.model_name
    assert policy.queue.capacity == placement.slots
    assert policy.timeouts.first_token_base_s == settings.first_token_timeout_s


def test_the_gateway_takes_every_field_of_a_key(tmp_path: Path) -> None:
    limits = KeyLimits(**dict.fromkeys(LIMIT_WORDS, 5))
    key = Key(
        id="k-1",
        name="北京 robot",
        sha256="0" * 64,
        key_class="batch",
        limits=limits,
        created_at_s=1,
        expires_at_s=2,
    )
    key_files.write_keys(tmp_path, Keys(keys=(key,)), OWNER)
    text = (tmp_path / "keys.json").read_text(encoding="utf-8")
    (read,) = KeysFile.model_validate_json(text).keys
    assert read.model_dump() == key.model_dump()
    assert Limits(**read.limits.model_dump()) == Limits(**dict.fromkeys(LIMIT_WORDS, 5))


def test_both_know_the_stacks_own_keys_by_the_same_ids() -> None:
    assert set(OWN_IDS) == {LOCAL.key_id, WEBUI.key_id}


def test_the_books_are_read_while_the_gateway_has_them_open(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / key_files.BOOKS)
    usage = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=3)
    for at_s in (90, 100):
        entry = Entry(
            at_s=at_s,
            key_id="k-1",
            model="m",
            outcome="cancelled",
            usage=usage,
            waited_s=0,
            held_s=1,
        )
        ledger.book(entry)
    ledger.close()
    expected = KeyUsage(requests=2, tokens=24, tokens_today=12, last_at_s=100)
    assert key_files.read_books(tmp_path, 100).usage == {"k-1": expected}


@pytest.fixture
def state() -> Iterator[Path]:
    # A socket's path has room for a hundred characters only.
    with tempfile.TemporaryDirectory() as name:
        for folder in ("control", "usage"):
            (Path(name) / folder).mkdir()
        yield Path(name)


def test_a_key_opens_a_running_gateway_until_it_is_revoked_and_its_use_is_listed(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    def key(*arguments: str) -> Any:
        assert main(["key", *arguments, "--json", "--state-dir", str(state)]) == 0
        return json.loads(capsys.readouterr().out)

    with running_engine(api_key=ENGINE_KEY) as engine:
        env = environment(
            tmp_path,
            engine.url,
            KEYS_FILE=str(state / "control" / key_files.KEYS),
            LEDGER_FILE=str(state / "usage" / key_files.BOOKS),
            CONTROL_SOCKET=str(state / "control" / control_socket.SOCKET),
        )
        with running_gateway(env) as running:
            made = key("create", "robot", "--rpm", "2")
            body = chat_body(ticks=3, tick_s=0.0)
            for status in (200, 200, 429):
                assert running.ask("POST", CHAT, body, key=made["key"]).status == status
            other = key("create", "other")
            with Client(running.port) as client:
                body = chat_body(tick_s=LONG_TICK_S)
                client.send(chat_head(len(body), "r1", key=other["key"]) + body)
                client.read_until(b"tick 0")
                assert key("revoke", other["id"])["ended"] == 1
                client.read_until(b"key_revoked")
            assert key("revoke", made["id"])["ended"] == 0
            assert running.ask("POST", CHAT, body, key=made["key"]).status == 401
            assert running.stop() == 0
    used = key("list")["revoked"][made["id"]]
    assert (used["requests"], used["tokens"] > 6) == (2, True)
