r"""The command line: what the engine itself is told. Names are upstream's where they mean the same.

    python3 -m kt_legacy_engine --gguf_path DIR --optimize_config_path FILE --cpu_infer N \
        --cache_lens N --max_new_tokens N [--model_path DIR] [--chunk_size N] [--cpu_variant V] \
        [--numa_copies]

Standard library only: the orchestrator's tests check every flag that it renders against this.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kt_legacy_engine.refusals import Refused

VARIANTS = ("bf16", "fancy", "avx512", "avx2")
AUTO = "auto"
_LEAST_CPU_INFER = 2
_LEAST_CACHE = 256


@dataclass(frozen=True, slots=True)
class Arguments:
    """Folders may be relative to that of the proven weights.

    `model_path`: of config.json and the tokenizer; None: both are made from the weights' header.
    `cpu_infer`: one more than the threads that compute experts. `cpu_variant`: one of VARIANTS, or
    AUTO for the best that this processor can run. `numa_copies`: experts copied to every node.
    """

    model_path: Path | None
    gguf_path: Path
    optimize_config_path: Path
    cpu_infer: int
    cache_lens: int
    max_new_tokens: int
    chunk_size: int
    cpu_variant: str
    numa_copies: bool


def parse(argv: Sequence[str]) -> Arguments:
    found = Arguments(**vars(_parser().parse_args(argv)))
    if problems := tuple(_problems(found)):
        raise Refused(
            "the engine's arguments can't be used",
            why=problems,
            next_step="python3 -m orchestrator plan (it shows the command line and why)",
        )
    return found


def _problems(arguments: Arguments) -> list[str]:
    problems = []
    if arguments.cpu_infer < _LEAST_CPU_INFER:
        problems.append(
            f"--cpu_infer {arguments.cpu_infer} means {arguments.cpu_infer - 1} threads: the "
            "engine crashes with none, so at least 2"
        )
    if arguments.cache_lens < _LEAST_CACHE:
        problems.append(f"--cache_lens {arguments.cache_lens} is less than {_LEAST_CACHE} tokens")
    if not 1 <= arguments.max_new_tokens <= arguments.cache_lens:
        problems.append(
            f"--max_new_tokens {arguments.max_new_tokens} is not between 1 and the "
            f"{arguments.cache_lens} tokens of --cache_lens"
        )
    if arguments.chunk_size < 1:
        problems.append(f"--chunk_size {arguments.chunk_size} is less than 1 token")
    return problems


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(
            "the engine's arguments can't be read", why=(message,), next_step=self.format_usage()
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="kt_legacy_engine", allow_abbrev=False)
    parser.add_argument(
        "--model_path",
        type=Path,
        help="folder of config.json and the tokenizer; without it they are made from the weights",
    )
    parser.add_argument(
        "--gguf_path", type=Path, required=True, help="folder of the weights, one model's only"
    )
    parser.add_argument(
        "--optimize_config_path", type=Path, required=True, help="the placement: a rule file"
    )
    parser.add_argument(
        "--cpu_infer", type=int, required=True, help="threads for experts, plus one"
    )
    parser.add_argument(
        "--cache_lens", type=int, required=True, help="tokens of the context, reply included"
    )
    parser.add_argument("--max_new_tokens", type=int, required=True, help="the longest reply")
    parser.add_argument(
        "--chunk_size", type=int, default=256, help="tokens of a prompt that are read at a time"
    )
    parser.add_argument(
        "--cpu_variant", choices=(AUTO, *VARIANTS), default=AUTO, help="which CPU kernels to use"
    )
    parser.add_argument(
        "--numa_copies", action="store_true", help="copy the experts to every NUMA node"
    )
    return parser
