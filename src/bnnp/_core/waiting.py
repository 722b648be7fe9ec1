"""How torch's threads wait for each other. This module must be imported before torch.

By default a waiting thread spins for about a millisecond, hundreds of times in one of our training steps. If another
program keeps the cores busy, the spinning takes the core from the thread that is waited for, and a step on two cores
takes many times as long. Spinning for a few microseconds costs next to nothing on free cores
(`benchmarks/busy_neighbour.py`). If the user has set OMP_WAIT_POLICY or GOMP_SPINCOUNT, that setting is kept.
"""

import os

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
