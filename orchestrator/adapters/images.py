"""Makes the stack's images: assembles or pulls their base, and builds them."""

import ast
import hashlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

from orchestrator.core.errors import ActionFailed, BadConfiguration
from orchestrator.core.images import Build, Recipe

LAST_WORDS = 20
PROXY_VARIABLES = ("http_proxy", "https_proxy", "no_proxy")
NOT_SOURCES = frozenset({"tests", "__pycache__"})
# What a build can use of this host's pip: the rest names folders that a container does not have.
PIP_KEYS = {
    "index-url": "index-url",
    "extra-index-url": "extra-index-url",
    "trusted-host": "trusted-host",
    "proxy": "proxy",
    "timeout": "timeout",
    "default-timeout": "timeout",
    "retries": "retries",
}
# Of its sections those that count for an install, the one that overrules all others last.
PIP_SECTIONS = ("global", "install", ":env:")


def sources_digest(context: Path, recipe: Recipe) -> str:
    """sha256 over the recipe's files: relative path, mode's x bit and content of each."""
    digest = hashlib.sha256()
    for source in recipe.sources:
        for path in sorted(_files(context / source)):
            relative = path.relative_to(context)
            if path.is_file() and NOT_SOURCES.isdisjoint(relative.parts):
                executable = os.access(path, os.X_OK)
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"{relative} {executable} {content}\n".encode())
    return digest.hexdigest()


def _files(source: Path) -> Iterator[Path]:
    """`source`: a folder, or one file of another image's."""
    return iter((source,)) if source.is_file() else source.rglob("*")


class DockerImages:
    """Each method yields the tool's output lines, and keeps all of them in `logs`."""

    def __init__(
        self, context: Path, logs: Path, debian_mirror: str | None, ca_bundle: Path | None
    ) -> None:
        self._ca_bundle = ca_bundle
        self._context = context
        self._logs = logs
        self._debian_mirror = debian_mirror

    def assemble_rootfs(self, ref: str) -> Iterator[str]:
        script = self._context / "base" / "rootfs.sh"
        if os.geteuid() != 0:
            raise BadConfiguration(
                "the base system can't be made",
                why="no image registry answers, and assembling it needs root",
                next_step="./install.sh --no-up makes it, with sudo; "
                "then: python3 -m orchestrator up",
            )
        mirror = {"DEBIAN_MIRROR": self._debian_mirror} if self._debian_mirror else {}
        yield from self._kept("rootfs", _run([str(script), ref], os.environ | mirror))

    def pull(self, ref: str) -> Iterator[str]:
        yield from self._kept("pull", _run(["docker", "pull", ref], os.environ))

    def build(self, build: Build) -> Iterator[str]:
        proxies = {
            name: value
            for name in PROXY_VARIABLES
            if (value := os.environ.get(name) or os.environ.get(name.upper()))
        }
        with NamedTemporaryFile("w", suffix=".pip.conf", encoding="utf-8") as pip:  # mode 0600
            pip.write(pip_settings(_pip_config()))
            pip.flush()
            command = [
                *("docker", "buildx", "build", "--progress", "plain", "--load"),
                *("--file", str(self._context / build.recipe.dockerfile), "--tag", build.ref),
                *_each("--build-arg", (f"{k}={v}" for k, v in build.build_args.items())),
                # Without a value it takes that of its environment: a proxy's may hold a password.
                *_each("--build-arg", proxies),
                *_each("--secret", self._secrets(pip.name)),
                str(self._context),
            ]
            yield from self._kept(build.recipe.name, _run(command, os.environ | proxies))

    def _kept(self, name: str, lines: Iterator[str]) -> Iterator[str]:
        """Pass lines on, into a log file too. A failure carries the last of them."""
        self._logs.mkdir(parents=True, exist_ok=True)
        last: deque[str] = deque(maxlen=LAST_WORDS)
        path = self._logs / f"{name}.log"
        try:
            with path.open("w", encoding="utf-8") as file:
                for chunk in lines:
                    for line in chunk.splitlines():
                        file.write(line + "\n")
                        last.append(line)
                        yield line
        except subprocess.CalledProcessError as error:
            reason = next((line for line in reversed(last) if line.strip()), "it said nothing")
            raise ActionFailed(f"{reason.strip()} (all of it: {path})", "\n".join(last)) from error

    def _secrets(self, pip: str) -> list[str]:
        """Build secrets: the host's CA bundle, and what it tells pip. Nothing of them stays."""
        ca = [f"id=ca,src={self._ca_bundle}"] if self._ca_bundle else []
        return [*ca, f"id=pip,src={pip}"]


def inventory_of(ref: str, scanner: Path) -> str:
    """What an image holds, as CycloneDX JSON: read by syft from within a container of it.

    So nothing of the image is copied. It sees no network, and nothing of this host but `scanner`.
    """
    name, _, tag = ref.rpartition(":")
    within = ["scan", "dir:/", "--exclude", "./syft", "--quiet", "--output", "cyclonedx-json"]
    named = ["--source-name", name, "--source-version", tag]
    outside = [
        *("docker", "run", "--rm", "--pull", "never", "--network", "none", "--read-only"),
        *("--cap-drop", "ALL", "--tmpfs", "/tmp", "--env", "SYFT_CHECK_FOR_APP_UPDATE=false"),  # noqa: S108
        *("--mount", f"type=bind,source={scanner},target=/syft,readonly", "--entrypoint", "/syft"),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our own words
            [*outside, ref, *within, *named], capture_output=True, text=True, check=True
        )
    except subprocess.CalledProcessError as error:
        last = next(reversed(error.stderr.strip().splitlines()), "it said nothing")
        raise ActionFailed(f"the packages of {ref} can't be listed: {last}") from error
    return done.stdout


def pip_settings(listing: str) -> str:
    """A pip.conf for builds, from what `pip config list` prints on this host."""
    found: dict[str, str] = {}
    for section in PIP_SECTIONS:
        for line in listing.splitlines():
            name, _, value = line.partition("=")
            of, _, option = name.rpartition(".")
            key = PIP_KEYS.get(option) if of == section else None
            words = [word for word in _unquoted(value).split() if "file:" not in word]
            if key and words:
                found[key] = " ".join(words)
    return "".join(["[global]\n", *(f"{key} = {value}\n" for key, value in found.items())])


def _unquoted(value: str) -> str:
    """Pip prints what Python's `repr` makes of a value, so line breaks as escapes."""
    try:
        return str(ast.literal_eval(value.strip()))
    except (SyntaxError, ValueError):
        return value.strip()


def _pip_config() -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _each(flag: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (flag, value)


def _run(command: list[str], env: Mapping[str, str]) -> Iterator[str]:
    with subprocess.Popen(  # noqa: S603 - our own script
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        try:
            yield from process.stdout
        except BaseException:  # nobody waits for it any more, and a compiler is silent for minutes
            process.terminate()
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
