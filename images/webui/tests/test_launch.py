"""From compose's variables and secrets to Open-WebUI, or to a reason why not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from webui_launcher.__main__ import launch

PROGRAM = Path("/opt/app/bin/open-webui")
HERE = Path(__file__).parent  # stands in for a data folder that can be written


@dataclass
class Exec:
    """Stands in for os.execve: keeps what the process would have become."""

    calls: list[tuple[str, list[str], dict[str, str]]] = field(default_factory=list)

    def __call__(self, path: str, arguments: list[str], environ: Mapping[str, str]) -> None:
        self.calls.append((path, arguments, dict(environ)))


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "key").write_text("the-key\n")
    (tmp_path / "password").write_text("correct horse\n")
    (tmp_path / "signature").write_text("the-signature\n")
    return {
        "PATH": "/opt/app/bin:/usr/bin",
        "GATEWAY_URL": "http://gateway:8080/v1",
        "MODEL_NAME": "some-model",
        "ADMIN_EMAIL": "admin@example.com",
        "PUBLIC_PORT": "3000",
        "API_KEY_FILE": str(tmp_path / "key"),
        "ADMIN_PASSWORD_FILE": str(tmp_path / "password"),
        "SECRET_KEY_FILE": str(tmp_path / "signature"),
    }


def test_it_becomes_open_webui_on_the_port_inside_the_container(container: dict[str, str]) -> None:
    execve = Exec()
    launch(container, PROGRAM, HERE, execve)
    [(path, arguments, _)] = execve.calls
    assert path == "/opt/app/bin/open-webui"
    assert arguments == ["open-webui", "serve", "--host", "0.0.0.0", "--port", "8080"]  # noqa: S104


def test_secrets_lose_their_newline_and_nothing_else(container: dict[str, str]) -> None:
    execve = Exec()
    launch(container, PROGRAM, HERE, execve)
    [(_, _, environ)] = execve.calls
    assert environ["OPENAI_API_KEYS"] == "the-key"
    assert environ["WEBUI_ADMIN_PASSWORD"] == "correct horse"
    assert environ["WEBUI_SECRET_KEY"] == "the-signature"


def test_starting_says_nothing_about_the_secrets(
    container: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    execve = Exec()
    launch(container, PROGRAM, HERE, execve)
    [(_, arguments, _)] = execve.calls
    said = "".join(capfd.readouterr()) + " ".join(arguments)
    assert not [secret for secret in ("the-key", "horse", "the-signature") if secret in said]


@pytest.mark.parametrize("variable", ["API_KEY_FILE", "ADMIN_PASSWORD_FILE", "SECRET_KEY_FILE"])
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two\nlines\n", "one line"),
        (b"nul\0\n", "one line"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_secret_that_is_no_secret_stops_the_start_and_says_what_to_do(
    container: dict[str, str],
    variable: str,
    content: bytes | None,
    complaint: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = Path(container[variable])
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    execve = Exec()
    assert launch(container, PROGRAM, HERE, execve) == 2
    assert execve.calls == []
    said = capfd.readouterr().err
    assert str(path) in said
    assert complaint in said
    assert "Next: write it" in said


@pytest.mark.parametrize(("password", "code"), [("x" * 72, 0), ("x" * 73, 2), ("é" * 37, 2)])
def test_a_password_that_open_webui_could_not_store_is_refused(
    container: dict[str, str], password: str, code: int
) -> None:
    Path(container["ADMIN_PASSWORD_FILE"]).write_text(password, encoding="utf-8")
    execve = Exec()
    assert launch(container, PROGRAM, HERE, execve) == code
    assert len(execve.calls) == (code == 0)


def test_every_missing_variable_is_named_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    assert launch({"PATH": "/usr/bin"}, PROGRAM, HERE, Exec()) == 2
    said = capfd.readouterr().err
    for variable in (
        "GATEWAY_URL",
        "MODEL_NAME",
        "ADMIN_EMAIL",
        "PUBLIC_PORT",
        "API_KEY_FILE",
        "ADMIN_PASSWORD_FILE",
        "SECRET_KEY_FILE",
    ):
        assert f"{variable} is not set" in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GATEWAY_URL", "gateway:8080"),
        ("GATEWAY_URL", "http://"),
        ("ADMIN_EMAIL", "admin"),
        ("ADMIN_EMAIL", "@example.com"),
        ("PUBLIC_PORT", "http"),
        ("PUBLIC_PORT", "0"),
        ("PUBLIC_PORT", "65536"),
        ("PUBLIC_PORT", "-1"),
    ],
)
def test_a_variable_that_makes_no_sense_stops_the_start(
    container: dict[str, str], variable: str, value: str, capfd: pytest.CaptureFixture[str]
) -> None:
    execve = Exec()
    assert launch({**container, variable: value}, PROGRAM, HERE, execve) == 2
    assert execve.calls == []
    assert f"{variable} is {value!r}" in capfd.readouterr().err


def test_a_data_folder_that_cannot_be_written_stops_the_start(
    container: dict[str, str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    execve = Exec()
    assert launch(container, PROGRAM, tmp_path / "missing", execve) == 2
    assert execve.calls == []
    assert f"{tmp_path / 'missing'} can't be written" in capfd.readouterr().err
