"""Does a good prior help whatever the inference, and does inference still matter under it? (Paper, section 4.3.)"""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp.evaluation.oracle import Oracle
from bnnp.experiment import (
    Run,
    cell,
    fixed_tests,
    markdown_table,
    mean_and_error,
    model_file,
    score_sets,
    train,
)
from bnnp.files import write_atomically
from bnnp.inference import Effort, InferenceWarning, infer_many
from bnnp.plots import save_figure
from bnnp.tasks.task import Split

from .climate import Climate, climate
from .methods import LABELS, record, settings

NOISE, TEST_SEED, TESTS, SAMPLES = 0.05, 69, 16, 1000
ACTIVATIONS = {"gp": "silu", "heaviside": "tanh", "sawtooth": "relu", "climate": "relu"}
SOURCES = {"gp": bnnp.tasks.gp, "heaviside": bnnp.tasks.heaviside, "sawtooth": bnnp.tasks.sawtooth}
PRIORS = ("standard", "learned")
NAMES = {"gp": "GP", "heaviside": "Heaviside", "sawtooth": "sawtooth", "climate": "ERA5-Land"}
HIDDEN = {
    "smoke": {"gp": (6, 6), "climate": (6, 6)},
    "small": {"gp": (48, 48), "heaviside": (48, 48), "sawtooth": (48, 48), "climate": (64, 64, 64)},
}
HIDDEN["paper"] = HIDDEN["small"]
TRAINING: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        name: {"steps": 3, "samples": 2, "learning_rate": (3e-3, 1e-4), "context_share": (0.1, 0.6)}
        for name in ("gp", "climate")
    },
    "small": {  # the models of the synthetic processes are those that ship, `zoo:gp` and so on
        "climate": {
            "steps": 2000,
            "samples": 8,
            "learning_rate": (1e-3, 1e-5),
            "context_share": (0.0, 0.25),  # small ones, since what the prior draws is trained by them
            "max_noise": 0.3,
            "recipe": "floor",
        },
    },
    "paper": {
        **{
            name: {
                "steps": 100_000,
                "samples": 32,
                "learning_rate": (3e-3, 5e-5),
                "context_share": (0.1, 0.6),
                "recipe": "paper",
            }
            for name in SOURCES
        },
        "climate": {
            "steps": 250_000,
            "samples": 24,
            "learning_rate": (1e-3, 1e-5),
            "context_share": (0.01, 0.5),
            "recipe": "paper",
        },
    },
}
PAPER_LPPD = {  # NUMBERS behind the paper's figure: pooled LPPD, standard and learned prior
    "gp": {
        "swag": (-0.11, 0.45),
        "mfvi": (-0.10, 0.37),
        "lmc": (0.26, 0.68),
        "givi": (0.08, 0.65),
        "bnnp": (0.02, 0.64),
    }
    | {"hmc": (0.32, 0.69)},
    "heaviside": {"swag": (0.37, -0.19), "mfvi": (0.58, 0.92), "lmc": (0.83, 0.90), "givi": (0.70, 1.39)}
    | {"bnnp": (0.54, 1.33), "hmc": (0.83, 1.01)},
    "sawtooth": {"swag": (0.05, 0.64), "mfvi": (-0.06, 0.73), "lmc": (0.20, 1.34), "givi": (0.05, 1.28)}
    | {"bnnp": (0.02, 1.28), "hmc": (0.28, 1.32)},
    "climate": {"swag": (1.20, 1.35), "mfvi": (1.34, 1.57), "sgld": (1.45, 1.50), "givi": (1.47, 1.53)}
    | {"bnnp": (1.50, 1.67), "sghmc": (1.39, 1.54)},
}
PAPER_MAE = {
    "gp": {"swag": (0.457, 0.334), "mfvi": (0.471, 0.351), "lmc": (0.461, 0.343), "givi": (0.489, 0.315)}
    | {"bnnp": (0.497, 0.315), "hmc": (0.453, 0.327)},
    "heaviside": {"swag": (0.329, 0.426), "mfvi": (0.339, 0.319), "lmc": (0.316, 0.395), "givi": (0.338, 0.314)}
    | {"bnnp": (0.335, 0.316), "hmc": (0.317, 0.374)},
    "sawtooth": {"swag": (0.293, 0.163), "mfvi": (0.277, 0.143), "lmc": (0.306, 0.102), "givi": (0.294, 0.097)}
    | {"bnnp": (0.292, 0.096), "hmc": (0.302, 0.096)},
    "climate": {"swag": (0.262, 0.203), "mfvi": (0.299, 0.222), "sgld": (0.259, 0.218), "givi": (0.219, 0.214)}
    | {"bnnp": (0.208, 0.140), "sghmc": (0.242, 0.175)},
}
LIMIT = 2.0
"""Of the scale of maps of rain, mm."""
COLOURS = {"standard": "#8c564b", "learned": "#1f77b4"}


