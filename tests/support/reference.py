"""Slow formulas in NumPy, written from the paper's equations with explicit inverses and loops.

Nothing here whitens, shares or batches anything. `vec(W)` stacks the columns of W, as in the paper's App. B.
"""

import math

import numpy as np

LOG_2PI = math.log(2 * math.pi)


# --- Gaussians -------------------------------------------------------------------------------------------------------


def log_density(x, mean, covariance):
    """`log N(x; mean, covariance)`."""
    difference = x - mean
    _, log_determinant = np.linalg.slogdet(covariance)
    return -0.5 * (difference @ np.linalg.inv(covariance) @ difference + log_determinant + len(mean) * LOG_2PI)


def kl(mean_q, covariance_q, mean_p, covariance_p):
    """`KL[q || p]` between two multivariate normals."""
    precision_p = np.linalg.inv(covariance_p)
    difference = mean_p - mean_q
    log_ratio = np.linalg.slogdet(covariance_p)[1] - np.linalg.slogdet(covariance_q)[1]
    return 0.5 * (
        np.trace(precision_p @ covariance_q) + difference @ precision_p @ difference - len(mean_q) + log_ratio
    )


def conditional(mean, covariance, current, previous, value):
    """Mean and covariance of the entries `current` given that the entries `previous` have the given value (App. B)."""
    gain = covariance[np.ix_(current, previous)] @ np.linalg.inv(covariance[np.ix_(previous, previous)])
    return (
        mean[current] + gain @ (value - mean[previous]),
        covariance[np.ix_(current, current)] - gain @ covariance[np.ix_(previous, current)],
    )


def block_diagonal(blocks):
    size = sum(len(block) for block in blocks)
    whole, start = np.zeros((size, size)), 0
    for block in blocks:
        stop = start + len(block)
        whole[start:stop, start:stop] = block
        start = stop
    return whole


# --- Bayesian linear regression and GPs ------------------------------------------------------------------------------


def posterior(mean, covariance, phi, y, noise):
    """`S^-1 = Sigma^-1 + phi^T Lambda phi` and `m = S (Sigma^-1 mu + phi^T Lambda y)` (section 2.2)."""
    precision = np.diag(1 / noise**2)
    prior_precision = np.linalg.inv(covariance)
    s = np.linalg.inv(prior_precision + phi.T @ precision @ phi)
    return s @ (prior_precision @ mean + phi.T @ precision @ y), s


def layer_posterior(mean, covariance, phi, y, noise):
    """The posterior of `vec(W)` of a layer with outputs y (points, out), by the Kronecker product (App. B)."""
    chi = np.kron(np.eye(y.shape[1]), phi)
    return posterior(mean, covariance, chi, vec(y), vec(noise))


def log_evidence(mean, covariance, phi, y, noise):
    """`log p(y)` of a linear model with Gaussian weights."""
    if len(y) == 0:
        return 0.0
    return log_density(y, phi @ mean, phi @ covariance @ phi.T + np.diag(noise**2))


def gp_regression(mean, mean_new, k, k_cross, k_new, y, noise):
    """Posterior mean and covariance of a GP at new points; k_cross is (new, seen)."""
    gain = k_cross @ np.linalg.inv(k + np.diag(noise**2))
    return mean_new + gain @ (y - mean), k_new - gain @ k_cross.T


# --- networks --------------------------------------------------------------------------------------------------------


def vec(matrix):
    return np.concatenate([matrix[:, column] for column in range(matrix.shape[1])])


def all_weights(weights):
    """`omega`: the weights of all layers in one vector."""
    return np.concatenate([vec(w) for w in weights])


def relu(h):
    return np.maximum(h, 0)


ACTIVATIONS = {"relu": relu, "tanh": np.tanh, "identity": lambda h: h}


def features(layer, h, activation):
    h = h if layer == 0 else ACTIVATIONS[activation](h)
    return np.concatenate([h, np.ones((len(h), 1))], axis=1)


def network(weights, x, activation):
    h = x
    for layer, w in enumerate(weights):
        h = features(layer, h, activation) @ w
    return h


def layer_moments(mean, covariance, weights, x, activation, pseudo_observations):
    """For each layer, the moments of `vec(W^l)` under prior and posterior, given the weights of the layers before.

    mean, covariance: the prior of all weights;  pseudo_observations: `(layer, h) -> (y, noise)`, each (points, out).
    """
    omega = all_weights(weights)
    moments, start, h = [], 0, x
    for layer, w in enumerate(weights):
        current = np.arange(start, start + w.size)
        prior = conditional(mean, covariance, current, np.arange(start), omega[:start])
        y, noise = pseudo_observations(layer, h)
        phi = features(layer, h, activation)
        moments.append((vec(w), prior, layer_posterior(*prior, phi, y, noise)))
        h, start = phi @ w, start + w.size
    return moments


# --- parameters of a model as arrays ---------------------------------------------------------------------------------


def array(tensor):
    return tensor.detach().double().numpy()


def prior_factor(prior):
    """The lower-triangular factor of the covariance of all weights: `diag(scale) (I + lower)`, unit by unit."""
    units = []
    for block in prior.gaussians:
        scale = np.exp(array(block.log_scale()))
        lower = np.zeros((*scale.shape, scale.shape[-1])) if block.lower is None else array(block.lower())
        units += [np.diag(s) @ (np.eye(len(s)) + np.tril(low, -1)) for s, low in zip(scale, lower, strict=True)]
    return block_diagonal(units)


def prior_moments(prior):
    """Mean and covariance of all weights."""
    factor = prior_factor(prior)
    return np.concatenate([array(block.mean()).ravel() for block in prior.gaussians]), factor @ factor.T


def model_moments(model, weights, x, y):
    """`layer_moments` of a BNNP for one task and one weight sample."""
    config = model.config()
    encoded = array(model.likelihood.encode(y)) if len(y) else np.zeros((0, config["out_size"]))
    observed, inputs = array(y), array(x)

    def pseudo_observations(layer, h):
        out = model.network.sizes[layer + 1]
        last = layer == model.network.num_layers - 1
        if last and config["last_layer"] == "likelihood":
            return observed, np.tile(array(model.likelihood.noise), (len(observed), 1))
        seen = [inputs, encoded] + ([h] if config["inference"]["sees_hidden"] and layer > 0 else [])
        encoder = [array(w) for w in model.layers[layer].encoder.weights]
        predicted = network(encoder, np.concatenate(seen, axis=1), config["activation"])
        noise = config["inference"]["min_pseudo_noise"] + np.exp(predicted[:, -out:])
        return (observed if last and config["last_layer"] == "predicted" else predicted[:, :out]), noise

    samples = [array(w) for w in weights]
    return layer_moments(*prior_moments(model.prior), samples, inputs, config["activation"], pseudo_observations)


def model_log_density(model, weights, x, y):
    """`log q(W | D)`."""
    return sum(log_density(w, *after) for w, _, after in model_moments(model, weights, x, y))


def model_kl(model, weights, x, y):
    """The KL of every layer's posterior to its prior, given the weights of the layers before."""
    return [kl(*after, *before) for _, before, after in model_moments(model, weights, x, y)]
