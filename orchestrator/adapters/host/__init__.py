"""Facts about this machine: thin reads. What the texts mean is decided in `core.probes`."""

from orchestrator.adapters.host.cards import read_health, read_held
from orchestrator.adapters.host.certificates import ca_bundle
from orchestrator.adapters.host.machine import read_machine
from orchestrator.adapters.host.measuring import measure_disk
from orchestrator.adapters.host.reading import read_host
from orchestrator.adapters.host.saved import load_facts, save_facts

__all__ = [
    "ca_bundle",
    "load_facts",
    "measure_disk",
    "read_health",
    "read_held",
    "read_host",
    "read_machine",
    "save_facts",
]
