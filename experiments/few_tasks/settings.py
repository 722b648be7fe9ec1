"""What is run at each scale."""

from dataclasses import dataclass
from typing import Any

import bnnp

PEERS = {"np": bnnp.neural_processes.NP, "bnp": bnnp.neural_processes.BNP, "tnp": bnnp.neural_processes.TNP}
SEEDS = (21, 42, 69, 420)
TENTHS = tuple(round(0.1 * i, 1) for i in range(11))


@dataclass(frozen=True)
class Settings:
    """For one collection of data sets: arguments of the three kinds of runs, and what they are run for."""

    learnabilities: tuple[float, ...]
    bnnp: dict[str, Any]
    peers: dict[str, Any]
    bnns: dict[str, Any]
    peer_steps: dict[str, int]
    vi: dict[str, dict[str, Any]]
    vi_noises: tuple[float, ...]
    seeds: tuple[int, ...]


def _trained(steps: int, learning_rate: tuple[float, float], batch_size: int, **others: Any) -> dict[str, Any]:
    choices = {"steps": steps, "learning_rate": learning_rate, "batch_size": batch_size}
    return choices | {"context_share": (0.1, 0.6)} | others


def _papers(
    hidden: tuple[int, ...],
    learnabilities: tuple[float, ...],
    learning_rate: tuple[float, float],
    batch_size: int,
    inducing: int,
) -> Settings:
    """App. F.4 of the paper. The TNP's rate is not in the text."""
    common = {"noise": 0.1, "samples": 16, "points_share": 1.0, "scored": 1000}
    training = _trained(100_000, learning_rate, batch_size, prior_lr_multiplier=1.0, recipe="paper")
    peer = {"hidden": (256, 256, 256), "ar_scored": 1000, "ar_targets": None}
    vi = {"steps": 75_000, "learning_rate": (5e-3, 1e-4), "elbo_samples": 8}
    return Settings(
        learnabilities,
        common | {"hidden": hidden, "max_noise": 0.5, "training": training},
        common | peer | {"training": _trained(0, (1e-4, 1e-5), batch_size, recipe="paper")},
        {"hidden": hidden, "inducing": inducing, "repeats": len(SEEDS), "scored": 1000},
        {"np": 500_000, "bnp": 500_000, "tnp": 50_000},
        {"mfvi": vi, "givi": vi},
        (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8),
        SEEDS,
    )


_SMALL_PEERS = {"hidden": (128, 128, 128), "samples": 8, "scored": 1000, "ar_scored": 20, "ar_targets": 60}
_SMALL_PEER_STEPS = {"np": 3000, "bnp": 3000, "tnp": 3000}
_SMALL_BNNS = {"hidden": (64, 64, 64), "repeats": 1, "scored": 1000}
_SMALL_VI = {
    "mfvi": {"steps": 4000, "learning_rate": (5e-3, 1e-4)},
    "givi": {"steps": 600, "learning_rate": (1e-2, 1e-4)},
}
SCALES: dict[str, dict[str, Settings]] = {
    "smoke": {
        "invented": Settings(
            (0.0, 0.5, 1.0),
            {"noise": 0.1, "max_noise": 0.5, "samples": 2, "points_share": 0.5, "scored": 10, "hidden": (6, 6)}
            | {"training": _trained(3, (5e-4, 5e-5), 2)},
            {"noise": 0.1, "samples": 2, "points_share": 0.5, "scored": 10, "hidden": (8, 8)}
            | {"ar_scored": 3, "ar_targets": 5, "training": _trained(0, (1e-4, 1e-5), 2)},
            {"hidden": (6, 6), "inducing": 5, "repeats": 1, "scored": 10},
            {"np": 3, "bnp": 3, "tnp": 3},
            {"mfvi": {"steps": 3}, "givi": {"steps": 3}},
            (0.2, 0.4),
            SEEDS[:1],
        )
    },
    "small": {  # a fast prior and all points in every step: as far into overfitting as minutes go
        "abalone": Settings(
            (0.0, 0.5, 0.8, 0.9, 1.0),
            {"noise": 0.6, "max_noise": None, "samples": 2, "points_share": 1.0, "scored": 1000, "hidden": (32, 32, 32)}
            | {"training": _trained(12_000, (2e-3, 5e-4), 2, context_share=(0.02, 0.12), prior_lr_multiplier=5.0)},
            _SMALL_PEERS | {"noise": 0.4, "points_share": 0.2, "training": _trained(0, (1e-3, 1e-5), 2)},
            _SMALL_BNNS | {"inducing": 64},
            _SMALL_PEER_STEPS,
            _SMALL_VI,
            (0.45, 0.6),
            SEEDS[:1],
        ),
        "paul15": Settings(
            (0.0, 0.5, 1.0),
            {
                "noise": 0.1,
                "max_noise": 0.5,
                "samples": 2,
                "points_share": 1.0,
                "scored": 1000,
                "hidden": (96, 96, 96, 96),
            }
            | {"training": _trained(1200, (1.5e-3, 4e-4), 5, prior_lr_multiplier=4.0, recipe="standard start")},
            _SMALL_PEERS | {"noise": 0.1, "points_share": 0.3, "training": _trained(0, (1e-3, 1e-5), 5)},
            _SMALL_BNNS | {"inducing": 48},
            _SMALL_PEER_STEPS,
            _SMALL_VI,
            (0.3, 0.6),
            SEEDS[:1],
        ),
    },
    "paper": {
        "abalone": _papers((64, 64, 64), TENTHS, (5e-4, 5e-5), batch_size=2, inducing=128),
        "paul15": _papers((96, 96, 96, 96), (0.0, 0.2, 0.5, 0.8, 1.0), (1e-4, 5e-5), batch_size=5, inducing=196),
    },
}
