"""Tables and figures of the experiment, with the paper's values beside ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from bnnp.tasks.task import Task
from common import model_file
from score_tables import CONVERGENCE, convergence, markdown_table, mean_and_error, over_seeds, samples_of, text_of

from .climate import Climate, climate
from .methods import LABELS, NEW
from .models import LEARNED, NAMES, PRIORS, name_of, standard_model

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
COLOURS = {"standard": "#8c564b", "recipe": "#1f77b4", "paper": "#e377c2"}


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    """The climate has files of its own, so that either part can be run without the other."""
    processes = [p for p in settings["processes"] if any(key.startswith(f"{p}-") for key in results)]
    files = []
    for prefix in ("", "climate_"):
        some = [process for process in processes if (process == "climate") == bool(prefix)]
        if some:
            text = "".join(_section(process, settings, results) for process in some)
            files.append(write_atomically(folder / f"{prefix}table.md", text))
            files.append(save_figure(_figure(some, settings, results), folder / f"{prefix}figure.png"))
    for prior in LEARNED if "climate" in processes else ():
        choices = settings["processes"]["climate"]
        name = name_of("climate", prior, choices["seeds"][0])
        if f"train-{name}" in results and model_file(folder, name).is_file():
            data, model = climate(settings["rain"]), bnnp.load(model_file(folder, name))
            files.append(save_figure(_fields(data, model, choices["hidden"]), folder / f"climate_prior_{prior}.png"))
            files.append(save_figure(_demonstration(data, model), folder / f"climate_task_{prior}.png"))
    return files


def methods_in(process: str, settings: Mapping[str, Any]) -> list[str]:
    """The methods that are run under every prior."""
    return list(settings["processes"][process]["methods"])


def found_of(
    process: str, method: str, prior: str, settings: Mapping[str, Any], results: Mapping[str, Any]
) -> dict[int, Any]:
    """Results by seed."""
    keys = {seed: f"{process}-{method}-{prior}-{seed}" for seed in settings["processes"][process]["seeds"]}
    return {seed: results[key] for seed, key in keys.items() if key in results}


def best_trivial(process: str, part: str, score: str, results: Mapping[str, Any]) -> str:
    """The best of what needs no learning, by name."""
    scores = (results.get(f"{process}-trivial") or {}).get(part) or {}
    found = {name: mean_and_error(one, score)[0] for name, one in scores.items() if name != "exact posterior"}
    best = max(found, key=found.__getitem__, default="")
    return f"{best} {found[best]:.2f}" if best else ""


def _section(process: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """Ours with standard errors over seeds (over sets with one seed), the paper's, how chains and bounds went."""
    unit = ", mm" if process == "climate" else ""
    header = ["method", "prior", "pooled LPPD", "marginal LPPD", "joint LPPD", f"MAE{unit}", "K", "seeds", *CONVERGENCE]
    header += ["paper: pooled LPPD", f"paper: MAE{unit}"]
    parts = [f"## {NAMES[process]}\n\n"]
    for part in ("all", "region") if process == "climate" else ("all",):
        rows = _rows(process, part, settings, results)
        parts += ["Targets in the left-out region alone:\n\n"] if part == "region" else []
        parts += [markdown_table(header, [row + [""] * (len(header) - len(row)) for row in rows]), "\n"]
    if process == "climate":
        shares = [found_of(process, "fields", prior, settings, results).values() for prior in PRIORS]
        rows = {name: values for some in shares for one in some for name, values in one.items()}
        cells = [[name, *(f"{value:.2f}" for value in values.values())] for name, values in rows.items()]
        parts += ["Shares of points:\n\n", markdown_table(["", "below -0.1 mm", "within 0.1 mm of none"], cells), "\n"]
    return "".join(parts)