def runs(scale: str) -> dict[str, Run]:
    """Training where it is needed; then every method under both priors, and the trained model as it is."""
    planned = {
        f"train-{process}": Run(train_prior, {"process": process, "scale": scale, **choices})
        for process, choices in TRAINING[scale].items()
    }
    for process in HIDDEN[scale]:
        needs = (f"train-{process}",) if process in TRAINING[scale] else ()
        planned[f"{process}-pretrained"] = Run(pretrained, {"process": process, "scale": scale}, needs)
        if process in ("gp", "sawtooth"):
            planned[f"{process}-exact"] = Run(exact, {"process": process, "scale": scale})
        if process == "climate":
            planned["climate-fields"] = Run(fields, {"scale": scale}, needs)
        for prior in PRIORS:
            for method, choices in settings(scale, process, prior).items():
                planned[f"{process}-{method}-{prior}"] = Run(
                    infer_sets,
                    {"process": process, "scale": scale, "prior": prior, "method": method, **choices},
                    needs if prior == "learned" else (),
                )
    return planned


# --- the runs --------------------------------------------------------------------------------------------------------


def train_prior(
    process: str,
    scale: str,
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    context_share: tuple[float, float],
    folder: Path,
    max_noise: float | None = None,
    recipe: str = "default",
) -> dict[str, float]:
    """Meta-learn a prior, and keep the model."""
    tasks = climate(scale).training if process == "climate" else SOURCES[process]()
    likelihood = bnnp.Gaussian(NOISE, max_noise=max_noise)
    model = bnnp.BNNP(
        tasks.in_size, 1, HIDDEN[scale][process], ACTIVATIONS[process], "unitwise", likelihood, seed=TEST_SEED
    )
    train(
        model,
        tasks,
        folder,
        process,
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        learning_rate=learning_rate,
        context_share=context_share,
        recipe=recipe,
        seed=TEST_SEED,
    )
    return {"noise": model.likelihood.noise.item()}


def pretrained(process: str, scale: str, folder: Path) -> dict[str, Any]:
    """The trained model itself: no fitting to the test sets."""
    model, data = learned_model(process, folder), tests(process, scale)
    return {
        "noise": model.likelihood.noise.item(),
        "own noise": _of_model(model, data, None),
        "noise 0.05": _of_model(model, data, NOISE),
    }


def exact(process: str, scale: str) -> dict[str, Any]:
    """The best possible: the exact posterior of the process."""
    return bnnp.evaluate(
        Oracle(SOURCES[process]()), tests(process, scale).splits, num_samples=_samples(scale)
    ).to_dict()


def infer_sets(
    process: str,
    scale: str,
    prior: str,
    method: str,
    record: dict[str, Any],
    effort: dict[str, Any],
    samples: int,
    whitened: bool,
    folder: Path,
) -> dict[str, Any]:
    """All test sets of a process side by side, by one method under one prior."""
    data = tests(process, scale)
    splits = data.splits
    if prior == "learned":
        model = learned_model(process, folder)
        if method == "bnnp":
            record = record | {"start": model}
    else:
        model = _standard(process, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)  # what speaks against a result is kept with it
        posteriors = infer_many(
            model.prior,
            model.network,
            [split.context for split in splits],
            method=_record(method, record),
            likelihood=bnnp.Gaussian(NOISE, learnable=False),
            num_samples=samples,
            effort=Effort(**effort),
            whitened=whitened,
            seed=TEST_SEED,
        )
    return {
        "all": score_sets(posteriors, splits, data.y_scale),
        "region": score_sets(posteriors, data.in_region, data.y_scale) if data.in_region else None,
        "warnings": sum(bool(post.diagnostics.warnings) for post in posteriors),
    }


