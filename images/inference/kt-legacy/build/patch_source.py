"""Changes the engine's source where it is broken: `python3 patch_source.py SOURCE PATCH...`.

PATCH: start-hang, or without-marlin for the fast build. A text that is not found ends the build: then
the source is not the one that these changes are for.
"""

import sys
from pathlib import Path

EXT = Path("ktransformers/ktransformers_ext")
PATCHES: dict[str, tuple[tuple[Path, str, str], ...]] = {
    # The thread may run before the flag that ends it is set. Then it leaves, and keeps the lock, so
    # that the first submit waits for ever.
    "start-hang": (
        (
            EXT / "cpu_backend/task_queue.cpp",
            """    worker = std::thread(&TaskQueue::processTasks, this);
    sync_flag.store(true, std::memory_order_seq_cst);
    exit_flag.store(false, std::memory_order_seq_cst);
""",
            """    sync_flag.store(true, std::memory_order_seq_cst);
    exit_flag.store(false, std::memory_order_seq_cst);
    worker = std::thread(&TaskQueue::processTasks, this);
""",
        ),
    ),
    "without-marlin": (
        (EXT / "cuda/binding.cpp", '#include "gptq_marlin/ops.h"\n', ""),
        (
            EXT / "cuda/binding.cpp",
            """      m.def("gptq_marlin_gemm", &gptq_marlin_gemm, "Function to perform GEMM using Marlin quantization.",
            py::arg("a"), py::arg("b_q_weight"), py::arg("b_scales"), py::arg("g_idx"),
            py::arg("perm"), py::arg("workspace"), py::arg("num_bits"), py::arg("size_m"),
            py::arg("size_n"), py::arg("size_k"), py::arg("is_k_full"));
""",
            "",
        ),
    ),
}


def main(source: Path, name: str) -> None:
    for path, old, new in PATCHES[name]:
        text = (source / path).read_text(encoding="utf-8")
        if text.count(old) != 1:
            sys.exit(f"patch_source: {path} is not the file that {name} is for")
        (source / path).write_text(text.replace(old, new), encoding="utf-8")


if __name__ == "__main__":
    for patch in sys.argv[2:]:
        main(Path(sys.argv[1]), patch)
