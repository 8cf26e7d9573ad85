"""The attention that our rule files put in the place of the model's own.

Upstream's forgets: a prefill of several tokens writes them to the cache and reads none of it, so
whatever was cached before is not seen. Decoding, one token at a time, is upstream's.
"""

from typing import Any

import torch
from ktransformers.operators.attention import KDeepseekV2Attention, apply_rotary_pos_emb

from kt_legacy_engine.mla import attend


class CachedAttention(KDeepseekV2Attention):  # type: ignore[misc]
    def get_absorbed(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Upstream's copies the projection: 2 GB of VRAM for the largest models. These are views."""
        kv_b = self.kv_b_proj.weight.view(self.num_heads, -1, self.kv_lora_rank)
        return kv_b[:, : self.qk_nope_head_dim], kv_b[:, self.qk_nope_head_dim :]

    def forward(  # noqa: PLR0913, PLR0917 - upstream's
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        past_key_value: Any = None,
        output_attentions: bool = False,  # noqa: FBT001, FBT002 - upstream's
        use_cache: bool = False,  # noqa: FBT001, FBT002 - upstream's
        cache_position: torch.Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None, Any]:
        if hidden_states.shape[1] > 1:
            return self._prefill(hidden_states, position_ids, past_key_value, cache_position)
        decoded: tuple[torch.Tensor, None, Any] = self.forward_linux_triton(
            hidden_states,
            attention_mask,
            position_ids,
            past_key_value,
            output_attentions,
            use_cache,
            cache_position,
            **kwargs,
        )
        return decoded

    def _prefill(
        self,
        hidden_states: torch.Tensor,
        position_ids: torch.Tensor | None,
        cache: Any,
        cache_position: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None, Any]:
        batch, count, _ = hidden_states.shape
        lora, rope = self.kv_lora_rank, self.qk_rope_head_dim
        if self.q_lora_rank is None:
            q = self.q_proj(hidden_states)
        else:
            q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(hidden_states)))
        q = q.view(batch, count, self.num_heads, self.q_head_dim)
        q_nope, q_rope = q.split([self.qk_nope_head_dim, rope], dim=-1)
        latent, k_rope = self.kv_a_proj_with_mqa(hidden_states).split([lora, rope], dim=-1)
        latent = self.kv_a_layernorm(latent).view(batch, count, 1, lora)
        k_rope = k_rope.view(batch, count, 1, rope)
        cos, sin = self.rotary_emb(q_rope, position_ids)
        q_rope, k_rope = apply_rotary_pos_emb(q_rope, k_rope, cos, sin, unsqueeze_dim=2)

        where = {"sin": sin, "cos": cos, "cache_position": cache_position}
        pages, _ = cache.update(latent, k_rope, self.layer_idx, where)
        # What the cache counts, on the host: asking the GPU for the position would wait for it.
        seen = cache.past_tokens[self.layer_idx]
        w_k, w_v = self.get_absorbed()
        mixed = attend(
            q_nope[0],
            q_rope[0],
            pages.view(-1, lora + rope)[:seen],
            w_k,
            w_v,
            scale=self.softmax_scale,
        )
        output = self.o_proj(mixed.reshape(batch, count, self.num_heads * self.v_head_dim))
        return output, None, cache
