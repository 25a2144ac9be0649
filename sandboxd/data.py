"""Where the data that ships with sandboxd lies; a module of its own so that it costs nothing."""

from __future__ import annotations

import os

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def data_folder(name: str) -> str:
    """The folder `profiles` or `vendor`: inside an installed wheel, else of the checkout."""
    installed = os.path.join(_PACKAGE, "_data", name)
    if os.path.isdir(installed):
        return installed
    return os.path.join(os.path.dirname(_PACKAGE), name)
