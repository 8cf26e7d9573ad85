"""Where things are on this host, and the operator's settings that say so."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.environment import read_layers
from orchestrator.adapters.files import read_env_file
from orchestrator.core.errors import BadConfiguration
from orchestrator.core.plan import standing_metrics
from orchestrator.core.render import from_env_file
from orchestrator.core.settings import Layer, Settings, fits_an_env_file, settle


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where things are on this host, all absolute."""

    root: Path
    state: Path
    secrets: Path
    weights: Path
    configs: Path

    @property
    def env_file(self) -> Path:
        return self.state / "stack.env"

    @property
    def pull_env_file(self) -> Path:
        """For `pull`, which must not change what a running stack was started with."""
        return self.state / "pull.env"

    @property
    def job(self) -> Path:
        return self.state / "job"

    def order_file(self, profile: str) -> Path:
        """One a profile: fetching another must not change what the serving stack's job does."""
        return self.job / f"{profile}.json"

    @property
    def control(self) -> Path:
        """What the gateway reads while it runs, keys.json and policy.json, and its socket."""
        return self.state / "control"

    @property
    def usage(self) -> Path:
        """The gateway's books: who used how much."""
        return self.state / "usage"

    @property
    def placement(self) -> Path:
        """The rules of kt-legacy, as they are rendered."""
        return self.state / "placement"

    @property
    def no_source(self) -> Path:
        """An empty folder, for the weights job when it needs none."""
        return self.state / "no-source"

    @property
    def headers(self) -> Path:
        """What was read of the headers of weights, so that it is read once."""
        return self.state / "headers"

    @property
    def metrics_rules(self) -> tuple[Path, ...]:
        """What compose.yaml mounts for prometheus."""
        folder = self.root / "configs"
        return folder / "prometheus.yml", folder / "prometheus.rules.yml"

    @property
    def images(self) -> Path:
        return self.root / "images"


def settings_without_profile(
    root: Path, flags: Mapping[str, object]
) -> tuple[tuple[Layer, ...], Settings, Place]:
    """The operator's own layers, what they settle, and the folders they mean.

    The weakest layer is what stands since the last `up`.
    """
    if not fits_an_env_file(str(root)):
        raise BadConfiguration(
            "the project's folder has a name that Compose can't be told",
            why=f"{root} has a quote or a backslash in it",
            next_step="move the project's folder",
        )
    layers = read_layers(root, flags)
    settings = settle(layers).settings
    place = Place(
        root=root,
        state=root / settings.state_dir,
        secrets=root / settings.secrets_dir,
        weights=root / settings.weights_dir,
        configs=root / settings.configs_dir,
    )
    layers = (*layers, _standing(place))
    return layers, settle(layers).settings, place


def _standing(place: Place) -> Layer:
    started_with = ""
    with suppress(PermissionError):  # another user's stack: whoever needs it says so
        started_with = read_env_file(place.env_file)
    return standing_metrics(from_env_file(started_with))
