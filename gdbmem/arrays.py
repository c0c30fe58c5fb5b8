"""numpy, if it is installed: gdb's own Python usually lacks it."""

from __future__ import annotations

import os
import sys
from typing import Any

_THREADS = "OPENBLAS_NUM_THREADS"


def import_numpy() -> Any:
    """Return numpy without starting the threads of its linear algebra library, which is unused; raises ImportError."""
    if "numpy" in sys.modules:
        import numpy as loaded  # slow to import

        return loaded
    given = os.environ.get(_THREADS)
    os.environ[_THREADS] = given or "1"
    try:
        import numpy  # slow to import
    finally:
        if given is None:
            del os.environ[_THREADS]
    return numpy


def distinct(values: Any) -> Any:
    """Return the values of a column of numpy in order, each once.

    numpy's unique() takes 20 times as long for a column that is almost in order, and imports numpy.ma.
    """
    np = import_numpy()
    ordered = np.sort(values, kind="stable")
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered
