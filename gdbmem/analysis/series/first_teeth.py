"""Growth that only repeats what was lost again at once before: the first teeth of a sawtooth look like a trend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from gdbmem.analysis.series.fitted import FittedLine
from gdbmem.analysis.series.regimes import Stretch
from gdbmem.records import dataclass

_ALIKE = 0.5  # of the slope before the fall, and its inverse: within these it rises as it did
_GONE = 0.5  # of the rise before the fall: a smaller fall leaves growth
_OUTLASTS = 1.3  # times the rise before the fall: what has risen by more is not another tooth


@dataclass(frozen=True)
class Repeated:
    """A rise like the one before the last fall."""

    fall_bytes: float
    needs_seconds: float  # until it has outlasted the rise before


def repeated_rise(stretches: Sequence[Stretch], line: FittedLine) -> Optional[Repeated]:
    """Tell whether *line*, the end of *stretches*, repeats the rise before the last fall; None if not."""
    if len(stretches) < 2 or line.robust <= 0:
        return None
    fall, number = -stretches[-1].jump, len(stretches) - 2
    if stretches[number].slope < 0 and number:  # it fell within more than a moment
        fall += -stretches[number].change - stretches[number].jump
        number -= 1
    before = stretches[number]
    alike = _ALIKE * before.slope <= line.robust <= before.slope / _ALIKE
    if not alike or fall < _GONE * before.change or line.change > _OUTLASTS * before.change:
        return None
    return Repeated(fall, _OUTLASTS * before.change / line.robust - line.span)
