"""The transformer neural process (Nguyen and Grover 2022), and how it draws functions (Bruinsma et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn

from bnnp._core.checks import check_dtype
from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.neural_processes.attention import AttentionBlock, StartToken
from bnnp.neural_processes.conditional import ConditionalProcess
from bnnp.tasks.task import TaskBatch


@dataclass(frozen=True)
class Tokens:
    """The tokens of contexts before every block; the start token is the first."""

    layers: list[Float[Tensor, "tasks tokens width"]]
    mask: Bool[Tensor, "tasks tokens"]


class TNP(ConditionalProcess):
    """The TNP-D: a transformer in which context points attend to each other and targets to context points.

    Targets do not attend to targets: the prediction of a target does not depend on the other targets. Context points do
    not attend to targets, so that the model reads a context once for all predictions.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: One block of attention and a perceptron for each entry; all entries are the same width (the paper:
            three of 256).
        activation: Name of the nonlinearity.
        likelihood: See `NeuralProcess`. The paper trains with NPML for 50,000 steps.
        heads: Heads of attention; they must divide the width.
        autoregressive: Whether to draw functions target by target (the paper's AR-TNP, `ARTNP`). Training is the same:
            `tnp.as_autoregressive()` turns a trained TNP into one that does.
        dtype: Precision of the model.
        seed: Seed of the starting weights.

    Raises:
        ValueError: If a size is not positive, widths differ or `heads` does not divide the width.

    Example:
        >>> tnp = bnnp.neural_processes.TNP(in_size=1, out_size=1, hidden=(8, 8), heads=2, seed=0)
        >>> tnp.condition(x, y, num_samples=10, seed=0).predict(x_new).mean.shape
        (2, 1)
    """

    target_by_target: ClassVar[bool] = False

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (64, 64, 64),
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        heads: int = 4,
        autoregressive: bool | None = None,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        if autoregressive is not None and autoregressive < self.target_by_target:
            raise ValueError("autoregressive: got False, expected True for an ARTNP; use TNP")
        by_target = self.target_by_target or bool(autoregressive)
        super().__init__(in_size, out_size, hidden, activation, likelihood, by_target)
        hidden = self._config["hidden"]
        generator = as_generator(seed)
        if len(set(hidden)) != 1:
            raise ValueError(f"hidden: got {tuple(hidden)}, expected equal widths, one per block, as in (64, 64, 64)")
        width = hidden[0]
        self.embedding = PointEncoder(in_size + out_size + 1, width, (width,), activation, generator)
        self.start = StartToken(width, generator)
        self.blocks = nn.ModuleList(AttentionBlock(width, heads, activation, generator) for _ in hidden)
        self.norm = nn.LayerNorm(width)
        self.head = PointEncoder(width, self.numbers, (width,), activation, generator)
        self.width, self.heads = width, heads
        self._config["heads"] = heads
        self.to(check_dtype(dtype))

    def represent(self, context: TaskBatch) -> Tokens:
        mask = StartToken.mask(context.mask)
        layers = [self.start(self._embed(context.x, self.likelihood.encode(context.y), 1.0))]
        for block in list(self.blocks)[:-1]:  # what comes out of the last one is seen by nobody
            layers.append(block(layers[-1], layers[-1], mask))
        return Tokens(layers, mask)

    def decode(self, latent: Tokens, x: Float[Tensor, "tasks points x"]) -> Float[Tensor, "tasks one points out"]:
        columns = self.embedding.network.sizes[0] - 1 - self.in_size
        h = self._embed(x, x.new_zeros(*x.shape[:-1], columns), 0.0)
        for block, tokens in zip(self.blocks, latent.layers, strict=True):
            h = block(h, tokens, latent.mask)
        return self.head(self.norm(h)).unsqueeze(1)

    def _embed(
        self, x: Float[Tensor, "tasks points x"], y: Float[Tensor, "tasks points encoded"], is_context: float
    ) -> Float[Tensor, "tasks points width"]:
        flag = x.new_full((*x.shape[:-1], 1), is_context)
        return self.embedding(torch.cat([x, y, flag], dim=-1))

    def numbers_per_point(self, context: int) -> int:
        return 4 * self.width + self.heads * (context + 1)


class ARTNP(TNP):
    """The AR-TNP: a TNP that draws functions target by target.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: As for `TNP`.
        activation: Name of the nonlinearity.
        likelihood: See `NeuralProcess`.
        heads: Heads of attention; they must divide the width.
        autoregressive: True, if given.
        dtype: Precision of the model.
        seed: Seed of the starting weights.

    Raises:
        ValueError: As for `TNP`, and if `autoregressive` is False.

    Example:
        >>> artnp = bnnp.neural_processes.ARTNP(in_size=1, out_size=1, hidden=(8, 8), heads=2, seed=0)
        >>> artnp.condition(x, y, num_samples=3, seed=0).predict(x_new).samples.shape
        (3, 2, 1)
    """

    target_by_target: ClassVar[bool] = True
