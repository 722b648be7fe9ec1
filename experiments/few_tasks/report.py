"""The tables and the figure, with the paper's values beside ours."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from score_tables import Estimate, markdown_table, mean_and_error, over, samples_of, slope_text, text_of

NAMES = {"abalone": "Abalone", "paul15": "Paul15", "invented": "invented"}
TENTHS = tuple(round(0.1 * i, 1) for i in range(11))
LABELS = {
    "recipe": "BNNP, the one recipe",
    "mfvi": "MFVI",
    "givi": "GIVI",
    "np": "NP",
    "bnp": "BNP",
    "tnp": "AR-TNP",
    "tnp-marginals": "TNP, marginals",
}
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


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    sections, curves = [], {}
    for data, choices in settings["data"].items():
        rows = rows_of(data, settings, results)
        if rows:
            note = _note(data, choices, settings, results)
            sections.append(f"## {NAMES[data]}\n\n{_table(data, rows)}\n{note}\n")
            curves[data] = rows
    table = write_atomically(folder / "table.md", "\n".join(sections))
    return [table, save_figure(_figure(curves), folder / "figure.png")]


def rows_of(data: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> dict[Any, list[dict]]:
    """Scores of every seed, by learnability or by the name of the method."""
    choices, seeds = settings["data"][data], settings["seeds"]
    rows: dict[Any, list[dict]] = {
        learnability: _scores_of(results, [f"{data}-bnnp-{learnability}-{seed}" for seed in seeds])
        for learnability in choices["learnabilities"]
    }
    rows["recipe"] = _scores_of(results, [f"{data}-recipe-{seed}" for seed in seeds])
    noise = chosen_noise(data, choices, results)
    for method in ("mfvi", "givi"):
        rows[method] = [one for found in _scores_of(results, [f"{data}-{method}-{noise}"]) for one in found]
    for peer in ("np", "bnp", "tnp"):
        keys = [f"{data}-{peer}-{seed}" for seed in seeds]
        rows[peer] = _scores_of(results, keys)
        if peer == "tnp":
            rows["tnp-marginals"] = _scores_of(results, keys, "marginals")
    rows |= {name: [scores] for name, scores in results.get(f"{data}-trivial", {}).items()}
    return {name: found for name, found in rows.items() if found}


def _scores_of(results: Mapping[str, Any], keys: list[str], part: str = "scores") -> list[Any]:
    return [results[key][part] for key in keys if key in results]


def chosen_noise(data: str, choices: Mapping[str, Any], results: Mapping[str, Any]) -> float:
    """The noise with GIVI's largest bound, for both BNNs."""
    bounds = {n: results.get(f"{data}-givi-{n}", {}).get("bound", -math.inf) for n in choices["bnns"]["noises"]}
    return max(bounds, key=bounds.__getitem__)


def _table(data: str, rows: Mapping[Any, list[dict]]) -> str:
    header = ["method", "pooled LPPD", "marginal LPPD", "joint LPPD", "MAE", "in 90 %", "K", "seeds"]
    header += ["paper: pooled LPPD", "paper: MAE"]
    lines = []
    for name, found in rows.items():
        cells = [text_of(_mean(found, f"{kind}_lppd")) for kind in ("pooled", "marginal", "joint")]
        label = LABELS.get(name, f"BNNP {name}" if not isinstance(name, str) else name)
        theirs = [str(numbers[data].get(name, "")) for numbers in (PAPER, PAPER_MAE)]
        cells += [text_of(_mean(found, "mae")), text_of(_mean(found, "coverage_90"))]
        lines.append([label, *cells, samples_of(found[0]), str(len(found)), *theirs])
    return markdown_table(header, lines)


def _mean(found: list[dict], score: str) -> Estimate:
    return over([mean_and_error(one, score)[0] for one in found])


def _note(data: str, choices: Mapping[str, Any], settings: Mapping[str, Any], results: Mapping[str, Any]) -> str:
    """What one must know of the rows: units, settings and whether what climbs a bound has arrived."""
    notes = ["LPPD per standardised unit."]
    notes.append(f"Settings `{settings['chosen'][data]}`, chosen on training data sets that were left out.")
    learned = _learned_noise(data, choices, settings, results)
    if learned:
        notes.append(f"The BNNP's noise, as learned: {learned}.")
    noise = chosen_noise(data, choices, results)
    for method in ("mfvi", "givi"):
        how = results.get(f"{data}-{method}-{noise}", {}).get("convergence")
        if how is not None:
            slope = f"the bound still changed by {slope_text(how)} nats per 1000 steps"
            notes.append(f"{LABELS[method]} with noise {noise}, by GIVI's bound; {slope}.")
    if choices["peers"]["ar_targets"] is not None:
        targets, samples = choices["peers"]["ar_targets"], choices["peers"]["ar_scored"]
        notes.append(f"AR-TNP with {targets} of the targets and {samples} samples: it is slow.")
    return " ".join(notes) + "\n"


def _learned_noise(data: str, choices: Mapping[str, Any], settings: Mapping[str, Any], results: Any) -> str:
    """By learnability, the mean over seeds."""
    found = []
    for share in choices["learnabilities"]:
        noises = _scores_of(results, [f"{data}-bnnp-{share}-{seed}" for seed in settings["seeds"]], "noise")
        found += [f"{over(noises)[0]:.2f} at {share:g}"] if noises else []
    return ", ".join(found)


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
    figure.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=2 * columns, fontsize=9)
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
        axes.axhline(max(mean, LOWEST), color=f"C{number + 1}", linewidth=1.2, label=LABELS.get(name, name))
