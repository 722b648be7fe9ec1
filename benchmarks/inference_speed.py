"""How long the paper's inference takes for its 16 sawtooth data sets at once (section 4.3): network 1 - 48 - 48 - 1.

python benchmarks/inference_speed.py hmc     # 5,000 proposals of 100 leapfrog steps, in the weights themselves
python benchmarks/inference_speed.py mfvi    # 75,000 steps, 8 samples each
python benchmarks/inference_speed.py gradient   # one gradient of all 16, beside autograd's
"""

import argparse
import time
from dataclasses import replace

import numpy as np
import torch

import bnnp
from bnnp.inference import HMC, NUTS, Effort, Target, infer_many
from bnnp.inference.gradient import by_autograd

METHODS = {
    "hmc": (HMC(5e-4, 100, adapts=False), Effort(chains=1, warmup=500, thin=50), 90),
    "mfvi": ("mfvi", Effort(steps=75_000), 1000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*METHODS, "gradient", "mixing"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's steps, for a quick look")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    model = bnnp.BNNP(1, 1, (48, 48), "relu")
    sets = [split.context for split in bnnp.tasks.sawtooth_tests().splits]
    likelihood = bnnp.Gaussian(0.05)
    if chosen.what == "gradient":
        gradient(model, sets, likelihood)
        return
    if chosen.what == "mixing":
        mixing(sets[:4], likelihood)
        return
    method, effort, samples = METHODS[chosen.what]
    share = chosen.share
    if effort.steps is None:
        effort, samples = replace(effort, warmup=round(share * effort.warmup)), max(1, round(share * samples))
    else:
        effort = replace(effort, steps=round(share * effort.steps))
    start, cpu = time.perf_counter(), time.process_time()
    infer_many(
        model.prior,
        model.network,
        sets,
        method=method,
        likelihood=likelihood,
        num_samples=samples,
        effort=effort,
        whitened=False,
        progress=True,
    )
    print(
        f"{chosen.what}: {time.perf_counter() - start:.0f} s, {time.process_time() - cpu:.0f} s of processor time, "
        f"{len(sets)} data sets, {chosen.threads} threads, {share:g} of the steps"
    )


def gradient(model: bnnp.BNNP, sets: list, likelihood: bnnp.Gaussian) -> None:
    for whitened in (True, False):
        target = Target.of(model.prior, model.network, sets, likelihood, whitened)
        position = target.draw_prior(1, torch.Generator().manual_seed(0))
        ways = {
            "by hand": lambda t=target, p=position: t.value_and_gradient(p),
            "autograd": lambda t=target, p=position: by_autograd(t.log_density, p),
        }
        times = {name: [] for name in ways}
        for _ in range(30):
            for name, way in ways.items():
                start = time.perf_counter()
                for _ in range(20):
                    way()
                times[name].append((time.perf_counter() - start) / 20)
        kind = "whitened" if whitened else "weights"
        print(kind, ", ".join(f"{name} {1e3 * np.median(values):.2f} ms" for name, values in times.items()))


def mixing(sets: list, likelihood: bnnp.Gaussian) -> None:
    model = bnnp.load("zoo:sawtooth")
    for method, warmup in ((HMC(), 300), (NUTS(max_doublings=6), 150)):
        start = time.process_time()
        posts = infer_many(
            model.prior,
            model.network,
            sets,
            method=method,
            likelihood=likelihood,
            num_samples=400,
            effort=Effort(warmup=warmup),
        )
        found = [post.diagnostics for post in posts]
        print(
            f"{type(method).__name__}: R-hat {[round(d.rhat or np.nan, 2) for d in found]}, effective draws of 400 "
            f"{[round(d.ess or 0) for d in found]}, {time.process_time() - start:.0f} s of processor time"
        )


if __name__ == "__main__":
    main()
