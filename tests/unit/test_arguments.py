"""How engines are told: golden command lines, and every mistake that the lint names."""

from collections.abc import Callable

import pytest

import hosts
from fitting import a_profile, deepseek_r1, settings_of, tinyseek
from orchestrator.core.argument_lint import problems
from orchestrator.core.facts import HostFacts
from orchestrator.core.inventory import Inventory
from orchestrator.core.placement import Placement, place
from orchestrator.core.profile import Engine, Profile

R1, DEMO, AMX = a_profile("deepseek-r1-q4km"), a_profile("demo"), a_profile("deepseek-r1-amxint4")
DENSE = a_profile("deepseek-r1-distill-7b-gpu")
TWO_SOCKETS, TWO_NODES_AMX = hosts.rtx4090_480gb_two_sockets(), hosts.amx_sapphire_rapids()


def placed(profile: Profile, facts: HostFacts, inventory: Inventory | None = None) -> Placement:
    return place(profile, settings_of(profile), facts, inventory)


# --- golden


def test_llamacpp_on_a_small_host_is_told_by_variables() -> None:
    assert placed(DEMO, hosts.no_gpu_small(), tinyseek()).arguments == (
        "MODEL_FILE=Q4_K_M/TinySeek-Q4_K_M-00001-of-00003.gguf",
        "MODEL_NAME=local-model",
        "CONTEXT_TOKENS=2048",
        "SLOTS=2",
        "THREADS=2",
        "MAX_TOKENS=1024",
    )


def test_kt_legacy_on_two_sockets_is_told_one_thread_more_than_it_is_to_make() -> None:
    assert " ".join(placed(R1, TWO_SOCKETS, deepseek_r1()).arguments) == (
        "--gguf_path DeepSeek-R1-Q4_K_M --optimize_config_path /placement/single-gpu.yaml "
        "--cpu_infer 63 --cache_lens 8192 --max_new_tokens 4096 --chunk_size 256 "
        "--cpu_variant auto"
    )


def test_kt_legacy_is_told_the_rules_of_a_profile() -> None:
    profile = a_profile("deepseek-r1-q4km", kt_legacy={"rules": "two-cards"})
    text = " ".join(placed(profile, TWO_SOCKETS).arguments)
    assert "--optimize_config_path /placement/two-cards.yaml" in text


def test_kt_legacy_copies_experts_where_memory_is_replicated() -> None:
    placement = place(R1, settings_of(R1, memory_policy="replicate"), TWO_SOCKETS, deepseek_r1())
    assert placement.arguments[-1] == "--numa_copies"


def test_kt_sglang_on_two_nodes_is_told_pools_experts_and_lengths() -> None:
    assert " ".join(placed(AMX, TWO_NODES_AMX).arguments) == (
        "--host 0.0.0.0 --port 8000 "
        "--model . --served-model-name local-model "
        "--kt-method AMXINT4 --kt-weight-path . --kt-cpuinfer 110 "
        "--kt-threadpool-count 2 --kt-numa-nodes 0 1 --kt-num-gpu-experts 1 "
        "--kt-max-deferred-experts-per-token 0 --kt-expert-placement-strategy uniform "
        "--trust-remote-code --disable-shared-experts-fusion "
        "--attention-backend triton --enable-mixed-chunk --mem-fraction-static 0.98 --chunked-prefill-size 4096 "
        "--max-running-requests 2 --max-queued-requests 2 --max-total-tokens 32768 "
        "--context-length 16384 --cuda-graph-max-bs 2 --tensor-parallel-size 1 "
        "--watchdog-timeout 3000 --reasoning-parser deepseek-r1 --tool-call-parser deepseekv3 "
        "--enable-metrics"
    )


def test_a_dense_model_is_served_without_ktransformers_part() -> None:
    assert " ".join(placed(DENSE, hosts.h200()).arguments) == (
        "--host 0.0.0.0 --port 8000 --model . --served-model-name local-model "
        "--attention-backend flashinfer --enable-mixed-chunk --mem-fraction-static 0.85 "
        "--chunked-prefill-size 2048 --max-running-requests 4 --max-queued-requests 4 "
        "--max-total-tokens 65536 --context-length 16384 --cuda-graph-max-bs 4 "
        "--tensor-parallel-size 1 --watchdog-timeout 3000 --reasoning-parser deepseek-r1 "
        "--enable-metrics"
    )


def test_a_threshold_switches_expert_updates_on() -> None:
    table = AMX.kt_sglang
    assert table is not None
    native = table.model_dump() | {"method": "FP8", "gpu_prefill_token_threshold": 400}
    arguments = placed(a_profile("deepseek-r1-amxint4", kt_sglang=native), TWO_NODES_AMX).arguments
    text = " ".join(arguments)
    assert "--kt-gpu-prefill-token-threshold 400 --kt-enable-dynamic-expert-update" in text


