"""Predictions of many data sets, window by window: in several processes, and resumed where a run ended early.

A data set's numbers depend on nothing but itself, the model and the seed. So windows may be computed anywhere, in any
order, and a window that an earlier run has computed is taken from its file.
"""

import hashlib
import io
import shutil
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

import bnnp
from bnnp._core.files import write_atomically
from bnnp._core.progress import points_bar
from bnnp.cli.questions import Question, prediction_numbers
from bnnp.models import AmortisedModel, MetaLearner
from bnnp.models.base import model_header
from bnnp.prediction import ExtrapolationWarning

WINDOW = 256
"""Data sets per window."""

Window = Sequence[Question]
Numbers = list[np.ndarray]
"""The numbers (points, columns) of every data set of a window."""


@dataclass(frozen=True)
class Asked:
    """How data sets are predicted.

    Attributes:
        samples: Weight samples; the model's own choice if None.
        seed: The seed of the draws.
    """

    samples: int | None
    seed: int

    def of(self, model: MetaLearner, window: Window) -> Numbers:
        """The numbers of a window."""
        choices = {"seed": self.seed} if self.samples is None else {"seed": self.seed, "num_samples": self.samples}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # the questions have said so
            if isinstance(model, AmortisedModel):
                posts = model.condition_many([(q.x, q.y) for q in window], **choices)
                found = posts.predict([q.x_new for q in window])
            else:
                found = [model.condition(q.x, q.y, **choices).predict(q.x_new) for q in window]
        return [prediction_numbers(one) for one in found]


@dataclass(frozen=True)
class Kept:
    """The windows that are done, as files in a folder beside the output, until that is written.

    A file's name is a digest of all that its numbers depend on, so those of another question are never taken.

    Attributes:
        out: The output.
        model: The model.
        asked: How data sets are predicted.
    """

    out: Path
    model: MetaLearner
    asked: Asked

    @property
    def folder(self) -> Path:
        return self.out.with_name(f".{self.out.name}.parts")

    def file(self, window: Window) -> Path:
        digest = hashlib.sha256(repr((bnnp.__version__, model_header(self.model), self.asked)).encode())
        for values in self.model.state_dict().values():
            digest.update(values.cpu().numpy().tobytes())
        for question in window:
            digest.update(repr([values.shape for values in (question.x, question.y, question.x_new)]).encode())
            digest.update(b"".join(values.tobytes() for values in (question.x, question.y, question.x_new)))
        return self.folder / f"{digest.hexdigest()}.npy"

    def read(self, window: Window) -> Numbers | None:
        """The numbers of a window that was done before; None if it was not."""
        file = self.file(window)
        if not file.is_file():
            return None
        return np.split(np.load(file, allow_pickle=False), np.cumsum([len(q.x_new) for q in window])[:-1])

    def write(self, window: Window, numbers: Numbers) -> None:
        content = io.BytesIO()
        np.save(content, np.concatenate(numbers), allow_pickle=False)
        write_atomically(self.file(window), content.getvalue())

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def in_windows(model: MetaLearner, questions: Window, kept: Kept, workers: int, *, progress: bool) -> Numbers:
    """The numbers of all questions, in their order.

    Args:
        model: The model.
        questions: The data sets.
        kept: Where windows are kept that are done.
        workers: Processes to share the work; with one, it is done in this process.
        progress: Whether to show a progress bar.

    Raises:
        OSError: If a process was killed.
    """
    windows = [questions[i : i + WINDOW] for i in range(0, len(questions), WINDOW)]
    several = len(windows) > 1
    found: dict[int, Numbers | None] = {i: kept.read(window) if several else None for i, window in enumerate(windows)}
    todo = [i for i, numbers in found.items() if numbers is None]
    with points_bar(progress and several) as bar:
        done = len(questions) - sum(len(windows[i]) for i in todo)
        shown = bar.add_task("predicting, subjects", total=len(questions), completed=done)
        for i, numbers in zip(todo, _computed(model, kept.asked, [windows[i] for i in todo], workers), strict=True):
            found[i] = numbers
            if several:
                kept.write(windows[i], numbers)
            bar.advance(shown, len(windows[i]))
    return [one for numbers in found.values() for one in numbers or ()]


def _computed(model: MetaLearner, asked: Asked, windows: Sequence[Window], workers: int) -> Iterator[Numbers]:
    """The numbers of windows, in their order."""
    if min(workers, len(windows)) <= 1:
        yield from (asked.of(model, window) for window in windows)
        return
    with ProcessPoolExecutor(min(workers, len(windows)), get_context("spawn"), _begin, (model, asked)) as pool:
        try:
            yield from _in_order((pool.submit(_work, window) for window in windows), 2 * workers)
        except BrokenProcessPool:
            raise OSError(
                "workers: a process ended early, as when memory is short, expected all to work to the end; give the "
                "same command again, with fewer --workers if memory is short: what is done is kept"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _in_order(submitted: Iterable[Future[Numbers]], ahead: int) -> Iterator[Numbers]:
    """Results in the order of submission, with at most `ahead` of them under way."""
    waiting: deque[Future[Numbers]] = deque()
    for future in submitted:
        waiting.append(future)
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


_of_process: list[tuple[MetaLearner, Asked]] = []


def _begin(model: MetaLearner, asked: Asked) -> None:
    torch.set_num_threads(1)
    _of_process.append((model, asked))


def _work(window: Window) -> Numbers:
    model, asked = _of_process[0]
    return asked.of(model, window)
