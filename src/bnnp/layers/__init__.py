"""Layers whose weights are inferred, the inference networks, and networks of attention layers."""

from bnnp.layers.attention import AttentionNetwork
from bnnp.layers.encoder import PointEncoder, SetEncoder, side_by_side
from bnnp.layers.linear import AmortisedLinear
from bnnp.layers.transformer import Attention, AttentionBlock, StartToken

__all__ = [
    "AmortisedLinear",
    "Attention",
    "AttentionBlock",
    "AttentionNetwork",
    "PointEncoder",
    "SetEncoder",
    "StartToken",
    "side_by_side",
]
