"""The own-code rules applied to a ranking's rows, and how to disable them."""

from __future__ import annotations

from collections.abc import Sequence

from gdbmem.analysis.profiles.own_code import installed_rule, is_copy_name
from gdbmem.analysis.profiles.query import Query, matches
from gdbmem.analysis.profiles.ranking import Ranking
from gdbmem.analysis.profiles.sites import function_name
from gdbmem.errors import Notice
from gdbmem.model.profiles.calltree import Frame
from gdbmem.model.profiles.diff import Diff
from gdbmem.text import plural, printable

_MOST_NAMED = 4


def applied_rules(ranking: Ranking) -> list[str]:
    """Return the names of the rules that matched frames inside the sites of *ranking*'s rows."""
    found = [installed_rule(frame) for frame in _passed(ranking) if not _is_wrapper(frame, ranking)]
    return list(dict.fromkeys(rule.name for rule in found if rule is not None))


def applied_wrappers(ranking: Ranking) -> list[str]:
    """Return the allocation wrappers and copying functions inside the sites of *ranking*'s rows."""
    return list(dict.fromkeys(function_name(f) for f in _passed(ranking) if _is_wrapper(f, ranking)))


def own_code_notices(ranking: Ranking) -> list[Notice]:
    """Return the notice on the rules that selected *ranking*'s places, if any applied."""
    rules, wrappers = applied_rules(ranking), applied_wrappers(ranking)
    if not rules and not wrappers:
        return []
    parts = [f"code in {_listed(rules)} is not your own"] if rules else []
    parts += (
        [f"{_listed(wrappers)} {'work' if len(wrappers) > 1 else 'works'} for the caller"] if wrappers else []
    )
    text = f"the callers are named because {' and '.join(parts)}"
    hint = "--mine REGEX makes frames your own, --mine . turns these rules off"
    return [Notice("own-code", f"{text}; {hint}")]


def unused_known(diff: Diff, query: Query) -> list[Notice]:
    """Return a notice if regexes of --known match no frame on either side."""
    unused = [one.pattern for one in query.known if not any(matches(one, frame) for frame in diff.frames)]
    if not unused:
        return []
    names = _listed([printable(pattern) for pattern in unused])
    return [Notice("known-unused", f"no frame matches {plural(len(unused), 'line')} of --known: {names}")]


def _passed(ranking: Ranking) -> list[Frame]:
    return [frame for row in ranking.rows for frame in row.passed]


def _is_wrapper(frame: Frame, ranking: Ranking) -> bool:
    return frame.function in ranking.wrappers or (frame.function is not None and is_copy_name(frame.function))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    shown = [*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
