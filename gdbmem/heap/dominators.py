"""Who dominates whom in a graph of blocks: without which holder a block would be unreachable.

The blocks are numbered in the order in which the search found them, 1 to m; 0 is above all roots. A dominator is found
before what it dominates, so t[w] < w, and two chains of dominators meet by always climbing from the larger number.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from gdbmem.arrays import import_numpy, index_type

_STEPS_PER_EDGE = 40  # of the vectors
_LOOKS_PER_EDGE = 8  # one at a time
_MANY = 64  # steps after which it is worth while to know where each chain ends
_THIN = 32  # edges whose chains are climbed one at a time if they are long
_ROUNDS = 6  # after which one edge in _OFTEN may be left to be inserted; one in _SELDOM at any time
_OFTEN, _SELDOM = 16, 1000
_AT_A_TIME = 1 << 14  # numbers
_DEEP = 128  # levels from which on one block at a time is faster
_LONG = 256  # blocks of lists that are summed up at once
_WIDE = 64  # blocks that get another dominator for each that has got one, to look for others in the same way


def dominators(tree: Any, sources: Any, targets: Any) -> Any:
    """Return for each block its dominator (int32), by the edges from *sources* to *targets*.

    *tree* has for each block the one from which the search came to it. It and the edges have numbers of blocks; edges
    that are those of the tree may be left out where a block has no others.
    """
    np = import_numpy()
    t = tree.copy()
    t[targets[sources == 0]] = 0
    several = np.zeros(len(t), bool)
    several[targets[t[targets] != sources]] = True
    several &= t > 0
    keep = several[targets] & (sources > 0)
    v, w = sources[keep], targets[keep]
    del several, keep
    most, rounds = _STEPS_PER_EDGE * (len(v) + 1000), 0
    while len(v):
        result, steps = _common(t, v, w, most)
        most, rounds = most - steps, rounds + 1
        changed = result < t[w]
        number = np.count_nonzero(changed)
        if not number:
            break
        is_known = result.min() >= 0
        if is_known and number * _SELDOM >= len(v) and (rounds <= _ROUNDS or number * _OFTEN >= len(v)):
            np.minimum.at(t, w[changed], result[changed])
        elif is_known and (further := _spread(t, v, w, result)) is not None:
            t = further
        else:
            names, up, v, w, known = _disagreeing(t, v, w, result)
            del result, changed
            if not _insert(up, v, w, known):
                up = semi_nca(*_by_source(v, w, len(up)))
            t[names] = names[up]
            break
        keep = t[w] > 0
        v, w = v[keep], w[keep]
    return t


def _common(t: Any, v: Any, w: Any, most: int) -> tuple[Any, int]:
    """Return the nearest common dominator of each v and t[w], and the steps taken.

    It is -1 for those that are still to be found after *most* steps, or where few are after many.
    """
    np = import_numpy()
    jump = t[t]
    jump = jump[jump]
    jump = jump[jump]
    x, y = v.copy(), t[w]
    active, result, work = np.arange(len(v), dtype=np.int32), np.full(len(v), -1, np.int32), 0
    steps = 0
    while len(active) and work < most and (steps < _MANY or len(active) > _THIN):
        work += len(active) + 200
        x, y = np.maximum(x, y), np.minimum(x, y)
        far = jump.take(x)  # eight at once where that stays at or above y, which bounds the answer
        x = np.where((far >= y) | (x == y), np.maximum(far, y), t.take(x))
        steps += 1
        if steps == _MANY:  # what hangs on one chain ends at its top, and what hangs on two above both
            top = highest(t)
            x, y = np.where(top[x] == top[y], x, 0), np.where(top[x] == top[y], y, 0)
            x = np.where(top[x] == y, y, x)
        done = x == y
        if done.any():
            result[active[done]] = x[done]
            active, x, y = active[~done], x[~done], y[~done]
    return result, work


def _spread(t: Any, v: Any, w: Any, result: Any) -> Any:
    """Return *t* after many rounds at once: blocks of a list get what those before them get; None: few would.

    A list is of blocks that one dominates, and of which each leads to the next one, as in hash tables.
    """
    np = import_numpy()
    found = t.copy()
    np.minimum.at(found, w, result)
    first = np.count_nonzero(found < t)
    of_list = np.flatnonzero(t[v] == t[w])
    names = np.zeros(len(t), bool)
    names[v[of_list]] = names[w[of_list]] = True
    short = np.cumsum(names, dtype=np.int32) - np.int32(1)
    names = np.flatnonzero(names)
    after = np.arange(len(names), dtype=np.int32)
    after[short[v[of_list]]] = short[w[of_list]]
    known, above = t[names], found[names]
    moved, before = 1, 0
    while moved > before:
        np.minimum.at(above, after, above)
        after = after[after]  # twice as far
        before, moved = moved, np.count_nonzero(above < known)
    found[names] = above
    return found if moved > _WIDE * first else None


def highest(t: Any) -> Any:
    """Return for each block its highest dominator, itself if it has none: just below what is above all; 0 for 0."""
    np = import_numpy()
    up = t.copy()
    tops = np.flatnonzero(t == 0)
    up[tops] = tops
    return chain_ends(up)


def chain_ends(up: Any) -> Any:
    """Put in *up*, which leads to smaller numbers, where the chain from each number ends: it leads there to itself.

    Steps are doubled within some numbers at a time, which fit into a processor's cache; what is before has its end.
    """
    np = import_numpy()
    for begin in range(0, len(up), _AT_A_TIME):
        here = up[begin : begin + _AT_A_TIME]
        # Lists: where each leads to the one before, all lead where the first of them does.
        place = np.arange(len(here), dtype=here.dtype)
        follows = here[1:] == place[1:] + (begin - 1)
        if _OFTEN * np.count_nonzero(follows) > len(here):
            place[1:][follows] = 0
            here[:] = here[np.maximum.accumulate(place)]
        while True:
            further = np.where(here >= begin, here.take(here - begin, mode="clip"), here)
            if (further == here).all():
                break
            here[:] = further
        here[:] = up[here]
    return up


def sums_above(t: Any, values: Any) -> Any:
    """Return for each number the sum of *values* from it to 0, by the chain of its dominators *t*."""
    np = import_numpy()
    sums = values.copy()
    for begin in range(1, len(sums), _AT_A_TIME):
        here, above = sums[begin : begin + _AT_A_TIME], t[begin : begin + _AT_A_TIME]
        while (inner := above >= begin).any():
            at = above - begin
            here += np.where(inner, here.take(at, mode="clip"), 0)
            above = np.where(inner, above.take(at, mode="clip"), above)
        here += sums[above]
    return sums


# What is left after some rounds, one block at a time: in lists, each round would move what is known by one block.


def _disagreeing(t: Any, v: Any, w: Any, result: Any) -> tuple[Any, Any, Any, Any, int]:
    """Return the edges from *v* to *w* that disagree with *t*, *result* being less than t[w], and what they may change.

    These are numbers of blocks, their dominators, and the edges between them: those of the dominators, those that
    agree, and behind so many the others. All but the first use positions in the first. What doesn't hang on the highest
    dominator of such an edge's target is left out, and blocks that only one holds and that hold nothing.
    """
    np = import_numpy()
    late = result < t[w]
    top = highest(t)
    is_in = np.zeros(len(t), bool)
    is_in[top[w[late]]] = True
    is_in = is_in[top]
    is_in[0] = True
    keep = is_in[w] & ((t[w] != v) | late)
    v, w, result, late = v[keep], w[keep], result[keep], late[keep]
    v[~is_in[v]] = 0  # the rest has only 0 in common with these
    is_held = np.zeros(len(t), bool)
    for column in (t, v, w):
        is_held[column] = True
    names = np.flatnonzero(is_held & is_in).astype(np.int32)
    short = top  # the same memory
    short[names] = np.arange(len(names), dtype=np.int32)
    up = short[t[names]]
    last = np.flatnonzero(late)
    last = last[np.argsort(result[last], kind="stable")]  # what goes up highest goes first
    v, w = short[v], short[w]
    v = np.concatenate((up[1:], v[~late], v[last]))
    w = np.concatenate((np.arange(1, len(up), dtype=np.int32), w[~late], w[last]))
    return names, up, v, w, len(v) - len(last)


def _by_source(sources: Any, targets: Any, count: int) -> tuple[Any, Any]:
    """Return where the edges of each of *count* blocks begin, and the targets of all, by their sources."""
    np = import_numpy()
    first = np.zeros(count + 1, index_type(len(targets)))
    np.cumsum(np.bincount(sources, minlength=count), out=first[1:])
    return first, targets[np.argsort(sources, kind="stable")]


def _least_above(t: Any, sources: Any, targets: Any) -> Any:
    """Return for each block the least dominator of what it, and what it dominates, leads to; itself if none is less."""
    np = import_numpy()
    least = np.arange(len(t), dtype=np.int32)
    np.minimum.at(least, sources, t[targets])
    lows, above = memoryview(least), memoryview(t)
    some = np.flatnonzero(least < t)
    for n in some[
        np.argsort(least[some], kind="stable")
    ].tolist():  # the least first: no block gets another one
        low, up = lows[n], above[n]
        while low < lows[up]:
            lows[up] = low
            up = above[up]
    return least


def _insert(t: Any, sources: Any, targets: Any, known: int) -> bool:
    """Make *t*, which agrees with the first *known* edges, agree with the others; False if that takes too many steps.

    Before and after each, t of an edge's target dominates its source.
    Source: Georgiadis, Italiano, Laura, Santaroni, An Experimental Study of Dynamic Dominators (DBS).
    """
    inserting = _Insertion(t, sources[:known], targets[:known])
    late = zip(sources[known:].tolist(), targets[known:].tolist())
    return all(inserting.add(source, target) for source, target in late)


class _Insertion:
    """Dominators that agree with some edges, to which others are added one at a time."""

    def __init__(self, t: Any, sources: Any, targets: Any) -> None:
        np = import_numpy()
        first, to = _by_source(sources, targets, len(t))
        leads_up = _least_above(t, sources, targets) < np.arange(len(t))
        self._up, self._first, self._to = memoryview(t), memoryview(first), memoryview(to)
        self._new: dict[int, list[int]] = {}  # edges that have been added, by their source
        # What leads to nothing that is dominated from above it, itself or by what it dominates, is passed over.
        self._leads_up = memoryview(leads_up.view(np.uint8))
        self._seen = memoryview(
            np.zeros(len(t), np.int32)
        )  # number of the addition that has last seen a block
        self._number = 0
        self._left = _LOOKS_PER_EDGE * (len(to) + 1000)  # steps

    def add(self, source: int, target: int) -> bool:
        """Add an edge; return whether steps are left for others."""
        up, old = self._up, self._up[target]
        common = self._common(old, source)
        for below in (old, source):
            while below > common:
                self._left -= 1
                self._leads_up[below] = 1
                below = up[below]
        self._new.setdefault(source, []).append(target)
        if old != common:
            self._number += 1
            up[target] = common
            self._raise_behind(target, old, common)
        return self._left > 0

    def _common(self, a: int, b: int) -> int:
        """Return the nearest common dominator."""
        up, left = self._up, self._left
        while a != b:
            left -= 1
            if a > b:
                a = up[a]
            else:
                b = up[b]
        self._left = left
        return a

    def _raise_behind(self, target: int, old: int, common: int) -> None:
        """Put below *common* what *target*, which was below *old*, brings with it.

        That is each block with an edge from below what has moved that was dominated from between. All dominators of a
        block have smaller numbers, so that comparing numbers is enough; the deepest are looked at first.
        """
        up, first, to, new = self._up, self._first, self._to, self._new
        seen, leads_up, number, left = self._seen, self._leads_up, self._number, self._left
        moved, levels = {old: [target]}, [-old]  # by what dominated them
        while levels and left > 0:
            same = moved[-levels[0]]
            block = same.pop()
            if not same:
                del moved[-heappop(levels)]
            todo = [block]
            while todo:
                v = todo.pop()
                found: Sequence[int] = to[first[v] : first[v + 1]]
                if v in new:
                    found = [*found, *new[v]]
                left -= len(found) + 1
                for w in found:
                    above = up[w]
                    if above <= common:
                        continue
                    if above >= block:
                        if leads_up[w] and seen[w] != number:
                            seen[w] = number
                            todo.append(w)
                        continue
                    up[w] = common
                    if above in moved:
                        moved[above].append(w)
                    else:
                        moved[above] = [w]
                        heappush(levels, -above)
        self._left = left


def semi_nca(first: Any, to: Any) -> Any:
    """Return the dominators of blocks 1…m reached from 0, by semidominators; edges of v are ``first[v:v+2]`` of *to*.

    Source: Lengauer and Tarjan, A Fast Algorithm for Finding Dominators in a Flowgraph; nothing recursive.
    """
    np = import_numpy()
    count = len(first) - 1
    order, up = _depth_first(memoryview(first), memoryview(to), count)
    number = np.full(count, -1, np.int32)
    vertex = np.array(order, np.int32)
    number[vertex] = np.arange(len(vertex), dtype=np.int32)
    source = np.repeat(number, np.diff(first))
    target = number[to]
    there = source >= 0
    source, target = source[there], target[there]
    by = np.argsort(target, kind="stable")
    source, target = source[by], target[by]
    begins = memoryview(np.searchsorted(target, np.arange(len(vertex) + 1)))
    # A block with one holder needs no search.
    several = np.zeros(len(vertex), bool)
    several[target[source != np.asarray(up, np.int32)[target]]] = True
    several[0] = False
    up = _by_semidominators(several, up, begins, memoryview(np.ascontiguousarray(source)))
    t = np.zeros(count, np.int32)
    t[vertex] = vertex[np.array(up, np.int32)]
    return t


def _depth_first(first: Any, to: Any, count: int) -> tuple[list[int], list[int]]:
    """Return the blocks in the order of a depth-first search from 0, and for each the place of its parent in it."""
    place = [-1] * count
    place[0] = 0
    order, up, stack = [0], [0], [(0, first[0])]
    while stack:
        v, at = stack.pop()
        end = first[v + 1]
        while at < end:
            u = to[at]
            at += 1
            if place[u] < 0:
                place[u] = len(order)
                order.append(u)
                up.append(place[v])
                stack.append((v, at))
                stack.append((u, first[u]))
                break
    return order, up


def _by_semidominators(several: Any, up: list[int], begins: Any, holders: Any) -> list[int]:
    """Return the dominators of numbers of a depth-first search; of those without *several* holders they are in *up*."""
    np = import_numpy()
    anc, semi, label, found = list(up), list(up), list(range(len(up))), list(up)
    waiting: dict[int, list[int]] = {}  # blocks by their semidominators
    is_todo = memoryview(several.view(np.uint8))
    for w in range(len(up) - 1, -1, -1):
        for v in waiting.pop(w, ()):
            if anc[v] > w:
                _compress(v, w, anc, semi, label)
            low = label[v]
            found[v] = low if semi[low] < w else w
        if not is_todo[w]:
            continue
        best = up[w]
        for v in holders[begins[w] : begins[w + 1]]:
            if v > w:
                if anc[v] > w:
                    _compress(v, w, anc, semi, label)
                v = semi[label[v]]
            if v < best:
                best = v
        semi[w] = best
        waiting.setdefault(best, []).append(w)
    for w in np.flatnonzero(several).tolist():
        if found[w] != semi[w]:
            found[w] = found[found[w]]
    return found


def _compress(v: int, w: int, anc: list[int], semi: list[int], label: list[int]) -> None:
    """Let v and all above it lead to the last one above w, with the least semidominator between in its label."""
    path = []
    while anc[v] > w:
        path.append(v)
        v = anc[v]
    low, top = label[v], anc[v]
    while path:
        y = path.pop()
        anc[y] = top
        if semi[low] < semi[label[y]]:
            label[y] = low
        else:
            low = label[y]


def retain(t: Any, *columns: Any) -> None:
    """Add to the value of each block in *columns* those of all that it dominates.

    Some numbers at a time, from the last one on: what dominates them is among them, or before.
    """
    for begin in range((len(t) - 1) // _AT_A_TIME * _AT_A_TIME, -1, -_AT_A_TIME):
        _add_up(t, max(begin, 1), min(begin + _AT_A_TIME, len(t)), columns)


def _add_up(t: Any, begin: int, end: int, columns: Sequence[Any]) -> None:
    """Add the sums of the blocks from *begin* to *end*, whose own are complete but for these, to their dominators'."""
    np = import_numpy()
    above = t[begin:end]
    rows = np.arange(begin, end, dtype=np.int32)
    of_lists = np.count_nonzero(above == rows - 1)
    level = _levels(above, begin) if of_lists * 16 < len(rows) * 15 else None
    deepest = int(level.max()) if level is not None and len(level) else 0
    if level is None or deepest > _DEEP:
        _bottom_up(t, begin, end, columns)
        return
    if deepest:
        by = np.argsort(level, kind="stable")
        rows, above, level = rows[by], above[by], level[by]
    edge = np.searchsorted(level, np.arange(deepest + 2)).tolist()
    for number in range(deepest, -1, -1):
        here = slice(edge[number], edge[number + 1])
        for column in columns:
            np.add.at(column, above[here], column[rows[here]])


