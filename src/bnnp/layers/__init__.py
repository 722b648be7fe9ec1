"""Layers whose weights are inferred."""

from bnnp.layers.linear import AmortisedLinear

__all__ = ["AmortisedLinear"]
