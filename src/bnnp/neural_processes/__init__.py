"""Neural processes, to compare the BNNP with: they are trained, conditioned, scored and saved in the same way.

They have no prior over weights. `CNP` and `TNP` predict single targets; `NP`, `ANP` and `BNP` have a latent variable
whose samples are functions; `ARTNP` draws functions target by target.
"""

from bnnp.models.saving import CLASSES
from bnnp.neural_processes.base import NeuralProcess
from bnnp.neural_processes.bayesian import BNP
from bnnp.neural_processes.conditional import CNP
from bnnp.neural_processes.latent import ANP, NP
from bnnp.neural_processes.posterior import ProcessPosterior
from bnnp.neural_processes.transformer import ARTNP, TNP

PEERS = {"cnp": CNP, "np": NP, "anp": ANP, "bnp": BNP, "tnp": TNP}
"""Neural processes by the names that the command line takes."""

CLASSES |= {peer.__name__: peer for peer in (*PEERS.values(), ARTNP)}  # so that `bnnp.load` knows them

__all__ = ["ANP", "ARTNP", "BNP", "CNP", "NP", "PEERS", "TNP", "NeuralProcess", "ProcessPosterior"]
