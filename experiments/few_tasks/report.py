"""The tables and the figure, with the paper's values beside ours."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from score_tables import markdown_table

from .settings import PEERS, SCALES, TENTHS, Settings

NAMES = {"abalone": "Abalone", "paul15": "Paul15", "invented": "invented"}
LABELS = {"mfvi": "MFVI", "givi": "GIVI", "np": "NP", "bnp": "BNP", "tnp": "AR-TNP", "tnp-marginals": "TNP, marginals"}
LOWEST = -2.0
"""Of the scale of figures; lines of what is worse lie there, and the BNNP's curve leaves the panel."""
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
