"""What is said where Docker does not answer."""

from orchestrator.core.errors import DockerUnavailable

DOCKER_HOST = "DOCKER_HOST"  # Docker's own variable
_USUAL = "/var/run/docker.sock"


def no_answer(why: str, named: str) -> DockerUnavailable:
    """`named`: what DOCKER_HOST holds, "" where it is not set."""
    return DockerUnavailable(
        "Docker does not answer",
        why=f"{named or _USUAL}: {why}",
        next_step=f"start the Docker that {DOCKER_HOST} names; for this machine's own: "
        f"unset {DOCKER_HOST}"
        if named
        else "./install.sh --no-up starts it, then: python3 -m orchestrator up",
    )


def root_of(error: BaseException) -> str:
    """What the system said, below what each library made of it; else what the last one made of it."""
    below: BaseException | None = error
    while below is not None:
        # Libraries' own errors are OSErrors too, with words of theirs in the place of the number.
        if isinstance(below, OSError) and isinstance(below.errno, int) and below.strerror:
            return below.strerror
        below = below.__cause__ or below.__context__
    return str(error)
