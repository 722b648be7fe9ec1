"""Images as tasks: pixels at known places are observed, the others are to be completed (paper, section 4.2)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Float, Tensor
from bnnp.tasks.datasets.folder import DataFile, data_path, read_decompressed
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import check_split
from bnnp.tasks.task import Task

MNIST_SIDE = 28
_ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FILES = {
    "train": (
        DataFile(
            "mnist",
            "train-images-idx3-ubyte",
            _ADDRESS,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        DataFile(
            "mnist",
            "train-labels-idx1-ubyte",
            _ADDRESS,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
    ),
    "test": (
        DataFile(
            "mnist",
            "t10k-images-idx3-ubyte",
            _ADDRESS,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        DataFile(
            "mnist",
            "t10k-labels-idx1-ubyte",
            _ADDRESS,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
}
_UNSIGNED_BYTES = 8
"""The code of this type of numbers in a file of the idx format."""


@dataclass(frozen=True, eq=False)
class Images(TaskSource):
    """Images, each of which is a task: coordinates of its pixels as inputs, their values in [0, 1] as output.

    Pixels come row by row from the top left. The first input is horizontal, -1 at the left and +1 at the right; the
    second is vertical, +1 at the top and -1 at the bottom. Neither inputs nor values are ever standardised.

    Attributes:
        split: The part of the data, "train" or "test".
        side: Pixels of a task's image along each side; larger images are averaged down, block by block.
        binary: Whether values are 0 or 1 (the average is above 0.5) in place of grey.
        digits: The classes of images.
        pixels: The images as they are stored.
        labels: Class of each image.
        numbers: Place of each image in the file.
    """

    split: str
    side: int
    binary: bool
    digits: tuple[int, ...]
    pixels: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    numbers: np.ndarray = field(repr=False)

    @property
    def in_size(self) -> int:
        return 2

    @property
    def out_size(self) -> int:
        return 1

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> Task:
        name = f"{self.split} {self.numbers[index]}, digit {self.labels[index]}"
        return Task(self.coordinates, self._values(self.pixels[index]), name)

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Draw images at random. None is drawn twice before all are drawn once.

        Args:
            count: Number of images.
            generator: Source of randomness.

        Returns:
            One task per image.
        """
        rounds = [torch.randperm(len(self), generator=generator) for _ in range(math.ceil(count / len(self)))]
        return [self[int(i)] for i in torch.cat(rounds)[:count]]

    @cached_property
    def coordinates(self) -> Float[Tensor, "points 2"]:
        """Inputs of every task: the coordinates of all pixels, row by row."""
        return pixel_grid(self.side)

    def to_image(self, values: ArrayLike | Tensor, side: int | None = None) -> np.ndarray:
        """Values of all pixels (..., points, 1) as images (..., side, side), the top row first.

        Args:
            values: One value per pixel, as in `post.predict(source.coordinates).mean`.
            side: Pixels along each side, if values are at another `pixel_grid(side)` than at `coordinates`.

        Raises:
            ValueError: If there is not one value per pixel.
        """
        array = np.asarray(values)
        wanted = self.side if side is None else side
        if array.ndim < 2 or array.shape[-2:] != (wanted**2, 1):
            raise ValueError(
                f"values: got shape {array.shape}, expected (..., {wanted**2}, 1), one value for each pixel; predict "
                "at `coordinates`, all of them, or give the side of the grid"
            )
        return array.reshape(*array.shape[:-2], wanted, wanted)

    def _values(self, image: np.ndarray) -> Float[Tensor, "points 1"]:
        block = image.shape[0] // self.side
        means = image.reshape(self.side, block, self.side, block).mean((1, 3)) / 255
        values = means > 0.5 if self.binary else means
        return torch.from_numpy(values.reshape(-1, 1).astype(np.float64))


def pixel_grid(side: int) -> Float[Tensor, "points 2"]:
    """Coordinates of the pixels of an image of `side` x `side`, row by row from the top left, in [-1, 1]^2.

    A model of images is a function of these coordinates, so it can predict at any resolution.

    Args:
        side: Pixels along each side, at least 2.

    Returns:
        The horizontal and the vertical coordinate of each pixel.

    Raises:
        ValueError: If `side` is not a whole number of at least 2.

    Example:
        >>> bnnp.tasks.pixel_grid(2).tolist()
        [[-1.0, 1.0], [1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]]
    """
    if not isinstance(side, int | np.integer) or side < 2:
        raise ValueError(f"side: got {side!r}, expected a whole number of at least 2, as in 100")
    axis = torch.linspace(-1, 1, int(side), dtype=torch.float64)
    vertical, horizontal = torch.meshgrid(-axis, axis, indexing="ij")
    return torch.stack([horizontal.flatten(), vertical.flatten()], dim=1)


