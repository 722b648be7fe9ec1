"""Two ways to do the same arithmetic: compiled loops for many small matrices, `torch.linalg` for the rest."""
