"""How figures are made and saved."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bnnp._core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ENDINGS = (".png", ".svg", ".pdf")
"""What the names of figures end in."""


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure to a file. The file appears whole, or not at all.

    Args:
        figure: The figure.
        path: Where to write; the ending of the name chooses PNG, SVG or PDF.

    Returns:
        The path of the file.

    Example:
        >>> figure = bnnp.plots.functions(model.prior.functions(3), np.linspace(-2, 2, 20))
        >>> bnnp.plots.save_figure(figure, "prior.png").name
        'prior.png'
    """
    return write_atomically(path, _written(figure, Path(path).suffix.lstrip(".") or "png"))


def as_png(figure: "Figure") -> bytes:
    """The bytes of a figure as a PNG file."""
    return _written(figure, "png")


def _written(figure: "Figure", kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=130)
    return buffer.getvalue()


def make_figure(size: tuple[float, float]) -> "Figure":
    """An empty figure of so many inches. Matplotlib is imported here, so that whoever plots nothing does not wait."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def grid_of(panels: int) -> tuple[int, int]:
    """Columns and rows of a grid with room for so many panels."""
    columns = min(4, panels)
    return columns, -(-panels // columns)


def figure_of_outputs(outputs: int) -> "tuple[Figure, list[Axes]]":
    """A figure with a panel per output."""
    columns, rows = grid_of(outputs)
    figure = make_figure((5, 3.4) if outputs == 1 else (3.4 * columns, 2.9 * rows))
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    return figure, used_panels(panels, outputs)


def used_panels(panels: np.ndarray, used: int) -> "list[Axes]":
    """The first panels of a grid; the others are not shown."""
    for axes in panels[used:]:
        axes.axis("off")
    return list(panels[:used])
