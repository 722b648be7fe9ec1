"""Measures how fast the library is on this machine, against a plain transcription of the paper and against a limit.

The *limit* is the time of only those large matrix products that a setting needs in any case: features times
covariances (or weights times pairs of features), Gram matrices, the network itself, and the products of their
derivatives. Times of one run are compared with each other, so that the noise of the machine cancels.
"""

import importlib.util
import json
import math
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from bnnp._core.random import child
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.bnnp import BNNP
from bnnp.models.enough import FIRST
from bnnp.objectives import PPAVI
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate

if TYPE_CHECKING:
    import pandas as pd

Work = Callable[[], object]


@dataclass(frozen=True)
class Setting:
    """A training step, or a prediction of `points - context` targets.

    If `by_itself` is set, `condition` chooses the number of samples; `samples` is then the least that it takes.
    """

    name: str
    sizes: tuple[int, ...]
    prior: str
    fixed: bool
    samples: int
    tasks: int
    points: int
    context: int
    training: bool = True
    by_itself: bool = False

    def describe(self) -> str:
        """The setting in words."""
        what = "training step" if self.training else "prediction"
        tasks = (
            f"{self.tasks} task{'s' if self.tasks > 1 else ''} of {self.points} points, {self.context} of them context"
        )
        prior = f"{self.prior}{' fixed' if self.fixed else ''} prior"
        samples = "as many samples as needed" if self.by_itself else f"{self.samples} samples"
        return f"({self.name}) {what}, {list(self.sizes)}, {prior}, {samples}, {tasks}"

    def model(self, dtype: torch.dtype = torch.float32) -> BNNP:
        model = BNNP(
            self.sizes[0], self.sizes[-1], self.sizes[1:-1], prior=self.prior, likelihood=Gaussian(0.05), dtype=dtype
        )
        return model.set_prior_learnability(0) if self.fixed else model

    def batch(self, dtype: torch.dtype = torch.float32) -> SplitBatch:
        x = 4 * torch.rand(self.tasks, self.points, self.sizes[0], generator=child(0), dtype=torch.float64) - 2
        y = torch.sin(3 * x.sum(-1, keepdim=True) + torch.arange(self.sizes[-1]))
        mask = torch.ones(self.tasks, self.points, dtype=torch.bool)
        parts = (slice(0, self.context), slice(self.context, self.points))
        return SplitBatch(*(TaskBatch(x[:, p].to(dtype), y[:, p].to(dtype), mask[:, p]) for p in parts))


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("a", (1, 64, 64, 1), "unitwise", False, 32, 5, 70, 21),
        Setting("b", (1, 20, 20, 1), "factorised", True, 8, 5, 30, 24),
        Setting("c", (1, 64, 64, 1), "unitwise", False, 1000, 1, 140, 40, training=False),
        Setting("d", (3, 64, 64, 64, 1), "unitwise", False, 24, 5, 875, 219),
        Setting("e", (1, 64, 64, 1), "unitwise", False, FIRST, 1, 140, 40, training=False, by_itself=True),
    )
}
"""(a) to (d) are the settings in which the authors' code was measured, (d) with one task there because five did not fit
into memory. (e) is a prediction as users get it by default."""


def library_work(setting: Setting) -> Work:
    """A step (forward, backward, Adam) or a prediction, as users run it."""
    model, batch = setting.model(), setting.batch()
    if not setting.training:
        x, y = batch.context.x[0], batch.context.y[0]
        samples = None if setting.by_itself else setting.samples
        return lambda: model.condition(x, y, num_samples=samples).predict(batch.target.x[0])
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    objective = PPAVI(setting.samples)

    def step() -> None:
        differentiate(model, objective, batch, parameters, 0)
        optimiser.step()

    return step


def products(setting: Setting) -> Iterator[tuple[int, int, int, int]]:
    """Shapes (batch, rows, inner, columns) of the matrix products that a setting needs in any case."""
    n, target = setting.context, setting.points - setting.context
    for layer, (size_in, units) in enumerate(zip(setting.sizes, setting.sizes[1:], strict=False)):
        d, samples = size_in + 1, setting.tasks * setting.samples
        updates = setting.tasks if layer == 0 else samples
        pairs = d * (d + 1) // 2
        if n > d:
            yield updates, pairs, n, units
            if setting.training:
                yield updates, n, pairs, units
                yield updates, n, units, pairs
        else:
            diagonal = setting.prior == "factorised"
            if not diagonal:
                yield 1, updates * n, d, units * d
            yield updates, n, d, n * units
            if setting.training:
                yield updates, n * units, n, d
                if not diagonal:
                    yield 1, updates * n, units * d, d
                    yield 1, d, updates * n, units * d
        for points in (n, target):
            yield samples, points, d, units
            if setting.training:
                yield samples, d, points, units
                yield samples, points, units, d


def limit_work(setting: Setting) -> Work:
    """Only the products, with results written into memory that is allocated before."""
    tensors = []
    for batch, rows, inner, columns in products(setting):
        tensors.append(
            (torch.randn(batch, rows, inner), torch.randn(batch, inner, columns), torch.empty(batch, rows, columns))
        )

    def multiply() -> None:
        for left, right, result in tensors:
            torch.bmm(left, right, out=result)

    return multiply


# --- measuring -------------------------------------------------------------------------------------------------------


