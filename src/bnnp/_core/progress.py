"""A progress bar with rate, remaining time and the objective's terms."""

from collections.abc import Mapping
from functools import cache

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class ProgressBar:
    """Shows `steps` of work of which `done` are behind us; silent unless `enabled`. Writes to standard error."""

    def __init__(self, steps: int, done: int = 0, *, enabled: bool, label: str = "training"):
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TaskProgressColumn(show_speed=True),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[terms]}"),
            console=_console(),
            disable=not enabled,
        )
        self._task = self._bar.add_task(label, total=steps, completed=done, terms="", rate="")

    def __enter__(self) -> "ProgressBar":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def advance(self, terms: Mapping[str, float] | None = None) -> None:
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task,
            advance=1,
            rate=f"{speed:.1f}/s" if speed else "",
            terms=" ".join(f"{name} {value:.1f}" for name, value in (terms or {}).items()),
        )


@cache
def _console() -> Console:
    """One for all bars, so that a bar within another is drawn below it."""
    return Console(stderr=True)
