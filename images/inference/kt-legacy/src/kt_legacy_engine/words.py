"""From tokens to text that can be sent: whole characters only, and nothing of a stop string."""

from collections.abc import Sequence

from kt_legacy_engine.model import Tokenizer

_HALF = "\N{REPLACEMENT CHARACTER}"
# UTF-8 needs four bytes at most. More that can't be read in a row are no character to come.
_HALF_AT_MOST = 3


class Words:
    """Tokens one by one; text as soon as it is sure."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        # Some tokenizers decode a token otherwise at the start of a text: it is always decoded
        # together with the tokens of the piece before.
        self._before = 0
        # Up to here the tokens end with a whole character.
        self._whole = 0
        # Characters of what the tokens from `_before` on are.
        self._said = 0

    def push(self, token: int) -> str:
        self._tokens.append(token)
        return self._take(final=False)

    def end(self) -> str:
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        text = self._tokenizer.decode(self._tokens[self._before :])
        half = len(text) - len(text.rstrip(_HALF))
        sure = text if final else text[: len(text) - min(half, _HALF_AT_MOST)]
        new = sure[self._said :]
        if half:
            # Tokens may all end within a character: it is said whole once the next has come.
            self._said = len(sure)
        else:
            self._before, self._whole = self._whole, len(self._tokens)
            self._said = len(self._tokenizer.decode(self._tokens[self._before :]))
        return new


class Stops:
    """Holds back what may yet become a stop string."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        # So many characters of what is held end no stop string: it came too early.
        self._early = 0

    def push(self, text: str, *, early: bool = False) -> tuple[str, bool]:
        """What may be sent, and whether a stop string was met. It is not sent itself.

        `early`: no stop string counts that ends in `text`; one that only begins there does.
        """
        self._held += text
        if early:
            self._early = len(self._held)
        found = [at for stop in self._stops if (at := self._find(stop)) >= 0]
        if found:
            sent, self._held = self._held[: min(found)], ""
            return sent, True
        keep = max((self._beginning(stop) for stop in self._stops), default=0)
        cut = len(self._held) - keep
        sent, self._held = self._held[:cut], self._held[cut:]
        self._early = max(0, self._early - cut)
        return sent, False

    def end(self) -> str:
        sent, self._held = self._held, ""
        return sent

    def _find(self, stop: str) -> int:
        return self._held.find(stop, max(0, self._early - len(stop) + 1))

    def _beginning(self, stop: str) -> int:
        """How many characters at the end are the beginning of `stop`."""
        most = min(len(stop) - 1, len(self._held))
        return next((n for n in range(most, 0, -1) if self._held.endswith(stop[:n])), 0)
