"""Docker, its plugins and NVIDIA's toolkit, asked through their own command lines."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orchestrator.adapters.host.commands import Answer, ask, is_there
from orchestrator.adapters.host.machine import HERE, text
from orchestrator.core.facts import Docker
from orchestrator.core.probes import docker

WITHIN_S = 10
QUESTIONS = (
    ("docker", "info", "--format", "{{json .}}"),
    ("docker", "version", "--format", "{{json .}}"),
    ("docker", "compose", "version"),
    ("docker", "buildx", "version"),
    ("nvidia-ctk", "--version"),
)
CDI_FOLDERS = ("etc/cdi", "var/run/cdi")


def read_docker(root: Path = HERE) -> Docker:
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        answers = list(pool.map(lambda words: ask(*words, within_s=WITHIN_S), QUESTIONS))
    info, version, compose, buildx, toolkit = answers
    if not is_there("docker"):
        return Docker(answers=False, toolkit_version=_version(toolkit))
    told = docker.merged(
        docker.parse_info(info.text if info else ""),
        docker.parse_version(version.text if version else ""),
    )
    return told.model_copy(
        update={
            "compose_version": _version(compose),
            "buildx_version": _version(buildx),
            "toolkit_version": _version(toolkit),
            "cdi": _cdi(told, info, root),
        }
    )


def _version(answer: Answer | None) -> str | None:
    return docker.version_in(answer.text) if answer and answer.ok else None


def _cdi(told: Docker, info: Answer | None, root: Path) -> bool | None:
    """Newer daemons list the devices; older ones only say that they would look for them."""
    if told.cdi or not told.answers or info is None:
        return told.cdi
    return docker.looks_for_cdi(info.text) and any(
        "nvidia.com/gpu" in text(path)
        for folder in CDI_FOLDERS
        for path in (root / folder).glob("*")
    )
