"""Can a prior that is free only in part learn from few data sets? (Paper, section 4.4.)"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.inference import GIVI, Effort, GaussianVI, infer_many
from bnnp.plots import save_figure
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.task import Split
from harness import Run, score_sets, train
from score_tables import markdown_table

NAMES = {"abalone": "Abalone", "paul15": "Paul15", "invented": "invented"}
PEERS = {"np": bnnp.neural_processes.NP, "bnp": bnnp.neural_processes.BNP, "tnp": bnnp.neural_processes.TNP}
LABELS = {"mfvi": "MFVI", "givi": "GIVI", "np": "NP", "bnp": "BNP", "tnp": "AR-TNP", "tnp-marginals": "TNP, marginals"}
SEEDS = (21, 42, 69, 420)
LOWEST = -2.0
"""Of the scale of figures; lines of what is worse lie there, and the BNNP's curve leaves the panel."""
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
PAPER = {  # pooled LPPD, from the authors' result files
    "abalone": dict(
        zip(TENTHS, (-0.92, -1.11, -0.97, -0.88, -0.77, -0.82, -0.70, -0.51, -0.40, -0.49, -0.66), strict=True)
    )
    | {"mfvi": -0.89, "givi": -0.66, "np": -0.87, "bnp": -0.97, "tnp": "-.62 to -.35"},
    "paul15": {0.0: -0.22, 0.2: 0.01, 0.5: 0.62, 0.8: 0.43, 1.0: 0.35}
    | {"mfvi": -1.02, "givi": -0.96, "np": -0.84, "bnp": -0.99, "tnp": -0.21},
    "invented": {},
}
PAPER_MAE = {"abalone": {"givi": 1.19, 0.8: 1.43, "np": 2.79}, "paul15": {}, "invented": {}}


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


# --- the data --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """In standard columns; errors times `y_scale` are in the original ones."""

    training: Collection
    test: Split
    y_scale: float


def load(data: str, points_share: float = 1.0) -> Data:
    if data == "invented":
        training, test = _invented()
        y_scale = 1.0
    else:
        loader = {"abalone": bnnp.tasks.datasets.abalone, "paul15": bnnp.tasks.paul15}[data]
        training, test = loader("train").standardised(), loader("test").standardised()
        assert training.columns is not None
        y_scale = float(training.columns.y_scale[0])
    return Data(replace(training, points_share=points_share), test.splits[0], y_scale)


def _invented() -> tuple[Collection, Collection]:
    """Noisy sums of three features, for trying out."""
    random = torch.Generator().manual_seed(0)
    tasks = []
    for number in range(3):
        x = torch.randn(24, 3, generator=random, dtype=torch.float64)
        y = x.sum(1, keepdim=True) / 2 + 0.1 * torch.randn(24, 1, generator=random, dtype=torch.float64)
        tasks.append(bnnp.tasks.Task(x, y, f"invented {number}"))
    split = Split(tasks[2].take(torch.arange(8)), tasks[2].take(torch.arange(8, 24)))
    return collect(tasks[:2], standardise=False), collect(tasks[2:], standardise=False, splits=[split])


# --- the runs --------------------------------------------------------------------------------------------------------


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
    return {"noise": model.likelihood.noise.item(), "scores": _scores(model, found, scored, seed)}


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
    return {"scores": scores, "bound": float(np.mean([post.diagnostics.bound for post in posteriors]))}


def _train(
    model: Any, found: Data, folder: Path, name: str, objective: Any, seed: int, choices: dict[str, Any]
) -> None:
    train(model, found.training, folder, name, objective=objective, seed=seed, **choices)


def _scores(model: Any, found: Data, scored: int, seed: int) -> dict[str, Any]:
    post = model.condition(found.test.context.x, found.test.context.y, num_samples=scored, seed=seed)
    return score_sets([post], [found.test], found.y_scale)


# --- the report ------------------------------------------------------------------------------------------------------


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    sections, curves = [], {}
    for data, choices in SCALES[scale].items():
        rows = _rows(data, choices, results)
        if rows:
            sections.append(f"## {NAMES[data]}\n\n{_table(data, rows)}\n{_note(data, choices, results)}\n")
            curves[data] = rows
    table = write_atomically(folder / "table.md", "\n".join(sections))
    return [table, save_figure(_figure(curves), folder / "figure.png")]


def _rows(data: str, choices: Settings, results: Mapping[str, Any]) -> dict[Any, list[dict]]:
    """Scores of all repeats, by learnability or by the name of the method."""
    seeds = choices.seeds
    rows: dict[Any, list[dict]] = {
        learnability: _scores_of(results, [f"{data}-bnnp-{learnability}-{seed}" for seed in seeds])
        for learnability in choices.learnabilities
    }
    noise = _noise(data, choices, results)
    for method in ("mfvi", "givi"):
        rows[method] = _scores_of(results, [f"{data}-{method}-{noise}"])
    for peer in PEERS:
        keys = [f"{data}-{peer}-{seed}" for seed in seeds]
        rows[peer] = _scores_of(results, keys)
        if peer == "tnp":
            rows["tnp-marginals"] = _scores_of(results, keys, "marginals")
    return {name: found for name, found in rows.items() if found}


