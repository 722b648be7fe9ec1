"""The paper's equations as they stand: the yardstick that `bnnp bench --plain` measures the library against.

Every unit's d x d posterior precision is formed, factorised and inverted (paper, eqs. 5-7), its covariance is
factorised once more to draw from it, the KL is that of two normals, and all of it is differentiated through by
autograd, one task after the other, in float64. Samples and units are batched. The objective is PP-AVI.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import bnnp
from bnnp.bench import Setting
from bnnp.networks.base import features_of_layer
from bnnp.tasks.task import SplitBatch, TaskBatch


def infer(model: bnnp.BNNP, x: Tensor, y: Tensor, num_samples: int) -> tuple[list[Tensor], Tensor]:
    """Weight samples of every layer for one task, and the KL of the posterior to the prior."""
    h = x.expand(num_samples, *x.shape)
    mask = torch.ones(1, len(x), dtype=torch.bool)
    weights, kl = [], torch.zeros(())
    for layer in range(model.network.num_layers):
        phi = features_of_layer(model.network.program(x.expand(num_samples, -1, -1)), weights)  # (samples, n, d)
        seen = model.pseudo_observations(layer, TaskBatch(x[None], y[None], mask), h[None])
        pseudo, precision = seen.y[0], seen.inverse_noise[0].square()  # (1, units, n)
        unit_prior = model.prior.layer(layer, [])
        factor = torch.diag_embed(unit_prior.factor) if unit_prior.is_diagonal else unit_prior.factor
        covariance = factor @ factor.mT
        mean = unit_prior.mean[0, 0]
        prior_precision = torch.linalg.inv(covariance)
        features = phi.unsqueeze(1)  # (samples, 1, n, d)
        weighted = features.mT @ torch.diag_embed(precision)
        posterior_precision = prior_precision + weighted @ features
        posterior_covariance = torch.cholesky_inverse(torch.linalg.cholesky(posterior_precision))
        shift = prior_precision @ mean.unsqueeze(-1) + weighted @ pseudo.unsqueeze(-1)
        posterior_mean = (posterior_covariance @ shift).squeeze(-1)
        posterior = MultivariateNormal(posterior_mean, posterior_covariance, validate_args=False)
        prior = MultivariateNormal(mean, covariance, validate_args=False)
        kl = kl + kl_divergence(posterior, prior).sum(-1).mean()
        weights.append(posterior.rsample().mT)  # (samples, d, units)
        h = phi @ weights[-1]
    return weights, kl


def objective(model: bnnp.BNNP, context: tuple[Tensor, Tensor], target: tuple[Tensor, Tensor], samples: int) -> Tensor:
    """PP-AVI of one task."""
    weights, kl = infer(model, *context, samples)
    log_likelihoods = [model.likelihood.log_prob(model.network(weights, x), y).sum(-1) for x, y in (target, context)]
    predictive = torch.logsumexp(log_likelihoods[0], 0) - math.log(samples)
    return predictive + log_likelihoods[1].mean() - kl


def differentiate(model: bnnp.BNNP, batch: SplitBatch, samples: int) -> None:
    """Gradients of minus the objective, averaged over tasks; the graph of one task is freed before the next."""
    model.zero_grad()
    for task in range(len(batch)):
        parts = [
            (part.x[task][part.mask[task]], part.y[task][part.mask[task]]) for part in (batch.context, batch.target)
        ]
        (-objective(model, parts[0], parts[1], samples) / len(batch)).backward()


def predict(model: bnnp.BNNP, x: Tensor, y: Tensor, x_new: Tensor, samples: int) -> Tensor:
    with torch.no_grad():
        weights, _ = infer(model, x, y, samples)
        return model.network(weights, x_new)


def work(setting: Setting) -> Callable[[], object]:
    """A training step or a prediction in a setting of `bnnp bench`, in float64 like the authors' code."""
    model, batch = setting.model(torch.float64), setting.batch(torch.float64)
    if not setting.training:
        context, target = batch.context, batch.target
        return lambda: predict(model, context.x[0], context.y[0], target.x[0], setting.samples)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4)

    def step() -> None:
        differentiate(model, batch, setting.samples)
        optimiser.step()

    return step
