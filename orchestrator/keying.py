"""The commands about keys of the API: make one, list them with what they used, limit, revoke."""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager

from orchestrator.adapters import control_socket, key_files
from orchestrator.aligning import aligned
from orchestrator.commands import Typed, print_json
from orchestrator.core.key_words import (
    as_record,
    as_rows,
    ended_in_words,
    ids_of_revoked,
    limits_in_words,
    midnight_s,
    read_expiry,
    read_limit,
    revoked_record,
    usage_record,
)
from orchestrator.core.keys import (
    ID_BYTES,
    OWN_IDS,
    SECRET_BYTES,
    Key,
    KeyClass,
    KeyLimits,
    find_key,
    fit_name,
    minted,
    unused_id,
    with_changed_key,
    with_key,
    with_revoked,
    without_key,
)
from orchestrator.core.plan import owner_for
from orchestrator.place import Place, settings_without_profile

HEADINGS = ("id", "name", "class", "limits", "end", "use")


def create(
    typed: Typed, name: str, *, key_class: KeyClass, limits: Mapping[str, str], expires: str | None
) -> int:
    """`limits`: as typed, by the record's field. The key is shown this once, and kept nowhere."""
    place, now_s = _place(typed), int(time.time())
    secret = minted(key_files.random_bytes(SECRET_BYTES))
    expires_at_s = read_expiry(expires, now_s) if expires else None
    own_limits = KeyLimits(**_read_limits(limits))
    books = key_files.read_books(place.usage, midnight_s(now_s))
    with _changing(place):
        keys = key_files.read_keys(place.control)
        revoked = key_files.read_revoked(place.control)
        ids = {key.id for key in keys.keys} | {key.id for key in revoked.keys}
        taken = ids | {*OWN_IDS, *books.usage}
        key = Key(
            id=unused_id(key_files.random_bytes(ID_BYTES), taken),
            name=fit_name(name),
            sha256=secret.sha256,
            key_class=key_class,
            limits=own_limits,
            created_at_s=now_s,
            expires_at_s=expires_at_s,
        )
        key_files.write_keys(place.control, with_key(keys, key), _owner())
    if typed.as_json:
        print_json(as_record(key, None) | {"key": secret.text})
        return 0
    print(f"Key {key.id} for {key.name}. It is shown this once, and kept nowhere:\n")
    print(f"  {secret.text}\n")
    print("It opens the API at once. Take it back: python3 -m orchestrator key revoke " + key.id)
    return 0


def list_keys(typed: Typed) -> int:
    place, now_s = _place(typed), int(time.time())
    keys = key_files.read_keys(place.control).keys
    revoked = key_files.read_revoked(place.control).keys
    books = key_files.read_books(place.usage, midnight_s(now_s))
    if typed.as_json:
        used, gone = books.usage, {key.id: key for key in revoked}
        record = {
            "keys": [as_record(key, used.get(key.id)) for key in keys],
            "own": {i: usage_record(used[i]) if i in used else None for i in OWN_IDS},
            "revoked": {
                i: revoked_record(gone.get(i), used[i]) for i in ids_of_revoked(keys, used)
            },
            "usage_problem": books.problem or None,
        }
        print_json(record, indent=2)
        return 0
    for line in aligned([HEADINGS, *as_rows(keys, revoked, books.usage, now_s)]):
        print(line)
    if books.problem:
        print(f"\nWhat was used is not known: {books.problem}")
    return 0


def revoke(typed: Typed, named: str) -> int:
    """At once: its requests that are running or waiting end, the next one is refused."""
    place = _place(typed)
    with _changing(place):
        keys = key_files.read_keys(place.control)
        key = find_key(keys, named)
        revoked = with_revoked(key_files.read_revoked(place.control), key, int(time.time()))
        # First, so that a cut between the two loses no name.
        key_files.write_revoked(place.control, revoked, _owner())
        key_files.write_keys(place.control, without_key(keys, key), _owner())
    ended = control_socket.have_files_read(place.control)
    if typed.as_json:
        print_json({"revoked": key.id, "ended": ended})
    else:
        print(f"Revoked: {key.id} ({key.name}). What it used stays in `key list`.")
        print(ended_in_words(ended))
    return 0


def limit(
    typed: Typed,
    named: str,
    *,
    key_class: KeyClass | None,
    limits: Mapping[str, str],
    expires: str | None,
) -> int:
    """Changes what is named, and nothing else; `none` takes a limit away."""
    place, now_s = _place(typed), int(time.time())
    changes: dict[str, object] = {}
    if key_class is not None:
        changes["key_class"] = key_class
    if expires is not None:
        changes["expires_at_s"] = read_expiry(expires, now_s)
    new_limits = _read_limits(limits)
    with _changing(place):
        keys = key_files.read_keys(place.control)
        key = find_key(keys, named)
        changed = with_changed_key(keys, key, new_limits, changes)
        key_files.write_keys(place.control, changed, _owner())
    now = find_key(changed, key.id)
    if typed.as_json:
        print_json(as_record(now, None))
        return 0
    print(f"{now.id} ({now.name}), {now.key_class}: {limits_in_words(now.limits) or 'no limits'}.")
    return 0


def _read_limits(typed: Mapping[str, str]) -> dict[str, int | None]:
    return {name: read_limit(text) for name, text in typed.items()}


def _place(typed: Typed) -> Place:
    return settings_without_profile(typed.root, typed.flags)[2]


def _changing(place: Place) -> AbstractContextManager[None]:
    return key_files.changing_keys(place.control, _owner())


def _owner() -> tuple[int, int]:
    return owner_for(*key_files.this_user())
