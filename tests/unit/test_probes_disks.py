"""`df` as people paste it: every real file system is kept, and one of them is to hold the weights."""

from pathlib import PurePosixPath

import pytest

from orchestrator.core.facts import HostFacts
from orchestrator.core.probes import disk
from orchestrator.core.probes.captures import facts_of
from pastes import DF

GIB = 1 << 30
# 3.5, 1.1 and 2.3 TB of ext4: 3,500,000,000,000 has 13 digits.
BYTES = """\
Filesystem       1B-blocks          Used     Available Use% Mounted on
tmpfs          50642145280       3256320   50638888960   1% /run
/dev/sda2     105089261568   33285996544   66431164416  34% /
/dev/nvme1n1 3500000000000 1100000000000 2300000000000  33% /data
"""
TYPED = """\
Filesystem     Type      Size  Used Avail Use% Mounted on
tmpfs          tmpfs      48G  3.1M   48G   1% /run
efivarfs       efivarfs  512K  180K  328K  36% /sys/firmware/efi/efivars
/dev/sda2      ext4       98G   31G   63G  33% /
nas:/export    nfs4       20T  8.0T   12T  40% /mnt/nas
"""
KILOBYTES = """\
Dateisystem    1K-Blöcke    Benutzt  Verfügbar Verw% Eingehängt auf
udev            98901232          0   98901232    0% /dev
/dev/sda2      102626232   32505856   64874184   34% /
/dev/nvme1n1  3418000000 1074000000 2246000000   33% /data
"""
CHINESE = """\
文件系统        容量  已用  可用 已用% 挂载点
udev            7.4G     0  7.4G    0% /dev
/dev/nvme1n1p2  938G  344G  547G   39% /
/dev/sdb1       3.6T  1.3T  2.3T   36% /mnt/数据 盘
"""
FRENCH = """\
Sys. de fichiers blocs de 1K Utilisé Disponible Uti% Monté sur
/dev/sda2               1000     400        500  45% /
"""
LONG_NAME = """\
Filesystem            Size  Used Avail Use% Mounted on
/dev/mapper/vg00-a--long--name
                       98G   31G   63G  33% /srv
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # A bare letter is read as the smaller of its two meanings: 2.3 x 10^12.
        (DF, {"/": 63 * 10**9, "/data": 2_300_000_000_000}),
        (BYTES, {"/": 66_431_164_416, "/data": 2_300_000_000_000}),
        (TYPED, {"/": 63 * 10**9, "/mnt/nas": 12 * 10**12}),
        (KILOBYTES, {"/": 64_874_184 * 1024, "/data": 2_246_000_000 * 1024}),
        (CHINESE, {"/": 547 * 10**9, "/mnt/数据 盘": 2_300_000_000_000}),
        (FRENCH, {"/": 500 * 1024}),
        # Only the lines that somebody thought worth copying.
        ("/dev/sdb1       3.6T  1.3T  2.3T   36% /data\n", {"/data": 2_300_000_000_000}),
        # An old df puts what follows a long name on a line of its own.
        (
            LONG_NAME,
            {"/srv": 63 * 10**9},
        ),
        ("tmpfs 48G 3.1M 48G 1% /run\n", {}),
        ("", {}),
    ],
)
def test_every_real_file_system_of_a_df_is_kept_in_each_of_its_forms(
    text: str, found: dict[str, int]
) -> None:
    assert {one.path: one.free_bytes for one in disk.parse_df(text)} == found


def test_what_docker_and_windows_mount_is_no_place_for_weights() -> None:
    text = (
        "Filesystem Size Used Avail Use% Mounted on\n"
        "overlay 98G 31G 63G 33% /var/lib/docker/overlay2/0a/merged\n"
        "drivers 930G 400G 530G 43% /usr/lib/wsl/drivers\n/dev/loop3 64M 64M 0 100% /snap/core/1\n"
    )
    assert disk.parse_df(text) == ()


def test_a_df_that_names_the_kind_of_a_file_system_tells_what_is_a_network() -> None:
    kinds = {one.path: (one.filesystem, one.kind) for one in disk.parse_df(TYPED)}
    assert kinds == {"/": ("ext4", None), "/mnt/nas": ("nfs4", "network")}
    (untyped,) = disk.parse_df("nas:/export 20T 8.0T 12T 40% /mnt/nas\n")
    assert untyped.kind == "network"


@pytest.mark.parametrize(
    ("folder", "chosen"),
    [
        ("/data/weights", "/data"),
        ("/data", "/data"),
        ("/database", "/"),
        ("/srv/weights", "/"),
        # A folder of the project may be anywhere there: the disk with most room is meant.
        ("weights", "/data"),
    ],
)
def test_the_disk_that_holds_the_weights_is_taken_else_the_one_with_most_room(
    folder: str, chosen: str
) -> None:
    found = disk.for_weights(disk.parse_df(DF), PurePosixPath(folder))
    assert found is not None
    assert found.path == chosen
    assert disk.for_weights((), PurePosixPath(folder)) is None


def test_a_folder_on_none_of_the_disks_listed_is_taken_to_be_on_the_one_with_most_room() -> None:
    listed = disk.parse_df("/dev/sdb1 3.6T 1.3T 2.3T 36% /data\n/dev/sdc1 1T 0 1T 0% /more\n")
    found = disk.for_weights(listed, PurePosixPath("/srv/weights"))
    assert found is not None
    assert found.path == "/data"


def test_disks_survive_json() -> None:
    facts = facts_of({"df.txt": DF})
    assert [one.path for one in facts.disks] == ["/", "/data"]
    assert HostFacts.model_validate_json(facts.model_dump_json()) == facts


def test_a_limit_or_a_use_of_a_terabyte_has_13_digits() -> None:
    limits = facts_of({"memory.max": f"{2048 * GIB}\n", "memory.current": f"{1024 * GIB}\n"}).limits
    assert (limits.memory_bytes, limits.memory_room_bytes) == (2048 * GIB, 1024 * GIB)
