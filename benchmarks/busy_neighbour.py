"""Training beside another busy program: seconds per step, with and without the setting of `src/bnnp/_core/waiting.py`.

    python benchmarks/busy_neighbour.py        # about six minutes

Medians of three processes each. The other program counts on one core. Torch's own setting is libgomp's default.
"""

import os
import statistics
import subprocess
import sys

STEPS = 20
STEP = f"""
import time
import bnnp
model, tasks = bnnp.BNNP(1, 1, (48, 48), "relu", seed=0), bnnp.tasks.sawtooth()
for steps in (10, {STEPS}):
    start = time.perf_counter()
    bnnp.fit(model, tasks, steps=steps, objective=bnnp.objectives.PPAVI(10), progress=False)
print((time.perf_counter() - start) / {STEPS})
"""
SETTINGS = {"torch's own": {"GOMP_SPINCOUNT": "300000"}, "bnnp's": {}, "one thread": {"OMP_NUM_THREADS": "1"}}


def seconds(setting: dict[str, str]) -> float:
    environment = os.environ | setting
    done = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    print("| waiting | free cores | beside another program |\n|---|---|---|")
    for name, setting in SETTINGS.items():
        free = statistics.median(seconds(setting) for _ in range(3))
        with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as other:
            try:
                busy = statistics.median(seconds(setting) for _ in range(3))
            finally:
                other.kill()
        print(f"| {name} | {free:.3f} | {busy:.3f} |", flush=True)


if __name__ == "__main__":
    main()
