"""How far it is, as figures and as a line. Touches nothing."""


def eta_s(done_bytes: int, total_bytes: int, rate: float) -> float | None:
    """None while it can't be told."""
    if done_bytes >= total_bytes:
        return 0.0
    return (total_bytes - done_bytes) / rate if rate > 0 else None


def progress_line(doing: str, done_bytes: int, total_bytes: int, rate: float) -> str:
    left_s = eta_s(done_bytes, total_bytes, rate)
    left = "" if left_s is None else f", {duration(left_s)} left"
    # Rounded down: 100 % is said of nothing that is not all there.
    percent = done_bytes * 1000 // total_bytes / 10 if total_bytes else 100.0
    return (
        f"{doing}: {gigabytes(done_bytes)} of {gigabytes(total_bytes)} ({percent:.1f} %), "
        f"{rate / 1e6:.1f} MB/s{left}"
    )


def gigabytes(amount_bytes: int) -> str:
    return f"{amount_bytes / 1e9:.2f} GB"


def duration(span_s: float) -> str:
    minutes, seconds = divmod(round(span_s), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
