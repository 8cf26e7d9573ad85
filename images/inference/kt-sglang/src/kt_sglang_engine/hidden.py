"""The engine's key as text that compares and is sent like any other, and is never shown or copied.

Sglang logs all of its arguments at the start, gives them to whoever asks `/server_info`, and hands
them to every process that it starts. None of these needs the key.
"""


class Hidden(str):
    """Shown as stars; pickled and deep-copied, as `dataclasses.asdict` does, as nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce_ex__(self, protocol: object) -> tuple[type[str], tuple[()]]:
        return str, ()