@pytest.mark.parametrize("make", hosts.ALL, ids=lambda make: make.__name__)
@pytest.mark.parametrize("profile", [R1, DEMO, AMX, DENSE], ids=lambda profile: profile.name)
def test_what_we_compose_has_no_problem_on_any_host(
    profile: Profile, make: Callable[[], HostFacts]
) -> None:
    facts = make()
    placement = placed(profile, facts)
    found = problems(
        profile.engine, placement.arguments, placement, facts, experts=profile is not DENSE
    )
    assert list(found) == []


# --- lint, rule by rule


def changed(arguments: tuple[str, ...], flag: str, *values: str) -> tuple[str, ...]:
    """Other values of a flag; none leave it out."""
    start = arguments.index(flag)
    end = next(
        (i for i in range(start + 1, len(arguments)) if arguments[i].startswith("--")),
        len(arguments),
    )
    with_it = (flag, *values) if values else ()
    return (*arguments[:start], *with_it, *arguments[end:])


# What engines answer late, silently or by dying. Rule -> flag, its values (none: left out), what is said.
Case = tuple[str, tuple[str, ...], str]
KT_LEGACY_RULES: dict[str, Case] = {
    "the weights are given": ("--gguf_path", (), "--gguf_path must be given"),
    "the weights are a folder": (
        "--gguf_path",
        ("a-00001-of-00009.gguf",),
        "the folder of the shards",
    ),
    "the placement is given": (
        "--optimize_config_path",
        (),
        "--optimize_config_path must be given",
    ),
    "words survive Compose": ("--gguf_path", ("it's",), "it's can't be passed on"),
    "the cache exceeds a reply": (
        "--cache_lens",
        ("4096",),
        "--cache_lens 4096 must exceed --max_new_tokens 4096",
    ),
    "lengths are given": ("--max_new_tokens", (), "--cache_lens and --max_new_tokens must both"),
    "prompts are read in chunks": ("--chunk_size", ("0",), "--chunk_size must be 1 or more"),
    "one thread is none": ("--cpu_infer", ("1",), "--cpu_infer 1 ends the engine"),
    "threads have cores": ("--cpu_infer", ("66",), "66 makes 65 threads on 64 physical cores"),
    "threads are given": ("--cpu_infer", (), "--cpu_infer must be given"),
}
KT_SGLANG_RULES: dict[str, Case] = {
    "the model is local": ("--model", ("https://hub.example/R1",), "no hub is asked at a start"),
    "the model is given": ("--model", (), "--model is not given"),
    "sglang reads no GGUF": ("--model", ("a-00001-of-00009.gguf",), "a folder of safetensors"),
    "the experts are local": (
        "--kt-weight-path",
        ("https://hub.example/R1",),
        "no hub is asked at a start",
    ),
    "the experts are given": ("--kt-weight-path", (), "--kt-weight-path is not given"),
    "a line can be passed on": ("--served-model-name", ("it's",), "it's can't be passed on"),
    "the cards are those planned": ("--tensor-parallel-size", ("2",), "planned are 1 cards"),
    "clients have a name": ("--served-model-name", (), "--served-model-name is not set"),
    "GPU experts or their ratio": (
        "--kt-num-gpu-experts",
        (),
        "sglang then leaves KTransformers out",
    ),
    "prompts are read in chunks": ("--chunked-prefill-size", ("-1",), "must be 1 or more"),
    "a long prefill is no hang": ("--watchdog-timeout", ("300",), "must be 1800 or more"),
    "the watchdog is told": ("--watchdog-timeout", (), "must be 1800 or more"),
    "the line has an end": ("--max-queued-requests", (), "--max-queued-requests is not given"),
    "methods are case-sensitive": ("--kt-method", ("amxint4",), "amxint4: known are AMXINT4,"),
    "a method is given": ("--kt-method", (), "--kt-method is not given"),
    "threads are given": ("--kt-cpuinfer", (), "--kt-cpuinfer and --kt-threadpool-count must both"),
    "each pool has a thread": ("--kt-cpuinfer", ("1",), "leaves a pool of 2 without a thread"),
    "threads have cores": (
        "--kt-cpuinfer",
        ("113",),
        "113 / 2 pools: a node has 56 physical cores",
    ),
    "each pool has a node": ("--kt-numa-nodes", ("0",), "names 1 nodes for 2 pools"),
}


@pytest.mark.parametrize("rule", KT_LEGACY_RULES)
def test_a_mistake_for_kt_legacy_is_named(rule: str) -> None:
    flag, values, said = KT_LEGACY_RULES[rule]
    placement = placed(R1, TWO_SOCKETS, deepseek_r1())
    arguments = changed(placement.arguments, flag, *values)
    (problem,) = problems(Engine.KT_LEGACY, arguments, placement, TWO_SOCKETS)
    assert said in problem


