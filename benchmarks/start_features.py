"""How well the features of an untrained network can show a sawtooth, for each start of the prior.

    python benchmarks/start_features.py

Ridge regression of the teeth on the last hidden layer of the prior's mean network, with the variance that the start
gives to the last layer and noise 0.15 on 300 points: mean absolute error, lower is better. Predicting 0 has about 0.25.
"""

import torch

import bnnp
from bnnp.networks.base import features_of_layer

POINTS, NOISE = 300, 0.15


def fit_error(activation: str, start: str) -> float:
    source = bnnp.tasks.sawtooth()
    generator = torch.Generator().manual_seed(0)
    x = source.low + (source.high - source.low) * torch.rand(3000, 1, generator=generator)
    model = bnnp.BNNP(1, 1, (48, 48), activation)
    if start == "spread":
        bnnp.starts.Spread().set(model.prior, bnnp.starts.Examples([x], [], torch.tensor([0.4])), generator)
        weights = [model.prior.from_units(i, model.prior.layer(i, []).mean)[0, 0] for i in range(2)]
    else:
        weights = [w[0] for w in model.prior.sample(1, seed=0)[:2]]
    with torch.no_grad():
        phi = features_of_layer(model.network.program(x), weights).double()
    variance = (0.4 / phi.square().sum(-1).mean().sqrt()).square()
    teeth = source.teeth(x).double()
    gram = phi.T @ phi * POINTS / len(phi) / NOISE**2 + torch.eye(phi.shape[1]).double() / variance
    solution = torch.linalg.solve(gram, phi.T @ teeth * POINTS / len(phi) / NOISE**2)
    return float((phi @ solution - teeth).abs().mean())


def main() -> None:
    print("| start | relu | tanh | silu |\n|---|---|---|---|")
    for start in ("standard", "spread"):
        print(f"| {start} |" + "|".join(f" {fit_error(a, start):.3f} " for a in ("relu", "tanh", "silu")) + "|")


if __name__ == "__main__":
    main()
