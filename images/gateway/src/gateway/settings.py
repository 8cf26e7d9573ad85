"""What this container is told through its environment."""

from pathlib import Path

from pydantic import AnyHttpUrl, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway import DEFAULT_PORT
from gateway.reloaded import FileUnusableError


class Settings(BaseSettings):
    """Each field is the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True)

    upstream_url: AnyHttpUrl
    upstream_key_file: Path
    api_key_file: Path

    listen_host: str = "0.0.0.0"  # noqa: S104 - in a container
    listen_port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    max_body_bytes: int = Field(default=16 * 2**20, gt=0)
    max_bodies_bytes: int = Field(default=128 * 2**20, gt=0)
    """Of all requests at once. A body takes some four times its size: it is parsed, and written."""
    readiness_timeout_s: float = Field(default=2.0, gt=0)
    drain_s: int = Field(default=25, ge=0)
    max_connections: int = Field(default=1024, ge=1)
    max_strangers: int = Field(default=256, ge=1)
    """Of those, without a request yet that has shown a key."""
    max_connections_per_key: int = Field(default=512, ge=1)
    """Of those, of one key: more than the line takes of it, and never all."""
    header_timeout_s: float = Field(default=10.0, gt=0)
    body_timeout_s: float = Field(default=120.0, gt=0)

    # Each in a mounted folder; without one the gateway does without what it would hold.
    keys_file: Path | None = None
    policy_file: Path | None = None
    control_socket: Path | None = None
    ledger_file: Path | None = None
    webui_key_file: Path | None = None
    metrics_port: int | None = Field(default=None, ge=0, le=65535)


def read_key(path: Path) -> SecretStr:
    """The key in `path`: its whole text without the white space around it."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        message = f"key file {path}: {error}"
        raise FileUnusableError(message) from error
    if not key or not key.isprintable() or " " in key:
        message = f"key file {path} does not hold one printable key"
        raise FileUnusableError(message)
    return SecretStr(key)
