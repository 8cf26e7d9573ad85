"""Builds KTransformersOps: `python3 gpu_kernels.py SOURCE OUT ARCHITECTURES [--without-marlin]`.

Not by the source's setup.py, which looks for a wheel on the network first. Marlin takes a quarter of
an hour, nearly all of it from C++ to PTX: that is made once, for the oldest architecture, turned into
code for each, and kept for newer ones.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution
from torch.utils.cpp_extension import BuildExtension, CUDAExtension


def main(source: Path, out: Path, architectures: list[str], *, marlin: bool) -> None:
    oldest = architectures[0]
    code = ",".join([*(f"sm_{number}" for number in architectures), f"compute_{oldest}"])
    os.chdir(source)
    folder = Path("ktransformers/ktransformers_ext/cuda")
    files = [folder / "custom_gguf/dequant.cu", folder / "binding.cpp"]
    if marlin:
        files.append(folder / "gptq_marlin/gptq_marlin.cu")
    nvcc = ["-O3", "--use_fast_math", "-Xcompiler", "-fPIC,-g0", "--threads=2"]
    extension = CUDAExtension(
        "KTransformersOps",
        [str(file) for file in files],
        extra_compile_args={
            "cxx": ["-O3", "-g0"],
            # torch adds no architectures of its own where there are some.
            "nvcc": [*nvcc, f"-gencode=arch=compute_{oldest},code=[{code}]"],
        },
    )
    wanted = {
        "name": "KTransformersOps",
        "ext_modules": [extension],
        "cmdclass": {"build_ext": BuildExtension},
    }
    command = Distribution(wanted).get_command_obj("build_ext")
    command.build_lib, command.build_temp = str(out), str(out.with_name("build-gpu"))
    command.ensure_finalized()
    command.run()
    for library in out.glob("*.so"):
        subprocess.run(["strip", "--strip-unneeded", library], check=True)  # noqa: S603, S607


if __name__ == "__main__":
    main(
        Path(sys.argv[1]).absolute(),
        Path(sys.argv[2]).absolute(),
        sys.argv[3].split(),
        marlin="--without-marlin" not in sys.argv[4:],
    )
