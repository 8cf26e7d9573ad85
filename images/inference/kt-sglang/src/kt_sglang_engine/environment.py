"""The environment of the server: where it may write, and what of sglang is switched."""

from collections.abc import Mapping
from pathlib import Path

# Sglang ends its first request to itself after 10 minutes, in which kernels are compiled.
WARM_UP_S = 3000


def server_environment(environment: Mapping[str, str], cache_dir: Path) -> dict[str, str]:
    return {**environment, **_writes_to(cache_dir), **_SWITCHES}


_SWITCHES = {
    # A health check is a look then, and no request that a long prefill keeps waiting: sglang 35884.
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    "SGLANG_WARMUP_TIMEOUT": str(WARM_UP_S),
    # Compiles a kernel for every shape that it meets, while requests wait.
    "SGLANG_ENABLE_JIT_DEEPGEMM": "0",
    # Nothing is to be fetched, nor told: the network has no way out.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
}


def _writes_to(cache: Path) -> dict[str, str]:
    """All that compiles or copies at run time, each in a folder of its own."""
    return {
        "HOME": str(cache / "home"),
        "USER": "engine",  # torch asks for a name, and the container's uid has none
        "XDG_CACHE_HOME": str(cache / "xdg"),
        "HF_HOME": str(cache / "huggingface"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        "TORCH_EXTENSIONS_DIR": str(cache / "torch-extensions"),
        "FLASHINFER_WORKSPACE_BASE": str(cache / "flashinfer"),
        "TVM_FFI_CACHE_DIR": str(cache / "tvm-ffi"),
        "TILELANG_CACHE_DIR": str(cache / "tilelang"),
        "SGLANG_CACHE_DIR": str(cache / "sglang"),
        "SGLANG_DG_CACHE_DIR": str(cache / "deep-gemm"),
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "NUMBA_CACHE_DIR": str(cache / "numba"),
        "OUTLINES_CACHE_DIR": str(cache / "outlines"),
        "MPLCONFIGDIR": str(cache / "matplotlib"),
    }
