"""How far two computations of the same next tokens are apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Report = dict[str, Any]
Logits = np.ndarray[Any, np.dtype[np.float32]]
MARLIN, OWN, FILE = "marlin", "its 4-bit numbers by torch", "the file's numbers by torch"
LIKELIEST = 20


def compared(found: Logits, wanted: Logits) -> Report:
    """Of rows of logits: how far apart they are, and what that does to the next token."""
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    spread = np.linalg.norm(b - b.mean(axis=1, keepdims=True), axis=1)
    errors = np.linalg.norm(a - b, axis=1) / spread
    log_a, log_b = _log_probabilities(a), _log_probabilities(b)
    likeliest = np.argsort(b, axis=1)[:, -LIKELIEST:]
    of_likeliest = np.abs(np.take_along_axis(log_a - log_b, likeliest, axis=1))
    divergence = (np.exp(log_b) * (log_b - log_a)).sum(axis=1)
    best = a.argmax(axis=1)
    return {
        "rows": len(a),
        "median_error": float(np.median(errors)),
        "largest_error": float(errors.max()),
        "same_first": float((best == b.argmax(axis=1)).mean()),
        "first_among_20": float((likeliest == best[:, None]).any(axis=1).mean()),
        "median_log_probability_difference": float(np.median(of_likeliest)),
        "largest_log_probability_difference": float(of_likeliest.max()),
        "median_divergence_nats": float(np.median(divergence)),
        "finite": bool(np.isfinite(a).all()),
    }


def _log_probabilities(rows: "np.ndarray[Any, np.dtype[np.float64]]") -> Any:
    shifted = rows - rows.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def report_of(found: Mapping[str, Mapping[str, Logits]]) -> Report:
    """`floor`: one way of computing beside another, of the same numbers."""
    marlin, own, file = (found[way] for way in (MARLIN, OWN, FILE))
    kinds = ("decoded", "read")
    return {
        "kernel": {kind: compared(marlin[kind], own[kind]) for kind in kinds},
        "four bits": {kind: compared(marlin[kind], file[kind]) for kind in kinds},
        "floor": {
            "file's numbers, decoded and read": compared(file["beginning"], file["read"]),
            "4-bit numbers, decoded and read": compared(own["beginning"], own["read"]),
            "marlin, decoded and read": compared(marlin["beginning"], marlin["read"]),
        },
        "pace": {way: float(one["pace"][0]) for way, one in found.items()},
    }
