"""The order's sources as lots: sources of one lot give the same bytes, and so share the parts.

A wheel may hold its member deflated, which only the wheel itself can tell: it is a lot of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from typing_extensions import assert_never

from downloader.errors import ConfigurationInvalid, NotDelivered
from downloader.pace import backoff_s
from downloader.rotation import Exhausted, Rotation
from downloader.sources.base import Fault, Source
from downloader.sources.folder import FolderSource
from downloader.sources.web import http_folder, hugging_face, model_scope
from downloader.sources.wheel import WheelSource, find_member, wheel_name
from downloader.transport import Transport
from downloader.world import World
from wire import LockedFile
from wire.order import Folder, HttpFolder, HuggingFace, ModelScope, Order, WheelMember
from wire.order import Source as Ordered

Group = WheelMember | tuple[Ordered, ...]


@dataclass(frozen=True, slots=True)
class Lot:
    """`deflated_bytes`: the size of the deflated form, where that is what the sources give."""

    sources: tuple[Source, ...]
    deflated_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    source_dir: Path | None
    token: str
    transport: Transport


def groups(order: Order) -> Iterator[Group]:
    """The sources in their order, those of one lot together."""
    for is_wheel, group in groupby(order.sources, lambda each: isinstance(each, WheelMember)):
        if is_wheel:
            yield from (each for each in group if isinstance(each, WheelMember))
        else:
            yield tuple(group)


def open_lot(group: Group, order: Order, access: Access, world: World) -> Lot:
    """A wheel is looked into here, as often as it takes."""
    if not isinstance(group, WheelMember):
        return Lot(tuple(_source(each, access) for each in group))
    if len(order.lock.files) != 1:
        raise ConfigurationInvalid(
            "a wheel can be the source of one file only",
            why=(f"the lock has {len(order.lock.files)} files",),
            next_step="make the order again: this one can't be carried out",
        )
    opened = _wheel(group, order.lock.files[0], order, access.transport, world)
    return Lot((opened,), opened.packed.size_bytes if opened.packed.deflated else None)


def _source(source: Ordered, access: Access) -> Source:
    match source:
        case HuggingFace():
            return hugging_face(source, access.token, access.transport)
        case ModelScope():
            return model_scope(source, access.transport)
        case HttpFolder():
            return http_folder(source, access.transport)
        case Folder():
            if access.source_dir is None:
                raise ConfigurationInvalid(
                    "settings are missing",
                    why=("SOURCE_DIR is not set or empty, and the order names a folder",),
                    next_step="set SOURCE_DIR to the folder to read from",
                )
            return FolderSource(access.source_dir)
        case WheelMember():
            raise AssertionError(source)
        case _:
            assert_never(source)


def _wheel(
    source: WheelMember, file: LockedFile, order: Order, transport: Transport, world: World
) -> WheelSource:
    rotation = Rotation(1, order.tuning.switch_after_s, world.monotonic())
    failures = 0
    while True:
        try:
            return WheelSource(source, find_member(source, file, transport), transport)
        except Fault as fault:
            failures += 1
            world.say(f"the wheel {wheel_name(source)}: {fault.why}")
            try:
                rotation.faulted(file.path, 0, fault, world.monotonic())
                given_up = rotation.pick(file.path) is None
            except Exhausted:
                given_up = True
            if given_up:
                raise NotDelivered(
                    f"the wheel {wheel_name(source)} can't be read",
                    why=(fault.why,),
                    next_step=fault.next_step or "check the network, then run again",
                ) from fault
            wait_s = backoff_s(failures, order.tuning.backoff_cap_s, world.random())
            world.sleep(max(wait_s, fault.retry_after_s or 0.0))
