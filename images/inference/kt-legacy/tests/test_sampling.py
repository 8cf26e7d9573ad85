"""Picking a token. What transformers itself makes of the same logits is recorded."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from kt_legacy_engine.sampling import Sampler, Sampling, log_probabilities, probabilities

RECORDED = json.loads(
    (Path(__file__).parent / "recorded" / "transformers-sampling.json").read_text()
)


@pytest.mark.parametrize(
    "case", RECORDED["cases"], ids=lambda c: f"{c['temperature']} {c['top_k']} {c['top_p']}"
)
def test_the_chances_are_those_of_transformers(case: dict[str, float]) -> None:
    logits = np.array(RECORDED["logits"], dtype=np.float32)
    sampling = Sampling(
        temperature=case["temperature"], top_k=int(case["top_k"]), top_p=case["top_p"]
    )
    assert probabilities(logits, sampling) == pytest.approx(case["probabilities"], abs=1e-6)


def test_temperature_0_takes_the_likeliest() -> None:
    assert Sampler(Sampling(temperature=0)).pick(np.array([1, 3, 2], dtype=np.float32)) == 1


def test_a_seed_repeats_and_another_differs() -> None:
    logits = np.zeros(1000, dtype=np.float32)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1, seed=seed))
        return [sampler.pick(logits) for _ in range(20)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    wanted = np.array([0.5, 0.3, 0.2])
    sampler = Sampler(Sampling(temperature=1, seed=1))
    logits = np.log(wanted).astype(np.float32)
    drawn = Counter(sampler.pick(logits) for _ in range(10_000))
    # Three standard deviations of a fair draw are 0.015.
    assert [drawn[token] / 10_000 for token in range(3)] == pytest.approx(wanted, abs=0.015)


def test_a_forbidden_token_is_never_picked() -> None:
    logits = np.array([5, 1], dtype=np.float32)
    assert Sampler(Sampling(temperature=0)).pick(logits, frozenset({0})) == 1
    assert logits[0] == 5


def test_penalties_are_openais_formula() -> None:
    # 3 - 1 (presence) - 2 * 0.5 (frequency) = 1 after two times: below the other's 1.5.
    sampler = Sampler(Sampling(temperature=0, presence_penalty=1, frequency_penalty=0.5))
    logits = np.array([3, 1.5], dtype=np.float32)
    assert [sampler.pick(logits) for _ in range(3)] == [0, 0, 1]


def test_a_bias_moves_a_token() -> None:
    sampler = Sampler(Sampling(temperature=0, bias={1: 5.0}))
    assert sampler.pick(np.array([3, 0], dtype=np.float32)) == 1


def test_a_temperature_that_is_nearly_0_takes_the_likeliest() -> None:
    # 1e-310: a logit divided by it is more than a number can be.
    sampler = Sampler(Sampling(temperature=1e-310, seed=1))
    logits = np.array([-10, 30, 20], dtype=np.float32)
    assert [sampler.pick(logits) for _ in range(3)] == [1, 1, 1]


def test_top_p_0_leaves_the_likeliest() -> None:
    logits = np.array([1, 3, 2], dtype=np.float32)
    assert list(probabilities(logits, Sampling(temperature=1, top_p=0))) == [0, 1, 0]


def test_log_probabilities_are_the_models_own() -> None:
    found = np.exp(log_probabilities(np.log(np.array([1, 3], dtype=np.float32))))
    assert found == pytest.approx([0.25, 0.75])
