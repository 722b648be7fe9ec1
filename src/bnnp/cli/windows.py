"""Predictions of many data sets, window by window: in several processes, and resumed where a run ended early.

A data set's numbers depend on nothing but itself, the model and the seed. So windows may be computed anywhere, in any
order, and a window that an earlier run has computed is taken from its file.
"""

import hashlib
import io
import itertools
import math
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

import bnnp
from bnnp._core.files import write_atomically
from bnnp._core.progress import points_bar
from bnnp.models import MetaLearner
from bnnp.models.base import model_header
from bnnp.questions import WINDOW, Question, Questions, answers

Window = Sequence[Question]
Numbers = list[np.ndarray]
"""The numbers (points, columns) of every data set of a window."""
Item = TypeVar("Item")


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
        return answers(model, window, self.samples, self.seed)


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

    @cached_property
    def _of_model(self) -> Any:
        digest = hashlib.sha256(repr((bnnp.__version__, model_header(self.model), self.asked)).encode())
        for values in self.model.state_dict().values():
            digest.update(values.cpu().numpy().tobytes())
        return digest

    def file(self, window: Window) -> Path:
        digest = self._of_model.copy()
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


@dataclass(frozen=True)
class Answering:
    """How questions are answered.

    Attributes:
        kept: Where windows are kept that are done.
        subjects: How many data sets there are.
        workers: Processes to share the work; with one, it is done in this process.
        progress: Whether to show a progress bar.
    """

    kept: Kept
    subjects: int
    workers: int
    progress: bool

    def of(self, pieces: Iterable[Questions]) -> Iterator[tuple[Questions, Numbers]]:
        """The numbers of all pieces, in their order.

        Raises:
            OSError: If a process was killed.
        """
        windows = ((piece, window) for piece in pieces for window in _windows(piece))
        with points_bar(self.progress and self._several) as bar, self._answerer() as answer:
            shown, found = bar.add_task("predicting, subjects", total=self.subjects), []
            for (piece, window), numbers in _in_order(((one, answer(one[1])) for one in windows), self._ahead):
                if self._several:
                    self.kept.write(window, numbers)
                bar.advance(shown, len(window))
                found += numbers
                if len(found) == len(piece.asked):
                    yield piece, found
                    found = []

    @property
    def _several(self) -> bool:
        return self.subjects > WINDOW

    @property
    def _ahead(self) -> int:
        return 1 if self.workers == 1 else 2 * self.workers

    @contextmanager
    def _answerer(self) -> Iterator[Callable[[Window], Callable[[], Numbers]]]:
        """What begins to answer a window, and gives what waits for the answer."""
        workers = min(self.workers, math.ceil(self.subjects / WINDOW))
        model, asked = self.kept.model, self.kept.asked
        if workers <= 1:
            yield lambda window: self._kept_or(window, lambda: partial(asked.of, model, window))
            return
        with ProcessPoolExecutor(workers, get_context("spawn"), _begin, (model, asked)) as pool:
            try:
                yield lambda window: self._kept_or(window, lambda: pool.submit(_work, window).result)
            except BrokenProcessPool:
                raise OSError(
                    "workers: a process ended early, as when memory is short, expected all to work to the end; give "
                    "the same command again, with fewer --workers if memory is short: what is done is kept"
                ) from None
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _kept_or(self, window: Window, begin: Callable[[], Callable[[], Numbers]]) -> Callable[[], Numbers]:
        done = self.kept.read(window) if self._several else None
        return begin() if done is None else lambda: done


def _windows(piece: Questions) -> Iterator[Window]:
    return (piece.asked[i : i + WINDOW] for i in range(0, len(piece.asked), WINDOW))


def _in_order(begun: Iterable[tuple[Item, Callable[[], Numbers]]], ahead: int) -> Iterator[tuple[Item, Numbers]]:
    """Every item with its answer, with at most `ahead` of them under way."""
    waiting: deque[tuple[Item, Callable[[], Numbers]]] = deque()
    for one in itertools.chain(begun, itertools.repeat(None)):
        if one is not None:
            waiting.append(one)
        elif not waiting:
            return
        if one is None or len(waiting) == ahead:
            item, answer = waiting.popleft()
            yield item, answer()


_of_process: list[tuple[MetaLearner, Asked]] = []


def _begin(model: MetaLearner, asked: Asked) -> None:
    torch.set_num_threads(1)
    _of_process.append((model, asked))


def _work(window: Window) -> Numbers:
    model, asked = _of_process[0]
    return asked.of(model, window)
