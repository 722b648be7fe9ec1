"""Networks as pure functions of their weights."""

from bnnp.networks.base import AnyNetwork
from bnnp.networks.perceptron import Network
from bnnp.networks.transformer import AttentionNetwork

__all__ = ["AnyNetwork", "AttentionNetwork", "Network"]
