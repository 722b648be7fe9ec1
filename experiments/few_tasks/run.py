"""Can a prior that is free only in part learn from few data sets? (Paper, section 4.4.)"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bnnp
from bnnp.inference import GIVI, Effort, GaussianVI, infer_many
from common import diagnosed, learn, learned_noise, score_sets, score_trivial, train
from harness import Run
from score_tables import mean_and_error

from .claims import claims
from .data import Data, divided_training, load, load_left_out
from .report import report

__all__ = ["claims", "report", "runs", "search"]

PEERS = {"np": bnnp.neural_processes.NP, "bnp": bnnp.neural_processes.BNP, "tnp": bnnp.neural_processes.TNP}
SEARCHED = (0.0, 0.5, 1.0)
"""Learnabilities over whose scores a choice is judged, so that it favours none of them."""


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """A BNNP for every learnability and seed, peers for every seed, BNNs for every noise, what is trivial."""
    planned: dict[str, Run] = {}
    for data, choices in settings["data"].items():
        chosen = choices["grid"][settings["chosen"][data]]
        common = {"data": data, "training": choices["training"], "scored": choices["scored"]}
        for seed in settings["seeds"]:
            for learnability in choices["learnabilities"]:
                own = {"seed": seed, "learnability": learnability, **choices["bnnp"], **chosen}
                planned[f"{data}-bnnp-{learnability}-{seed}"] = Run(fit_bnnp, common | own)
            own = {"seed": seed, "hidden": choices["bnnp"]["hidden"], "minutes": choices["recipe_minutes"]}
            planned[f"{data}-recipe-{seed}"] = Run(fit_recipe, common | own)
            for peer in PEERS:
                planned[f"{data}-{peer}-{seed}"] = Run(
                    fit_peer, common | {"seed": seed, "peer": peer, **choices["peers"]}
                )
        for method in ("mfvi", "givi"):
            bnns = {name: value for name, value in choices["bnns"].items() if name not in ("mfvi", "givi", "noises")}
            own = {"data": data, "scored": choices["scored"], "method": method, "seeds": settings["seeds"], **bnns}
            for noise in choices["bnns"]["noises"]:
                planned[f"{data}-{method}-{noise}"] = Run(
                    fit_bnn, own | {"noise": noise, "effort": choices["bnns"][method]}
                )
        planned[f"{data}-trivial"] = Run(trivial, {"data": data})
    return planned


def search(settings: Mapping[str, Any]) -> dict[str, dict[str, Run]]:
    """Steps and noise of the BNNP: trained on all training data sets but one, scored on that one."""
    found: dict[str, dict[str, Run]] = {}
    for data, choices in settings["data"].items():
        common = {"data": data, "training": choices["training"], "scored": choices["scored"], **choices["bnnp"]}
        seed = settings["seeds"][0]
        found[data] = {
            name: Run(score_choice, common | {"seed": seed, **chosen}) for name, chosen in choices["grid"].items()
        }
    return found


def score_choice(data: str, training: dict[str, Any], seed: int, folder: Path, **choices: Any) -> dict[str, Any]:
    """The mean marginal log predictive density of left-out training data sets, over learnabilities."""
    name, scores = f"search-{data}-{choices['steps']}-{choices['noise']}", []
    for found in load_left_out(data, training["points_share"]):
        for learnability in SEARCHED:
            result = _fit_bnnp(found, name, learnability, seed, training, folder, **choices)
            scores.append(mean_and_error(result["scores"], "marginal_lppd")[0])
    return {"score": float(np.mean(scores)), "scores": scores}


def fit_bnnp(
    data: str, learnability: float, seed: int, training: dict[str, Any], folder: Path, **choices: Any
) -> dict[str, Any]:
    """The paper's way: the standard start, PP-AVI, the first weights' prior free and the rest fixed."""
    found, name = load(data, training["points_share"]), f"{data}-{learnability}-{seed}"
    return _fit_bnnp(found, name, learnability, seed, training, folder, **choices)


def _fit_bnnp(
    found: Data,
    name: str,
    learnability: float,
    seed: int,
    training: dict[str, Any],
    folder: Path,
    *,
    hidden: tuple[int, ...],
    noise: float,
    max_noise: float | None,
    steps: int,
    scored: int,
    **choices: Any,
) -> dict[str, Any]:
    likelihood = bnnp.Gaussian(noise, max_noise=max_noise)
    model = bnnp.BNNP(found.training.in_size, 1, hidden, "silu", "unitwise", likelihood, seed=seed)
    model.set_prior_learnability(learnability)
    objective = bnnp.objectives.PPAVI(choices.pop("samples"))
    _train(model, found, folder, name, objective, seed, training, steps=steps, **choices)
    return {"noise": learned_noise(model), "scores": _scores(model, found, scored, seed)}


def fit_recipe(
    data: str, seed: int, hidden: tuple[int, ...], minutes: float, training: dict[str, Any], scored: int, folder: Path
) -> dict[str, Any]:
    """The one recipe: all of the prior may be learned, and left-out data sets decide how far."""
    found = load(data, training["points_share"])
    name = f"{data}-recipe-{seed}"
    learned = learn(
        found.training, folder, name, hidden=hidden, minutes=minutes, context_share=training["context_share"], seed=seed
    )
    return {"decisions": learned.decisions, "scores": _scores(learned.model, found, scored, seed)}


def fit_peer(
    data: str,
    peer: str,
    seed: int,
    training: dict[str, Any],
    scored: int,
    hidden: tuple[int, ...],
    samples: int,
    noise: float,
    steps: Mapping[str, int],
    learning_rate: tuple[float, float],
    ar_scored: int,
    ar_targets: int | None,
    folder: Path,
) -> dict[str, Any]:
    """A neural process. The TNP is scored by its marginals and, with fewer samples and targets, autoregressively."""
    found = load(data, training["points_share"])
    likelihood = None if peer == "tnp" else bnnp.Gaussian(noise)
    model = PEERS[peer](found.training.in_size, 1, hidden, "silu", likelihood, seed=seed)
    own = {"steps": steps[peer], "learning_rate": learning_rate}
    _train(model, found, folder, f"{data}-{peer}-{seed}", bnnp.objectives.NPML(samples), seed, training, **own)
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
    seeds: tuple[int, ...],
    effort: dict[str, Any],
    scored: int,
) -> dict[str, Any]:
    """A BNN under the standard prior, fitted to the test's context alone; as many repeats as seeds, side by side.

    The paper learns the noise with GIVI's bound. Here it is chosen by that bound among a few.
    """
    found = load(data)
    model = bnnp.BNNP(found.training.in_size, 1, hidden, "silu", "factorised", seed=0)
    posteriors = infer_many(
        model.prior,
        model.network,
        [found.test.context] * len(seeds),
        method=GIVI(inducing) if method == "givi" else GaussianVI("mfvi"),
        likelihood=bnnp.Gaussian(noise, learnable=False),
        num_samples=scored,
        effort=Effort(**effort),
        seed=seeds[0],
    )
    scores = [score_sets([post], [found.test], found.y_scale) for post in posteriors]
    found_how = [post.diagnostics for post in posteriors]
    bound = float(np.array([one.bound for one in found_how], dtype=float).mean())
    return {"scores": scores, "bound": bound, "convergence": diagnosed(found_how)}


def trivial(data: str) -> dict[str, Any]:
    found = load(data)
    return score_trivial(divided_training(found), [found.test], found.y_scale)


def _train(
    model: Any, found: Data, folder: Path, name: str, objective: Any, seed: int, training: dict[str, Any], **own: Any
) -> None:
    choices = {name: value for name, value in training.items() if name != "points_share"} | own
    train(model, found.training, folder, name, objective=objective, seed=seed, **choices)


def _scores(model: Any, found: Data, scored: int, seed: int) -> dict[str, Any]:
    post = model.condition(found.test.context.x, found.test.context.y, num_samples=scored, seed=seed)
    return score_sets([post], [found.test], found.y_scale)