def _scores_of(results: Mapping[str, Any], keys: list[str], part: str = "scores") -> list[dict]:
    return [results[key][part] for key in keys if key in results]


def _noise(data: str, choices: Settings, results: Mapping[str, Any]) -> float:
    """The noise with GIVI's largest bound, for both BNNs."""
    bounds = {n: results.get(f"{data}-givi-{n}", {}).get("bound", -math.inf) for n in choices.vi_noises}
    return max(bounds, key=bounds.__getitem__, default=math.nan)


def _mean(found: list[dict], score: str) -> tuple[float, float]:
    """Over repeats, with its standard error; a run of several repeats has them inside."""
    lists = [v for one in found for k, v in one["per_task"].items() if k.split("@")[0] == score]
    values = np.array([value for some in lists for value in some])
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return (float(values.mean()), float(error)) if len(values) else (math.nan, math.nan)


def _table(data: str, rows: Mapping[Any, list[dict]]) -> str:
    header = ["method", "pooled LPPD", "marginal LPPD", "joint LPPD", "MAE", "K", "repeats"]
    header += ["paper: pooled LPPD", "paper: MAE"]
    lines = []
    for name, found in rows.items():
        cells = [_text(*_mean(found, f"{kind}_lppd")) for kind in ("pooled", "marginal", "joint")]
        samples = next(key for key in found[0]["scores"] if "@" in key).split("@")[1]
        label = LABELS.get(name, f"BNNP {name}")
        theirs = [str(numbers[data].get(name, "")) for numbers in (PAPER, PAPER_MAE)]
        repeats = sum(one["tasks"] for one in found)
        lines.append([label, *cells, _text(*_mean(found, "mae")), samples, str(repeats), *theirs])
    return markdown_table(header, lines)


def _text(mean: float, error: float) -> str:
    return f"{mean:.2f}" if math.isnan(error) else f"{mean:.2f} ± {error:.2f}"


def _note(data: str, choices: Settings, results: Mapping[str, Any]) -> str:
    notes = ["LPPD per standardised unit."]
    notes.append(f"MFVI and GIVI with noise {_noise(data, choices, results)}, by GIVI's bound.")
    if "tnp" in choices.peer_steps and choices.peers["ar_targets"] is not None:
        targets, samples = choices.peers["ar_targets"], choices.peers["ar_scored"]
        notes.append(f"AR-TNP with {targets} of the targets and {samples} samples: it is slow.")
    return " ".join(notes) + "\n"


def _figure(curves: Mapping[str, Mapping[Any, list[dict]]]) -> Figure:
    """LPPD against learnability, the other methods as lines across; dashed is the paper's BNNP."""
    columns = max(1, len(curves))
    figure = Figure(figsize=(5.4 * columns, 6.4), layout="constrained")
    panels = figure.subplots(2, columns, squeeze=False)
    for column, (data, rows) in enumerate(curves.items()):
        for axes, kind in zip(panels[:, column], ("pooled", "marginal"), strict=True):
            _curve(axes, rows, f"{kind}_lppd", PAPER[data] if kind == "pooled" else {})
            axes.set(xlabel="prior-learnability", ylabel=f"{kind} LPPD")
            axes.set_ylim(bottom=max(axes.get_ylim()[0], LOWEST - 0.1))
        panels[0, column].set_title(NAMES[data])
    entries = {
        label: line for axes in panels.flat for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=4, fontsize=9)
    return figure


def _curve(axes: Any, rows: Mapping[Any, list[dict]], score: str, papers: Mapping[Any, Any]) -> None:
    shares = [name for name in rows if not isinstance(name, str)]
    if shares:
        means, errors = np.array([_mean(rows[share], score) for share in shares]).T
        axes.errorbar(shares, means, errors, fmt="o-", color="#1f77b4", label="BNNP")
    theirs = {name: value for name, value in papers.items() if not isinstance(name, str)}
    if theirs:
        hollow = {"fillstyle": "none", "color": "#1f77b4", "alpha": 0.5}
        axes.plot(list(theirs), list(theirs.values()), "o--", label="paper's BNNP", **hollow)
    for number, name in enumerate(n for n in rows if isinstance(n, str)):
        mean, _ = _mean(rows[name], score)
        axes.axhline(max(mean, LOWEST), color=f"C{number + 1}", linewidth=1.2, label=LABELS[name])
