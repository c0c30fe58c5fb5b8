"""Races: gdbmem against the tool one would use by hand, in one run, as ratios."""
