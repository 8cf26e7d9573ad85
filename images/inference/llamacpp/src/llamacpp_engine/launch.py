"""The engine on the CPU, from its wheel: its parameters, and the process that runs it until killed."""

import signal
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from llamacpp_engine.settings import Settings
from wire.telling import tell


def serve(settings: Settings, model: Path, key: SecretStr, chat_template: str | None) -> int:
    """Serves `model` until a signal ends the process. Returns only when loading failed."""
    # Only here: the import alone takes memory, and no unproven file may come near the engine.
    import xllamacpp  # noqa: PLC0415

    params = xllamacpp.CommonParams()
    configure(params, settings, model, key)
    if chat_template is not None:
        params.chat_template = chat_template
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        tell(
            f"error: the engine could not start with {model}",
            f"why: {error}",
            "next: see the engine's own lines above, then: python3 -m orchestrator up",
        )
        return 1
    tell(f"serving {settings.model_name} on {server.listening_address}")
    # The engine serves from threads of its own for as long as `server` lives.
    while server:
        signal.pause()
    return 1


def configure(params: Any, settings: Settings, model: Path, key: SecretStr) -> None:
    params.model.path = str(model)
    params.model_alias = {settings.model_name}
    params.hostnames = ["0.0.0.0"]  # noqa: S104 - the container's own network namespace
    params.port = settings.listen_port
    params.api_keys = [key.get_secret_value()]

    params.n_ctx = settings.total_context_tokens
    params.n_parallel = settings.slots
    params.n_predict = settings.max_tokens
    params.cpuparams.n_threads = settings.worker_threads
    params.cpuparams_batch.n_threads = settings.worker_threads

    # Sizes are decided, and proven to fit, before the start: the engine must change none of them,
    # nor add its prompt cache of 8 GiB.
    params.fit_params = False
    params.cache_ram_mib = 0

    params.use_jinja = True
    params.warmup = True
    params.offline = True
    params.ui = False
    params.endpoint_slots = False
    params.endpoint_props = False
    params.endpoint_metrics = True
    # Comment lines in a silent stream: not every OpenAI client skips them.
    params.sse_ping_interval = -1
