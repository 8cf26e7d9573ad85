"""The memory that our own engine holds on a card counts as free: it is given back at the next start."""

import pytest

import hosts
from orchestrator.core.probes.nvidia_lists import held_by
from orchestrator.core.room import card_room, given_back

MIB = 1 << 20
ADDRESSES = {0: "0000:01:00.0", 1: "0000:02:00.0"}
APPS = """gpu_bus_id, pid, used_gpu_memory [MiB]
00000000:01:00.0, 71, 861 MiB
00000000:01:00.0, 99, 4000 MiB
00000000:02:00.0, 71, 500 MiB
00000000:02:00.0, 72, 11 MiB
"""


def test_of_each_card_only_our_own_processes_count() -> None:
    assert held_by(APPS, ADDRESSES, frozenset({71, 72})) == {0: 861 * MIB, 1: 511 * MIB}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No running processes found",
        "00000000:01:00.0, 71, [N/A]",
        "00000000:09:00.0, 71, 5 MiB",
        "00000000:01:00.0, [N/A], 5 MiB",
        "odd, 71, 5 MiB",
    ],
)
def test_what_the_driver_does_not_say_counts_as_nothing(text: str) -> None:
    assert held_by(text + "\n", ADDRESSES, frozenset({71})) == {}


def test_a_card_has_room_again_for_what_ran_on_it() -> None:
    facts = hosts.h200()
    assert facts.gpus
    card = facts.gpus[0]
    assert card.memory_bytes
    taken = card.model_copy(
        update={"memory_used_bytes": card.memory_bytes - MIB, "memory_free_bytes": MIB}
    )
    (found,) = given_back((taken,), {0: card.memory_bytes - 2 * MIB})
    assert card_room(found) == card.memory_bytes - MIB
    assert given_back((taken,), {1: MIB}) == (taken,)
    unknown = card.model_copy(update={"memory_used_bytes": None, "memory_free_bytes": None})
    assert given_back((unknown,), {0: MIB}) == (unknown,)
