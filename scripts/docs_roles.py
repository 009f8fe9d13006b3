"""Shows references in docstrings, written as ``:class:`readie.Call```, as code in the API pages."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites each docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Leave the name alone in code marks; of ``text <name>`` the text."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(lambda role: f"`{role[1].partition('<')[0].strip()}`", obj.docstring.value)