@pytest.mark.parametrize("rule", KT_SGLANG_RULES)
def test_a_mistake_for_kt_sglang_is_named(rule: str) -> None:
    flag, values, said = KT_SGLANG_RULES[rule]
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = changed(placement.arguments, flag, *values)
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)
    assert said in problem


def test_kt_legacy_gets_its_configuration_from_a_folder_and_no_hub() -> None:
    placement = placed(R1, TWO_SOCKETS, deepseek_r1())
    given = (*placement.arguments, "--model_path", "https://hub.example/deepseek-ai/DeepSeek-R1")
    (problem,) = problems(Engine.KT_LEGACY, given, placement, TWO_SOCKETS)
    assert "no hub is asked at a start" in problem
    local = (*placement.arguments, "--model_path", "hf")
    assert list(problems(Engine.KT_LEGACY, local, placement, TWO_SOCKETS)) == []


def test_more_slots_than_kt_legacy_has_are_named() -> None:
    placement = place(R1, settings_of(R1, slots=2), TWO_SOCKETS, deepseek_r1())
    (problem,) = problems(Engine.KT_LEGACY, placement.arguments, placement, TWO_SOCKETS)
    assert problem == "2 slots, and it works on one request at a time: set slots = 1"


@pytest.mark.parametrize("name", ["--api-key", "--admin-api-key"])
def test_a_key_on_the_command_line_is_named(name: str) -> None:
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = (*placement.arguments, name, "sk-1234")
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)
    assert "would be shown by ps" in problem
    assert "sk-1234" not in problem


def test_flags_of_experts_are_named_where_the_model_is_dense() -> None:
    placement = placed(DENSE, hosts.h200())
    arguments = (*placement.arguments, "--kt-method", "FP8")
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, hosts.h200(), experts=False)
    assert problem == "--kt-method is for models of experts, and this one is dense"


def test_more_pools_than_memory_nodes_are_named() -> None:
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = changed(placement.arguments, "--kt-threadpool-count", "4")
    arguments = changed(arguments, "--kt-numa-nodes", "0", "1", "2", "3")
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)
    assert problem == "--kt-threadpool-count 4, but the host has 2 memory nodes"


def test_a_threshold_is_for_native_methods_only() -> None:
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = (*placement.arguments, "--kt-gpu-prefill-token-threshold", "400")
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)
    assert "AMXINT4 can't prefill on the GPU" in problem
    native = changed(arguments, "--kt-method", "FP8")
    assert list(problems(Engine.KT_SGLANG, native, placement, TWO_NODES_AMX)) == []


def test_expert_updates_without_a_threshold_are_named() -> None:
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = (*placement.arguments, "--kt-enable-dynamic-expert-update")
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)
    assert "needs --kt-gpu-prefill-token-threshold" in problem


def test_a_ratio_of_gpu_experts_is_as_good_as_a_number() -> None:
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = changed(placement.arguments, "--kt-num-gpu-experts")
    arguments = (*arguments, "--kt-gpu-experts-ratio", "0.1")
    assert list(problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX)) == []


def test_llamafile_splits_experts_in_columns_of_256() -> None:
    # TinySeek's experts are 256 wide: one pool, and no second.
    placement = placed(AMX, TWO_NODES_AMX)
    arguments = changed(placement.arguments, "--kt-method", "LLAMAFILE")
    shape = tinyseek().shape
    (problem,) = problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX, shape)
    assert problem == "--kt-threadpool-count 2: experts 256 wide split 1 ways"
    r1 = deepseek_r1().shape  # 2048 wide: up to 8
    assert list(problems(Engine.KT_SGLANG, arguments, placement, TWO_NODES_AMX, r1)) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MODEL_NAME", "", "MODEL_NAME is not set"),
        ("MODEL_FILE", "", "MODEL_FILE is not set"),
        ("MAX_TOKENS", "2048", "MAX_TOKENS 2048 leaves no room for a prompt"),
        ("THREADS", "3", "THREADS is 3, planned are 2"),
    ],
)
def test_a_mistake_for_llamacpp_is_named(name: str, value: str, said: str) -> None:
    facts = hosts.no_gpu_small()
    placement = placed(DEMO, facts, tinyseek())
    given = [
        f"{name}={value}" if argument.startswith(f"{name}=") else argument
        for argument in placement.arguments
    ]
    (problem,) = problems(Engine.LLAMACPP, given, placement, facts)
    assert said in problem


def test_no_thread_at_all_is_named() -> None:
    facts = hosts.no_gpu_small()
    placement = placed(DEMO, facts, tinyseek())
    given = [a if not a.startswith("THREADS") else "THREADS=0" for a in placement.arguments]
    said = list(problems(Engine.LLAMACPP, given, placement, facts))
    assert said[0] == "THREADS is 0: the engine would take every hyperthread"
