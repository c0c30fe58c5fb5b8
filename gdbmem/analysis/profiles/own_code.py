"""Classifying frames: the user's own code, installed code, or an allocation wrapper.

The rules are data: INSTALLED_RULES for folders, `find_wrappers` and is_wrapper_name() for functions that only allocate.
`--mine REGEX` overrules them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Optional

from gdbmem.analysis.profiles.library import is_library, qualified_name
from gdbmem.model.profiles.calltree import Frame, Frames, lines_of
from gdbmem.patterns import lazy_pattern
from gdbmem.records import dataclass

# Rank of a frame as the user's own frame of its path; the first with the highest rank is chosen. NOBODY: no frame.
NOBODY, OTHER, NAMELESS, WRAPPER, INSTALLED, OWN = range(6)


@dataclass(frozen=True)
class Rule:
    """Frames whose file, object or function matches belong to installed code."""

    name: str  # as in reports
    file: str = ""
    object: str = ""  # checked only if the file is unknown
    function: str = ""  # the same


INSTALLED_RULES: Sequence[Rule] = (
    Rule("/usr/include", file=r"/usr/(?:local/)?include/"),
    Rule("/usr/src", file=r"/usr/src/"),
    Rule(
        "Rust's library and crates",
        file=r"/rustc/|(?:.*/)?library/(?:alloc|core|std|proc_macro|panic_unwind)/src/|/rust/deps/"
        r"|.*/\.cargo/(?:registry|git)/|.*/rustlib/src/"
        # as dhat-rs shortens them
        r"|(?:alloc|core|std|hashbrown)/src/.*\.rs|[\w-]+-\d+\.\d+\.\d+[\w.+-]*/src/.*\.rs",
        function=r"<?(?:alloc|core)::(?:alloc|boxed|borrow|cell|collections|convert|fmt|hash|iter|mem|num|ops|option|ptr"
        r"|raw_vec|rc|result|slice|str|string|sync|vec)::|<&?(?:mut )?(?:alloc|core|std)::|std::(?:rt|sys|panicking)::",
    ),
    Rule(
        "Go's library and modules", file=r"/usr/(?:local/|lib/|share/)go[\w.-]*/(?:src|pkg)/|.*/go/pkg/mod/"
    ),
    Rule(
        "Python's library and packages",
        file=r".*/(?:site|dist)-packages/|(?:/.*)?/lib(?:64)?/python3(?:\.\d+)?/|<frozen "
        # CPython's own sources, which most builds name from their root
        r"|(?:.*/Python-3[\w.]*/(?:\./)?|\./)?(?:Objects/\w+|Python/\w+|Modules/(?:gcmodule|_\w+(?:/\w+)?)"
        r"|Include/(?:\w+/)?\w+)\.[ch]",
        object=r".*/bin/python3[.\d]*|.*/libpython3[.\w]*\.so[.\d]*|interpreter$",
    ),
    Rule("node_modules", file=r".*/node_modules/|node:"),
    Rule(
        "system folders without sources",
        object=r"/(?:usr/(?:local/)?)?(?:s?bin|lib(?:32|64|x32|exec)?)/|.*/(?:site|dist)-packages/|.*/python3[.\d]*/lib-dynload/",
    ),
)
_RUST = next(rule for rule in INSTALLED_RULES if rule.name.startswith("Rust"))
_OF_RUST = lazy_pattern(r"(?:<&?(?:mut )?|\(|\[)*(?:alloc|core|std|hashbrown|proc_macro|test)::")
_FILE_RULES = [(lazy_pattern(rule.file), rule) for rule in INSTALLED_RULES if rule.file]
# Functions with an allocator's name allocate for their callers: Perl_safesysmalloc, xcalloc, av_mallocz; and those of
# programs that have allocators of their own: palloc of PostgreSQL, nginx and APR, PostgreSQL's memory contexts, ggc of
# GCC, talloc of Samba, emalloc of PHP.
_WRAPPER_NAME = lazy_pattern(
    r"(?:.*::)?(?:\w*(?:malloc|calloc|realloc|memalign|strn?dup)_?(?:z|0|n|nn|raw|rawnn|array|zero|zeroed)?"
    r"|(?:\w*_)?(?:re)?pn?alloc(?:0|_(?:large|block|extended|aligned|huge))?"
    r"|MemoryContext(?:Alloc(?:Zero|Aligned|Extended|Huge|ZeroAligned)?|Create|Realloc)"
    r"|(?:AllocSet|Generation|Slab|Bump)(?:Alloc(?:From\w+|Chunk\w+|Setup\w+|Large)?|Realloc|ContextCreate\w*)"
    r"|ggc_(?:internal_)?(?:cleared_)?(?:vec_)?alloc\w*"
    r"|_*talloc(?:_(?:named|zero|array|size|pool|memdup)\w*)?|_(?:safe_)?emalloc\w*)",
    re.IGNORECASE,
)
# Copying and moving whole objects, which the compiler writes for most classes: the caller is the answer.
_COPY = lazy_pattern(
    r"(?:.*::)?(?:operator=(?:\(.*)?"
    r"|(?P<name>\w+)(?:<.*>)?::(?P=name)\((?:[\w:]*::)?(?P=name)(?:<.*>)?(?: const)?&&?\))",
    re.DOTALL,
)


# In lower case: strings missing in all names that only the file or library classifies, that is most functions.
# Several, because one whose alternatives all begin with a letter, or alike, is searched for three times as fast.
_PECULIAR = (
    lazy_pattern(
        r"(?:alloc|contextcreate|memalign|dup|free|printf|slice|mmap|remap|brk|arena|heap|start|py|_[a-z_]).*"
    ),
    lazy_pattern(r"[^a-z0-9_\n].*"),
    lazy_pattern(r"\n(?![a-z]).*"),
)


def own_ranks(frames: Frames) -> bytearray:
    """Return own_rank() of each of *frames*."""
    places = {*frames.files, *frames.objects}
    of_place = _RanksOfPlaces()
    if places == {None}:
        ranks = bytearray([of_place[None, None]]) * len(frames)
    else:
        ranks = bytearray(map(of_place.__getitem__, zip(frames.files, frames.objects)))
    for number in _peculiar(frames.functions):
        ranks[number] = own_rank(frames[number])
    return ranks


class _RanksOfPlaces(dict[tuple[Optional[str], Optional[str]], int]):
    """The rank of any function with a plain name in a file or, if that is unknown, an object."""

    def __missing__(self, place: tuple[Optional[str], Optional[str]]) -> int:
        self[place] = rank = own_rank(Frame("f", place[0], None, place[1]))
        return rank


def _peculiar(functions: Sequence[Optional[str]]) -> Iterable[int]:
    """Yield the numbers of the functions whose names count, and of those without one; some twice."""
    text = lines_of(functions).lower()
    if text.count("\n") != len(functions):  # a stranger's
        yield from range(len(functions))
        return
    for pattern in _PECULIAR:
        number, at = -1, 0
        for match in pattern.finditer(text):
            end = match.end()
            number += text.count("\n", at, end)
            at = end
            yield number


@lru_cache(maxsize=1 << 14)
def own_rank(frame: Frame) -> int:
    """Return the rank of *frame* as the user's own frame: OTHER, NAMELESS, WRAPPER, INSTALLED or OWN."""
    if is_library(frame):
        return OTHER
    if frame.is_nameless:
        return NAMELESS
    if frame.function is not None and (is_wrapper_name(frame.function) or is_copy_name(frame.function)):
        return WRAPPER
    return OWN if installed_rule(frame) is None else INSTALLED


