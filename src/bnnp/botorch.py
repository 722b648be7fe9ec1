"""A posterior as a model of BoTorch, for Bayesian optimisation with a learned prior. Needs `pip install bnnp[botorch]`.

    from bnnp.botorch import BNNPModel

    surrogate = BNNPModel(model, train_X, train_Y)
    acquisition = qLogExpectedImprovement(surrogate, best_f=train_Y.max())

The posterior is a fixed set of functions, one per weight sample. Every call evaluates the same functions, so an
acquisition function is a deterministic function of its inputs that gradients and line searches can rely on.
"""

from __future__ import annotations

from typing import Any

import torch

from bnnp._core.optional import optional_module

optional_module("botorch", "bnnp.botorch", "botorch")

from botorch.acquisition import AcquisitionFunction
from botorch.models.ensemble import EnsembleModel
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.sampling.base import MCSampler
from botorch.sampling.get_sampler import GetSampler
from botorch.utils.transforms import t_batch_mode_transform
from torch import Tensor

from bnnp._core.checks import check_samples
from bnnp._core.random import as_generator
from bnnp.models.amortised import AmortisedModel

__all__ = ["BNNPModel", "FunctionPosterior", "FunctionSampler", "ThompsonSampling"]


class FunctionPosterior(EnsemblePosterior):
    """Values of a fixed set of functions, whose order is the same in every call."""

    def rsample_from_base_samples(self, sample_shape: torch.Size, base_samples: Tensor) -> Tensor:
        """The values of the functions whose numbers are in `base_samples`, of shape `sample_shape`."""
        chosen = self.values.movedim(-3, 0)[base_samples.flatten()]
        return chosen.unflatten(0, tuple(sample_shape))


class FunctionSampler(MCSampler):
    """Takes the functions of a `FunctionPosterior` in their order, the same for every batch.

    Beyond the last function it begins again with the first.
    """

    def forward(self, posterior: FunctionPosterior) -> Tensor:
        numbers = torch.arange(self.sample_shape.numel(), device=posterior.device) % posterior.ensemble_size
        return posterior.rsample_from_base_samples(self.sample_shape, numbers)

    def _update_base_samples(self, posterior: Any, base_sampler: Any) -> None:
        """Nothing: there is nothing to keep."""


@GetSampler.register(FunctionPosterior)
def _sampler(posterior: FunctionPosterior, sample_shape: torch.Size, *, seed: int | None = None) -> FunctionSampler:
    return FunctionSampler(sample_shape, seed)