LEAST_SECONDS = 0.2
"""Least duration of a repeat. Short work is called often in one repeat, so that it finds its data in the caches, as in
training."""
LONG_SECONDS = 5.0
"""Work whose call takes longer than this is called once per repeat, without a second call to time it."""


@dataclass(frozen=True)
class Measurement:
    """Median seconds per call of one kind of work ("library", "limit" or "plain"), and its peak memory."""

    setting: str
    kind: str
    seconds: float
    repeats: int
    peak_megabytes: float


def measure(setting: Setting, kinds: list[str], plain: Path | None, repeats: int) -> dict[str, list[float]]:
    """Seconds per call of each kind of work, one number per repeat. Kinds take turns, after calls that do not count."""
    makers: dict[str, Callable[[Setting], Work]] = {"library": library_work, "limit": limit_work}
    if plain is not None:
        makers["plain"] = _module(plain).work
    work = {kind: makers[kind](setting) for kind in kinds}
    calls = {kind: _calls_a_repeat(run) for kind, run in work.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in work}
    for _ in range(repeats):
        for kind, run in work.items():
            started = time.perf_counter()
            for _ in range(calls[kind]):
                run()
            seconds[kind].append((time.perf_counter() - started) / calls[kind])
    return seconds


def _calls_a_repeat(run: Work) -> int:
    """Number of calls that make a repeat long enough, by the time of a second call: the first one fills the caches."""
    for _ in range(2):
        started = time.perf_counter()
        run()
        took = time.perf_counter() - started
        if took > LONG_SECONDS:
            return 1
    return math.ceil(LEAST_SECONDS / took)


def run(names: list[str], plain: Path | None = None, repeats: int = 9, progress: bool = True) -> list[Measurement]:
    """Measure settings, each in processes of its own: the library and the limit in turns, then the plain transcription.

    Peak memory is that of the whole process, Python and torch included.
    """
    from rich.progress import Progress

    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise ValueError(f"setting: got {', '.join(unknown)}, expected some of {', '.join(SETTINGS)}")
    if plain is not None and not (plain.is_file() and plain.suffix == ".py"):
        raise FileNotFoundError(
            f"plain: {plain} is not a file of Python; expected the benchmarks/plain.py of the repository"
        )
    jobs = [(name, ["library", "limit"], repeats) for name in names]
    jobs += [(name, ["library"], 2) for name in names]  # for the peak memory of the library alone
    if plain is not None:
        jobs += [(name, ["plain"], 1) for name in names]
    results = []
    with Progress(disable=not progress, transient=True) as bar:
        task = bar.add_task("measuring", total=len(jobs))
        for name, kinds, times in jobs:
            bar.update(task, description=f"({name}) {' and '.join(kinds)}")
            results.append((name, kinds, measure_in_process(SETTINGS[name], kinds, times, plain)))
            bar.advance(task)
    peaks = {(name, kinds[0]): answer["peak_megabytes"] for name, kinds, answer in results if len(kinds) == 1}
    return [
        Measurement(
            name, kind, statistics.median(seconds), len(seconds), peaks.get((name, kind), answer["peak_megabytes"])
        )
        for name, kinds, answer in results
        if kinds != ["library"]
        for kind, seconds in answer["seconds"].items()
    ]


def table(measurements: list[Measurement]) -> "pd.DataFrame":
    """One row per setting: seconds and memory of the library, beside the limit and the transcription."""
    import pandas as pd

    rows = {}
    for name in dict.fromkeys(m.setting for m in measurements):
        found = {m.kind: m for m in measurements if m.setting == name}
        mine = found["library"]
        row = {
            "seconds": mine.seconds,
            "megabytes": mine.peak_megabytes,
            "limit seconds": found["limit"].seconds,
            "share of the limit's speed": found["limit"].seconds / mine.seconds,
        }
        if "plain" in found:
            row["plain seconds"] = found["plain"].seconds
            row["plain megabytes"] = found["plain"].peak_megabytes
            row["times faster than plain"] = found["plain"].seconds / mine.seconds
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def to_json(measurements: list[Measurement]) -> str:
    """The measurements with what they were measured on, as JSON."""
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    settings = {m.setting: SETTINGS[m.setting].describe() for m in measurements}
    return json.dumps(
        {"machine": machine, "settings": settings, "measurements": [asdict(m) for m in measurements]}, indent=1
    )


def measure_in_process(setting: Setting, kinds: list[str], repeats: int, plain: Path | None = None) -> dict[str, Any]:
    """`measure` in a process of its own, with that process's peak memory."""
    arguments = [json.dumps(asdict(setting)), ",".join(kinds), str(repeats), str(plain or "")]
    finished = subprocess.run(
        [sys.executable, "-m", "bnnp.bench", *arguments], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        reason = (finished.stderr.strip().splitlines() or ["killed, perhaps for lack of memory"])[-1]
        raise RuntimeError(f"{setting.describe()}, {' and '.join(kinds)}: {reason}")
    return json.loads(finished.stdout)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _main(setting: str, kinds: str, repeats: str, plain: str) -> None:
    fields = json.loads(setting)
    chosen = Setting(**{**fields, "sizes": tuple(fields["sizes"])})
    seconds = measure(chosen, kinds.split(","), Path(plain) if plain else None, int(repeats))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_megabytes": peak}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
