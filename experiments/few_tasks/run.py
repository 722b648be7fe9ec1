"""Can a prior that is free only in part learn from few data sets? (Paper, section 4.4.)"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bnnp
from bnnp.inference import GIVI, Effort, GaussianVI, infer_many
from common import learned_noise, score_sets, train
from harness import Run

from .data import Data, load
from .report import report
from .settings import PEERS, SCALES, SEEDS

__all__ = ["report", "runs"]


def runs(scale: str) -> dict[str, Run]:
    """A BNNP for every learnability and seed, neural processes for every seed, BNNs for every noise."""
    planned: dict[str, Run] = {}
    for data, choices in SCALES[scale].items():
        for seed in choices.seeds:
            same = {"data": data, "seed": seed}
            for learnability in choices.learnabilities:
                name = f"{data}-bnnp-{learnability}-{seed}"
                planned[name] = Run(fit_bnnp, same | choices.bnnp | {"learnability": learnability})
            for peer, steps in choices.peer_steps.items():
                training = choices.peers["training"] | {"steps": steps}
                own = choices.peers | {"peer": peer, "training": training}
                planned[f"{data}-{peer}-{seed}"] = Run(fit_peer, same | own)
        for method, effort in choices.vi.items():
            for noise in choices.vi_noises:
                own = {"data": data, "method": method, "noise": noise, "effort": effort}
                planned[f"{data}-{method}-{noise}"] = Run(fit_bnn, own | choices.bnns)
    return planned


def fit_bnnp(
    data: str,
    learnability: float,
    seed: int,
    noise: float,
    max_noise: float | None,
    points_share: float,
    hidden: tuple[int, ...],
    samples: int,
    training: dict[str, Any],
    scored: int,
    folder: Path,
) -> dict[str, Any]:
    found = load(data, points_share)
    likelihood = bnnp.Gaussian(noise, max_noise=max_noise)
    model = bnnp.BNNP(found.training.in_size, 1, hidden, "silu", "unitwise", likelihood, seed=seed)
    model.set_prior_learnability(learnability)
    objective = bnnp.objectives.PPAVI(samples)
    _train(model, found, folder, f"{data}-{learnability}-{seed}-{training['steps']}", objective, seed, training)
    return {"noise": learned_noise(model), "scores": _scores(model, found, scored, seed)}


def fit_peer(
    data: str,
    peer: str,
    seed: int,
    noise: float,
    points_share: float,
    hidden: tuple[int, ...],
    samples: int,
    training: dict[str, Any],
    scored: int,
    ar_scored: int,
    ar_targets: int | None,
    folder: Path,
) -> dict[str, Any]:
    """A neural process. The TNP is scored by its marginals and, with fewer samples and targets, autoregressively."""
    found = load(data, points_share)
    likelihood = None if peer == "tnp" else bnnp.Gaussian(noise)
    model = PEERS[peer](found.training.in_size, 1, hidden, "silu", likelihood, seed=seed)
    _train(model, found, folder, f"{data}-{peer}-{seed}", bnnp.objectives.NPML(samples), seed, training)
    if peer != "tnp":
        return {"scores": _scores(model, found, scored, seed)}
    count = len(found.test.target) if ar_targets is None else ar_targets
    chosen = torch.randperm(len(found.test.target), generator=torch.Generator().manual_seed(0))[:count]
    fewer = replace(found, test=replace(found.test, target=found.test.target.take(chosen)))
    return {
        "scores": _scores(model.as_autoregressive(), fewer, ar_scored, seed),
        "marginals": _scores(model, found, scored, seed),
        "ar_targets": count,
    }


def fit_bnn(
    data: str,
    method: str,
    noise: float,
    hidden: tuple[int, ...],
    inducing: int,
    repeats: int,
    effort: dict[str, Any],
    scored: int,
) -> dict[str, Any]:
    """A BNN under the standard prior, fitted to the test's context alone; repeats side by side.

    The paper learns the noise with GIVI's bound. Here it is chosen by that bound among a few.
    """
    found = load(data)
    model = bnnp.BNNP(found.training.in_size, 1, hidden, "silu", "factorised", seed=0)
    posteriors = infer_many(
        model.prior,
        model.network,
        [found.test.context] * repeats,
        method=GIVI(inducing) if method == "givi" else GaussianVI("mfvi"),
        likelihood=bnnp.Gaussian(noise, learnable=False),
        num_samples=scored,
        effort=Effort(**effort),
        seed=SEEDS[0],
    )
    scores = score_sets(posteriors, [found.test] * repeats, found.y_scale)
    return {
        "scores": scores,
        "bound": float(np.array([post.diagnostics.bound for post in posteriors], dtype=float).mean()),
    }


def _train(
    model: Any, found: Data, folder: Path, name: str, objective: Any, seed: int, choices: dict[str, Any]
) -> None:
    train(model, found.training, folder, name, objective=objective, seed=seed, **choices)


def _scores(model: Any, found: Data, scored: int, seed: int) -> dict[str, Any]:
    post = model.condition(found.test.context.x, found.test.context.y, num_samples=scored, seed=seed)
    return score_sets([post], [found.test], found.y_scale)
