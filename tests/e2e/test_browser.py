"""The main job, as a person sees it: log in to the chat page, ask, read the reply."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from playwright.sync_api import expect

from e2e.browser import ADMIN, a_visit
from e2e.scenario import PARIS, QUESTION, Appliance, eventually


def gateway_requests(appliance: Appliance) -> int:
    """By its log, in which each request that has ended is one JSON object on a line of its own."""
    lines = (line for line in appliance.logs("gateway").splitlines() if line.startswith("{"))
    return sum(json.loads(line).get("path") == "/v1/chat/completions" for line in lines)


def engine_requests(appliance: Appliance) -> int:
    return len(re.findall(r"launch_slot_: .*processing task", appliance.logs("inference")))


def test_a_person_logs_in_asks_and_reads_the_reply_for_one_engine_request(
    appliance: Appliance, tmp_path: Path
) -> None:
    by_gateway, by_engine = gateway_requests(appliance), engine_requests(appliance)
    with a_visit(tmp_path / "chromium") as visit:
        visit.open_log_in(appliance.webui)
        visit.log_in(ADMIN, appliance.secret("webui_admin_password"))
        visit.ask(QUESTION)
        visit.wait_for_reply(PARIS)
        visit.page.screenshot(path=tmp_path / "reply.png")
        # Titles, tags and follow-up questions would be asked for now, after the reply.
        eventually(lambda: visit.running_tasks() == {"tasks": []}, "Open-WebUI has nothing to do")
    # One more by hand, after all of the chat's: when it is in a log, so are they.
    assert appliance.ask().status_code == 200

    def counted() -> tuple[int, int]:
        return gateway_requests(appliance) - by_gateway, engine_requests(appliance) - by_engine

    eventually(lambda: min(counted()) >= 2, "the logs show the chat's request and the one by hand")
    assert counted() == (2, 2)
    assert {urlsplit(url).hostname for url in visit.asked_for} == {"127.0.0.1"}
    assert visit.refused == []
    assert visit.complaints == []


def test_nobody_can_sign_up(appliance: Appliance, tmp_path: Path) -> None:
    with a_visit(tmp_path / "chromium") as visit:
        visit.open_log_in(appliance.webui)
        expect(visit.page.get_by_text("Sign up")).to_have_count(0)
        expect(visit.page.locator("#name")).to_have_count(0)
    stranger = {"name": "stranger", "email": "stranger@example.org", "password": "let me in 1!"}
    answer = httpx.post(
        f"{appliance.webui}/api/v1/auths/signup", json=stranger, timeout=60, trust_env=False
    )
    assert answer.status_code == 403
