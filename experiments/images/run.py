"""Images as functions of pixels' places: digits drawn from a learned prior, and completed (paper, section 4.2)."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning

import bnnp
from bnnp._core.columns import Columns
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from bnnp.prediction.base import Predictive
from bnnp.prediction.sampled import SampledPredictive
from bnnp.tasks.datasets.images import Images
from bnnp.tasks.source import TaskSource
from bnnp.tasks.task import Task
from claims import Claim, difference
from common import model_file, train
from harness import Run
from score_tables import markdown_table, over, text_of

SHARES = (0.01, 0.05, 0.2, 0.5)
FINE = 100
UNSEEN = "#9ecae1"
Completion = Callable[[Task, torch.Tensor, np.ndarray, int], Predictive]
NEAR, FAINT = 20, 0.005
"""Images that count as near; the least probability that a trivial method gives a pixel."""
SURE, JUDGED_BY = 0.9, 10_000
"""The probability from which a classifier is sure of a digit; the training images that it learns from."""


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """A model for every seed, and what is trivial."""
    training = {name: value for name, value in settings.items() if name != "seeds"}
    planned = {f"digits-{seed}": Run(learn, training | {"seed": seed}) for seed in settings["seeds"]}
    return planned | {"trivial": Run(trivial, {name: settings[name] for name in ("invented", "tests", "drawn")})}


@dataclass(frozen=True)
class SomePixels(TaskSource):
    """Images of which a draw has some pixels only, chosen anew each time."""

    images: Images = field(repr=False)
    pixels: int

    @property
    def in_size(self) -> int:
        return 2

    @property
    def out_size(self) -> int:
        return 1

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        drawn = self.images.draw(count, generator)
        return [task.take(torch.randperm(len(task), generator=generator)[: self.pixels]) for task in drawn]


def images(split: str, invented: bool) -> Images:
    """MNIST, or bars at random angles, for trying out."""
    if not invented:
        return bnnp.tasks.mnist(split)
    random = np.random.default_rng(split == "test")
    x, y = np.meshgrid(np.linspace(-1, 1, 28), np.linspace(-1, 1, 28))
    angles = random.uniform(0, np.pi, 40)
    off = np.abs(np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y)
    pixels = (255 * np.clip(1.5 - 6 * off, 0, 1)).astype(np.uint8)
    return Images(split, 28, False, tuple(range(10)), pixels, np.arange(40) % 10, np.arange(40))


def learn(
    invented: bool,
    hidden: tuple[int, ...],
    pixels: int,
    context_count: tuple[int, int],
    kl_weight: float,
    samples: int,
    episodes: tuple[dict[str, Any], ...],
    way: str,
    tests: int,
    drawn: int,
    seed: int,
    folder: Path,
) -> dict[str, Any]:
    """Train, keep the model, complete test images, and compare what the prior draws with real digits."""
    training, test = images("train", invented), images("test", invented)
    model = bnnp.AttBNNP(2, 1, hidden, "relu", "unitwise", bnnp.Bernoulli(), seed=seed)
    for number, episode in enumerate(episodes):
        train(
            model,
            SomePixels(training, pixels),
            folder,
            f"digits-{seed}",
            way=way,
            objective=bnnp.objectives.PPAVI(samples, kl_weight=kl_weight),
            context_share=bnnp.tasks.ContextCount(*context_count),
            seed=seed + number,
            **episode,
        )

    def predict(task: Task, seen: torch.Tensor, unseen: np.ndarray, number: int) -> Predictive:
        return model.condition(task.x[seen], task.y[seen], num_samples=100, seed=number).predict(task.x[unseen])

    values = np.stack([f(training.coordinates)[:, 0] for f in model.prior.functions(drawn, seed=1)])
    return {
        "completions": [completed(predict, test[i], i) for i in range(tests)],
        "draws": judged({"learned prior": torch.from_numpy(values)}, training),
    }


def trivial(invented: bool, tests: int, drawn: int) -> dict[str, Any]:
    """Completions by the mean image, similar training images and nothing; real and blank images as draws."""
    training, test = images("train", invented), images("test", invented)
    known = torch.stack([task.y[:, 0] for task in _some(training)])

    def as_prediction(probabilities: torch.Tensor) -> Predictive:
        inside = probabilities.clamp(FAINT, 1 - FAINT)
        return SampledPredictive(inside.logit()[None, :, None], bnnp.Bernoulli(), Columns(2, 1).double())

    def by_mean(task: Task, seen: torch.Tensor, unseen: np.ndarray, number: int) -> Predictive:
        return as_prediction(known.mean(0)[unseen])

    def by_nearest(task: Task, seen: torch.Tensor, unseen: np.ndarray, number: int) -> Predictive:
        far = (known[:, seen] - task.y[seen, 0]).square().sum(1)
        return as_prediction(known[far.topk(min(NEAR, len(known)), largest=False).indices].mean(0)[unseen])

    def blank(task: Task, seen: torch.Tensor, unseen: np.ndarray, number: int) -> Predictive:
        return as_prediction(torch.zeros(len(unseen), dtype=known.dtype))

    methods = {"pixelwise mean": by_mean, f"{NEAR} nearest images": by_nearest, "blank image": blank}
    standard = bnnp.AttBNNP(2, 1, (64, 64, 64), "relu", likelihood=bnnp.Bernoulli(), seed=0)
    shown = {
        "test digits": torch.stack([test[i % len(test)].y[:, 0] for i in range(drawn)]),
        "standard prior": torch.from_numpy(
            np.stack([f(training.coordinates)[:, 0] for f in standard.prior.functions(drawn, seed=1)])
        ),
        "blank image": torch.zeros(drawn, known.shape[1]),
        "pixelwise mean": known.mean(0).expand(drawn, -1),
    }
    completions = {name: [completed(method, test[i], i) for i in range(tests)] for name, method in methods.items()}
    return {"completions": completions, "draws": judged(shown, training)}


def seen_pixels(task: Task, share: float, seed: int) -> torch.Tensor:
    """A random share of the pixels. Larger shares contain the smaller ones."""
    order = torch.randperm(len(task), generator=torch.Generator().manual_seed(seed))
    return order[: max(1, round(share * len(task)))]


def completed(predict: Completion, task: Task, seed: int) -> list[dict[str, float]]:
    """For every share of seen pixels, how the unseen ones are predicted."""
    rows = []
    for share in SHARES:
        seen = seen_pixels(task, share, seed)
        unseen = np.setdiff1d(np.arange(len(task)), seen)
        pred = predict(task, seen, unseen, seed)
        truth = task.y.numpy()[unseen]
        rows.append(
            {
                "log density": float(pred.log_prob(truth).mean()),
                "absolute error": float(np.abs(pred.mean - truth).mean()),
                "spread": float(pred.function_std.mean()),
            }
        )
    return rows


def _some(training: Images) -> list[Task]:
    return training.draw(min(JUDGED_BY, len(training)), torch.Generator().manual_seed(1))


def judged(shown: Mapping[str, torch.Tensor], training: Images) -> dict[str, dict[str, float]]:
    """Images by a classifier that was trained on real digits, and by their distance to the most similar of these.

    Distance alone means little: a blank image is nearer to digits than digits are to each other. A good prior draws
    images that the classifier is sure of, of all classes (the entropy of ten equal shares is 2.30).
    """
    from sklearn.neural_network import MLPClassifier

    some = _some(training)
    known = torch.stack([task.y[:, 0] for task in some]).float()
    labels = np.array([task.name.split()[-1] for task in some])
    judge = MLPClassifier((128,), max_iter=15, early_stopping=len(some) > 1000, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        judge.fit(known.numpy(), labels)
    found = {}
    for name, values in shown.items():
        sure = np.asarray(judge.predict_proba(values.float().numpy()))
        shares = np.bincount(sure.argmax(1), minlength=sure.shape[1]) / len(sure)
        distance = torch.cdist(values.float(), known).min(1).values
        found[name] = {
            "sure": float((sure.max(1) > SURE).mean()),
            "entropy": float(-(shares[shares > 0] * np.log(shares[shares > 0])).sum()),
            "distance": float((distance.square() / known.shape[1]).mean().sqrt()),
        }
    return found


# --- the report ------------------------------------------------------------------------------------------------------


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    found, others = _models(settings, results), results.get("trivial", {"completions": {}, "draws": {}})
    completions = {
        **({"BNNP": [c for one in found for c in one["completions"]]} if found else {}),
        **others["completions"],
    }
    rows = [
        [name, f"{share:.0%}", *(text_of(over([one[number][kind] for one in tests]), 3) for kind in tests[0][number])]
        for name, tests in completions.items()
        for number, share in enumerate(SHARES)
    ]
    text = "Unseen pixels of test images, by the share that is seen:\n\n"
    text += markdown_table(["", "seen", "log density", "absolute error", "spread"], rows)
    text += f"\nDraws, by a classifier trained on {JUDGED_BY:,} real digits:\n\n"
    draws = [*(one["draws"] for one in found), others["draws"]]
    rows = [[name, *(f"{value:.3f}" for value in one.values())] for some in draws for name, one in some.items()]
    header = [
        "",
        f"share it is more than {SURE:.0%} sure of",
        "entropy over classes",
        "distance to the most similar one",
    ]
    files = [write_atomically(folder / "table.md", text + markdown_table(header, rows))]
    file = model_file(folder, f"digits-{settings['seeds'][0]}")
    if not file.is_file():
        return files
    model, test = bnnp.load(file), images("test", settings["invented"])
    files.append(save_figure(_prior(model, test), folder / "prior.png"))
    return [*files, save_figure(_completions(model, test), folder / "completions.png")]


def _models(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [results[key] for seed in settings["seeds"] if (key := f"digits-{seed}") in results]


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """Draws are digits as often as real ones are; completions beat what is trivial."""
    found, others = _models(settings, results), results.get("trivial")
    texts = ["draws of the prior are digits: a classifier is as sure of them as of real ones, within 0.1"]
    texts += [
        f"with {share:.0%} of the pixels seen, unseen ones are predicted better than by what is trivial"
        for share in SHARES
    ]
    if not found or others is None:
        return [Claim("4.2", text, "by eye") for text in texts]
    sure, real = over([one["draws"]["learned prior"]["sure"] for one in found]), others["draws"]["test digits"]["sure"]
    best = max((one["sure"], name) for name, one in others["draws"].items() if name != "test digits")
    gain, seeds = difference(sure, (real - 0.1, 0.0)), len(found)
    rest = {"paper": "by eye", "seeds": seeds}
    claims = [
        Claim(
            "4.2",
            texts[0],
            ours=text_of(sure),
            oracle=f"{real:.2f}",
            trivial=f"{best[1]} {best[0]:.2f}",
            gain=gain,
            **rest,
        )
    ]
    for number, text in enumerate(texts[1:]):
        mine = over([float(np.mean([t[number]["log density"] for t in one["completions"]])) for one in found])
        theirs = {
            name: float(np.mean([t[number]["log density"] for t in tests]))
            for name, tests in others["completions"].items()
        }
        name = max(theirs, key=theirs.__getitem__)
        known = {"trivial": f"{name} {theirs[name]:.3f}", "gain": difference(mine, (theirs[name], 0.0))}
        claims.append(Claim("4.2", text, ours=text_of(mine, 3), **known, **rest))
    return claims


def _prior(model: bnnp.BNNP, source: Images) -> Figure:
    """Functions of the prior at 28 x 28 places; and the first three of them at 100 x 100."""
    functions = model.prior.functions(16, seed=0)
    figure = Figure(figsize=(12, 3.3), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 2.9))[0]
    for axes, function in zip(left.subplots(4, 4).ravel(), functions, strict=True):
        _show(axes, source.to_image(function(source.coordinates)))
    left.suptitle(f"{source.side} x {source.side}", fontsize=9)
    for axes, function in zip(right.subplots(1, 3), functions, strict=False):
        _show(axes, source.to_image(function(bnnp.tasks.pixel_grid(FINE)), side=FINE))
    right.suptitle(f"the first three, at {FINE} x {FINE}", fontsize=9)
    return figure


def _completions(model: bnnp.BNNP, source: Images) -> Figure:
    """Two test images, completed from more and more pixels."""
    columns = ("full", "context", "mean", "std", "sample", "sample", "sample")
    figure = Figure(figsize=(1.2 * 2 * len(columns), 1.3 * len(SHARES)), layout="constrained")
    panels = figure.subplots(len(SHARES), 2 * len(columns))
    for block in range(2):
        task = source[18 * (1 - block)]
        for row, share in enumerate(SHARES):
            seen = seen_pixels(task, share, block)
            pred = model.condition(task.x[seen], task.y[seen], num_samples=100, seed=block).predict(task.x)
            context = np.full((len(task), 1), np.nan)
            context[seen] = task.y[seen]
            shown = (task.y.numpy(), context, pred.mean, pred.function_std, *pred.samples[:3])
            for column, values in enumerate(shown):
                axes = panels[row, block * len(columns) + column]
                _show(axes, source.to_image(values), "magma" if column == 3 else "gray", 0.5 if column == 3 else 1.0)
                if row == 0:
                    axes.set_title(columns[column], fontsize=8)
            panels[row, block * len(columns)].set_ylabel(f"{share:.0%}", fontsize=8)
    return figure


def _show(axes: Any, image: np.ndarray, colours: str = "gray", limit: float = 1.0) -> None:
    axes.set_facecolor(UNSEEN)
    axes.imshow(image, cmap=colours, vmin=0, vmax=limit)
    axes.set_xticks([])
    axes.set_yticks([])
