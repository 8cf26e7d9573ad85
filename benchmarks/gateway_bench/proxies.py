"""The proxies that are compared: how each is got, and how it is started."""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway_bench.load import Target
from benchmarks.gateway_bench.processes import free_port, running
from benchmarks.gateway_bench.stub import MODEL

ROOT = Path(__file__).resolve().parents[2]
PEERS = {"sglang-router": "sglang-router==0.3.2", "smg": "smg", "litellm": "litellm[proxy]"}
_TOKENIZER = ROOT / "tests/fixtures/tinyseek/hf/tokenizer.json"
# For an interpreter that is not of this virtual environment.
_PACKAGES = sysconfig.get_path("purelib")
# Of a length that none of them calls weak.
_KEY = f"sk-{secrets.token_hex(32)}"


@dataclass(frozen=True, slots=True)
class Proxy:
    """One that runs. `pid` is the first of its processes; None is the engine itself."""

    name: str
    target: Target
    pid: int | None
    control: Path | None = None


@dataclass(frozen=True, slots=True)
class _Start:
    command: Sequence[str]
    environment: Mapping[str, str]


def engine(work: Path) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.gateway_bench.stub", str(port)]
    return _run("direct", _Start(command, _own_environment()), port, work)


def check_python(python: str) -> None:
    """ValueError where it can't use the packages of this one."""
    said = subprocess.run(  # noqa: S603 - an interpreter that the caller names
        [python, "-c", "import sys; print(sys.version_info[:2])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    if said != str(sys.version_info[:2]):
        message = f"{python} is Python {said}, and the packages here are for {sys.version_info[:2]}"
        raise ValueError(message)


def bare(engine_port: int, work: Path, python: str) -> contextlib.AbstractContextManager[Proxy]:
    port = free_port()
    command = [
        python,
        "-m",
        "uvicorn",
        "benchmarks.gateway_bench.bare:app",
        "--port",
        str(port),
    ]
    command += ["--no-access-log", "--lifespan", "off", "--loop", "uvloop", "--http", "httptools"]
    environment = {**_own_environment(), "UPSTREAM_URL": f"http://127.0.0.1:{engine_port}"}
    return _run("bare ASGI + aiohttp", _Start(command, environment), port, work)


def ours(engine_port: int, work: Path, python: str) -> contextlib.AbstractContextManager[Proxy]:
    """With everything on: keys and their limits, the books, a policy that asks for all it can."""
    port = free_port()
    control = work / "control.sock"
    tokenizer = work / "tokenizer"
    shutil.copytree(_TOKENIZER.parent, tokenizer)
    (work / "key").write_text(_KEY)
    (work / "policy.json").write_text(json.dumps(_policy(tokenizer / _TOKENIZER.name)))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/images/gateway/src:{_PACKAGES}",
        "UPSTREAM_URL": f"http://127.0.0.1:{engine_port}",
        "UPSTREAM_KEY_FILE": str(work / "key"),
        "API_KEY_FILE": str(work / "key"),
        "POLICY_FILE": str(work / "policy.json"),
        "LEDGER_FILE": str(work / "usage.sqlite"),
        "CONTROL_SOCKET": str(control),
        "METRICS_PORT": "0",
        "LISTEN_HOST": "127.0.0.1",
        "LISTEN_PORT": str(port),
    }
    start = _Start([python, "-m", "gateway"], environment)
    return _run("ours, everything on", start, port, work, control)


def _policy(tokenizer: Path) -> dict[str, object]:
    return {
        "version": 1,
        "profile": "bench",
        "model": {
            "public": MODEL,
            "engine": MODEL,
            "context_tokens": 4096,
            "max_tokens": 1024,
            "tokenizer_file": str(tokenizer),
            "think": "split",
        },
        "defaults": {"system_message": "Sei kurz.", "sampling": {"temperature": 0.6}},
        "capabilities": {"abort_path": "/abort_request"},
        "timeouts": {
            "first_token_base_s": 60,
            "first_token_per_prompt_token_s": 0.1,
            "idle_s": 60,
            "total_s": 600,
        },
        "queue": {"capacity": 64, "hold_on_engine_loss": True},
    }


def peers(
    engine_port: int, work: Path, folder: Path | None
) -> Iterator[contextlib.AbstractContextManager[Proxy]]:
    """Those that are in `folder`, or that the system has."""
    url = f"http://127.0.0.1:{engine_port}"
    starts = {
        "nginx": _nginx(engine_port, work, folder),
        "sglang-router 0.3.2": _in_venv(
            folder, "sglang-router", "sglang-router", "launch", "--worker-urls", url
        ),
        "smg": _in_venv(folder, "smg", "smg", "launch", "--worker-urls", url),
        "litellm": _litellm(folder, url, work),
    }
    for name, start in starts.items():
        if start is None:
            sys.stderr.write(f"{name}: not there, left out\n")
            continue
        port = free_port()
        command = [part.replace("PORT", str(port)) for part in start.command]
        if name == "nginx":
            config = work / "nginx.conf"
            config.write_text(config.read_text().replace("PORT", str(port)))
        yield _run(name, _Start(command, start.environment), port, work)


def _in_venv(folder: Path | None, where: str, program: str, *arguments: str) -> _Start | None:
    if folder is None or not (path := folder / where / "bin" / program).exists():
        return None
    listen = ("--host", "127.0.0.1", "--port", "PORT")
    command = [str(path), *arguments, *listen]
    if program in {"sglang-router", "smg"}:
        command += ["--prometheus-port", str(free_port()), "--log-level", "error"]
    return _Start(command, {"PATH": os.environ["PATH"], "HOME": str(folder)})


def _litellm(folder: Path | None, url: str, work: Path) -> _Start | None:
    config = work / "litellm.yaml"
    model = {"model": f"openai/{MODEL}", "api_base": f"{url}/v1", "api_key": _KEY}
    # JSON is YAML too.
    config.write_text(json.dumps({"model_list": [{"model_name": MODEL, "litellm_params": model}]}))
    start = _in_venv(folder, "litellm", "litellm", "--config", str(config))
    if start is None:
        return None
    more = {
        "LITELLM_MASTER_KEY": _KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
    }
    return _Start(start.command, {**start.environment, **more})


def _nginx(engine_port: int, work: Path, folder: Path | None) -> _Start | None:
    found = shutil.which("nginx") or (folder and folder / "nginx/usr/sbin/nginx")
    if not found or not Path(found).exists():
        return None
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {work}/{kind}; " for kind in kinds)
    (work / "nginx.conf").write_text(
        f"daemon off; pid {work}/nginx.pid; worker_processes 1; error_log {work}/nginx.err;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; {folders}\n"
        "server { listen 127.0.0.1:PORT; location / {\n"
        f"  proxy_pass http://127.0.0.1:{engine_port}; proxy_http_version 1.1;\n"
        '  proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 600s;\n'
        "} } }\n"
    )
    return _Start([str(found), "-c", str(work / "nginx.conf")], {"PATH": os.environ["PATH"]})


@contextlib.contextmanager
def _run(
    name: str, start: _Start, port: int, work: Path, control: Path | None = None
) -> Iterator[Proxy]:
    log = work / f"{name.split(maxsplit=1)[0].rstrip(',')}.log"
    with running(start.command, start.environment, port, log) as pid:
        yield Proxy(name, Target(port, _KEY), None if name == "direct" else pid, control)


def _own_environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{_PACKAGES}"}


def get_peers(folder: Path) -> None:
    """Makes what is missing under `folder`: virtual environments, and nginx out of its package."""
    for name, requirement in PEERS.items():
        if not (folder / name).exists():
            venv.create(folder / name, with_pip=True)
            pip = [str(folder / name / "bin/pip"), "install", "--quiet", requirement]
            subprocess.run(pip, check=True)  # noqa: S603 - the requirements above
    place = folder / "nginx"
    if shutil.which("nginx") is None and not place.exists() and shutil.which("apt-get"):
        place.mkdir()
        subprocess.run(["apt-get", "download", "nginx"], cwd=place, check=True)  # noqa: S607 - as found
        for package in place.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, place], check=True)  # noqa: S603, S607 - as found
