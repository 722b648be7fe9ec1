"""How figures are made and saved."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from bnnp._core.files import write_atomically

if TYPE_CHECKING:
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
    columns = min(4, panels)
    return columns, -(-panels // columns)
