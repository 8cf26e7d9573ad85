"""What the kernel says of the CPU, of itself and of this process."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.core.facts import Cpu, Limits
from orchestrator.core.probes.text import (
    any_label,
    cpu_list,
    labelled,
    lines,
    number,
    whole,
    whole_lines,
)

HARDWARE_LIMITS = re.compile(r"\s*hardware limits: .* - (\d[\d.]*) ([MG])Hz\s*", re.ASCII)
POLICY = re.compile(r".*\bshould be within .* and (\d[\d.]*) ([MG])Hz\.?\s*", re.ASCII)
GOVERNOR = re.compile(r'\s*The governor "(\w+)" may decide.*', re.ASCII)
UNAME = re.compile(r"(?P<system>[A-Z][A-Za-z]+) .*?(?P<kernel>\d+\.\d+\S*) .*", re.ASCII)
ARCHITECTURES = ("x86_64", "aarch64", "i686", "ppc64le", "riscv64", "s390x", "armv7l")
# A hypervisor that hides behind no name of its own is told by the maker of the machine it shows.
MAKERS = {
    "qemu": "kvm",
    "kvm": "kvm",
    "red hat": "kvm",
    "openstack": "kvm",
    "amazon ec2": "amazon",
    "google": "google",
    "vmware": "vmware",
    "innotek": "oracle",
    "xen": "xen",
    "microsoft corporation": "microsoft",
    "alibaba cloud": "kvm",
    "tencent cloud": "kvm",
    "digitalocean": "kvm",
    "parallels": "parallels",
}


def parse_cpuinfo(text: str) -> Cpu:
    """/proc/cpuinfo. Of one CPU alone the rest follows only where its numbers fit together."""
    told = "\n".join(whole_lines(text))
    blocks = [labelled(block) for block in re.split(r"\n[ \t]*\n", told) if "processor" in block]
    if not blocks:
        return Cpu()
    first = blocks[0]
    flags = first.get("flags")
    # The kernel never ends a CPU with its flags: where nothing follows, they may go on.
    complete = "flags" in first and list(first)[-1] != "flags"
    return (_counted(blocks) or _extrapolated(blocks[-1])).model_copy(
        update={
            "model": first.get("model name"),
            "flags": frozenset(flags.split()) if flags else None,
            "flags_complete": complete,
        }
    )


def _counted(blocks: list[dict[str, str]]) -> Cpu | None:
    """All CPUs are there, numbered from 0, as many in each socket as it says it has."""
    if [block.get("processor") for block in blocks] != [str(at) for at in range(len(blocks))]:
        return None
    sockets = [block.get("physical id") for block in blocks]
    siblings = [block.get("siblings") for block in blocks]
    if any(siblings[at] != str(sockets.count(sockets[at])) for at in range(len(blocks))):
        return None
    cores = {(block.get("physical id"), block.get("core id")) for block in blocks}
    whole_cores = all("core id" in block for block in blocks)
    per_core = len(blocks) // len(cores) if len(blocks) % len(cores) == 0 else None
    return Cpu(
        sockets=len(set(sockets)),
        physical_cores=len(cores) if whole_cores else None,
        threads=len(blocks),
        threads_per_core=per_core if whole_cores else None,
    )


def _extrapolated(last: Mapping[str, str]) -> Cpu:
    """The last CPU of a host of equal sockets: its own number, its socket's and their sizes agree."""
    number_of, socket = whole(last.get("processor")), whole(last.get("physical id"))
    siblings, cores = whole(last.get("siblings")), whole(last.get("cpu cores"))
    if number_of is None or socket is None or not siblings or not cores:
        return Cpu()
    if siblings * (socket + 1) != number_of + 1 or siblings % cores:
        return Cpu()
    return Cpu(
        sockets=socket + 1,
        physical_cores=cores * (socket + 1),
        threads=number_of + 1,
        threads_per_core=siblings // cores,
    )


def parse_cpupower(text: str) -> Cpu:
    """`cpupower frequency-info`: what the hardware could do, and what the policy allows."""
    governors = {found[1] for line in lines(text) if (found := GOVERNOR.fullmatch(line))}
    return Cpu(
        governor=one_governor(governors),
        max_mhz=_megahertz(HARDWARE_LIMITS, text),
        limit_mhz=_megahertz(POLICY, text),
    )


def _megahertz(pattern: re.Pattern[str], text: str) -> float | None:
    found = next((match for line in lines(text) if (match := pattern.fullmatch(line))), None)
    value = number(found[1]) if found else None
    if found is None or value is None:
        return None
    return value * 1000 if found[2] == "G" else value


def one_governor(governors: Iterable[str]) -> str | None:
    words = {word.strip() for word in governors}
    return ",".join(sorted(word for word in words if re.fullmatch(r"[a-z_]+", word))) or None


def parse_nproc(text: str) -> int | None:
    return whole(text.strip()) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uname:
    system: str | None = None
    kernel: str | None = None
    architecture: str | None = None


def parse_uname(text: str) -> Uname:
    """`uname -a`, with or without some of its words. The host's name is not kept."""
    found = UNAME.match(text)
    return Uname(
        system=found["system"] if found else None,
        kernel=found["kernel"] if found else None,
        architecture=next((word for word in text.split() if word in ARCHITECTURES), None),
    )


def parse_status(text: str) -> Limits:
    """/proc/self/status: the CPUs that this process may run on."""
    allowed = any_label(labelled(text), "cpus_allowed_list")
    return Limits(cpuset=(cpu_list(allowed) or None) if allowed else None)


def parse_switch(text: str) -> bool | None:
    """A file of 0 or more, such as numa_balancing, where modes above 1 are on as well."""
    value = whole(text.strip())
    return None if value is None else value > 0


def hypervisor(kernel: str | None, cpu: Cpu, makers: Iterable[str], hypervisor_type: str) -> str:
    """The kind of virtual machine this is, "" where it is none, "vm" where its kind is not told.

    `makers`: maker and product by the firmware. x86 hypervisors own up to being one in the flags.
    """
    if "microsoft" in (kernel or "").lower():
        return "wsl"
    if hypervisor_type.strip():
        return hypervisor_type.strip()
    if cpu.flags is not None and cpu.flags_complete and "hypervisor" not in cpu.flags:
        return ""
    shown = " ".join(makers).lower()
    named = next((kind for word, kind in MAKERS.items() if word in shown), "")
    return named or ("vm" if cpu.has("hypervisor") else "")