class BNNPModel(EnsembleModel):
    """The posterior of a model given the observations so far, as BoTorch wants it.

    Args:
        model: A model with a prior over weights and a Gaussian likelihood, whose points do not see each other.
        train_X: Inputs of the observations (n, d), in the user's units; there may be none.
        train_Y: Their outcomes (n, m). Larger is better, as everywhere in BoTorch.
        num_samples: Number of functions. Acquisition functions take the first of them, as many as their sampler asks
            for; BoTorch asks for 512 or fewer, and begins again where there are not so many.
        seed: Seed of the functions.

    Raises:
        ValueError: If the model or the observations do not fit.
    """

    def __init__(
        self, model: AmortisedModel, train_X: Tensor, train_Y: Tensor, *, num_samples: int = 512, seed: int = 0
    ):
        _check(model, train_X, train_Y)
        check_samples(num_samples)
        super().__init__()
        self.model, self.num_samples, self.seed = model, num_samples, seed
        self.train_X, self.train_Y = train_X, train_Y
        self.post = model.condition(train_X, train_Y, num_samples=num_samples, seed=seed)
        self._weights = [weights.double() for weights in self.post.weights]
        self._num_outputs = model.network.sizes[-1]

    @property
    def batch_shape(self) -> torch.Size:
        """One posterior, without a batch."""
        return torch.Size()

    def forward(self, X: Tensor) -> Tensor:
        """The values of all functions.

        Args:
            X: Inputs (*batch, n, d), in the user's units.

        Returns:
            Values (*batch, functions, n, m) in the user's units, in float64.
        """
        return self.model.columns.restore_y(self._outputs(X))

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
        **kwargs: Any,
    ) -> Any:
        """The functions at some inputs, or new observations of them.

        Args:
            X: Inputs (*batch, n, d), in the user's units.
            output_indices: Which outputs; all of them if None.
            observation_noise: Whether to add the learned noise to every value. The draws of noise are fixed, too: the
                same for the first point of every batch, for the second, and so on.
            posterior_transform: As everywhere in BoTorch.
            **kwargs: Not used.

        Raises:
            ValueError: If `observation_noise` is a tensor.
        """
        if isinstance(observation_noise, Tensor):
            raise ValueError("observation_noise: got a tensor, expected True or False; the model has learned its noise")
        outputs = self._outputs(X) + self._noise(X) if observation_noise else self._outputs(X)
        values = self.model.columns.restore_y(outputs)
        found = FunctionPosterior(values if output_indices is None else values[..., output_indices])
        return found if posterior_transform is None else posterior_transform(found)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **kwargs: Any) -> BNNPModel:
        """The model given more observations: it is conditioned anew on all of them.

        Args:
            X: Inputs of the new observations (n, d).
            Y: Their outcomes (n, m).
            **kwargs: Not used.

        Raises:
            ValueError: If there is a batch of observations.
        """
        _check(self.model, X, Y)
        both = torch.cat([self.train_X, X]), torch.cat([self.train_Y, Y])
        return BNNPModel(self.model, *both, num_samples=self.num_samples, seed=self.seed)

    def _outputs(self, X: Tensor) -> Tensor:
        """The values of all functions (*batch, functions, n, m), in the model's units."""
        outputs = self.model.network(self._weights, self.model.columns.standardise_x(X.double()).flatten(0, -2))
        return outputs.unflatten(1, X.shape[:-1]).movedim(0, -3)

    def _noise(self, X: Tensor) -> Tensor:
        """Draws of noise (*batch, functions, n, m), in the model's units."""
        x, n = self.model.columns.standardise_x(X.double()).to(self.model.dtype), X.shape[-2]
        spread = self.model.noise_at(x).double()
        draws = torch.randn(n, self.num_samples, self._num_outputs, generator=as_generator(self.seed)).to(spread)
        return spread.unsqueeze(-3) * draws.movedim(0, 1)


class ThompsonSampling(AcquisitionFunction):
    """One whole function of the posterior, to be maximised: Thompson sampling.

    Args:
        model: The model.
        number: Which of its functions, from 0. Several functions give several candidates.
        output: Which output, from 0.
    """

    def __init__(self, model: BNNPModel, number: int = 0, output: int = 0):
        super().__init__(model)
        self.number, self.output = number, output

    @t_batch_mode_transform(expected_q=1)  # pyright: ignore[reportArgumentType]
    def forward(self, X: Tensor) -> Tensor:
        """Values (batch,) of the function at inputs (batch, 1, d)."""
        return self.model.forward(X)[..., self.number, 0, self.output]


def _check(model: Any, x: Tensor, y: Tensor) -> None:
    if not isinstance(model, AmortisedModel) or not model.can_integrate or model.network.mixes_points:
        raise ValueError(
            f"model: got a {type(model).__name__}, expected a bnnp.BNNP or AttBNNP with a Gaussian likelihood"
        )
    if model.columns.positive:
        raise ValueError(
            "model: got one of positive outputs, whose noise is not added to functions; expected one that was trained "
            "without positive=True, on logarithms of the outputs if you like"
        )
    if x.ndim != 2 or y.ndim != 2:
        raise ValueError(
            f"train_X and train_Y: got shapes {tuple(x.shape)} and {tuple(y.shape)}, expected (n, d) and (n, m); a "
            "batch of data sets needs a model for each"
        )
