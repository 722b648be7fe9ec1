"""The page: click points and watch the posterior, from a server on this machine or from one file without Python."""

from bnnp.app.export import export
from bnnp.app.gallery import Gallery

__all__ = ["Gallery", "export"]
