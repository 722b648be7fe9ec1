"""Layers whose weights are inferred, the inference networks, and the network of attention layers."""

from bnnp.layers.attention import AttentionNetwork
from bnnp.layers.encoder import PointEncoder, SetEncoder
from bnnp.layers.linear import AmortisedLinear

__all__ = ["AmortisedLinear", "AttentionNetwork", "PointEncoder", "SetEncoder"]
