"""A card that fails: what the driver's tool and the kernel say, and what the gate makes of it.

Texts of nvidia-smi and of the kernel are as they stand in reports of drivers 369 to 550, with other
addresses; UUIDs are made up.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import ABSENT, CRASHED, HEALTHY, STARTING, FakeStack, a_plan, a_world
from machines import a_tool
from orchestrator import reporting
from orchestrator.adapters.host import read_health
from orchestrator.adapters.lookout import EngineLookout
from orchestrator.core.checks import gpu as checks
from orchestrator.core.checks.finding import Severity
from orchestrator.core.errors import GateStayedShut, OrchestratorError
from orchestrator.core.events import Event, StepGaveUp, StepStarted
from orchestrator.core.facts import Gpu, HostFacts
from orchestrator.core.gates import Fault, GateResult, Sighting, Verdict, with_ailments
from orchestrator.core.probes.nvidia import parse_table
from orchestrator.core.probes.nvidia_health import (
    OFF_THE_BUS,
    Ailment,
    Health,
    Seen,
    ailments,
    lost_cards,
    uuid_in,
)
from orchestrator.core.probes.nvidia_lists import parse_query
from orchestrator.execute import execute
from orchestrator.place import Place
from orchestrator.world import World

ADDRESS, UUID = "0000:0b:00.0", "GPU-3e34e62f-0000-4000-8000-cf2cbf2c6178"
INFORMATION = f"""Model: \t\t NVIDIA GeForce RTX 4090
IRQ:   \t\t 142
GPU UUID: \t {UUID}
Video BIOS: \t 95.02.3c.80.b4
Bus Type: \t PCIe
Bus Location: \t {ADDRESS}
"""
LOST = "Unable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
NONE_LEFT = (
    "Unable to determine the device handle for GPU0: 0000:0B:00.0: Unknown Error\n"
    "No devices were found\n"
)
NOT_LOADED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
    "latest NVIDIA driver is installed and running.\n"
)
XID_79 = (
    "[ 4242.1] NVRM: GPU at PCI:0000:0b:00: GPU-3e34e62f-0000-4000-8000-cf2cbf2c6178\n"
    "[ 4242.2] NVRM: Xid (PCI:0000:0b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
)
MUTE = """+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  NVIDIA A100-SXM...  On   | 00000000:07:00.0 Off |                    2 |
| N/A   31C    P0    51W / 400W |      0MiB / 40536MiB |      0%      Default |
|                               |                      |             Disabled |
+-------------------------------+----------------------+----------------------+
|   1  ERR!                ERR! | 00000000:0B:00.0 ERR! |                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |  40536MiB / 40536MiB |    ERR!         ERR! |
|                               |                      |                 ERR! |
+-------------------------------+----------------------+----------------------+
"""
FINE = Gpu(index=0, name="NVIDIA H200", persistence=True, ecc_errors=0)


def seen(**changes: object) -> Seen:
    """A host whose one card is well, and what was said otherwise."""
    well = Seen(
        smi="",
        kernel_log="",
        uuids={ADDRESS: UUID},
        gpus=(FINE,),
        addresses={0: ADDRESS},
        on_the_bus=1,
        expected=(0,),
    )
    return replace(well, **changes)  # type: ignore[arg-type]


def told(found: Sequence[Ailment]) -> list[tuple[str, str, bool]]:
    return [(one.card, one.what, one.fatal) for one in found]


def test_a_card_that_is_well_has_no_ailment() -> None:
    assert ailments(seen()) == ()


@pytest.mark.parametrize(
    "smi",
    [
        LOST,
        LOST.replace("GPU 0000", "gpu 0000"),
        "Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error\n",
        NONE_LEFT,
        MUTE,
    ],
    ids=["driver 369", "-L", "driver 535", "driver 550", "table"],
)
def test_a_card_off_the_bus_is_named_by_its_uuid_with_what_to_do(smi: str) -> None:
    (found,) = [one for one in ailments(seen(smi=smi, gpus=None, addresses={})) if one.fatal]
    assert found.words.startswith(f"the card {UUID} fell off the bus: reboot this host")
    assert list(lost_cards(smi)) == [ADDRESS]


def test_the_kernels_word_alone_is_enough_and_the_same_card_is_told_once() -> None:
    gone = {"gpus": (), "addresses": {}, "on_the_bus": 0, "expected": ()}
    assert told(ailments(seen(kernel_log=XID_79, **gone))) == [(UUID, OFF_THE_BUS, True)]
    both = ailments(seen(smi=LOST, kernel_log=XID_79, gpus=None, addresses={}))
    assert told(both) == [(UUID, OFF_THE_BUS, True)]


def test_a_card_that_answers_again_is_not_held_to_be_lost() -> None:
    assert ailments(seen(kernel_log=XID_79)) == ()


def test_errors_of_programs_are_no_fault_of_the_card() -> None:
    log = "NVRM: Xid (PCI:0000:0b:00): 31, pid=77, name=python3, Ch 00000008, MMU Fault\n"
    log += "NVRM: Xid (PCI:0000:0b:00): 43, pid=77, name=python3, Ch 00000008\n"
    assert ailments(seen(kernel_log=log)) == ()


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (48, "had a memory error that it could not correct (Xid 48)"),
        (94, "had a memory error that it could not correct (Xid 94)"),
    ],
)
def test_memory_errors_in_the_kernels_log_are_told_and_do_not_stop_another_try(
    number: int, what: str
) -> None:
    log = f"NVRM: Xid (PCI:0000:0b:00): {number}, pid=77, name=python3, DBE (double bit error)\n"
    assert told(ailments(seen(kernel_log=log))) == [(UUID, what, False)]


def test_memory_errors_that_the_card_counted_are_told() -> None:
    worn = FINE.model_copy(update={"ecc_errors": 3})
    ((card, what, fatal),) = told(ailments(seen(gpus=(worn,))))
    assert (card, fatal) == (UUID, False)
    assert what.startswith("had 3 memory errors that it could not correct")


def test_persistence_mode_is_asked_for_where_the_engine_uses_the_card() -> None:
    off = FINE.model_copy(update={"persistence": False})
    (found,) = ailments(seen(gpus=(off,)))
    assert (found.do, found.fatal) == ("nvidia-smi -pm 1", False)
    assert ailments(seen(gpus=(off,), expected=())) == ()


@pytest.mark.parametrize(
    ("smi", "gpus", "bus", "words"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90\n",
            None,
            1,
            "NVIDIA's driver was updated, and the kernel still runs the one before: reboot this host",
        ),
        (
            NOT_LOADED,
            None,
            1,
            "NVIDIA's driver is not loaded: modprobe nvidia",
        ),
        ("No devices were found\n", (), 2, "NVIDIA's driver finds no card, and 2 are on the bus: "),
        ("", (FINE,), 1, "the card 1 is not there any more: reboot this host"),
        (
            "Unable to determine the device handle for GPU 0000:0B:00.0: GPU requires reset\n",
            None,
            1,
            f"the card {UUID} needs a reset: stop what uses it, then: nvidia-smi --gpu-reset -i {ADDRESS}",
        ),
    ],
    ids=["mismatch", "not loaded", "none found", "missing", "reset"],
)
def test_other_ways_to_be_gone_have_their_own_way_back(
    smi: str, gpus: tuple[Gpu, ...] | None, bus: int, words: str
) -> None:
    addresses = {0: "0000:07:00.0"} if gpus else {}
    found = ailments(seen(smi=smi, gpus=gpus, on_the_bus=bus, expected=(0, 1), addresses=addresses))
    assert [one.words[: len(words)] for one in found] == [words]
    assert found[0].fatal


def test_errors_of_memory_are_read_from_the_table_and_from_the_query() -> None:
    table = parse_table(MUTE)
    assert table.gpus is not None
    assert [(gpu.index, gpu.ecc_errors) for gpu in table.gpus] == [(0, 2)]
    assert table.lost == 1
    header = "index, name, ecc.errors.uncorrected.volatile.total\n"
    queried = parse_query(header + "0, NVIDIA H200, 7\n1, NVIDIA GeForce RTX 4090, [N/A]\n").gpus
    assert queried is not None
    assert [gpu.ecc_errors for gpu in queried] == [7, None]


def test_a_table_of_cards_without_ecc_or_cut_by_mig_says_nothing_of_errors() -> None:
    hosts = Path(__file__).parents[1] / "fixtures/hosts"
    for name in ("36-3090-125gib", "29-a30-mig-4x6gb"):
        gpus = parse_table((hosts / name / "nvidia-smi.txt").read_text(encoding="utf-8")).gpus
        assert gpus
        assert {gpu.ecc_errors for gpu in gpus} == {None}, name


def test_a_uuid_outlives_its_card_in_the_drivers_own_files() -> None:
    assert uuid_in(INFORMATION) == UUID
    assert uuid_in(INFORMATION.replace(UUID, "GPU-????????-????-????-????-????????????")) is None


# --- read from a host ---


def test_the_hosts_own_tools_are_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_tool(tmp_path / "bin", "nvidia-smi", f"echo '{LOST.strip()}' >&2; exit 15")
    a_tool(tmp_path / "bin", "dmesg", f'cat <<"END"\n{XID_79}END')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/bin")
    known = tmp_path / "proc/driver/nvidia/gpus" / ADDRESS
    known.mkdir(parents=True)
    (known / "information").write_text(INFORMATION, encoding="utf-8")
    found = read_health([0], tmp_path)
    assert told(found.ailments) == [(UUID, OFF_THE_BUS, True)]
    assert found.gpus is None


def test_a_host_without_the_tool_has_nothing_to_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("orchestrator.adapters.host.commands.WSL_TOOLS", str(tmp_path))
    assert read_health([0], tmp_path) == Health(gpus=None, ailments=())


# --- at the gate ---

OFF = Ailment(card=UUID, what=OFF_THE_BUS, do="reboot this host", fatal=True)
WORN = Ailment(card=UUID, what="had 3 memory errors", do="have it replaced", fatal=False)
SHUT = GateResult(Verdict.SHUT, "exit 3: no GPU can be used", Fault.CONFIGURATION)


def test_a_lost_card_is_the_verdict_and_the_engines_own_word_comes_after() -> None:
    found = with_ailments(SHUT, (WORN, OFF))
    assert found.fault is Fault.CARD
    assert found.reason == f"the card {UUID} fell off the bus: reboot this host; {SHUT.reason}"


def test_what_is_not_fatal_is_told_after_the_reason_and_changes_nothing() -> None:
    found = with_ailments(SHUT, (WORN,))
    assert found == GateResult(Verdict.SHUT, f"{SHUT.reason}; {WORN.words}", SHUT.fault)


@pytest.mark.parametrize("fault", [Fault.VERIFICATION, Fault.KEY, Fault.ACCEPTANCE, Fault.SOURCE])
def test_no_card_is_blamed_for_what_is_not_the_engines(fault: Fault) -> None:
    result = replace(SHUT, fault=fault)
    assert with_ailments(result, (OFF,)) == result


def run(world: World) -> tuple[list[Event], OrchestratorError]:
    """What happened, and the error that ended it."""
    happened: list[Event] = []
    try:
        for event in execute(a_plan(load_timeout_s=10), world):
            happened.append(event)  # noqa: PERF402 - extend would lose them on an error
    except OrchestratorError as error:
        return happened, error
    pytest.fail("it came up")


def a_world_with(
    ills: tuple[Ailment, ...], *inference: Sighting, stack: FakeStack | None = None
) -> World:
    world = a_world(stack, inference=[ABSENT, *inference])
    world.lookout.ills = ills  # type: ignore[attr-defined]
    return world


@pytest.mark.parametrize("seen", [CRASHED, STARTING], ids=["it dies", "it never comes up"])
def test_an_engine_whose_card_is_lost_is_not_tried_again_and_says_why(seen: Sighting) -> None:
    stack = FakeStack()
    world = a_world_with((OFF,), seen, stack=stack)
    events, error = run(world)
    assert isinstance(error, GateStayedShut)
    assert error.what == "inference: a GPU of this host failed"
    assert str(error.why).startswith(f"the card {UUID} fell off the bus: reboot this host")
    assert "python3 -m orchestrator up" in str(error.next_step)
    attempts = [e for e in events if isinstance(e, StepStarted) and e.step == "inference"]
    assert len(attempts) == 1
    assert all(e.reason.startswith("the card") for e in events if isinstance(e, StepGaveUp))
    assert stack.calls[-1] == "stop inference"


def test_a_container_that_docker_can_not_start_for_its_card_is_explained_too() -> None:
    stack = FakeStack(refusals={"inference": ["nvidia-container-cli: nvml error: gpu is lost"]})
    _, error = run(a_world_with((OFF,), ABSENT, stack=stack))
    assert str(error.why).endswith("nvidia-container-cli: nvml error: gpu is lost")
    assert "fell off the bus" in str(error.why)


def test_cards_are_looked_at_only_where_a_service_does_not_come_up() -> None:
    well = a_world_with((OFF,), STARTING, HEALTHY)
    list(execute(a_plan(), well))
    assert well.lookout.examined == []  # type: ignore[attr-defined]
    ill = a_world_with((), *[STARTING] * 3, CRASHED)
    run(ill)
    assert ill.lookout.examined == ["inference"] * 3  # type: ignore[attr-defined]  # of three attempts


def test_only_the_engine_has_cards() -> None:
    lookout = EngineLookout.__new__(EngineLookout)
    lookout._health = None
    assert lookout.ailments("inference") == ()
    lookout.watch_cards(lambda: Health(gpus=None, ailments=(OFF,)))
    assert lookout.ailments("inference") == (OFF,)
    assert lookout.ailments("gateway") == ()


# --- status and doctor ---


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", None),
        ("1", [1]),
        ("0,2", [0, 2]),
        ("nvidia.com/gpu=3", [3]),
        ("nvidia.com/gpu=all", []),
    ],
)
def test_status_asks_for_the_cards_that_the_engine_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, expected: list[int] | None
) -> None:
    here = Place(
        root=tmp_path, state=tmp_path, secrets=tmp_path, weights=tmp_path, configs=tmp_path
    )
    here.env_file.write_text(f"STACK_GPU_DEVICES='{given}'\n" if given else "", encoding="utf-8")
    asked: list[list[int]] = []

    def read(indices: list[int]) -> Health:
        asked.append(indices)
        return Health(gpus=(FINE,), ailments=(WORN,))

    monkeypatch.setattr(reporting, "read_health", read)
    found = reporting._health(here)
    assert asked == ([] if expected is None else [expected])
    assert (found is None) is (expected is None)


def test_status_tells_of_every_card_what_it_holds_and_its_errors_of_memory() -> None:
    gpu = FINE.model_copy(update={"memory_bytes": 150_800_000_000, "memory_used_bytes": 10**9})
    assert reporting._card(gpu) == (
        "GPU 0  NVIDIA H200: 1.0 of 150.8 GB of VRAM used, 0 ECC errors"
    )
    assert reporting._card(Gpu(index=1)) == "GPU 1  ?: it says nothing of itself"
    assert list(reporting._warnings(Health(gpus=None, ailments=(OFF,)))) == [
        f"warning: the card {UUID} fell off the bus: reboot this host"
    ]


def test_doctor_tells_of_lost_cards_and_of_errors_of_memory() -> None:
    host = HostFacts(gpus=(FINE,))
    assert checks.ecc(host).severity is Severity.OK
    assert checks.gpu_lost(host).severity is Severity.OK
    worn = HostFacts(gpus=(FINE, Gpu(index=1, ecc_errors=4)))
    assert (checks.ecc(worn).severity, checks.ecc(worn).found) == (Severity.WARN, "GPU 1: 4")
    lost = checks.gpu_lost(HostFacts(lost_gpus=1))
    assert (lost.severity, lost.found) == (Severity.WARN, "1 GPU")
    assert checks.ecc(HostFacts()).severity is Severity.UNKNOWN
    assert checks.ecc(HostFacts(gpus=(Gpu(index=0),))).severity is Severity.OK
