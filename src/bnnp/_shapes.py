"""The shape alphabet: one name for each axis, used in every signature.

| axis    | meaning                                                                                  |
|---------|------------------------------------------------------------------------------------------|
| tasks   | the data sets of a batch                                                                 |
| samples | weight samples; 1 where a quantity is the same for all of them                           |
| points  | the observations of a data set                                                           |
| x, y    | input and output columns of a data set                                                   |
| d       | inputs of a layer, the constant 1 for the bias included                                  |
| units   | the groups of weights that the prior keeps independent: outputs of a layer, or 1 if none |

Points come before features, samples before points, tasks before samples.
"""

from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["Bool", "Float", "Tensor"]
