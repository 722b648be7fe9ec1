"""The neural process and the attentive neural process."""

from typing import ClassVar

from bnnp.neural_processes.latent_base import LatentProcess


class NP(LatentProcess):
    """The neural process (Garnelo et al. 2018): a Gaussian latent variable from the mean of the points' codes.

    The paper has `hidden=(256, 256, 256)` and `likelihood=bnnp.Gaussian(0.1)`, and trains with
    `bnnp.objectives.NPML(16)` for 500,000 steps at learning rates from 1e-4 to 1e-5. `NPVI` is the original objective.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: Units of the hidden layers of encoder and decoder.
        activation: Name of the nonlinearity.
        likelihood: See `NeuralProcess`.
        latent_size: Size of the latent variable.
        heads: Only for `ANP`.
        dtype: Precision of the model.
        seed: Seed of the starting weights.

    Raises:
        ValueError: If a size is not positive, `hidden` is empty or `heads` is given.

    Example:
        >>> process = bnnp.neural_processes.NP(in_size=1, out_size=1, hidden=(8, 8), latent_size=4, seed=0)
        >>> process.condition(x, y, num_samples=10, seed=0).predict(x_new).samples.shape
        (10, 2, 1)
    """


class ANP(LatentProcess):
    """The attentive neural process (Kim et al. 2019): an NP in which every input also attends to the context's points.

    The cost of a prediction grows with the number of context points. It takes the arguments of `NP`,
    of which one is for it alone.

    Args:
        heads: Heads of attention, 4 by default; they must divide the last of `hidden`.

    Raises:
        ValueError: If a size is not positive, `hidden` is empty or `heads` does not divide its last entry.

    Example:
        >>> anp = bnnp.neural_processes.ANP(in_size=1, out_size=1, hidden=(8, 8), heads=2, seed=0)
        >>> anp.condition(x, y, num_samples=10, seed=0).predict(x_new).samples.shape
        (10, 2, 1)
    """

    attends: ClassVar[bool] = True
