"""How good is an approximate posterior? Evidence lower bounds beside the evidence (paper, section 4.1 and App. F.1)."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.evaluation import evidence, tempering
from bnnp.inference import GIVI, Effort, SingleTaskBNNP, Target, infer_many
from bnnp.plots import save_figure
from harness import Run

HIDDEN, INFERENCE_HIDDEN = (20, 20), (50, 50)
SEEDS = (21, 42, 69, 420)
RATES = {"fcvi": (5e-4, 5e-5), "givi": (1e-2, 5e-4)}
METHODS = {
    "bnnp": SingleTaskBNNP(bnnp.Pointwise(INFERENCE_HIDDEN)),
    "givi": GIVI(num_inducing=10),
    "ucvi": "ucvi",
    "lcvi": "lcvi",
    "fcvi": "fcvi",
    "mfvi": "mfvi",
}
NAMES = {"bnnp": "BNNP, one task", "meta": "BNNP, meta"} | {name: name.upper() for name in METHODS if name != "bnnp"}
SCALES = {
    "smoke": {"noises": [0.1], "steps": 10, "draws": 10_000, "particles": 50},
    "small": {"noises": [0.1, 0.01, 1.0], "steps": 20_000, "draws": 10_000_000, "particles": 1000},
    "paper": {
        "noises": [float(s) for s in torch.logspace(-2, 1, 40)],
        "steps": 20_000,
        "draws": 10_000_000,
        "particles": 2000,
    },
}


def runs(scale: str) -> dict[str, Run]:
    """A bound for every method and noise, and the evidence for every noise."""
    choices = SCALES[scale]
    planned = {}
    for noise in choices["noises"]:
        for method in (*METHODS, "meta"):
            planned[f"{method}-{noise:.4g}"] = Run(
                meta_bound if method == "meta" else bounds,
                {"noise": noise, "steps": choices["steps"]} | ({} if method == "meta" else {"method": method}),
            )
        planned[f"evidence-{noise:.4g}"] = Run(
            log_evidence, {"noise": noise, "draws": choices["draws"], "particles": choices["particles"]}
        )
    return planned


def model_of(noise: float, seed: int = 0) -> bnnp.BNNP:
    """The network under its standard prior, which stays fixed."""
    likelihood = bnnp.Gaussian(noise, learnable=False)
    model = bnnp.BNNP(
        1, 1, HIDDEN, "relu", "factorised", likelihood, inference=bnnp.Pointwise(INFERENCE_HIDDEN), seed=seed
    )
    model.set_prior_learnability(0)
    return model


def bounds(method: str, noise: float, steps: int) -> list[dict]:
    """Four repeats, side by side."""
    model, task = model_of(noise), bnnp.tasks.posterior_quality_test()
    effort = Effort(steps=steps, learning_rate=RATES.get(method, (5e-3, 5e-5)), elbo_samples=8)
    posts = infer_many(
        model,
        [task] * len(SEEDS),
        method=METHODS[method],
        num_samples=1,
        effort=effort,
        seed=SEEDS[0],
    )
    return [{"bound": post.diagnostics.bound, "error": post.diagnostics.bound_error} for post in posts]


def meta_bound(noise: float, steps: int) -> list[dict]:
    """A BNNP meta-trained on tasks like this one, which has never seen it. One repeat: each costs as much."""
    model, task = model_of(noise, SEEDS[0]), bnnp.tasks.posterior_quality_test()
    tasks = bnnp.tasks.bnn(noise=0.1, hidden=HIDDEN, points=(5, 50))
    bnnp.fit(
        model,
        tasks,
        objective=bnnp.objectives.PPAVI(num_samples=8),
        steps=steps,
        context_share=(0.7, 0.9),
        settings=bnnp.FitSettings(learning_rate=(5e-3, 5e-5)),
        progress=False,
        seed=SEEDS[0],
    )
    target = Target.of(model.prior, model.network, [task], model.likelihood)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        parts = [SingleTaskBNNP().bound(target, model, 500, generator) for _ in range(20)]
    found = torch.cat(parts, dim=1).double()[0]
    return [{"bound": float(found.mean()), "error": float(found.std() / math.sqrt(len(found)))}]


def log_evidence(noise: float, draws: int, particles: int) -> dict:
    """By plain Monte Carlo, as in the paper, and by tempered sequential Monte Carlo."""
    model, task = model_of(noise), bnnp.tasks.posterior_quality_test()
    target = Target.of(model.prior, model.network, [task], model.likelihood)
    plain = evidence.by_monte_carlo(target, draws, seed=0)
    tempered = tempering.by_tempering(target, particles, seed=0)
    return {
        "monte_carlo": {"value": plain.value, "error": plain.standard_error, "effective": plain.effective},
        "tempered": {"value": tempered.value, "error": tempered.standard_error, "effective": tempered.effective},
    }


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    noises = sorted(n for n in SCALES[scale]["noises"] if any(key.endswith(f"-{n:.4g}") for key in results))
    names = [name for name in NAMES if any(f"{name}-{n:.4g}" in results for n in noises)]
    lines = ["| | " + " | ".join(f"noise {n:.4g}" for n in noises) + " |", "|---|" + "---|" * len(noises)]
    for kind, title in (("monte_carlo", "log evidence, plain Monte Carlo"), ("tempered", "log evidence, tempered")):
        lines.append(
            f"| {title} | " + " | ".join(_evidence(results.get(f"evidence-{n:.4g}"), kind) for n in noises) + " |"
        )
    for name in names:
        lines.append(f"| {NAMES[name]} | " + " | ".join(_bound(results.get(f"{name}-{n:.4g}")) for n in noises) + " |")
    table = write_atomically(folder / "table.md", "\n".join(lines) + "\n")
    return [table, save_figure(_figure(noises, names, results), folder / "figure.png")]


def _evidence(found: dict | None, kind: str) -> str:
    if found is None:
        return ""
    one = found[kind]
    return str(evidence.LogEvidence(one["value"], one["error"], one["effective"]))


def _bound(found: list[dict] | None) -> str:
    """The mean over repeats, with the larger of the error of one bound and the spread of repeats."""
    if found is None:
        return ""
    values = torch.tensor([one["bound"] for one in found])
    spread = float(values.std()) if len(values) > 1 else 0.0
    return f"{float(values.mean()):.2f} ± {max(spread, *(one['error'] for one in found)):.2f}"


def _figure(noises: list[float], names: list[str], results: Mapping) -> Figure:
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    bound, gap = figure.subplots(1, 2)
    truth = [results.get(f"evidence-{n:.4g}", {}).get("tempered", {}).get("value", math.nan) for n in noises]
    bound.plot(noises, truth, "k-o", markersize=4, label="log evidence (tempered)")
    for name in names:
        found = [results.get(f"{name}-{n:.4g}") for n in noises]
        means = [math.nan if f is None else sum(one["bound"] for one in f) / len(f) for f in found]
        bound.plot(noises, means, "-o", markersize=4, label=NAMES[name])
        apart = [t - m if t > m else math.nan for t, m in zip(truth, means, strict=True)]  # below 0 by error only
        gap.plot(noises, apart, "-o", markersize=4)
    lowest = min((t for t in truth if math.isfinite(t)), default=0.0)
    bound.set(xscale="log", xlabel="likelihood noise", ylabel="nats", title="evidence and its lower bounds")
    bound.set_ylim(bottom=min(-120.0, lowest - 60))
    bound.legend(fontsize=7)
    gap.set(xscale="log", yscale="log", xlabel="likelihood noise", ylabel="nats", title="KL to the true posterior")
    return figure
