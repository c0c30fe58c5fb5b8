"""Verdicts on memory over time: change points, trends, sawtooth, comparisons."""
