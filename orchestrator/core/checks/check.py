"""What stays the same of a check, whatever it finds."""

from dataclasses import dataclass

from orchestrator.core.checks.finding import Finding, Said, Severity
from orchestrator.core.facts import HostFacts

NOTHING = Said("", "")
NOT_NEEDED = "-"


@dataclass(frozen=True, slots=True)
class Remedy:
    """`fix`, `undo`: commands to run as they stand. `next_step`: what to do where no command does."""

    fix: str = ""
    undo: str = ""
    next_step: Said = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`ask`: the command that shows what the host did not say by itself."""

    name: str
    why: Said
    ask: str
    of_host: bool = False

    def ok(self, found: str, needed: str = NOT_NEEDED) -> Finding:
        return self._finding(Severity.OK, found, needed, Remedy())

    def unknown(self, needed: str) -> Finding:
        how = Said(f"find out with: {self.ask}", f"查看方法：{self.ask}")
        return self._finding(Severity.UNKNOWN, "?", needed, Remedy(next_step=how))

    def warn(self, found: str, needed: str, remedy: Remedy) -> Finding:
        return self._finding(Severity.WARN, found, needed, remedy)

    def block(self, found: str, needed: str, remedy: Remedy) -> Finding:
        return self._finding(Severity.BLOCK, found, needed, remedy)

    def _finding(self, severity: Severity, found: str, needed: str, remedy: Remedy) -> Finding:
        return Finding(
            check=self.name,
            severity=severity,
            found=found,
            needed=needed,
            why=self.why,
            fix=remedy.fix,
            undo=remedy.undo,
            next_step=remedy.next_step,
            of_host=self.of_host,
        )


def gb(count: float) -> str:
    """10^9 bytes, as disks and the sizes of weights are told."""
    return f"{count / 1e9:.1f} GB"


def counted(count: float, thing: str) -> str:
    """`1 core`, `2 cores`."""
    return f"{count:g} {thing}" if count == 1 else f"{count:g} {thing}s"


def not_shown(facts: HostFacts) -> str:
    """Where a virtual machine or a container is not told."""
    return f"n/a ({facts.limits.virtual or facts.limits.container})"


def in_wsl(facts: HostFacts) -> bool:
    """Linux inside Windows, by what says so: lscpu names only Microsoft's hypervisor."""
    return facts.limits.virtual == "wsl" or "microsoft" in (facts.kernel or "").lower()
