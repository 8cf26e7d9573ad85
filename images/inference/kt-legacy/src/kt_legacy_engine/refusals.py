"""Why the container can't start, each kind with its exit code.

0 told to stop, 1 or above 128 the engine failed, 2 configuration, 3 no GPU that this engine can use,
6 weights not proven, 78 no CPU kernels for this processor.
"""

CONFIGURATION = 2
NO_GPU = 3
NOT_PROVEN = 6
NO_CPU_KERNELS = 78


class Refused(Exception):
    """`why` has one reason a line."""

    def __init__(
        self,
        what: str,
        *,
        why: tuple[str, ...],
        next_step: str,
        exit_code: int = CONFIGURATION,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step
        self.exit_code = exit_code

    def lines(self) -> str:
        reasons = "".join(f"why: {reason}\n" for reason in self.why)
        return f"error: {self.what}\n{reasons}next: {self.next_step}\n"
