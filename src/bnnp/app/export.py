"""The page as one file that needs no server: the model is in it, and the browser conditions."""

from bnnp.app.gallery import Gallery


def export(gallery: Gallery) -> str:
    """The page of a gallery, as one HTML file."""
    raise NotImplementedError
