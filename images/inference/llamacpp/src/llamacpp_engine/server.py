"""The engine on a GPU: llama.cpp's own program, with the experts in RAM and all else on the cards."""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from llamacpp_engine.settings import ConfigurationInvalid, Settings

NO_GPU = 3
_DEVICE = re.compile(r"^\s+CUDA\d+: ", re.MULTILINE)
# It sets up CUDA for each card that it lists.
_LISTING_S = 120


def serve(program: Path, settings: Settings, model: Path, chat_template: str | None) -> int:
    """The process becomes the program, which reads the file of the key itself."""
    os.execv(program, [str(program), *arguments(settings, model, chat_template)])  # noqa: S606


def arguments(settings: Settings, model: Path, chat_template: str | None) -> tuple[str, ...]:
    """As `launch.configure` sets up the wheel, in the program's own flags."""
    return (
        *("--model", str(model), "--alias", settings.model_name),
        *("--host", "0.0.0.0", "--port", str(settings.listen_port)),  # noqa: S104 - as there
        *("--api-key-file", str(settings.api_key_file)),
        *("--ctx-size", str(settings.total_context_tokens), "--parallel", str(settings.slots)),
        *("--predict", str(settings.max_tokens)),
        *("--threads", str(settings.worker_threads)),
        *("--threads-batch", str(settings.worker_threads)),
        *_placement(settings.cuda_visible_devices),
        # Sizes are decided, and proven to fit, before the start.
        *("--fit", "off", "--cache-ram", "0", "--load-mode", "mmap"),
        *("--jinja", *(() if chat_template is None else ("--chat-template", chat_template))),
        *("--warmup", "--offline", "--no-ui", "--no-slots", "--metrics"),
        *("--sse-ping-interval", "-1"),
    )


def _placement(cards: Sequence[str]) -> Iterator[str]:
    """Named, so that it ends where a card is missing: otherwise it would go on without any."""
    yield from ("--device", ",".join(f"CUDA{place}" for place in range(len(cards))))
    yield from ("--n-gpu-layers", "all", "--cpu-moe")
    if len(cards) > 1:
        yield from ("--split-mode", "layer", "--tensor-split", ",".join("1" for _ in cards))


def refuse_missing_cards(program: Path, cards: Sequence[str]) -> None:
    """Raises ConfigurationInvalid where the program does not see them all."""
    try:
        done = subprocess.run(  # noqa: S603 - the image's own program
            [str(program), "--list-devices"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LISTING_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise _no_gpu(str(error)) from error
    seen = len(_DEVICE.findall(done.stdout))
    if seen < len(cards):
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise _no_gpu(f"it is to use {len(cards)} and sees {seen}", *said[-1:])


def _no_gpu(*why: str) -> ConfigurationInvalid:
    return ConfigurationInvalid(
        "the engine does not start: there is no GPU that it can use",
        why=why,
        next_step="python3 -m orchestrator doctor (it says what the driver lacks)",
        exit_code=NO_GPU,
    )
