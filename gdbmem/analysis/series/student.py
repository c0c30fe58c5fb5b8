"""Student's distribution, with the accuracy needed for a few runs. Pure Python."""

from __future__ import annotations

import math

_STEPS = 200
_PRECISE = 1e-12


def chance_of(t: float, dof: float) -> float:
    """Return the two-sided probability of a value at least as far from 0 as *t*, with *dof* degrees of freedom."""
    return _incomplete_beta(dof / (dof + t * t), dof / 2, 0.5)


def critical(chance: float, dof: float) -> float:
    """Return the t that is exceeded, in either direction, with the probability *chance*."""
    low, high = 0.0, 1.0
    while chance_of(high, dof) > chance and high < 1e9:
        high *= 2
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of(middle, dof) > chance else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function. Source: Abramowitz and Stegun 26.5.8, by Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _STEPS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = 1 + term / c, 1 / (1 + term * d)
            fraction *= c * d
        if abs(c * d - 1) < _PRECISE:
            break
    return front * fraction / a
