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
from score_tables import cell, markdown_table, mean_and_error

from .climate import Climate, climate
from .methods import LABELS, settings
from .models import HIDDEN, PRIORS, learned_model, standard_model

NAMES = {"gp": "GP", "heaviside": "Heaviside", "sawtooth": "sawtooth", "climate": "ERA5-Land"}
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


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    """The climate has files of its own, so that either part can be run without the other."""
    processes = [p for p in HIDDEN[scale] if any(key.startswith(f"{p}-") for key in results)]
    files = []
    for prefix in ("", "climate_"):
        some = [process for process in processes if (process == "climate") == bool(prefix)]
        if some:
            text = "".join(_section(process, scale, results) for process in some)
            files.append(write_atomically(folder / f"{prefix}table.md", text))
            files.append(save_figure(_figure(some, scale, results), folder / f"{prefix}figure.png"))
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
    """The paper's figure: a column a process, pooled LPPD above and MAE below; hollow marks are the paper's.

    The climate has a column more, for the targets of the left-out region.
    """
    columns = [(process, "all") for process in processes] + [(p, "region") for p in processes if p == "climate"]
    figure = Figure(figsize=(3.4 * len(columns), 5), layout="constrained")
    panels = figure.subplots(2, len(columns), squeeze=False)
    for column, (process, part) in enumerate(columns):
        methods = _methods(process, scale, results)
        for row, (score, theirs) in enumerate((("pooled_lppd", PAPER_LPPD), ("mae", PAPER_MAE))):
            axes = panels[row, column]
            for which, prior in enumerate(PRIORS):
                places = np.arange(len(methods)) + 0.16 * (2 * which - 1)
                found = [mean_and_error(_found(results, process, m, prior, part), score) for m in methods]
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
                if part == "all":
                    paper = [theirs[process].get(m, (np.nan, np.nan))[which] for m in methods]
                    axes.plot(places, paper, "o", markersize=7, fillstyle="none", color=COLOURS[prior], alpha=0.5)
            axes.set_xticks(range(len(methods)), [LABELS[m] for m in methods], rotation=60, fontsize=8)
            if row == 0:
                axes.set_title(NAMES[process] + (", left-out region" if part == "region" else ""))
                axes.set_ylim(bottom=max(axes.get_ylim()[0], -2.0))  # what is below is in the table
    panels[0, 0].set_ylabel("pooled LPPD")
    panels[1, 0].set_ylabel("MAE, mm" if processes == ["climate"] else "MAE")
    panels[0, 0].plot([], [], "o", markersize=7, fillstyle="none", color="0.4", label="the paper's")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=8, ncols=3, loc="outside upper center")
    return figure


def _fields(data: Climate, model: bnnp.BNNP, scale: str, count: int = 12) -> Figure:
    """Rain as it was, and as the standard and the learned prior have it, for the temperatures of a real time.

    Real times at equal ranks of their rain, and the first draws of each prior. One scale for all, on which less than
    nothing is brown.
    """
    task, ranked = data.tests.tasks[0], sorted(data.training.tasks, key=lambda one: -float(one.y.mean()))
    real = [ranked[i * len(ranked) // count] for i in range(count)]
    rows: dict[str, list[tuple[Task, np.ndarray]]] = {"ERA5-Land": [(one, one.y.numpy()) for one in real]}
    for name, of in (("standard prior", standard_model("climate", scale)), ("learned prior", model)):
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
