"""The neural process and the attentive neural process."""

from typing import ClassVar

from bnnp.neural_processes.latent_base import LatentProcess


class NP(LatentProcess):
    """The neural process (Garnelo et al. 2018): a Gaussian latent variable from the mean of the points' codes.

    Its arguments are those of `LatentProcess`.

    Example:
        >>> import bnnp
        >>> bnnp.neural_processes.NP(in_size=1, out_size=1, seed=0).config()["latent_size"]
        64
    """


class ANP(LatentProcess):
    """The attentive neural process (Kim et al. 2019): an NP, beside which every input attends to the context's points.

    Its arguments are those of `LatentProcess`, with `heads`. Cost of a prediction grows with the number of context
    points.

    Example:
        >>> import bnnp
        >>> bnnp.neural_processes.ANP(in_size=1, out_size=1, heads=2, seed=0).heads
        2
    """

    attends: ClassVar[bool] = True
