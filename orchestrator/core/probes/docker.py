"""Docker's own answers, as JSON or as text, and those of its plugins and of NVIDIA's toolkit."""

import json
import re
from typing import Any

from orchestrator.core.facts import Docker
from orchestrator.core.probes.text import agreed, first_known, lines, whole_lines

FIELD = re.compile(r"( *)([A-Z][A-Za-z ]+): +(\S.*?)\s*")
VERSION = re.compile(r"v?(\d+\.\d+[\w.+~-]*)", re.ASCII)
CDI_DEVICE = "nvidia.com/gpu"


def version_in(text: str) -> str | None:
    """The first version in what a tool says of itself."""
    found = (VERSION.fullmatch(word.strip(",")) for word in text.split())
    return next((match[1] for match in found if match), None)


def parse_version(text: str) -> Docker:
    """`docker version --format json`. Without a daemon there is no Server."""
    told = _object(text)
    server, client = _part(told, "Server"), _part(told, "Client")
    if not told:
        return Docker()
    return Docker(
        answers=bool(server) if "Server" in told else None,
        version=_word(server.get("Version")) or _word(client.get("Version")),
    )


def parse_info(text: str) -> Docker:
    """`docker info`, either way."""
    told = _object(text)
    return _of_json(told) if told else _of_text(text)


def parse_cgroup_version(info: str) -> str | None:
    """The version of the daemon's host."""
    told = _object(info)
    return _word(told.get("CgroupVersion")) if told else _fields(info).get("Cgroup Version")


def looks_for_cdi(info: str) -> bool:
    return bool(_list(_object(info).get("CDISpecDirs")))


def _of_json(told: dict[str, Any]) -> Docker:
    version = _word(told.get("ServerVersion"))
    client = _part(told, "ClientInfo")
    plugins = {
        plugin.get("Name"): _word(plugin.get("Version"))
        for plugin in _list(client.get("Plugins"))
        if isinstance(plugin, dict)
    }
    answers = bool(version) if "ServerVersion" in told else None
    docker = Docker(
        answers=answers,
        version=version or _word(client.get("Version")),
        compose_version=plugins.get("compose"),
        buildx_version=plugins.get("buildx"),
    )
    if not answers:
        return docker
    runtimes, options = told.get("Runtimes"), told.get("SecurityOptions")
    return docker.model_copy(
        update={
            "nvidia_runtime": "nvidia" in runtimes if isinstance(runtimes, dict) else None,
            "cdi": any(CDI_DEVICE in str(found) for found in _list(told.get("DiscoveredDevices")))
            or None,
            "cgroup_driver": _word(told.get("CgroupDriver")),
            "rootless": "name=rootless" in options if isinstance(options, list) else None,
        }
    )


def _of_text(text: str) -> Docker:
    fields = _fields(text)
    version = fields.get("Server Version")
    runtimes = fields.get("Runtimes")
    return Docker(
        answers=True if version else None,
        version=version,
        compose_version=_plugin(text, "compose"),
        buildx_version=_plugin(text, "buildx"),
        nvidia_runtime="nvidia" in runtimes.split() if runtimes else None,
        cgroup_driver=fields.get("Cgroup Driver"),
        rootless=_rootless(text),
    )


def _fields(text: str) -> dict[str, str]:
    """`Name: value` of the server, whose settings are indented by one blank."""
    server = "\n".join(whole_lines(text)).partition("\nServer:")[2]
    found = (FIELD.fullmatch(line) for line in server.split("\n"))
    return {match[2]: match[3] for match in found if match and match[1] == " "}


def _plugin(text: str, name: str) -> str | None:
    """A plugin's version stands in the lines below its name."""
    below = ""
    for line in whole_lines(text):
        if line.startswith("Server"):
            break
        if re.fullmatch(r"  \w\S*: .*", line):
            below = line.split(":")[0].strip()
        elif below == name and line.strip().startswith("Version:"):
            return version_in(line)
    return None


def _rootless(text: str) -> bool | None:
    """None unless the list of security options is there to its end."""
    rows = whole_lines(text)
    start = next((at for at, row in enumerate(rows) if row == " Security Options:"), None)
    if start is None:
        return None
    end = next((at for at, row in enumerate(rows) if at > start and row[:2].strip()), None)
    return None if end is None else "  rootless" in rows[start:end]


def merged(*answers: Docker) -> Docker:
    """Several answers of one daemon: the first that knows wins, but both must have reached it."""
    fields = {
        name: first_known(*(getattr(answer, name) for answer in answers))
        for name in Docker.model_fields
    }
    return Docker.model_validate(fields | {"answers": agreed(*(one.answers for one in answers))})


def _object(text: str) -> dict[str, Any]:
    """The JSON object in it, {} if there is none: warnings may stand around it."""
    for line in (text, *lines(text)):
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            return told
    return {}


def _part(told: dict[str, Any], name: str) -> dict[str, Any]:
    part = told.get(name)
    return part if isinstance(part, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
