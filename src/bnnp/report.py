"""`report.html`: what a training has seen, learned and can do, in one file that needs no network."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bnnp import plots
from bnnp._core.files import write_atomically
from bnnp.evaluation.scores import Scores, evaluate
from bnnp.evaluation.simple import SIMPLE, Simple
from bnnp.models.base import MetaLearner
from bnnp.plots.figure import as_png, make_figure
from bnnp.plots.functions import output_labels, shown_outputs
from bnnp.prediction import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.recipe import Judged, Learned
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.task import Split, Task, stacked
from bnnp.training.fit import FitResult
from bnnp.training.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN, PANELS = 100, 12
"""The largest numbers of data sets in the figures of the data, and of left-out ones side by side."""
OWN = "this model"
WIDE, COVERED, FALLBACKS = 3.0, (0.8, 0.97), 0.1
"""When to warn: a prior so many times wider than the data; shares within 90 % intervals; a share of steps."""
COLUMNS = {
    "marginal_lppd": "log-density per point",
    "crps": "CRPS",
    "rmse": "RMSE",
    "coverage_90": "within 90 % intervals",
    "accuracy": "accuracy",
}
STYLE = """body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}img{max-width:100%}
table{border-collapse:collapse}td,th{padding:.2em .8em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}.warning{background:#fff3cd;padding:.4em .8em;margin:.3em 0}"""


def write_report(path: str | Path, result: FitResult | Learned, tasks: TaskSource, *, seed: int = 0) -> Path:
    """Write a report of a training.

    Args:
        path: The file.
        result: What `bnnp.learn` or `bnnp.fit` gave.
        tasks: The tasks that the model has learned from.
        seed: Seed of what is drawn for the report.

    Returns:
        The path.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = tasks.draw(min(SHOWN, len(tasks)) if isinstance(tasks, Collection) else 20, generator)
    told = result.decisions if isinstance(result, Learned) else []
    judged = _judged(result.judged, seed) if isinstance(result, Learned) and result.judged is not None else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        report = Report(result.model, result.history, drawn, told, judged, result.interrupted, seed)
        return write_atomically(path, report.page())


@dataclass(frozen=True, eq=False)
class PredictedTasks:
    """Left-out tasks, with their predictions by a model that has not seen them.

    Attributes:
        splits: The tasks, in known and unknown points.
        posts: The posterior of each, given its known points.
        predictions: The predictions of their unknown points.
        scores: The scores of this model and of simple methods, by name.
    """

    splits: Sequence[Split]
    posts: Sequence[Any]
    predictions: Sequence[Predictive]
    scores: dict[str, Scores]


def _judged(judged: Judged, seed: int) -> PredictedTasks:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # left-out tasks may go a little beyond the others
        splits = [split for split in judged.left_out if len(split.target)]
        posts = [judged.model.condition(split.context.x, split.context.y, seed=seed) for split in splits]
        predictions = [post.predict(split.target.x) for post, split in zip(posts, splits, strict=True)]
        scores = {OWN: evaluate(judged.model, splits, seed=seed)}
        if judged.model.likelihood.real_valued:
            source = judged.tasks
            known = (
                source.tasks if isinstance(source, Collection) else source.draw(64, torch.Generator().manual_seed(seed))
            )
            scores |= {name: evaluate(Simple(method(known)), splits, seed=seed) for name, method in SIMPLE.items()}
    return PredictedTasks(splits, posts, predictions, scores)


@dataclass(frozen=True, eq=False)
class Report:
    """What a report is made of.

    Attributes:
        model: The trained model.
        history: The records of its training.
        tasks: Tasks that it has learned from, all or some.
        told: What was decided and why, one sentence each.
        left_out: How left-out tasks were predicted; None if there were none.
        interrupted: Whether Ctrl-C stopped the training.
        seed: Seed of what is drawn.
    """

    model: MetaLearner
    history: History
    tasks: Sequence[Task]
    told: Sequence[str]
    left_out: PredictedTasks | None
    interrupted: bool
    seed: int

    def page(self) -> str:
        """The page as HTML."""
        title = f"Training of a {type(self.model).__name__}"
        parts = "\n".join(f"<h2>{escape(head)}</h2>\n{body}" for head, body in self._sections() if body)
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{STYLE}</style><h1>{escape(title)}</h1>\n{parts}</html>"
        )

    def warnings(self) -> list[str]:
        """What the reader should know before using the model."""
        return [text for text in (*self._of_training(), *self._of_prior(), *self._of_left_out()) if text]

    def _sections(self) -> Iterator[tuple[str, str]]:
        found = "".join(f'<p class="warning">{escape(text)}</p>' for text in self.warnings())
        yield "Warnings", found or "<p>None.</p>"
        yield "Data", self._data()
        if self.model.weight_prior is not None:
            yield "The learned prior beside the data", _image(self._prior_figure())
        yield "How it was trained", self._training()
        yield "Left-out data sets", self._scores()
        if self.left_out is not None and self.model.likelihood.real_valued:
            pairs = zip(self.left_out.predictions, self.left_out.splits, strict=True)
            yield "Calibration", _image(plots.calibration([(pred, split.target.y.numpy()) for pred, split in pairs]))

    # --- sections --------------------------------------------------------------------------------------------------

    def _data(self) -> str:
        sizes, (x, y) = [len(task) for task in self.tasks], stacked(self.tasks)
        names = [*self.model.columns.x_names, *self._y_names()]
        rows = [
            [name, kind, *(f"{value:.4g}" for value in (c.min(), c.mean(), c.max()))]
            for name, kind, c in zip(
                names, ["input"] * x.shape[1] + ["output"] * y.shape[1], torch.cat([x, y], 1).T, strict=True
            )
        ]
        text = f"{len(sizes)} data sets are shown, with {min(sizes)} to {max(sizes)} points ({sum(sizes)} in all)."
        return f"<p>{text}</p>" + _table(["column", "", "least", "mean", "largest"], rows)

    def _training(self) -> str:
        told = "".join(f"<li>{escape(text)}</li>" for text in self.told)
        facts = _table(["", ""], [[name, str(value)] for name, value in self.model.summary().items()])
        return f"<ul>{told}</ul>{facts}" + (_image(plots.history(self.history)) if self.history.steps else "")

    def _scores(self) -> str:
        if self.left_out is None or not self.left_out.splits:
            return "<p>No data sets were left out, so this report cannot say how well new ones are predicted.</p>"
        scores, own = self.left_out.scores, self.left_out.scores[OWN]
        names = [name for name in COLUMNS if any(column.split("@")[0] == name for column in own.names())]
        rows = []
        for method, found in scores.items():
            gain = "" if method == OWN else _pm(*_difference(own, found))
            rows.append([method, *(_pm(found[name], found.standard_error(name)) for name in names), gain])
        said = (
            f"{len(self.left_out.splits)} data sets were predicted from some of their points by a model that had not "
            "seen them. ± is the standard error over data sets; the last column is how much higher the log-density "
            f"of {OWN} is, data set by data set."
        )
        head = ["", *(COLUMNS[name] for name in names), "gain"]
        return f"<p>{said}</p>" + _table(head, rows) + _image(self._subjects())

    # --- figures ---------------------------------------------------------------------------------------------------

    def _subjects(self) -> Figure:
        assert self.left_out is not None
        known, rest = ([getattr(split, part) for split in self.left_out.splits] for part in ("context", "target"))
        return plots.subjects(self.left_out.posts, known, held_out=rest, most=PANELS)

    def _prior_figure(self) -> Figure:
        """The data, and as many functions of the prior, on the same axes; a row per output or class."""
        places = [self._place(task) for task in self.tasks]
        drawn = self._prior_values(places)
        outputs, x_name = drawn[0].shape[1], self.model.columns.x_names[0]
        figure = make_figure((8, 2.9 * outputs))
        panels = figure.subplots(outputs, 2, squeeze=False, sharex=True, sharey="row")
        labels = output_labels(self._y_names(), outputs)
        for output, (left, right) in enumerate(panels):
            for task, place, values in zip(self.tasks, places, drawn, strict=True):
                _draw_line(left, task.x, shown_outputs(task, output, outputs), ".-")
                _draw_line(right, place, values[:, output], "-")
            left.set(title="data", xlabel=x_name, ylabel=labels[output])
            right.set(title="drawn from the learned prior, without noise", xlabel=x_name)
        return figure

    def _place(self, task: Task) -> torch.Tensor:
        """Where a function is drawn: between the points too, if there is one input; at the points, if several."""
        if task.x.shape[1] > 1:
            return task.x
        return torch.linspace(float(task.x.min()), float(task.x.max()), 100, dtype=torch.float64)[:, None]

    def _prior_values(self, places: Sequence[torch.Tensor]) -> list[np.ndarray]:
        prior: Any = self.model.weight_prior
        functions = prior.functions(len(places), self.seed)
        return [function(place) for function, place in zip(functions, places, strict=True)]

    def _y_names(self) -> list[str]:
        return list(self.model.columns.y_names)

    # --- warnings --------------------------------------------------------------------------------------------------

    def _of_training(self) -> Iterator[str]:
        if self.interrupted:
            yield "Training was stopped before its end."
        if self.left_out is None:
            yield "No data sets were left out: how well new ones are predicted is not known."
        for kind, share in self.history.fallback_shares().items():
            if share > FALLBACKS:
                yield f"{share:.0%} of the steps had a numerical fallback ({kind})."

    def _of_prior(self) -> Iterator[str]:
        if self.model.weight_prior is None or not self.model.likelihood.real_valued:
            return
        y, drawn = stacked(self.tasks)[1].numpy(), np.concatenate(self._prior_values([task.x for task in self.tasks]))
        wide = np.ptp(drawn, axis=0) > WIDE * np.ptp(y, axis=0)
        for name, too_wide in zip(self._y_names(), wide, strict=True):
            if too_wide:
                yield f"Functions of the learned prior are far wider than the data in {name}."

    def _of_left_out(self) -> Iterator[str]:
        if self.left_out is None or not self.model.likelihood.real_valued:
            return
        own = self.left_out.scores[OWN]
        if not COVERED[0] <= own["coverage_90"] <= COVERED[1]:
            yield f"90 % intervals hold {own['coverage_90']:.0%} of the unknown points of left-out data sets."
        for method, scores in self.left_out.scores.items():
            gain, error = _difference(own, scores)
            if method != OWN and gain < -2 * error:
                yield f"A simple method, {method}, predicts left-out data sets better than this model."


def _difference(own: Scores, other: Scores) -> tuple[float, float]:
    """Mean difference in log-density per point, and its standard error over data sets."""
    gains = own.values("marginal_lppd") - other.values("marginal_lppd")
    return float(gains.mean()), float(gains.std(ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else float("inf")


def _draw_line(axes: Axes, x: torch.Tensor, y: np.ndarray, mark: str) -> None:
    order = x[:, 0].argsort().numpy()
    axes.plot(x[order, 0], y[order], mark, linewidth=0.7, markersize=3, alpha=0.6)


def _pm(value: float, error: float) -> str:
    return f"{value:.3f} ± {error:.3f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = ["".join(f"<th>{escape(cell)}</th>" for cell in head)]
    cells += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _image(figure: Figure) -> str:
    return f'<p><img alt="" src="data:image/png;base64,{base64.b64encode(as_png(figure)).decode()}"></p>'
