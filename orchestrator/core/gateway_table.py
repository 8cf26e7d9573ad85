"""What a profile may ask of the gateway: the table [gateway], every word of it optional."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class GatewayTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    think: Literal["pass", "split"] | None = Field(
        None,
        description="split: <think> in a reply becomes reasoning_content; none: as the engine needs",
    )
    sampling: dict[str, float | int | bool] = Field(
        default_factory=dict, description="for requests that do not say, as in temperature = 0.6"
    )
    first_token_per_prompt_token_s: float = Field(
        0.0, ge=0, description="more patience with a first token, for each token of the prompt"
    )
    hot_prefix_overtakes_tokens: int = Field(
        0, ge=0, description="how far a chat that the engine still holds may overtake another key"
    )
    max_queued: int | None = Field(
        None, ge=0, description="requests that may wait; none: 64, or 8 for each slot"
    )
    max_wait_s: float = Field(600.0, gt=0, description="the longest wait, then 503")
