"""An extension of griffe: examples of docstrings are shown as code, not as quotations."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Docstrings say `Example:`; griffe takes only `Examples:` for code."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the heading in the docstring of an object.

        Args:
            obj: The object.
        """
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^(\s*)Example:$", r"\1Examples:", obj.docstring.value, flags=re.M)
