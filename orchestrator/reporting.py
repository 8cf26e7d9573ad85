"""What runs, where its memory lies, how far a download is, and how the last run ended."""

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from orchestrator.adapters import files
from orchestrator.adapters.host import read_health
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.commands import SERVICES, Typed, print_json, spread_of
from orchestrator.console import explained
from orchestrator.core.facts import Gpu
from orchestrator.core.gates import Sighting
from orchestrator.core.journal import Story, story_of
from orchestrator.core.probes.nvidia_health import Health
from orchestrator.core.render import from_env_file
from orchestrator.core.spread import Spread
from orchestrator.core.telling import file_rows, in_one_line
from orchestrator.place import Place, settings_without_profile
from orchestrator.prepare import running_order
from wire.order import Progress

JOB = "weights"  # all others are to run on
_INDEX = re.compile(r"(?:^|[,=])(\d+)")  # of `0,1`, and of nvidia.com/gpu=0


def status(typed: Typed) -> int:
    _, settings, place = settings_without_profile(typed.root, typed.flags)
    lookout = EngineLookout(settings.project)
    services = lookout.services()
    progress = None
    if at_work := running_order(place, lookout):
        progress = lookout.job_progress("weights", place.weights / at_work[1].lock.folder)
    story = story_of(files.JournalFile(place.state / "journal.jsonl").records())
    spread = spread_of(place, lookout) if _is_serving(services) else None
    health = _health(place)
    if typed.as_json:
        print_json(_status_record(services, story, progress, spread, health), indent=2)
        return 0
    _tell_services(services, settings.webui_port)
    if spread is not None:
        print("\n" + "\n".join((spread.words, *(f"warning: {said}" for said in spread.warnings))))
    if health is not None:
        print("\n" + "\n".join((*map(_card, health.gpus or ()), *_warnings(health))))
    if progress is not None:
        print(f"\n{in_one_line(progress)}")
        for row in file_rows(progress):
            print("  {:<52} {:>20}  {}".format(*row))
    _tell_story(story)
    return 0


def _tell_services(services: Mapping[str, tuple[Sighting, str, str]], webui_port: int) -> None:
    if not services:
        print("Nothing runs here. Next: python3 -m orchestrator up")
    elif _is_serving(services):
        print(f"Profile {services['inference'][2]} serves: http://127.0.0.1:{webui_port}\n")
    for name in SERVICES:
        if name in services:
            seen, image, _ = services[name]
            print(f"{name:<10} {_state_in_words(name, seen):<28} {image}")
            for line in seen.engine.about if seen.engine else ():
                print(f"{'':<10} {line}")


def _health(place: Place) -> Health | None:
    """Of the cards that the engine was given; None where it was given none."""
    given = from_env_file(files.read_env_file(place.env_file)).get("STACK_GPU_DEVICES", "")
    if not given:
        return None
    return read_health([int(index) for index in _INDEX.findall(given)])


def _card(gpu: Gpu) -> str:
    """`GPU 0  NVIDIA H200: 12.3 of 150.8 GB of VRAM used, 0 ECC errors`"""
    told = [] if gpu.ecc_errors is None else [f"{gpu.ecc_errors} ECC errors"]
    if gpu.memory_bytes is not None and gpu.memory_used_bytes is not None:
        used, size = gpu.memory_used_bytes / 1e9, gpu.memory_bytes / 1e9
        told.insert(0, f"{used:.1f} of {size:.1f} GB of VRAM used")
    return f"GPU {gpu.index}  {gpu.name or '?'}: {', '.join(told) or 'it says nothing of itself'}"


def _warnings(health: Health) -> Iterator[str]:
    yield from (f"warning: {ailment.words}" for ailment in health.ailments)


def _is_serving(services: Mapping[str, tuple[Sighting, str, str]]) -> bool:
    return all(
        name in services and services[name][0].health == "healthy"
        for name in ("inference", "gateway", "webui")
    )


def _status_record(
    services: Mapping[str, tuple[Sighting, str, str]],
    story: Story,
    progress: Progress | None,
    spread: Spread | None,
    health: Health | None,
) -> dict[str, Any]:
    return {
        "serving": _is_serving(services),
        "profile": services["inference"][2] if "inference" in services else None,
        "services": {
            name: {
                "state": sighting.status,
                "health": sighting.health,
                "exit_code": sighting.exit_code,
                "restarts": sighting.restarts,
                "image": image,
                "about": list(sighting.engine.about) if sighting.engine else [],
            }
            for name, (sighting, image, _) in services.items()
        },
        "memory": None if spread is None else asdict(spread),
        "gpus": None
        if health is None
        else {
            "cards": [gpu.model_dump(mode="json") for gpu in health.gpus or ()],
            "ailments": [asdict(ailment) for ailment in health.ailments],
        },
        "download": None if progress is None else progress.model_dump(mode="json"),
        "last_run": {
            "command": story.command,
            "profile": story.profile,
            "started_at": story.started_at,
            "proven": story.proven,
            "failures": [
                {
                    "step": failure.step,
                    "attempt": failure.attempt,
                    "reason": failure.reason,
                    "last_words": failure.last_words,
                }
                for failure in story.failures
            ],
            "ended": story.ended,
        }
        if story.command
        else None,
    }


def _state_in_words(service: str, seen: Sighting) -> str:
    words = [seen.status or "unknown"]
    if seen.status == "running" and seen.health:
        words.append(seen.health)
    if seen.status == "exited":
        done = service == JOB and seen.exit_code == 0
        words = ["done" if done else f"exited with {seen.exit_code}"]
    if seen.restarts:
        words.append(f"restarts: {seen.restarts}")
    return ", ".join(words)


def _tell_story(story: Story) -> None:
    if not story.command:
        return
    print(f"\nlast run: {story.command}, profile {story.profile}, {story.started_at}")
    for failure in story.failures:
        print(f"  {failure.step}, attempt {failure.attempt} failed: {failure.reason}")
    if story.ended is None:
        print("  it is under way, or was cut off")
    elif story.ended["exit_code"]:
        print(f"  ended with {story.ended['exit_code']}: {story.ended['what']}")
        width = shutil.get_terminal_size((80, 24)).columns
        for line in explained([story.ended["why"]], [story.ended["next_step"]], width):
            print(line)
    else:
        print("  ended well")