_record = record  # a run's argument has the same name


def fields(scale: str, folder: Path, count: int = 200) -> dict[str, dict[str, float]]:
    """How much of real and of drawn precipitation is negative, and how much is nearly none."""
    data = climate(scale)
    x = data.tests.tasks[0].x
    drawn = {"ERA5-Land": np.concatenate([task.y.numpy() for task in data.training.tasks])}
    for prior, model in (
        ("standard prior", _standard("climate", scale)),
        ("learned prior", learned_model("climate", folder)),
    ):
        drawn[prior] = np.concatenate([f(x) for f in model.prior.functions(count, seed=0)])
    millimetres = {name: data.millimetres(values) for name, values in drawn.items()}
    return {
        name: {"below -0.1 mm": float((rain < -0.1).mean()), "within 0.1 mm of none": float((abs(rain) < 0.1).mean())}
        for name, rain in millimetres.items()
    }


class Tests:
    """Test sets with fixed contexts; `in_region` are the same with the targets of the left-out region alone."""

    def __init__(self, splits: list[Split], in_region: list[Split], y_scale: float = 1.0):
        self.splits, self.in_region, self.y_scale = splits, in_region, y_scale


def tests(process: str, scale: str) -> Tests:
    count, points = (2, 12) if scale == "smoke" else (TESTS, 50)
    if process == "climate":
        found = climate(scale)
        splits = list(found.tests.splits)
        pairs = zip(splits, found.inside, strict=True)
        return Tests(splits, [replace(s, target=s.target.take(torch.from_numpy(i))) for s, i in pairs], found.y_scale)
    if process == "sawtooth":
        return Tests(list(bnnp.tasks.sawtooth_tests().splits)[:count], [])
    source = SOURCES[process](noise=NOISE, low=-4.0, high=4.0, points=(points, points))
    share = (0.3, 0.5) if scale == "smoke" else (0.05, 0.5)
    return Tests(fixed_tests(source, count, share, TEST_SEED), [])


def learned_model(process: str, folder: Path) -> bnnp.BNNP:
    """The model trained here; where none was, the one that ships."""
    own = model_file(folder, process)
    return bnnp.load(own if own.is_file() or process not in SOURCES else f"zoo:{process}")


def _standard(process: str, scale: str) -> bnnp.BNNP:
    """A model whose prior is the standard one."""
    in_size = 3 if process == "climate" else 1
    return bnnp.BNNP(in_size, 1, HIDDEN[scale][process], ACTIVATIONS[process], "factorised", seed=0)


def _of_model(model: bnnp.BNNP, data: Tests, noise: float | None) -> dict[str, Any]:
    def scores(splits: list[Split]) -> dict[str, Any]:
        found = bnnp.evaluate(model, splits, num_samples=SAMPLES, noise=noise, seed=0)
        for name in ("mae", "rmse", "crps"):
            found.per_task[name] *= data.y_scale
        return found.to_dict()

    return {"all": scores(data.splits), "region": scores(data.in_region) if data.in_region else None}


def _samples(scale: str) -> int:
    return 10 if scale == "smoke" else SAMPLES


# --- the report ------------------------------------------------------------------------------------------------------


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    processes = [p for p in HIDDEN[scale] if any(key.startswith(f"{p}-") for key in results)]
    text = "".join(_section(process, scale, results) for process in processes)
    files = [write_atomically(folder / "table.md", text)]
    if processes:
        files.append(save_figure(_figure(processes, scale, results), folder / "figure.png"))
    if "train-climate" in results:
        data, model = climate(scale), learned_model("climate", folder)
        files.append(save_figure(_fields(data, model, scale), folder / "climate_prior.png"))
        files.append(save_figure(_demonstration(data, model), folder / "climate_task.png"))
    return files


def _methods(process: str, scale: str, results: Mapping[str, Any]) -> list[str]:
    names = settings(scale, process, "standard")
    return [m for m in names if any(f"{process}-{m}-{prior}" in results for prior in PRIORS)]


