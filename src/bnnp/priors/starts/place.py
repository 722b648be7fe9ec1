"""The start for one shape at a random place of one input column."""

from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import features_of_layer, run
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Needs, Start
from bnnp.priors.starts.fitted import UNCERTAINTY, fit_units
from bnnp.priors.starts.spread import FIRST_SCALE, HIDDEN_SCALE, bends, feature_size, whitening_mixture

SLOPE, BENDS, PLACES = 0.5, 8.0, 61
"""Slope of the unit that places the shape, slope of the layers after it, and the number of places that are tried."""


@dataclass(frozen=True)
class Place(Start):
    """Start with a shape at a random place of one input column, as a peak in a spectrum.

    The first unit of the first layer is `tanh(slope (x - place))` with a random bias. The units of the second layer see
    no other unit, so everything after it is a function of `x - place`. The first guess of a task's place is the mean of
    its inputs, weighted by the squared distance of each output from the median output.

    Example:
        >>> bnnp.starts.Place()
        Place()
    """

    needs = Needs(activation="tanh", hidden=2, inputs=1)

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        if len(examples.x) < 2:
            raise ValueError("prior_start Place(): got one task, expected more: places are told by comparing tasks")
        network, x = prior.network, examples.all_x()
        centres = _centres(examples)
        slope = float(SLOPE / x.std())
        means = _set_features(prior, examples, centres, slope, generator)
        tried = centres.mean() + 3 * centres.std() * torch.linspace(-1, 1, PLACES, dtype=x.dtype, device=x.device)
        features = [features_of_layer(network.program(x_t - tried[:, None, None]), means[:-1]) for x_t in examples.x]
        nearest = (tried - centres.unsqueeze(-1)).abs().argmin(-1).cpu()
        fits = fit_units(prior, examples, features, nearest)
        for unit, fit in enumerate(fits):
            prior.assign_unit(network.num_layers - 1, unit, fit.mean, fit.covariance)
        places = tried[fits[0].chosen.to(tried.device)]
        spread_of_places = max(float(places.std()), FIRST_SCALE * float(x.std()))  # tasks may all have the same one
        moves = x.new_tensor([[(UNCERTAINTY * FIRST_SCALE * slope) ** 2, 0.0], [0.0, (slope * spread_of_places) ** 2]])
        prior.assign_unit(0, 0, x.new_tensor([slope, -slope * float(places.mean())]), moves)


def _centres(examples: Examples) -> Float[Tensor, "tasks"]:
    """The first guess of each task's place; the mean of its inputs if all its outputs are the usual ones."""
    usual = torch.cat(examples.y).median(0).values
    activity = [((y - usual) / examples.output_scale).square().sum(-1) + 1e-6 for y in examples.y]
    return torch.stack([(a * x_t[:, 0]).sum() / a.sum() for a, x_t in zip(activity, examples.x, strict=True)])


def _set_features(
    prior: Prior, examples: Examples, centres: Float[Tensor, "tasks"], slope: float, generator: torch.Generator
) -> list[Float[Tensor, "_d _out"]]:
    """Set the hidden layers to features of the distance from the place.

    Args:
        prior: The prior to set.
        examples: The tasks.
        centres: The first guess of each task's place.
        slope: Slope of the unit that places the shape.
        generator: The generator of all random numbers.

    Returns:
        The mean weights of all layers.
    """
    network, x = prior.network, examples.all_x()
    means: list[Tensor] = []

    def outputs(layer: int, phi: Tensor) -> Tensor:
        d, out = network.weight_shapes[layer]
        deviations = phi.new_full((d, out), UNCERTAINTY * HIDDEN_SCALE / float(feature_size(phi)))
        if layer == 0:
            mean, deviations = bends(x, out, BENDS, generator), phi.new_full((d, out), UNCERTAINTY * FIRST_SCALE)
            mean[:, 0] = phi.new_tensor([slope, 0.0])
        elif layer == 1:
            mean = phi.new_zeros(d, out)
            mean[[0, -1]] = bends(phi[:, :1], out, BENDS, generator)
        else:
            mean = whitening_mixture(phi, out, generator) if layer < network.num_layers - 1 else phi.new_zeros(d, out)
        means.append(mean)
        prior.assign_layer(layer, mean, deviations)
        return phi @ mean

    run(network.program(torch.cat([x_t - c for x_t, c in zip(examples.x, centres, strict=True)])), outputs)
    return means
