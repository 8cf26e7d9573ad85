"""Keys and passwords: files of mode 0600, random, made once and never changed by us."""

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.core.errors import BadConfiguration

MAKERS: Mapping[str, Callable[[], str]] = {
    "gateway_api_key": lambda: "sk-" + secrets.token_urlsafe(32),
    "webui_api_key": lambda: "sk-" + secrets.token_urlsafe(32),
    "engine_api_key": lambda: "sk-" + secrets.token_urlsafe(32),
    "webui_admin_password": lambda: secrets.token_urlsafe(12),
    "webui_secret_key": lambda: secrets.token_urlsafe(32),
}

HF_TOKEN = "hf_token"  # noqa: S105 - a file's name
GIVEN = (HF_TOKEN,)  # made empty: what is in them is the user's to put there


def make_secrets(folder: Path, owner: tuple[int, int]) -> None:
    """Make what is missing; whatever is there stays. All of it belongs to `owner`, uid:gid."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _hand_over(folder, owner, 0o700)
        for name, make in MAKERS.items():
            _make(folder / name, make)
            _hand_over(folder / name, owner, 0o600)
        for name in GIVEN:
            (folder / name).touch(mode=0o600)
            _hand_over(folder / name, owner, 0o600)
    except OSError as error:
        raise BadConfiguration(
            f"the secrets in {folder} can't be made",
            why=str(error),
            next_step=f"sudo chown -R {owner[0]}:{owner[1]} {folder}",
        ) from error


def read_secrets(folder: Path) -> dict[str, str]:
    """Name -> value of every secret that exists."""
    found = {}
    for name in MAKERS:
        try:
            found[name] = (folder / name).read_text().strip()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(folder, name, error) from error
    return found


def read_given(folder: Path, name: str) -> str:
    """What the user put in that file; empty where there is none."""
    try:
        return (folder / name).read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(folder, name, error) from error


def _unreadable(folder: Path, name: str, error: OSError | UnicodeDecodeError) -> BadConfiguration:
    """Not the decoder's own text: it would quote a byte of the secret."""
    if isinstance(error, OSError):
        why, next_step = str(error), f"run as the owner of {folder}"
    else:
        why, next_step = "it is no text in UTF-8", f"save {folder / name} as plain text in UTF-8"
    return BadConfiguration(f"the secret {name} can't be read", why=why, next_step=next_step)


def _make(path: Path, make: Callable[[], str]) -> None:
    if path.exists() and path.stat().st_size:
        return
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(make() + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _hand_over(path: Path, owner: tuple[int, int], mode: int) -> None:
    found = path.stat()
    if (found.st_uid, found.st_gid) != owner:
        os.chown(path, *owner)
    if found.st_mode & 0o777 != mode:
        path.chmod(mode)
