"""What the container was told: a few variables, and the order that one of them names."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from downloader.errors import ConfigurationInvalid
from wire.order import Order

OPTIONAL = frozenset({"source_dir", "hf_token_file", "ca_bundle"})


class Settings(BaseModel):
    """Field names are the names of the environment variables, in lower case.

    Not a pydantic-settings model: its import alone takes longer than a whole run that has nothing to do.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    order_file: Path
    weights_dir: Path
    source_dir: Path | None = None
    hf_token_file: Path | None = None
    ca_bundle: Path | None = None

    def token(self) -> str:
        """Empty where there is none. It goes to the hub's own host, and nowhere else."""
        if self.hf_token_file is None or not self.hf_token_file.exists():
            return ""
        try:
            token = self.hf_token_file.read_text().strip()
        except (OSError, UnicodeError) as error:
            raise ConfigurationInvalid(
                f"can't read the token {self.hf_token_file}",
                why=(str(error),),
                next_step="make it a readable file of one line, or empty where no token is needed",
            ) from error
        if not all("!" <= letter <= "~" for letter in token):
            raise ConfigurationInvalid(
                f"{self.hf_token_file} holds something else than one access token",
                why=("a token is one word of plain letters, digits and signs",),
                next_step="write the token alone into that file",
            )
        return token

    def certificates(self) -> Path | None:
        """None: those that come with the image."""
        path = self.ca_bundle
        return path if path is not None and path.is_file() and path.stat().st_size else None


def read_settings(environment: Mapping[str, str]) -> Settings:
    names = {name: name.upper() for name in Settings.model_fields}
    if unset := [
        told for name, told in names.items() if name not in OPTIONAL and not environment.get(told)
    ]:
        raise ConfigurationInvalid(
            "settings are missing",
            why=tuple(f"{name} is not set or empty" for name in unset),
            next_step="set ORDER_FILE to the order, WEIGHTS_DIR to the folder to publish in",
        )
    found = {name: environment[told] for name, told in names.items() if environment.get(told)}
    return Settings.model_validate(found)


def read_order(path: Path) -> Order:
    try:
        return Order.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationInvalid(
            f"can't read the order {path}",
            why=(str(error),),
            next_step="set ORDER_FILE to the order that the orchestrator wrote",
        ) from error
    except ValidationError as error:
        raise ConfigurationInvalid(
            f"{path} is not an order",
            why=tuple(
                f"{'.'.join(str(step) for step in found['loc']) or 'the file'}: {found['msg']}"
                for found in error.errors(include_url=False, include_input=False)
            ),
            next_step="run `python3 -m orchestrator up` again: it writes the order anew",
        ) from error
