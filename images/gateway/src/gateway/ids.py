"""Ids that nobody can guess, without asking the kernel for each."""

import itertools
import secrets
from hashlib import blake2b

_KEY = secrets.token_bytes(32)
_numbers = itertools.count()


def new_id() -> str:
    """32 hexadecimal digits."""
    number = next(_numbers).to_bytes(8, "big")
    return blake2b(number, key=_KEY, digest_size=16).hexdigest()
