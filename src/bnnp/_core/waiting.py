"""How torch's threads wait for each other. To be imported before torch.

They spin for about a millisecond, hundreds of times in a training step of ours. Beside another busy program, that takes
the core away from the thread that is waited for, and a step on two cores takes many times as long. Spinning for a few
microseconds costs next to nothing on free cores (`benchmarks/busy_neighbour.py`). Who has chosen otherwise keeps it.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
