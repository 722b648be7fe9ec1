"""Names of axes. Each axis has one name, which is used in every signature.

| axis    | meaning                                                                                  |
|---------|------------------------------------------------------------------------------------------|
| tasks   | the data sets of a batch; sets where each is inferred by itself                          |
| samples | weight samples; 1 where a quantity is the same for all of them                           |
| points  | the observations of a data set                                                           |
| x, y    | input and output columns of a data set                                                   |
| d       | inputs of a layer, the constant 1 for the bias included                                  |
| units   | the groups of weights that the prior keeps independent: outputs of a layer, or 1 if none |

Points come before features, samples before points, tasks before samples.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor"]
