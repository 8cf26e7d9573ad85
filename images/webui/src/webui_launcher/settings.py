"""What compose.yaml tells this container, and the secrets it points to. Bad ones are refused."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from urllib.parse import urlsplit

# Inside the container, for the program and for its health check.
PORT = 8080
PORT_NUMBERS = range(1, 65_536)

# Where compose mounts the volume of accounts, chats and uploads.
DATA = Path("/data")

# bcrypt reads no more. Open-WebUI would only log the failure, start without an admin, and give
# that role to the first person who opens the page.
LONGEST_PASSWORD_BYTES = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    what: str
    why: str
    next_step: str

    def __str__(self) -> str:
        return f"{self.what}. {self.why}. Next: {self.next_step}."


class ConfigurationError(Exception):
    """Every reason why this container can't start, found at once."""

    def __init__(self, *objections: Objection) -> None:
        super().__init__(*objections)
        self.objections = objections


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    gateway_url: str
    model_name: str
    admin_email: str
    public_port: int
    api_key_file: Path
    admin_password_file: Path
    secret_key_file: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    # Kept out of repr(): a traceback or an assertion must not show them.
    api_key: str = field(repr=False)
    admin_password: str = field(repr=False)
    secret_key: str = field(repr=False)


def settings_from(environ: Mapping[str, str]) -> Settings:
    objections = tuple(_objections(environ))
    if objections:
        raise ConfigurationError(*objections)
    return Settings(
        gateway_url=environ["GATEWAY_URL"].rstrip("/"),
        model_name=environ["MODEL_NAME"],
        admin_email=environ["ADMIN_EMAIL"],
        public_port=int(environ["PUBLIC_PORT"]),
        api_key_file=Path(environ["API_KEY_FILE"]),
        admin_password_file=Path(environ["ADMIN_PASSWORD_FILE"]),
        secret_key_file=Path(environ["SECRET_KEY_FILE"]),
    )


def require_writable(folder: Path) -> None:
    if os.access(folder, os.W_OK | os.X_OK):
        return
    raise ConfigurationError(
        Objection(
            what=f"{folder} can't be written by {os.getuid()}:{os.getgid()}",
            why="Accounts and chats are kept there, and its volume belongs to the user that it "
            "was made for",
            next_step="run the stack as that user, or hand the webui-data volume over with chown",
        )
    )


def read_secrets(settings: Settings) -> Secrets:
    objections: list[Objection] = []

    def read(path: Path, consequence: str) -> str:
        try:
            # Whoever edits a secret by hand leaves a newline at its end.
            text = path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            objections.append(_bad_secret(path, consequence, f"can't be read ({_reason(error)})"))
            return ""
        if not text.strip():
            objections.append(_bad_secret(path, consequence, "is empty"))
        elif not text.isprintable():
            objections.append(_bad_secret(path, consequence, "is not one line of text"))
        return text

    secrets = Secrets(
        api_key=read(settings.api_key_file, "the chats can't reach the engine"),
        admin_password=read(
            settings.admin_password_file,
            "there is no admin, and the first visitor would become one",
        ),
        secret_key=read(settings.secret_key_file, "everyone is signed out at each restart"),
    )
    if len(secrets.admin_password.encode()) > LONGEST_PASSWORD_BYTES:
        objections.append(
            Objection(
                what=f"{settings.admin_password_file} has more than {LONGEST_PASSWORD_BYTES} bytes",
                why="Open-WebUI can't store such a password and would start without an admin",
                next_step="put a shorter password there and start the service again",
            )
        )
    if objections:
        raise ConfigurationError(*objections)
    return secrets


def _objections(environ: Mapping[str, str]) -> Iterator[Objection]:
    for variable in (setting.name.upper() for setting in fields(Settings)):
        if not environ.get(variable, "").strip():
            yield _bad_variable(variable, "is not set")
    gateway = environ.get("GATEWAY_URL", "")
    if gateway and not (gateway.startswith(("http://", "https://")) and urlsplit(gateway).netloc):
        yield _bad_variable("GATEWAY_URL", f"is {gateway!r}, not an http address")
    email = environ.get("ADMIN_EMAIL", "")
    if email and not all(email.partition("@")):
        yield _bad_variable("ADMIN_EMAIL", f"is {email!r}, not an e-mail address")
    port = environ.get("PUBLIC_PORT", "")
    if port and not (port.isascii() and port.isdigit() and int(port) in PORT_NUMBERS):
        yield _bad_variable("PUBLIC_PORT", f"is {port!r}, not a port number")


def _bad_variable(name: str, problem: str) -> Objection:
    return Objection(
        what=f"{name} {problem}",
        why="Open-WebUI can't be set up without it",
        next_step="correct it in the environment of the webui service and start it again",
    )


def _bad_secret(path: Path, consequence: str, problem: str) -> Objection:
    return Objection(
        what=f"the secret {path} {problem}",
        why=f"Without it {consequence}",
        next_step=f"write it to {path.name} in the secrets folder, readable by the stack's user, "
        "and start the service again",
    )


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "not UTF-8"