def own_frame(frames: Sequence[Frame]) -> int:
    """Return the index of the user's own innermost frame of a path (allocation site first).

    The first of those with the highest rank; -1 for an empty path. `formats.valgrind.massif.read_sites` follows the
    same rule.
    """
    best, best_rank = -1, -1
    for index, frame in enumerate(frames):
        rank = own_rank(frame)
        if rank > best_rank:
            best, best_rank = index, rank
        if rank == OWN:
            break
    return best


@cache
def _other_rules() -> list[tuple[re.Pattern[str], re.Pattern[str], Rule]]:
    # Compiled when the first frame without a file is seen: 3 ms, which a small profile may not need.
    return [
        (re.compile(rule.object or "(?!)"), re.compile(rule.function or "(?!)"), rule)
        for rule in INSTALLED_RULES
        if rule.object or rule.function
    ]


def installed_rule(frame: Frame) -> Optional[Rule]:
    """Return the rule by which *frame* is installed code; None if it is the user's own."""
    if frame.file is not None and "/" not in frame.file and frame.file.endswith(".rs"):
        # massif without full paths: base names such as mod.rs are anybody's, the first part of a name is not.
        return _RUST if _OF_RUST.match(frame.function or "") else None
    if frame.file is not None:
        return next((rule for pattern, rule in _FILE_RULES if pattern.match(frame.file)), None)
    place, function = frame.object or "", frame.function or ""
    return next((rule for o, f, rule in _other_rules() if o.match(place) or f.match(function)), None)


def is_copy_name(function: str) -> bool:
    """Return whether *function* is an assignment of a class, or its copy or move constructor."""
    return _COPY.fullmatch(function) is not None


def is_wrapper_name(function: str) -> bool:
    """Return whether *function* has the name of an allocator with a prefix: ``xmalloc``."""
    return _WRAPPER_NAME.fullmatch(qualified_name(function)) is not None
