"""Inference networks: from the points of a context to pseudo-observations of a layer."""

from bnnp.inference_nets.attentive import SetEncoder
from bnnp.inference_nets.base import Encoder, Encoders
from bnnp.inference_nets.choices import Attentive, Pointwise
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.inference_nets.pseudo import AmortisedLinear

__all__ = ["AmortisedLinear", "Attentive", "Encoder", "Encoders", "PointEncoder", "Pointwise", "SetEncoder"]
