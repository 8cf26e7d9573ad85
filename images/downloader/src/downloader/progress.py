"""How far a pass over many bytes is, in a line every few seconds."""

from downloader.world import World

EVERY_S = 5.0


class Progress:
    """One pass over `total_bytes`; `doing` says which, as in "copying"."""

    def __init__(self, doing: str, total_bytes: int, world: World) -> None:
        self._doing = doing
        self._total_bytes = total_bytes
        self._world = world
        self._done_bytes = 0
        self._started_s = self._said_s = world.monotonic()

    def add(self, more_bytes: int) -> None:
        self._world.beat()
        self._done_bytes += more_bytes
        now_s = self._world.monotonic()
        if now_s - self._said_s < EVERY_S:
            return
        self._said_s = now_s
        elapsed_s = now_s - self._started_s
        line = progress_line(self._doing, self._done_bytes, self._total_bytes, elapsed_s)
        self._world.say(line)


def progress_line(doing: str, done_bytes: int, total_bytes: int, elapsed_s: float) -> str:
    bytes_per_s = done_bytes / elapsed_s
    left_s = (total_bytes - done_bytes) / bytes_per_s if bytes_per_s else None
    left = "" if left_s is None else f", {duration(max(0.0, left_s))} left"
    return (
        f"{doing}: {gigabytes(done_bytes)} of {gigabytes(total_bytes)}, "
        f"{bytes_per_s / 1e6:.0f} MB/s{left}"
    )


def gigabytes(amount_bytes: int) -> str:
    return f"{amount_bytes / 1e9:.2f} GB"


def duration(span_s: float) -> str:
    minutes, seconds = divmod(round(span_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
