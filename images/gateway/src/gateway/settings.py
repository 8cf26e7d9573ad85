"""What this container is told through its environment."""

from pathlib import Path

from pydantic import AnyHttpUrl, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from gateway import DEFAULT_PORT


class Settings(BaseSettings):
    """Each field is the environment variable of the same name in capitals."""

    model_config = SettingsConfigDict(frozen=True)

    upstream_url: AnyHttpUrl
    upstream_key_file: Path
    api_key_file: Path

    listen_host: str = "0.0.0.0"  # noqa: S104 - in a container
    listen_port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    max_body_bytes: int = Field(default=16 * 2**20, gt=0)
    connect_timeout_s: float = Field(default=5.0, gt=0)
    readiness_timeout_s: float = Field(default=2.0, gt=0)
    drain_s: int = Field(default=25, ge=0)


class KeyUnusableError(Exception):
    """A key file that can't be read, or holds no key."""


def read_key(path: Path) -> SecretStr:
    """The key in `path`: its whole text without the white space around it."""
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as error:
        message = f"key file {path}: {error}"
        raise KeyUnusableError(message) from error
    if not key or not key.isprintable() or " " in key:
        message = f"key file {path} does not hold one printable key"
        raise KeyUnusableError(message)
    return SecretStr(key)
