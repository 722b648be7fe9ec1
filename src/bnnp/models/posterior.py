"""The posterior over the weights for one data set, as an object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike

from bnnp._shapes import Float, Tensor
from bnnp.functions import Function, functions_of
from bnnp.prediction import Predictive, network_outputs
from bnnp.tasks.task import TaskBatch, as_columns

if TYPE_CHECKING:
    from bnnp.models.bnnp import BNNP


@dataclass(frozen=True)
class WeightPosterior:
    """Samples of the weights given one data set.

    weights: every layer's samples (samples, d_in + 1, d_out), the last row being the bias.
    layer_kl: KL of each layer's posterior to its prior (samples,), given each sample of the earlier layers.
    """

    model: BNNP
    context: TaskBatch
    weights: list[Float[Tensor, "samples _d _out"]]
    layer_kl: list[Float[Tensor, "samples"]]

    @property
    def num_samples(self) -> int:
        return self.weights[0].shape[0]

    @property
    def kl(self) -> float:
        """KL of the posterior over all weights to the prior, in nats."""
        return float(sum(kl.double().mean() for kl in self.layer_kl))

    def predict(self, x: ArrayLike | Tensor) -> Predictive:
        """Predictions at new inputs (points, in).

        Example: `pred = post.predict(x_new)`; then `pred.mean`, `pred.std`, `pred.quantile([0.05, 0.95])`.
        """
        model = self.model
        inputs = as_columns(x, "x", model.network.sizes[0]).to(model.device)
        outputs = network_outputs(model.network, self.weights, model.standardiser.x(inputs).to(model.dtype))
        return Predictive(outputs, model.likelihood, model.standardiser)

    def functions(self) -> list[Function]:
        """Functions drawn from the posterior, one a weight sample: `fs[0](x)` gives (n, out) in NumPy."""
        return functions_of(self.model.network, self.weights, self.model.standardiser, self.model.likelihood.mean)

    def log_prob(self) -> Float[Tensor, "samples"]:
        """Log-density of the posterior at its own samples, `log q(W | D)`."""
        with torch.no_grad():
            return self.model.log_density([w.unsqueeze(0) for w in self.weights], self.context)[0]
