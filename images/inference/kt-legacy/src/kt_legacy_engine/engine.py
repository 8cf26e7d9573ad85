"""The real model: KTransformers' own classes, behind the protocol that the serving layer knows.

Only imported where there is a GPU: upstream's modules ask for one when they are imported.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from ktransformers.server.config.config import Config

from kt_legacy_engine.gpu import devices_of
from kt_legacy_engine.model import Logits
from kt_legacy_engine.pipe import Spec
from kt_legacy_engine.refusals import Refused
from kt_legacy_engine.shards import Shards

# Of DeepSeek's own configuration. Configurations written by newer tools leave them out.
_DEFAULTS = {
    "aux_loss_alpha": 0.001,
    "ep_size": 1,
    "moe_layer_freq": 1,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "topk_method": "noaux_tc",
}
_ARCHITECTURE = "DeepseekV3ForCausalLM"


def load(spec: Spec, tell: Callable[[int, int], None]) -> tuple["KtModel", list[str]]:
    """The model, and what there is to say of it."""
    rules = Path(spec.rules).read_text(encoding="utf-8")
    names = [torch.cuda.get_device_name(index) for index in range(devices_of(rules))]
    about = [f"GPU: {', '.join(names)}", f"{spec.cpu_infer - 1} threads for experts"]
    torch.set_default_dtype(torch.bfloat16)
    torch.set_grad_enabled(False)
    # Upstream starts its threads when its operators are imported, as many as this says.
    Config().cpu_infer = spec.cpu_infer
    config = _config(spec.model_path)
    shards = Shards(spec.shards, tell)
    model = _injected(config, rules, shards)
    shards.loaded()
    return KtModel(model, config, shards, spec.cache_lens, graph=_graph_possible(rules)), about


class KtModel:
    """`graph`: decode by a captured CUDA graph."""

    def __init__(
        self, model: Any, config: Any, shards: Shards, capacity: int, *, graph: bool
    ) -> None:
        from ktransformers.models.custom_cache import StaticCache  # noqa: PLC0415

        self._model = model
        self._capacity = capacity
        self._device = shards.tensor_device_map["blk.0.self_attn"]["generate_device"]
        self._cache = StaticCache(
            config=config,
            max_batch_size=1,
            max_cache_len=capacity,
            device=shards.tensor_device_map,
            dtype=torch.bfloat16,
        )
        self._length = 0
        self._graph: Any = None
        # The first step compiles kernels, which can't be done while a graph is captured.
        self._eager_steps = 1 if graph else -1
        self.vocabulary = int(config.vocab_size)

    @property
    def capacity(self) -> int:
        return self._capacity

    def truncate(self, length: int) -> None:
        """What lies behind it in the cache is overwritten before it is read."""
        self._length = length

    def extend(self, tokens: Sequence[int]) -> Logits:
        end = self._length + len(tokens)
        if not tokens or end > self._capacity:
            message = f"{len(tokens)} tokens after {self._length} of {self._capacity}"
            raise ValueError(message)
        # What the cache counts by itself is wrong after a graph, and after a truncation.
        self._cache.past_tokens[:] = [self._length] * len(self._cache.past_tokens)
        ids = torch.tensor([list(tokens)])
        positions = torch.arange(self._length, end, device=self._device)
        torch.cuda.set_device(self._device)
        if len(tokens) == 1:
            logits = self._decoded(ids, positions)
        else:
            logits = self._computed(ids, positions)
        self._length = end
        found: Logits = logits.float().cpu().numpy()
        return found

    def _decoded(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        if self._eager_steps:
            self._eager_steps -= self._eager_steps > 0
            return self._computed(ids, positions)
        if self._graph is None:
            self._graph = self._captured(ids, positions)
        found: torch.Tensor = self._graph(ids, positions[None], positions)
        return found[0, -1]

    def _computed(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Of the last token only: the logits of a whole chunk would take 100 MB and more."""
        embedded = self._model.model.embed_tokens(ids).to(self._device)
        hidden = self._model.model(
            inputs_embeds=embedded,
            position_ids=positions[None],
            cache_position=positions,
            past_key_values=self._cache,
            return_dict=False,
            use_cache=True,
        )[0][:, -1:]
        head = self._model.lm_head
        found: torch.Tensor = head(hidden.to(head.weight.device))
        return found[0, -1]

    def _captured(self, ids: torch.Tensor, positions: torch.Tensor) -> Any:
        from ktransformers.util.cuda_graph_runner import CUDAGraphRunner  # noqa: PLC0415

        runner = CUDAGraphRunner()
        runner.capture(
            self._model,
            ids,
            positions[None].clone(),
            positions.clone(),
            self._cache,
            main_device=self._device,
            return_dict=False,
            use_cache=True,
        )
        return runner


def _graph_possible(rules: str) -> bool:
    """Over several GPUs it is not proven. Experts on a GPU are chosen by the host, step by step."""
    return devices_of(rules) == 1 and "KExpertsMarlin" not in rules


def _config(model_path: str) -> Any:
    from ktransformers.models.configuration_deepseek_v3 import DeepseekV3Config  # noqa: PLC0415

    config = DeepseekV3Config.from_pretrained(model_path)
    if config.architectures != [_ARCHITECTURE]:
        raise Refused(
            "this engine can't run this model",
            why=(f"{model_path}/config.json is of {config.architectures}, not {_ARCHITECTURE}",),
            next_step="choose a profile of another engine",
        )
    for name, value in _DEFAULTS.items():
        if not hasattr(config, name):
            setattr(config, name, value)
    return config


def _injected(config: Any, rules: str, shards: Shards) -> Any:
    """What upstream's optimize_and_load_gguf does, with our reader of the weights."""
    from ktransformers.models.modeling_deepseek_v3 import DeepseekV3ForCausalLM  # noqa: PLC0415
    from ktransformers.optimize import optimize  # noqa: PLC0415

    with torch.device("meta"):
        model = DeepseekV3ForCausalLM(config)
    plan: dict[str, Any] = {}
    optimize.gen_optimize_config(model, plan, yaml.safe_load(rules), default_device="cuda:0")
    with torch.device("meta"):
        optimize.inject(model, plan, config, shards)
    optimize.load_weights(model, shards)
    model.gguf_loader = shards
    optimize.del_meta(model)
    torch.cuda.empty_cache()
    return model
