"""What outlives `down`, `down --volumes` and a restart: accounts, chats, sessions, weights."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from e2e.browser import ADMIN
from e2e.scenario import PARIS, QUESTION, ROOT, Appliance, eventually
from wire import Lock, discrepancies, read_receipt, stat_files

SERVICES = ("weights", "inference", "gateway", "webui")
LOCK = ROOT / "configs" / "locks" / "demo.json"


def sign_in(appliance: Appliance) -> str:
    answer = httpx.post(
        f"{appliance.webui}/api/v1/auths/signin",
        json={"email": ADMIN, "password": appliance.secret("webui_admin_password")},
        timeout=60,
        trust_env=False,
    )
    token: str = answer.raise_for_status().json()["token"]
    return token


def asked_with(token: str, appliance: Appliance, path: str) -> httpx.Response:
    return httpx.get(
        f"{appliance.webui}{path}",
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
        trust_env=False,
    )


def sign_up(appliance: Appliance) -> httpx.Response:
    stranger = {"name": "stranger", "email": "stranger@example.org", "password": "let me in 1!"}
    return httpx.post(
        f"{appliance.webui}/api/v1/auths/signup", json=stranger, timeout=60, trust_env=False
    )


def keep_a_chat(token: str, appliance: Appliance) -> str:
    """The id of a new chat, one question and its reply."""
    question = {"id": "q", "parentId": None, "role": "user", "content": QUESTION}
    reply = {"id": "r", "parentId": "q", "role": "assistant", "content": PARIS}
    chat = {
        "title": QUESTION,
        "models": ["local-model"],
        "messages": [question, reply],
        "history": {"currentId": "r", "messages": {"q": question, "r": reply}},
    }
    answer = httpx.post(
        f"{appliance.webui}/api/v1/chats/new",
        json={"chat": chat},
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
        trust_env=False,
    )
    made: str = answer.raise_for_status().json()["id"]
    return made


def chats(token: str, appliance: Appliance) -> list[str]:
    found = asked_with(token, appliance, "/api/v1/chats/").raise_for_status().json()
    return [chat["id"] for chat in found]


def every_file(folder: Path) -> dict[Path, tuple[int, int, int]]:
    """Inode, size and modification time of all there is."""
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {path: (s.st_ino, s.st_size, s.st_mtime_ns) for path, s in found.items()}


def test_down_keeps_accounts_and_chats_and_with_volumes_only_the_weights(
    new_appliance: Callable[..., Appliance],
) -> None:
    ours = new_appliance()
    weights = ours.home / "weights"
    ours.up()
    session = sign_in(ours)
    chat = keep_a_chat(session, ours)
    proven = every_file(weights)

    down = ours.run("down")
    assert down.returncode == 0, down.stderr
    assert f"Kept: the weights in {weights}, the chat page's accounts and chats." in down.stdout
    assert all(ours.container(name) is None for name in SERVICES)
    ours.up()
    assert chats(sign_in(ours), ours) == [chat]
    whole = asked_with(session, ours, f"/api/v1/chats/{chat}").raise_for_status().json()
    assert [message["content"] for message in whole["chat"]["messages"]] == [QUESTION, PARIS]

    # Open-WebUI closes sign-up itself while it makes the first account, and only then.
    assert sign_up(ours).status_code == 403

    down = ours.run("down", "--volumes")
    assert down.returncode == 0, down.stderr
    assert f"Kept: the weights in {weights}." in down.stdout
    assert "Removed with it: the chat page's accounts and chats, and " in down.stdout
    assert every_file(weights) == proven
    lock = Lock.model_validate_json(LOCK.read_bytes())
    folder = weights / lock.folder
    assert not list(discrepancies(lock, read_receipt(folder), stat_files(folder, lock)))
    ours.up()
    assert every_file(weights) == proven
    assert chats(sign_in(ours), ours) == []


@pytest.mark.long
def test_a_restart_of_the_chat_page_signs_nobody_out(
    new_appliance: Callable[..., Appliance],
) -> None:
    ours = new_appliance()
    ours.up()
    session = sign_in(ours)
    page = ours.running("webui")
    assert page is not None
    page.restart()

    def ready() -> bool:
        try:
            return httpx.get(f"{ours.webui}/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    eventually(ready, "the chat page is back")
    again = ours.running("webui")
    assert again is not None
    assert again.attrs["State"]["StartedAt"] != page.attrs["State"]["StartedAt"]
    assert asked_with(session, ours, "/api/v1/auths/").json()["email"] == ADMIN
