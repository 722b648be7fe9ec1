"""`bnnp info`: what a model file holds."""

import bnnp
from bnnp.cli.options import ModelFile


def info(model: ModelFile) -> None:
    """What a model file holds: its columns, network, prior, likelihood and learned noise.

    Example: bnnp info zoo:sawtooth
    """
    loaded = bnnp.load(model)
    print(model)
    print(loaded)
