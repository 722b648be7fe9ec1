"""Progress bars: one for training steps, with their rate and the objective's terms, and one for points."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class ProgressBar:
    """A bar of steps, written to standard error.

    Args:
        steps: Number of steps.
        done: Steps that are already done.
        enabled: Whether the bar is shown at all.
        label: What the steps do.
    """

    def __init__(self, steps: int, done: int = 0, *, enabled: bool, label: str = "training"):
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TaskProgressColumn(show_speed=True),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.fields[terms]}"),
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
        """One more step is done; show these terms of the objective."""
        speed = self._bar.tasks[0].speed
        self._bar.update(
            self._task,
            advance=1,
            rate=f"{speed:.1f}/s" if speed else "",
            terms=" ".join(f"{name} {value:.1f}" for name, value in (terms or {}).items()),
        )


@cache
def _console() -> "Console":
    """One console for all bars, so that a bar within another is drawn below it."""
    from rich.console import Console

    return Console(stderr=True)


def points_bar(enabled: bool) -> "Progress":
    """A bar of very many points, with points per second, on standard error. It is shown only if `enabled`."""
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class Rate(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.0f}/s")

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        Rate(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    return progress.Progress(*columns, console=Console(stderr=True), disable=not enabled)