def mnist(
    split: str = "train",
    *,
    side: int = MNIST_SIDE,
    binary: bool = False,
    digits: Sequence[int] | None = None,
    folder: str | Path | None = None,
) -> Images:
    """Handwritten digits as tasks of image completion: coordinates of pixels in [-1, 1]^2, values in [0, 1].

    Pixels come row by row from the top left. The first input is horizontal, +1 at the right; the second is vertical, +1
    at the top. `source.to_image(values)` makes an image of predictions at `source.coordinates`.

    Args:
        split: "train" for 60,000 images, "test" for 10,000 others.
        side: Pixels along each side: 28, or a divisor of it, as 14 or 7, for images that are averaged down.
        binary: Whether values are 0 or 1 (the average is above 0.5) in place of grey. Both are for `bnnp.Bernoulli`.
        digits: Only images of these digits, as in `(3, 5)`; all if None.
        folder: The folder whose sub-folder `mnist` holds the four files. If None, that of the environment variable
            BNNP_DATA; without it a cache, to which the files are downloaded once.

    Returns:
        The source of tasks, one per image.

    Raises:
        FileNotFoundError: If a file is not there and cannot be downloaded.
        ValueError: If an argument is not as above, or a file is damaged.

    Example:
        >>> try:
        ...     source = bnnp.tasks.mnist("train", side=14, binary=True, folder="my_data")
        ... except FileNotFoundError:
        ...     print("put train-images-idx3-ubyte.gz into my_data/mnist")
        put train-images-idx3-ubyte.gz into my_data/mnist
    """
    check_split(split)
    _check_side(side)
    chosen = _checked_digits(digits)
    of_images, of_labels = (data_path(file, folder) for file in _FILES[split])
    images, labels = idx_array(of_images), idx_array(of_labels)
    if images.shape != (len(labels), MNIST_SIDE, MNIST_SIDE) or labels.ndim != 1:
        raise ValueError(
            f"{of_images}: got images of shape {images.shape} and labels of shape {labels.shape}, "
            f"expected as many of each, with {MNIST_SIDE} x {MNIST_SIDE} pixels; put new copies of this file and of "
            f"{of_labels.name} in their place"
        )
    numbers = np.flatnonzero(np.isin(labels, chosen))
    if len(numbers) == 0:
        raise ValueError(f"digits: got {chosen}, expected one of those in the file, {np.unique(labels).tolist()}")
    return Images(split, side, binary, chosen, images[numbers], labels[numbers], numbers)


def idx_array(path: Path) -> np.ndarray:
    """The array in a file of the idx format: two zero bytes, type, number of axes, their lengths, the values."""
    data = read_decompressed(path)
    if len(data) < 4 or data[:3] != bytes([0, 0, _UNSIGNED_BYTES]):
        raise ValueError(
            f"{path}: got a file that starts with {data[:4].hex(' ') or 'nothing'}, expected 00 00 08, as in an idx "
            "file of unsigned bytes; put a new copy in its place"
        )
    start = 4 + 4 * data[3]
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist()) if len(data) >= start else ()
    if len(shape) != data[3] or len(data) != start + math.prod(shape):
        raise ValueError(
            f"{path}: got {len(data)} bytes, expected {start + math.prod(shape)} for an array of shape {shape}; the "
            "file was cut short or damaged, so put a new copy in its place"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _check_side(side: int) -> None:
    divisors = [size for size in range(1, MNIST_SIDE + 1) if MNIST_SIDE % size == 0]
    if side not in divisors or side < 2:
        raise ValueError(
            f"side: got {side!r}, expected one of {', '.join(map(str, divisors[1:]))}: pixels are averaged in equal "
            f"blocks, so it must divide {MNIST_SIDE}"
        )


def _checked_digits(digits: Sequence[int] | None) -> tuple[int, ...]:
    chosen = tuple(range(10)) if digits is None else tuple(digits)
    if not chosen or not all(isinstance(digit, int | np.integer) and 0 <= digit <= 9 for digit in chosen):
        raise ValueError(f"digits: got {digits!r}, expected some of 0, ..., 9, as in (3, 5)")
    return tuple(sorted({int(digit) for digit in chosen}))
