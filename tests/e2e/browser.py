"""A person at the chat page: a real Chromium that types, clicks and reads what is on the screen."""

import ctypes
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Response,
    expect,
    sync_playwright,
)

ADMIN = "admin@appliance.local"
PATIENCE_MS = 60_000
FLAGS = [
    "--no-sandbox",  # it refuses to start as root, as tests in a container do
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass(frozen=True, slots=True)
class Visit:
    """One tab, and all that it asked for and complained of since it was opened."""

    page: Page
    asked_for: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def open_log_in(self, site: str) -> None:
        self.page.goto(f"{site}/auth", wait_until="domcontentloaded")
        self.page.locator("#email").wait_for(state="visible")

    def log_in(self, email: str, password: str) -> None:
        self.page.locator("#email").fill(email)
        self.page.locator("#password").fill(password)
        self.page.locator("button[type=submit]").click()
        self.page.locator("#chat-input").wait_for(state="visible")

    def ask(self, question: str) -> None:
        # An editor, not a form field: it takes key strokes.
        self.page.locator("#chat-input").click()
        self.page.keyboard.type(question)
        self.page.locator("#send-message-button").click()

    def wait_for_reply(self, text: str) -> None:
        """Wait until the last reply on the screen is this text and no more, and is whole."""
        reply = self.page.locator(".chat-assistant").last
        expect(reply).to_have_text(text, use_inner_text=True, timeout=PATIENCE_MS)
        # The button stands there while a reply is being written.
        expect(self.page.locator('button[aria-label="Stop"]')).to_have_count(0, timeout=PATIENCE_MS)
        expect(reply).to_have_text(text, use_inner_text=True)

    def running_tasks(self) -> dict[str, Any]:
        """What Open-WebUI is still doing for its chats, replies and afterthoughts alike."""
        site = self.page.url.partition("/c/")[0]
        answer: dict[str, Any] = self.page.request.get(f"{site}/api/tasks").json()
        return answer


@contextmanager
def a_visit(user_data: Path) -> Iterator[Visit]:
    """A browser that has never been anywhere, with one empty tab."""
    installed = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    deaf = [sys.executable, __file__, next(filter(None, installed))]
    program = user_data.with_name(f"{user_data.name}.sh")
    program.write_text(f'#!/bin/sh\nexec {shlex.join(deaf)} "$@"\n')
    program.chmod(0o755)
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            user_data, executable_path=program, headless=True, args=FLAGS
        )
        try:
            yield _watched(context)
        finally:
            context.close()


def _watched(context: BrowserContext) -> Visit:
    visit = Visit(context.pages[0])
    visit.page.set_default_timeout(PATIENCE_MS)
    context.on("request", lambda request: visit.asked_for.append(request.url))
    visit.page.on("websocket", lambda socket: visit.asked_for.append(socket.url))
    context.on("response", lambda answer: _note_refusal(visit, answer))
    context.on("console", lambda message: _note_error(visit, message))
    # Shown once to an account, some time after the page: clicked away whenever it comes.
    news = visit.page.locator('button:has-text("Okay, Let")')
    visit.page.add_locator_handler(news, lambda button: button.click())
    return visit


def _note_refusal(visit: Visit, answer: Response) -> None:
    if answer.status >= HTTPStatus.BAD_REQUEST:
        visit.refused.append(f"{answer.status} {answer.url}")


def _note_error(visit: Visit, message: ConsoleMessage) -> None:
    if message.type == "error":
        visit.complaints.append(message.text)


def run_deaf_to_the_network(program: str, arguments: list[str]) -> None:
    """Become this program, to which the kernel refuses all news of network interfaces.

    Chromium drops every request with ERR_NETWORK_CHANGED when an interface of the host comes or
    goes, which happens whenever any container does, and has no switch against it. A seccomp filter
    that refuses netlink sockets leaves it none the wiser. It knows the numbers of x86-64 only.
    """
    load, jump_if_equal, give = 0x20, 0x15, 0x06
    socket_call, netlink, allow, refuse = 41, 16, 0x7FFF0000, 0x00050000 | 97  # EAFNOSUPPORT
    steps = [
        (load, 0, 0, 0),  # the number of the system call
        (jump_if_equal, 0, 3, socket_call),
        (load, 0, 0, 16),  # its first argument: the address family
        (jump_if_equal, 0, 1, netlink),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    rules = ctypes.create_string_buffer(struct.pack("@HP", len(steps), ctypes.addressof(code)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges, set_seccomp, with_a_filter = 38, 22, 2
    for request in ((no_new_privileges, 1, 0), (set_seccomp, with_a_filter, rules)):
        if prctl(*request, 0, 0):
            raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")
    os.execv(program, [program, *arguments])  # noqa: S606 - the browser of this machine


if __name__ == "__main__":
    run_deaf_to_the_network(sys.argv[1], sys.argv[2:])
