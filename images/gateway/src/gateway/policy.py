"""What the profile in force asks of the gateway: a file that is read again when it changes.

Without the file every field has a value with which the gateway is a plain, careful proxy.
"""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TokenizeApi = Literal["llama.cpp", "kt-legacy"]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Model(_Part):
    public: str | None = None
    """The alias clients use, the same for every profile. None: the engine's names pass through."""
    engine: str | None = None
    """What the engine calls the model; None where it takes any name."""
    context_tokens: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    """The most a request may generate, and what one that names no number is granted."""
    tokenizer_file: Path | None = None
    think: Literal["pass", "split"] = "pass"
    """split: `<think>` in the engine's content becomes `reasoning_content`."""


class Defaults(_Part):
    """Put into requests that do not say otherwise."""

    system_message: str | None = None
    sampling: dict[str, Any] = Field(default_factory=dict)


class Capabilities(_Part):
    """What the engine can do. What it can't is refused by name, before the queue."""

    tools: bool = True
    json_mode: bool = True
    logprobs: bool = True
    n: bool = True
    """More than one answer to a request."""
    whole_as_stream: bool = True
    """What clients want whole is asked for as a stream, and put together here."""
    abort_path: str | None = None
    """Where the engine takes `{"rid": ...}` for an abort; None: closing the connection is all."""
    abort_grace_s: float = Field(default=0.0, ge=0)
    """How long the engine may go on after its connection was closed."""
    metrics_path: str | None = None
    tokenize: TokenizeApi | None = None
    """How the engine is asked to count tokens, where `model.tokenizer_file` names no file for it."""


class Timeouts(_Part):
    """None is no limit: a long prompt is silent for minutes, and only a profile knows how long."""

    connect_s: float = Field(default=5.0, gt=0)
    first_token_base_s: float | None = Field(default=None, gt=0)
    first_token_per_prompt_token_s: float = Field(default=0.0, ge=0)
    idle_s: float | None = Field(default=None, gt=0)
    total_s: float | None = Field(default=None, gt=0)
    client_s: float | None = Field(default=120.0, gt=0)
    """How long a client may take nothing of its answer: the engine's permit waits with it."""


class Queue(_Part):
    # Without a profile's word the engine's own line decides, as if there were none here.
    capacity: int = Field(default=64, ge=1)
    max_queued: int = Field(default=256, ge=0)
    max_queued_per_key: int = Field(default=64, ge=0)
    max_running_per_key: int | None = Field(default=None, ge=1)
    max_wait_s: float = Field(default=600.0, gt=0)
    batch_promoted_after_s: float = Field(default=300.0, gt=0)
    """Less than the longest wait, or nobody would live to see it."""
    prompt_weight: float = Field(default=1.0, ge=0)
    completion_weight: float = Field(default=2.0, ge=0)
    hot_prefix_overtakes_tokens: int = Field(default=0, ge=0)
    visible_after_s: float = Field(default=2.0, gt=0)
    visible_every_s: float = Field(default=5.0, gt=0)
    hold_on_engine_loss: bool = False
    """Requests that the engine lost before their first byte keep their place until it is back."""


class Policy(_Part):
    version: Literal[1] = 1
    profile: str = "default"
    model: Model = Model()
    defaults: Defaults = Defaults()
    capabilities: Capabilities = Capabilities()
    timeouts: Timeouts = Timeouts()
    queue: Queue = Queue()
