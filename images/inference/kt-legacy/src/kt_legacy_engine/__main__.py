"""`python3 -m kt_legacy_engine ARGUMENT...`: proves the weights, then serves them.

Exit codes as in `refusals`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kt_legacy_engine import kernels, memory
from kt_legacy_engine.arguments import Arguments, parse
from kt_legacy_engine.model_folder import made_from
from kt_legacy_engine.pipe import Spec
from kt_legacy_engine.refusals import Refused
from kt_legacy_engine.serving import Service, serve
from kt_legacy_engine.settings import (
    Settings,
    check_cache,
    proven_folder,
    read_key,
    read_lock,
    read_settings,
    shards,
)
from wire.telling import tell

WORKER = (sys.executable, "-m", "kt_legacy_engine.worker")


def main(
    environment: Mapping[str, str], argv: Sequence[str], worker: Sequence[str] = WORKER
) -> int:
    # A stop may come before anybody waits for it, and must not be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        arguments = parse(argv)
        settings = read_settings(environment)
        lock = read_lock(settings)
        key = read_key(settings)
        check_cache(settings.cache_dir)
        memory.check(settings, numa_copies=arguments.numa_copies)
        folder = proven_folder(settings, lock)
        kernels.check_placement(arguments.optimize_config_path, marlin=settings.marlin)
        spec = _spec(arguments, settings, folder, shards(lock, folder, arguments.gguf_path))
        chosen, why = kernels.choose(
            arguments.cpu_variant,
            kernels.cpu_flags(Path("/proc/cpuinfo").read_text(encoding="ascii")),
            settings.kernels_dir,
            numa_copies=arguments.numa_copies,
        )
        service = Service.prepared(
            settings,
            arguments,
            Path(spec.model_path),
            key=key,
            about=(f"CPU kernels: {why}", *kernels.about_gpu(marlin=settings.marlin)),
        )
    except Refused as refusal:
        sys.stderr.write(refusal.lines())
        return refusal.exit_code
    memory.place(settings, tell)
    return asyncio.run(
        serve(service, spec, worker, _environment(environment, settings, chosen), tell)
    )


def _spec(arguments: Arguments, settings: Settings, folder: Path, found: tuple[Path, ...]) -> Spec:
    if arguments.model_path is None:
        model_path = made_from(found[0], settings.cache_dir / "model")
    else:
        model_path = folder / arguments.model_path
    return Spec(
        model_path=str(model_path),
        shards=tuple(str(path) for path in found),
        rules=str(arguments.optimize_config_path),
        cpu_infer=arguments.cpu_infer,
        cache_lens=arguments.cache_lens,
        memory_policy=settings.memory_policy,
        memory_nodes=settings.memory_nodes,
    )


def _environment(
    environment: Mapping[str, str], settings: Settings, kernels_dir: Path
) -> dict[str, str]:
    """Of the process with the model. It has no business with the key, nor with the network."""
    path = os.pathsep.join(filter(None, (str(kernels_dir), environment.get("PYTHONPATH"))))
    kept = {name: value for name, value in environment.items() if name != "API_KEY_FILE"}
    return kept | {
        "PYTHONPATH": path,
        # Upstream copies its configuration to the home folder.
        "HOME": str(settings.cache_dir),
        "TRITON_CACHE_DIR": str(settings.cache_dir / "triton"),
        "HF_HUB_OFFLINE": "1",
    }


if __name__ == "__main__":
    sys.exit(main(os.environ, sys.argv[1:]))