def _found(results: Mapping[str, Any], process: str, method: str, prior: str, part: str = "all") -> dict | None:
    result = results.get(f"{process}-{method}-{prior}")
    return None if result is None else result[part]


def _section(process: str, scale: str, results: Mapping[str, Any]) -> str:
    """Ours with standard errors over the sets, and the paper's; then in how many methods the learned prior wins."""
    unit = ", mm" if process == "climate" else ""
    header = ["method", "prior", "pooled LPPD", "marginal LPPD", "joint LPPD", f"MAE{unit}", "K"]
    header += ["paper: pooled LPPD", f"paper: MAE{unit}"]
    rows = []
    for method in _methods(process, scale, results):
        for which, prior in enumerate(PRIORS):
            found = _found(results, process, method, prior)
            theirs = [t[process].get(method, ("", ""))[which] for t in (PAPER_LPPD, PAPER_MAE)]
            rows.append([LABELS[method], prior, *_cells(found), *map(str, theirs)])
    for key, label in (("pretrained", "BNNP as pre-trained, no fitting"), ("exact", "exact posterior")):
        found = results.get(f"{process}-{key}")
        if key == "pretrained" and found is not None:
            rows.append(
                [label + f", its own noise {found['noise']:.3f}", "learned", *_cells(found["own noise"]["all"])]
            )
            rows.append([label + ", noise 0.05", "learned", *_cells(found["noise 0.05"]["all"])])
        elif found is not None:
            rows.append([label, "true", *_cells(found)])
    rows = [row + [""] * (len(header) - len(row)) for row in rows]
    parts = [f"## {NAMES[process]}\n\n", markdown_table(header, rows), "\n", _wins(process, scale, results, "all")]
    if process == "climate":
        region = [
            [LABELS[m], prior, *_cells(_found(results, process, m, prior, "region"))]
            for m in _methods(process, scale, results)
            for prior in PRIORS
        ]
        found = results.get("climate-pretrained")
        if found is not None:
            region.append(["BNNP as pre-trained", "learned", *_cells(found["own noise"]["region"])])
        parts += ["Targets in the left-out region alone:\n\n", markdown_table(header[:7], region), "\n"]
        parts += [_wins(process, scale, results, "region")]
        shares = results.get("climate-fields", {})
        rows = [[name, *(f"{value:.2f}" for value in found.values())] for name, found in shares.items()]
        parts += ["Shares of points:\n\n", markdown_table(["", "below -0.1 mm", "within 0.1 mm of none"], rows), "\n"]
    return "".join(parts)


def _cells(found: dict | None) -> list[str]:
    if found is None:
        return [""] * 5
    samples = next(key for key in found["scores"] if "@" in key).split("@")[1]
    kinds = [cell(found, f"{kind}_lppd") for kind in ("pooled", "marginal", "joint")]
    return [*kinds, cell(found, "mae", 3), samples]


def _wins(process: str, scale: str, results: Mapping[str, Any], part: str) -> str:
    lines = []
    for score, sign in (("pooled_lppd", 1), ("marginal_lppd", 1), ("mae", -1)):
        pairs = {
            m: [mean_and_error(_found(results, process, m, prior, part), score)[0] for prior in PRIORS]
            for m in _methods(process, scale, results)
        }
        complete = {m: pair for m, pair in pairs.items() if not np.isnan(pair).any()}
        if not complete:
            continue
        lost = [LABELS[m] for m, (standard, learned) in complete.items() if sign * (learned - standard) <= 0]
        text = f"- {score}: the learned prior is better for {len(complete) - len(lost)} of {len(complete)} methods"
        lines.append(text + (f"; not for {', '.join(lost)}" if lost else ""))
    return "\n".join(lines) + "\n\n"


