"""What the engine's setup.py takes from here, without the rest."""

from pathlib import Path

from setuptools import Extension as CUDAExtension
from setuptools.command.build_ext import build_ext as BuildExtension  # noqa: N812

__all__ = ["CUDA_HOME", "BuildExtension", "CUDAExtension"]
CUDA_HOME = str(Path(__file__).parents[2])
