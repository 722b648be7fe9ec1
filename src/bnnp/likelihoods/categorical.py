"""Class labels."""

import torch
from torch.nn import functional

from bnnp._core.checks import check_count
from bnnp._core.shapes import Tensor
from bnnp.likelihoods.base import Likelihood


class Categorical(Likelihood):
    """One column of class labels `0, 1, ...`. The network has one output per class.

    Args:
        num_classes: Number of classes, at least 2.

    Raises:
        ValueError: If there are fewer than two classes.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=3, hidden=(8,), likelihood=bnnp.Categorical(3), seed=0)
        >>> post = model.condition(x, [[0], [1], [2]], num_samples=5, seed=0)
        >>> post.predict(x_new).mean.shape  # one probability per class
        (2, 3)
    """

    real_valued = False

    def __init__(self, num_classes: int):
        super().__init__()
        check_count("num_classes", num_classes, "whole number of classes, as in 3")
        if num_classes < 2:
            raise ValueError(f"num_classes: got {num_classes}, expected at least 2")
        self.num_classes = num_classes

    def for_outputs(self, out_size: int) -> "Categorical":
        if out_size != self.num_classes:
            raise ValueError(f"out_size: got {out_size}, expected {self.num_classes}, the number of classes")
        return Categorical(self.num_classes)

    def y_size(self, out_size: int) -> int:
        return 1

    def check(self, y: Tensor) -> None:
        if y.numel() and not bool(((y == y.round()) & (y >= 0) & (y < self.num_classes)).all()):
            raise ValueError(f"y: expected class labels 0, ..., {self.num_classes - 1}, got other values")

    def encode(self, y: Tensor) -> Tensor:
        return functional.one_hot(y.squeeze(-1).long(), self.num_classes).to(y.dtype)

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        labels = y.long().expand(*f.shape[:-1], 1)
        return torch.log_softmax(f, -1).gather(-1, labels).squeeze(-1)

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        return self.encode(y) - torch.softmax(f, -1)

    def curvature_root(self, f: Tensor) -> Tensor:
        root = torch.softmax(f, -1).sqrt()
        eye = torch.eye(self.num_classes, dtype=f.dtype, device=f.device)
        return (eye - root.unsqueeze(-1) * root.unsqueeze(-2)) * root.unsqueeze(-2)  # (I - s s^T) projects: |s| = 1

    def mean(self, f: Tensor) -> Tensor:
        return torch.softmax(f, -1)

    def variance(self, f: Tensor) -> Tensor:
        p = torch.softmax(f, -1)
        return p * (1 - p)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        cumulative = torch.softmax(f, -1).cumsum(-1)
        uniform = torch.rand(f.shape[:-1], generator=generator, dtype=f.dtype, device=generator.device).to(f.device)
        labels = (uniform.unsqueeze(-1) > cumulative).sum(-1, keepdim=True)
        return labels.clamp(max=self.num_classes - 1).to(f.dtype)

    def config(self) -> dict:
        return {"name": "categorical", "num_classes": self.num_classes}