def _figure(processes: list[str], scale: str, results: Mapping[str, Any]) -> Figure:
    """The paper's figure: a column a process, pooled LPPD above and MAE below; hollow marks are the paper's."""
    figure = Figure(figsize=(3.4 * len(processes), 5), layout="constrained")
    panels = figure.subplots(2, len(processes), squeeze=False)
    for column, process in enumerate(processes):
        methods = _methods(process, scale, results)
        for row, (score, theirs) in enumerate((("pooled_lppd", PAPER_LPPD), ("mae", PAPER_MAE))):
            axes = panels[row, column]
            for which, prior in enumerate(PRIORS):
                places = np.arange(len(methods)) + 0.16 * (2 * which - 1)
                found = [mean_and_error(_found(results, process, m, prior), score) for m in methods]
                means, errors = np.array(found).T if found else (np.array([]), np.array([]))
                axes.errorbar(
                    places,
                    means,
                    errors,
                    fmt="o",
                    markersize=4,
                    color=COLOURS[prior],
                    label=f"{prior} prior",
                )
                paper = [theirs[process].get(m, (np.nan, np.nan))[which] for m in methods]
                axes.plot(places, paper, "o", markersize=7, fillstyle="none", color=COLOURS[prior], alpha=0.5)
            axes.set_xticks(range(len(methods)), [LABELS[m] for m in methods], rotation=60, fontsize=8)
            if row == 0:
                axes.set_title(NAMES[process])
                axes.set_ylim(bottom=max(axes.get_ylim()[0], -2.0))  # what is below is in the table
    panels[0, 0].set_ylabel("pooled LPPD")
    panels[1, 0].set_ylabel("MAE")
    panels[0, 0].plot([], [], "o", markersize=7, fillstyle="none", color="0.4", label="the paper's")
    panels[0, 0].legend(fontsize=7)
    return figure


def _fields(data: Climate, model: bnnp.BNNP, scale: str) -> Figure:
    """Rain as it was, and as the standard and the learned prior have it, for the temperatures of a real time.

    One scale for all, on which less than nothing is brown.
    """
    task = data.tests.tasks[0]
    standard = _standard("climate", scale)
    figure = Figure(figsize=(9, 7), layout="constrained")
    panels = figure.subplots(3, 3)
    wet = sorted(data.training.tasks, key=lambda task: float(task.y.mean()))[::-1]
    for row in range(3):
        real = wet[row * len(wet) // 4]  # the wettest time, and ones with less
        drawn = [real.y.numpy()] + [m.prior.functions(3, seed=1)[row](task.x.numpy()) for m in (standard, model)]
        for column, (values, places) in enumerate(zip(drawn, (real, task, task), strict=True)):
            _map(figure, panels[row, column], places, data.millimetres(values[:, 0]), (-LIMIT, LIMIT), "BrBG")
    for axes, title in zip(panels[0], ("ERA5-Land", "standard prior", "learned prior"), strict=True):
        axes.set_title(title)
    return figure


def _demonstration(data: Climate, model: bnnp.BNNP) -> Figure:
    """The test with most rain: context, mean and standard deviation."""
    index = int(np.argmax([float(task.y.mean()) for task in data.tests.tasks]))
    split, task = data.tests.splits[index], data.tests.tasks[index]
    pred = model.condition(split.context.x, split.context.y, num_samples=200, seed=0).predict(task.x)
    figure = Figure(figsize=(11, 2.6), layout="constrained")
    panels = figure.subplots(1, 4)
    shown = (
        ("context", split.context, data.millimetres(split.context.y.numpy()[:, 0])),
        ("predictive mean", task, data.millimetres(pred.mean[:, 0])),
        ("predictive std", task, data.y_scale * pred.std[:, 0]),
        ("truth", task, data.millimetres(task.y.numpy()[:, 0])),
    )
    most = float(shown[3][2].max())
    for axes, (title, places, values) in zip(panels, shown, strict=True):
        _map(figure, axes, places, values, (0.0, most), "viridis")
        axes.set_title(f"{title}, {task.name}" if title == "truth" else title, fontsize=9)
        (west, south), (east, north) = task.x[:, :2].numpy().min(0) - 0.1, task.x[:, :2].numpy().max(0) + 0.1
        axes.set(xlim=(west, east), ylim=(south, north))
    return figure


def _map(figure: Figure, axes: Any, places: Any, values: np.ndarray, limits: tuple[float, float], colours: str) -> None:
    longitude, latitude = places.x[:, :2].numpy().T
    low, high = limits
    drawn = axes.scatter(longitude, latitude, c=values, s=28, marker="s", cmap=colours, vmin=low, vmax=high)
    figure.colorbar(drawn, ax=axes, label="mm")
    axes.set_xticks([])
    axes.set_yticks([])