def _levels(above: Any, begin: int) -> Any:
    """Return how many of the dominators of each number from *begin* on are among these; *above* are the nearest."""
    np = import_numpy()
    level = np.zeros(len(above), np.int32)
    inner = above >= begin
    if inner.any():
        level += inner
        while inner.any():
            at = above - begin
            level += np.where(inner, level.take(at, mode="clip"), 0)
            above = np.where(inner, above.take(at, mode="clip"), above)
            inner = above >= begin
    return level


def _bottom_up(t: Any, begin: int, end: int, sums: Sequence[Any]) -> None:
    """Do the same for deep trees: lists at once, as far as all their blocks are as far from their dominators."""
    np = import_numpy()
    if begin == end:
        return
    views = [memoryview(column) for column in sums]
    step = np.arange(begin, end, dtype=np.int32) - t[begin:end]
    bounds = np.concatenate(([0], np.flatnonzero(step[1:] != step[:-1]) + 1, [len(step)]))
    is_long = bounds[1:] - bounds[:-1] >= np.maximum(_LONG, 4 * step[bounds[:-1]])
    for number in np.flatnonzero(is_long)[::-1].tolist():
        low, high = (begin + bounds[number : number + 2]).tolist()
        _one_by_one(t, views, high, end)
        _in_steps(sums, low, high, int(step[low - begin]))
        end = low
    _one_by_one(t, views, begin, end)


def _one_by_one(t: Any, sums: Sequence[Any], begin: int, end: int) -> None:
    """Add the sums of the blocks from *begin* to *end* to those of their dominators."""
    above = t[begin:end].tolist()
    for w in range(end - 1, begin - 1, -1):
        for column in sums:
            column[above[w - begin]] += column[w]


def _in_steps(sums: Sequence[Any], begin: int, end: int, step: int) -> None:
    """Do the same where each dominator is *step* before."""
    np = import_numpy()
    for column in sums:
        for last in range(end - 1, max(end - 1 - step, begin - 1), -1):
            # From the last one up, to the dominator of the first one.
            chain = column[last : begin - step - 1 if begin - step > 0 else None : -step]
            np.cumsum(chain, out=chain)
