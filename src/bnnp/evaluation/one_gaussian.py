"""One Gaussian over whole functions in the form of a prediction of a model."""

from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.mixture import Components, MixturePredictive


def as_prediction(
    x: Float[Tensor, "points x"],
    mean: Float[Tensor, "points y"],
    variance: Float[Tensor, "points y"],
    noise: float,
    components: Components,
) -> MixturePredictive:
    """A mixture of one Gaussian, in the user's units.

    Args:
        x: The inputs of the predictions.
        mean: Means of the function.
        variance: Variances of the function.
        noise: Standard deviation of the noise; 0 where the variances have it already.
        components: The Gaussian over whole functions, for samples and joint densities.

    Returns:
        The prediction, which `bnnp.evaluate` scores like that of a model.
    """
    columns, noises = Columns(x.shape[1], mean.shape[1]).double(), mean.new_full(mean.shape, noise)
    likelihood = Gaussian(noise or 1.0, learnable=False)
    return MixturePredictive(mean[None], variance[None], noises, components, likelihood, columns).at(x)