def _rows(process: str, part: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for method in [*methods_in(process, settings), NEW]:
        for prior in PRIORS:
            found = list(found_of(process, method, prior, settings, results).values())
            if found:
                theirs = [t[process].get(method, ("", ""))[prior != "standard"] for t in (PAPER_LPPD, PAPER_MAE)]
                how = convergence(_worst([one["convergence"] for one in found]))
                cells = [*_cells([one[part] for one in found]), str(len(found)), *how]
                rows.append([LABELS[method], prior, *cells, *(map(str, theirs) if part == "all" else ("", ""))])
    for prior in LEARNED:
        found = list(found_of(process, "pretrained", prior, settings, results).values())
        for noise in ("own noise", "noise 0.05"):
            some = [one[noise][part] for one in found if one[noise] is not None]
            rows += [[f"BNNP as trained, {noise}", prior, *_cells(some), str(len(some))]] if some else []
    for name, scores in ((results.get(f"{process}-trivial") or {}).get(part) or {}).items():
        rows.append([name, "", *_cells([scores])])
    return rows


def _worst(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst number of all seeds, and the flags of all."""
    picks = {"rhat": max, "ess": min, "acceptance": min}
    numbers = {name: [one[name] for one in found if one[name] is not None] for name in picks}
    kept = {name: pick(numbers[name]) if numbers[name] else None for name, pick in picks.items()}
    steepest = max(found, key=lambda one: abs(one["slope"] or 0.0))
    kept |= {name: steepest[name] for name in ("slope", "slope_error")}
    return kept | {name: sum(one[name] for one in found) for name in ("doubtful", "sets")}


def _cells(scores: list[dict[str, Any]]) -> list[str]:
    kinds = [text_of(over_seeds(scores, f"{kind}_lppd")) for kind in ("pooled", "marginal", "joint")]
    return [*kinds, text_of(over_seeds(scores, "mae"), 3), samples_of(scores[0])]


def _figure(processes: list[str], settings: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    """The paper's figure: a column a process, pooled LPPD above and MAE below; hollow marks are the paper's.

    The climate has a column more, for the targets of the left-out region.
    """
    columns = [(process, "all") for process in processes] + [(p, "region") for p in processes if p == "climate"]
    figure = Figure(figsize=(3.4 * len(columns), 5), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False)
    for column, (process, part) in enumerate(columns):
        methods = methods_in(process, settings)
        for row, (score, theirs) in enumerate((("pooled_lppd", PAPER_LPPD), ("mae", PAPER_MAE))):
            axes = panels[row, column]
            for which, prior in enumerate(PRIORS):
                places = np.arange(len(methods)) + 0.2 * (which - 1)
                some = [found_of(process, m, prior, settings, results).values() for m in methods]
                found = [over_seeds([one[part] for one in s], score) if s else (np.nan, np.nan) for s in some]
                colour, label = COLOURS[prior], f"{prior} prior" if prior == "standard" else LEARNED[prior]
                axes.errorbar(places, *np.array(found).T, fmt="o", markersize=4, color=colour, label=label)
                if part == "all" and prior != "recipe":
                    paper = [theirs[process].get(m, (np.nan, np.nan))[prior == "paper"] for m in methods]
                    axes.plot(places, paper, "o", markersize=7, fillstyle="none", color=colour, alpha=0.5)
            axes.set_xticks(range(len(methods)), [LABELS[m] for m in methods], rotation=60, fontsize=8)
            if row == 0:
                axes.set_title(NAMES[process] + (", left-out region" if part == "region" else ""))
                axes.set_ylim(bottom=max(axes.get_ylim()[0], -2.0))  # what is below is in the table
    panels[0, 0].set_ylabel("pooled LPPD")
    panels[1, 0].set_ylabel("MAE, mm" if processes == ["climate"] else "MAE")
    panels[0, 0].plot([], [], "o", markersize=7, fillstyle="none", color="0.4", label="the paper's")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=8, ncols=2, loc="outside upper center")
    return figure


def _fields(data: Climate, model: bnnp.BNNP, hidden: tuple[int, ...], count: int = 12) -> Figure:
    """Rain as it was, and as the standard and the learned prior have it, for the temperatures of a real time.

    Real times at equal ranks of their rain, and the first draws of each prior. One scale for all, on which less than
    nothing is brown.
    """
    task, ranked = data.tests.tasks[0], sorted(data.training.tasks, key=lambda one: -float(one.y.mean()))
    real = [ranked[i * len(ranked) // count] for i in range(count)]
    rows: dict[str, list[tuple[Task, np.ndarray]]] = {"ERA5-Land": [(one, one.y.numpy()) for one in real]}
    for name, of in (("standard prior", standard_model("climate", hidden)), ("learned prior", model)):
        rows[name] = [(task, f(task.x.numpy())) for f in of.prior.functions(count, seed=1)]
    figure = Figure(figsize=(15, 3.6), layout="constrained")
    panels = figure.subplots(3, count)
    for row, (name, fields) in zip(panels, rows.items(), strict=True):
        row[0].set_ylabel(name)
        for axes, (places, values) in zip(row, fields, strict=True):
            drawn = _map(axes, places, data.millimetres(values[:, 0]), (-LIMIT, LIMIT), "BrBG", size=9)
    figure.colorbar(drawn, ax=panels, label="mm")
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
        is_spread = title == "predictive std"  # far smaller than the rain itself: a scale of its own
        drawn = _map(axes, places, values, (0.0, float(values.max()) if is_spread else most), "viridis")
        figure.colorbar(drawn, ax=axes, label="mm")
        axes.set_title(f"{title}, {task.name}" if title == "truth" else title, fontsize=9)
        (west, south), (east, north) = task.x[:, :2].numpy().min(0) - 0.1, task.x[:, :2].numpy().max(0) + 0.1
        axes.set(xlim=(west, east), ylim=(south, north))
    return figure


def _map(axes: Any, places: Task, values: np.ndarray, limits: tuple[float, float], colours: str, size: int = 28) -> Any:
    longitude, latitude = places.x[:, :2].numpy().T
    low, high = limits
    axes.set(xticks=[], yticks=[])
    return axes.scatter(longitude, latitude, c=values, s=size, marker="s", cmap=colours, vmin=low, vmax=high)
