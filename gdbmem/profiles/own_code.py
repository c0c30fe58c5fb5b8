"""Frames: whether they are the user's own code, installed code or an allocation wrapper; the names of their sites.

The rules are data: INSTALLED_RULES for folders, `find_wrappers` and is_wrapper_name() for functions that only allocate.
`--mine REGEX` overrules them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Optional, TypeVar, Union

from gdbmem.model.calltree import LATER, Frame, Frames, lines_of
from gdbmem.text import plain_strings, printable

if TYPE_CHECKING:
    from gdbmem.formats.stacks import Stack
    from gdbmem.profiles.ranking import Row


# Strings here are compiled when they are first needed: most profiles need few of them.
# Folders that occur only in the sources of a C++ standard library, a compiler or a libc.
_LIBRARY_PATH = (
    r"/include/(?:[\w.-]+/)?(?:c\+\+/(?:\d|v1/)|g\+\+-v\d)|/libstdc\+\+-v3/|/libcxx(?:abi)?/(?:include|src)/|/glibc-\d"
    r"|(?:^|/)vg_replace_malloc\.c$"
)
# Distributions build glibc in a relative folder: libio/./libio/fileops.c, ./csu/../sysdeps/nptl/….h,
# csu/../sysdeps/nptl/….h, elf/./dl-map-segments.h, elf/../include/rtld-malloc.h
_GLIBC_FOLDER = (
    r"(?:argp|csu|debug|dirent|dlfcn|elf|gmon|grp|iconv|inet|intl|io|libio|locale|login|malloc|math|misc|nptl|nss"
    r"|posix|pwd|resolv|rt|setjmp|signal|socket|stdio-common|stdlib|string|sunrpc|sysdeps|termios|time|wcsmbs|wctype)"
)
_LIBC_PATH = (
    rf"(?:[\w-]+/)?\./(?:\w[\w-]*/)?(?:\.\./)?{_GLIBC_FOLDER}/"
    rf"|{_GLIBC_FOLDER}/(?:\.\./(?:{_GLIBC_FOLDER}|include)/|\./[\w.-]+$)"
)
# Base names that only libstdc++, libc++ and glibc use.
_LIBRARY_NAMES = frozenset(
    """new_allocator.h malloc_allocator.h alloc_traits.h allocated_ptr.h hashtable_policy.h shared_ptr_base.h
    shared_ptr_atomic.h basic_string.h char_traits.h ext_alloc_traits.h std_function.h std_thread.h node_handle.h
    allocate_at_least.h uses_allocator.h uses_allocator_args.h vector.tcc deque.tcc list.tcc basic_string.tcc
    sstream.tcc fstream.tcc locale_classes.tcc forward_list.tcc eh_alloc.cc vg_replace_malloc.c rtld-malloc.h
    dl-map-segments.h libc_start_call_main.h libioP.h clone.S clone3.S rtld.c libc-start.c mmap64.c ioputs.c iogets.c
    iogetdelim.c iogetline.c iopopen.c iosetvbuf.c iosetbuffer.c filedoalloc.c wfiledoalloc.c fileops.c nss_module.c
    nss_action.c nss_action_parse.c nss_database.c nss_hash.c nss_readline.c getXXbyYY.c getXXbyYY_r.c wfileops.c
    genops.c wgenops.c memstream.c wmemstream.c allocatestack.c pthread_create.c setlocale.c loadlocale.c
    loadarchive.c findlocale.c l10nflist.c explodename.c bindtextdom.c textdomain.c tzfile.c tzset.c localealias.c
    loadmsgcat.c dcigettext.c""".split()  # noqa: SIM905  (seventy lines less)
)
_LIBRARY_NAME = (
    r"(?:stl|uninitialized)_\w+\.h|regex\w*\.tcc|new_op\w*\.cc|(?:dl-[\w-]+|iov\w*(?:printf|scanf)|nss_files_\w+"
    r"|iof(?:dopen|(?:open|write|read|puts|gets|close|flush)(?:64|_u)?))\.c"
)
# Base names that a user's project may also have: the name of the function decides.
_SHARED_NAME = (
    r"(?:allocator|hashtable|shared_ptr|unique_ptr|unordered_map|unordered_set|move|atomic_base|forward_list"
    r"|sstream|invoke|construct_at|split_buffer)\.h|\w+"
)
_RESERVED_FUNCTION = r"_[A-Z_]|(?:de)?allocate\b"
_ALLOCATOR = re.compile(
    r"(?:(?:__libc_|__interceptor_|je_|tc_|mi_|rpl_)?(?:malloc|calloc|realloc|reallocarray|memalign|aligned_alloc"
    r"|posix_memalign|valloc|pvalloc|strdup|strndup|wcsdup|vasprintf|asprintf|free|cfree)"
    r"|g_(?:try_)?(?:malloc|realloc|calloc)(?:0|_n|0_n)?|g_slice_(?:alloc|alloc0|copy)|g_aligned_alloc0?"
    r"|_?Py(?:Mem|Object)_(?:Raw)?(?:Malloc|Calloc|Realloc)|_PyMem_\w+|_Znwm|_Znam|__rust_\w*alloc\w*|__rdl_\w+"
    r"|__cxa_allocate_exception)(?:@.*)?(?:\(.*)?|operator new\b.*",
    re.DOTALL,
)
# Functions that run before main and before a thread's function, or request pages from the kernel.
_SYSTEM = re.compile(
    r"(?:\(below main\)|_start|__libc_start_\w+|_dl_\w+|(?:__)?(?:mmap(?:64)?|mremap|s?brk)|sysmalloc\w*"
    r"|_int_(?:malloc|realloc|memalign|free|new_arena)|tcache_init|arena_get2|alloc_new_heap|__\w+_morecore)"
    r"(?:\.\w+)*(?:@.*)?"
)
_LIBRARY_OBJECT = (
    r"(?:.*/)?(?:(?:libstdc\+\+|libc\+\+|libc\+\+abi|libc|libpthread|libm|libdl|librt|libgcc_s|libjemalloc"
    r"|libtcmalloc\w*|libmimalloc\w*)(?:-\d[\d.]*)?\.so(?:\.[\d.]+)?"
    r"|ld(?:-[\w.-]+)?\.so(?:\.[\d.]+)?|ld-(?:musl|linux)[\w.-]*|vgpreload_[\w.-]+)"
)
_STANDARD_SPACES = ("std::", "__gnu_cxx::", "__cxxabiv1::", "boost::container::allocator")
# Brackets nest; those in an operator's own name do not count, nor does the space in "operator bool".
# Nor does one before the qualifiers of an enclosing function: "A::f() const::{lambda()#1}".
_TOKENS = re.compile(
    r"operator(?:\(\)|\[\]|[^\w\s()\[]{1,3}\s?(?=[<(])|\s[^(<]+)"
    r"|\s(?:const|volatile|noexcept|&&?)(?=::|\s)|[<>(){} ]"
)
_FORTRAN = r"(?i)__([a-z]\w*?)_MOD_([a-z]\w*)"
_LENGTH = re.compile(r"[1-9][0-9]{0,3}")
_TEMPLATE = re.compile(r"__[TU]([1-9][0-9]{0,3})")
_CLONE = re.compile(r"(?:\s\[[^\]]*\]|@+[\w.]+)+$")
_QUALIFIERS = re.compile(r"(?<=\))(?:\s*(?:const|volatile|noexcept|&&?))+$")


@lru_cache(maxsize=1 << 14)
def is_library(frame: Frame) -> bool:
    """Return whether *frame* belongs to the allocator, the C++ standard library, libc or the loader.

    A frame without a name is the user's if its program or library is.

    A file with its folder decides alone; a bare file name, as in captures of other tools, decides only if it can't be
    a user's. An unknown frame counts as library, because it can't be edited.
    """
    function, file = frame.function, frame.file
    if function is not None and (_ALLOCATOR.fullmatch(function) or _SYSTEM.fullmatch(function)):
        return True
    if frame.object is not None and re.fullmatch(_LIBRARY_OBJECT, frame.object):
        return True
    if file is None:
        return frame.object is None if function is None or frame.is_nameless else _is_standard(function)
    if "/" in file:
        # "./" first: compiling the pattern takes 1.4 ms, and most files have no such folder.
        is_libc = "./" in file and re.match(_LIBC_PATH, file) is not None
        return is_libc or re.search(_LIBRARY_PATH, file) is not None
    if file in _LIBRARY_NAMES or re.fullmatch(_LIBRARY_NAME, file):
        return True
    if function is None:
        return False
    if _is_standard(function):
        return True
    return re.match(_RESERVED_FUNCTION, function) is not None and re.fullmatch(_SHARED_NAME, file) is not None


def source_name(symbol: str) -> str:
    """Return the name in the source of a linker's *symbol* of D or Fortran; "" for others.

    ``_D3app4loadFiZv`` is app.load; gfortran's ``__grid_MOD_refine`` is grid::refine, as gdb writes it.
    """
    module = re.fullmatch(_FORTRAN, symbol)
    if module is not None:
        return f"{module[1]}::{module[2]}"
    names, at = [], 2
    while symbol.startswith("_D") and (length := _LENGTH.match(symbol, at)):
        at = length.end() + int(length[0])
        name = symbol[length.end() : at]
        template = _TEMPLATE.match(name)
        if template is not None:  # an instance, with its arguments
            name = f"{name[template.end() : template.end() + int(template[1])]}!"
        names.append(name)
    template = _TEMPLATE.match(symbol, at) if names else None
    if template is not None:  # newer compilers give an instance no length of its own
        names.append(f"{symbol[template.end() : template.end() + int(template[1])]}!")
    return ".".join(names) if len(names) > 1 and all(names) and at < len(symbol) else ""


def is_allocator(function: str) -> bool:
    """Return whether *function* is malloc, operator new or another allocation function."""
    return _ALLOCATOR.fullmatch(function) is not None


def qualified_name(function: str) -> str:
    """Return *function* without its return type and parameters: ``std::vector<int>::push_back``.

    Only template instantiations carry a return type: ``void f<int>(int)``. Names that valgrind leaves as linkers have
    them, of D and Fortran, become those of the source.
    """
    if function[:1] == "_" and (function.startswith("_D") or "_MOD_" in function):
        return source_name(function) or function
    text = _QUALIFIERS.sub("", _CLONE.sub("", function))
    depth, start, parameters = 0, 0, len(text)
    for token in _TOKENS.finditer(text):
        symbol = token.group()
        if symbol in "<({":
            if depth == 0 and symbol == "(":
                parameters = token.start()
            depth += 1
        elif symbol in ">)}":
            depth = max(depth - 1, 0)
        elif symbol == " " and depth == 0:
            start = token.end()
    if parameters == start or (parameters == len(text) and "<" not in text):
        # "f (module)", "-[Buffer grow by]": spaces that do not separate parts of a C++ name.
        return text or function
    name = text[start:parameters] if text.endswith(")") and parameters > start else text[start:]
    return name or function


def _is_standard(function: str) -> bool:
    if "std::" not in function and "__gnu_cxx::" not in function and "__cxxabiv1::" not in function:
        return False
    return qualified_name(function).startswith(_STANDARD_SPACES)


# Rank of a frame as the user's own frame of its path; the first with the highest rank is chosen. NOBODY: no frame.
NOBODY, OTHER, NAMELESS, WRAPPER, INSTALLED, OWN = range(6)


class Rule(NamedTuple):
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
        r"|(?:.*/Python-3[\w.]*/(?:\./)?|\./)?(?:(?:Objects|Python|Include)/(?:\w+/)*[\w-]+"
        r"|Modules/(?:clinic/)?(?:\w*module|main|config|faulthandler|getpath|_\w+(?:/\w+)*)"
        r"|Parser/(?:action_helpers|pegen\w*|peg_api|string_parser)|Programs/_?python)(?:\.c)?\.[ch]"
        r"|.*/Python-3[\w.]*/(?:Parser|Modules|Programs)/(?:\w+/)*\w+\.[ch]",
        object=r".*/bin/python3[.\d]*|.*/libpython3[.\w]*\.so[.\d]*|interpreter$",
    ),
    Rule("node_modules", file=r".*/node_modules/|node:"),
    Rule(
        "system folders without sources",
        object=r"/(?:usr/(?:local/)?)?(?:s?bin|lib(?:32|64|x32|exec)?)/|.*/(?:site|dist)-packages/|.*/python3[.\d]*/lib-dynload/",
    ),
)
_RUST = next(rule for rule in INSTALLED_RULES if rule.name.startswith("Rust"))
_OF_RUST = r"(?:<&?(?:mut )?|\(|\[)*(?:alloc|core|std|hashbrown|proc_macro|test)::"
# Functions with an allocator's name allocate for their callers: Perl_safesysmalloc, xcalloc, av_mallocz; and those of
# programs that have allocators of their own: palloc of PostgreSQL, nginx and APR, PostgreSQL's memory contexts, ggc of
# GCC, talloc of Samba, emalloc of PHP.
_WRAPPER_NAME = re.compile(
    r"(?:.*::)?(?:\w*(?:malloc|calloc|realloc|memalign|strn?dup)_?(?:z|0|n|nn|raw|rawnn|array|zero|zeroed)?"
    r"|(?:\w*_)?(?:re)?pn?alloc(?:0|_(?:large|block|extended|aligned|huge))?"
    r"|MemoryContext(?:Alloc(?:Zero|Aligned|Extended|Huge|ZeroAligned)?|Create|Realloc)"
    r"|(?:AllocSet|Generation|Slab|Bump)(?:Alloc(?:From\w+|Chunk\w+|Setup\w+|Large)?|Realloc|ContextCreate\w*)"
    r"|ggc_(?:internal_)?(?:cleared_)?(?:vec_)?alloc\w*"
    r"|_*talloc(?:_(?:named|zero|array|size|pool|memdup)\w*)?|_(?:safe_)?emalloc\w*)",
    re.IGNORECASE,
)
# Copying and moving whole objects, which the compiler writes for most classes: the caller is the answer.
_COPY = re.compile(
    r"(?:.*::)?(?:operator=(?:\(.*)?"
    r"|(?P<name>\w+)(?:<.*>)?::(?P=name)\((?:[\w:]*::)?(?P=name)(?:<.*>)?(?: const)?&&?\))",
    re.DOTALL,
)


# In lower case: strings missing in all names that only the file or library classifies, that is most functions.
# Several, because one whose alternatives all begin with a letter, or alike, is searched for three times as fast.
_PECULIAR = (
    re.compile(
        r"(?:alloc|contextcreate|memalign|dup|free|printf|slice|mmap|remap|brk|arena|heap|start|py|_[a-z_]).*"
    ),
    re.compile(r"[^a-z0-9_\n].*"),
    re.compile(r"\n(?![a-z]).*"),
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
def _file_rules() -> list[tuple[re.Pattern[str], Rule]]:
    return [(re.compile(rule.file), rule) for rule in INSTALLED_RULES if rule.file]


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
        return _RUST if re.match(_OF_RUST, frame.function or "") else None
    if frame.file is not None:
        return next((rule for pattern, rule in _file_rules() if pattern.match(frame.file)), None)
    place, function = frame.object or "", frame.function or ""
    return next((rule for o, f, rule in _other_rules() if o.match(place) or f.match(function)), None)


def is_copy_name(function: str) -> bool:
    """Return whether *function* is an assignment of a class, or its copy or move constructor."""
    return _COPY.fullmatch(function) is not None


def is_wrapper_name(function: str) -> bool:
    """Return whether *function* has the name of an allocator with a prefix: ``xmalloc``."""
    return _WRAPPER_NAME.fullmatch(qualified_name(function)) is not None


# Allocation sites: their growth, and their names.


Key = TypeVar("Key")
SiteKey = tuple[Optional[str], Optional[str], Optional[int], Optional[str]]  # as Frame.key

_NAME_ROOM = 60
_OF_EVERY_PACKAGE = ("__init__.py", "__main__.py")
_OPERATOR = r"\boperator\b(?![^<]*::)"


def growing_site(before: Mapping[Key, int], after: Mapping[Key, int]) -> Optional[tuple[Key, int]]:
    """Return the key whose bytes grew most from *before* to *after*, and by how much; None: none grew."""
    best: Optional[tuple[Key, int]] = None
    for key, size_bytes in after.items():
        delta_bytes = size_bytes - before.get(key, 0)
        if delta_bytes > (best[1] if best else 0):
            best = (key, delta_bytes)
    return best


def stack_sites(stacks: Iterable[Stack], chains: Sequence[Sequence[Frame]]) -> dict[SiteKey, int]:
    """Return the bytes of each user site in *stacks*, whose numbers refer to *chains* of frames.

    The site of a stack is its own_frame().
    """
    found: dict[SiteKey, int] = {}
    for stack in stacks:
        frames = [frame for number in stack.frames for frame in chains[number]]
        site = frames[own_frame(frames)].key if frames else Frame().key
        found[site] = found.get(site, 0) + stack.bytes
    return found


def describe_site(site: Union[Frame, SiteKey]) -> str:
    """Return ``decoder.cpp:120 (Decoder::remember)``, or ``sqlite3Malloc (in libsqlite3.so)`` without a file.

    *site* is a frame or its key.
    """
    frame = site if isinstance(site, Frame) else Frame(*site)
    if frame.key == Frame().key:
        return "call sites that are not listed"
    name = function_name(frame, room=_NAME_ROOM)
    if frame.file is None:
        return f"{name} ({place_without_file(frame)})"
    if has_place_only(frame):
        return name
    file = printable(short_file(frame.file))
    in_brackets = name if name.startswith("(") and name.endswith(")") else f"({name})"  # "(below main)"
    return f"{file if frame.line is None else f'{file}:{frame.line}'} {in_brackets}"


def place_without_file(frame: Frame) -> str:
    """Return ``in libx.so`` for a frame that has no source file."""
    return f"in {printable(PurePosixPath(frame.object).name)}" if frame.object else "no source known"


def function_name(frame: Frame, *, room: int = 0, ellipsis: str = "…") -> str:
    """Return the name of *frame*'s function without parameters, in *room* columns if given.

    A frame with a place only, as in tracemalloc, is named by that.
    """
    if frame.function is None:
        if frame.file is None:
            return "???"
        file = printable(short_file(frame.file))
        return file if frame.line is None else f"{file}:{frame.line}"
    name = plain_strings(printable(qualified_name(frame.function)))
    if room and len(name) > room:
        name = _without_template_arguments(name, ellipsis)
    if room and len(name) > room:
        kept = max(room, 8) - 1
        # A name that could not be demangled begins with the function's name; others end with it.
        name = name[:kept] + ellipsis if name.startswith("_Z") else ellipsis + name[-kept:]
    return name


def has_place_only(frame: Frame) -> bool:
    """Return whether *frame* has a file and no function, as those of tracemalloc and the rows of tables."""
    return frame.function is None and frame.file is not None


def short_file(file: str) -> str:
    """Return the last part of *file*; with its folder for names that occur in every Python package."""
    parts = PurePosixPath(file).parts
    return str(PurePosixPath(*parts[-2 if parts and parts[-1] in _OF_EVERY_PACKAGE else -1 :]))


def _without_template_arguments(name: str, ellipsis: str) -> str:
    # The brackets in "operator<" are not a template's.
    operator = re.search(_OPERATOR, name)
    end = operator.start() if operator else len(name)
    depth, kept = 0, []
    for char in name[:end]:
        if char == "<":
            depth += 1
            if depth == 1:
                kept.append(f"<{ellipsis}>")
        elif char == ">":
            depth -= 1
        elif depth == 0:
            kept.append(char)
    return "".join(kept) + name[end:]


# Frames and numbers for text reports: short function names, places, deltas, shares.


class Places:
    """File names as short as they stay distinct: ``decoder.cpp:120``, or ``a/io.cpp:3`` beside ``b/io.cpp:3``."""

    def __init__(self, frames: Iterable[Optional[Frame]]) -> None:
        self._folders: dict[str, set[str]] = {}
        for frame in frames:
            if frame is not None and frame.file is not None:
                self._folders.setdefault(PurePosixPath(frame.file).name, set()).add(frame.file)

    def place(self, frame: Frame) -> str:
        """Return where *frame* is: ``file:line``, or ``in libx.so``."""
        if frame.file is None:
            return place_without_file(frame)
        name = printable(self._short(frame.file))
        return name if frame.line is None else f"{name}:{frame.line}"

    def _short(self, file: str) -> str:
        parts = PurePosixPath(file).parts
        others = [
            PurePosixPath(o).parts for o in self._folders.get(parts[-1] if parts else "", ()) if o != file
        ]
        for count in range(len(PurePosixPath(short_file(file)).parts), len(parts)):
            if all(other[-count:] != parts[-count:] for other in others):
                return str(PurePosixPath(*parts[-count:]))
        return file


def full_place(frame: Frame) -> str:
    """Return where *frame* is with the whole path of its file."""
    if frame.file is None:
        return f"in {printable(frame.object)}" if frame.object else "no source known"
    return printable(frame.file if frame.line is None else f"{frame.file}:{frame.line}")


def full_function(frame: Frame) -> str:
    """Return the function of *frame* with its parameters, as in its symbol."""
    return plain_strings(printable(frame.function or ("" if has_place_only(frame) else "???")))


def unlisted_site(row: Row) -> str:
    """Return the label for the place of *row* without a known frame."""
    if not row.is_pruned:
        return "no frame recorded"
    return (
        "call sites that the file leaves out" if row.is_cut else "call sites under the threshold, not listed"
    )


def unlisted_callers(row: Row) -> str:
    """Return the label for the unlisted callers of *row*'s last frame."""
    return "callers that the file leaves out" if row.is_cut else "callers under the threshold, not listed"


def outside_row(name: str) -> str:
    """Return the text of the row for memory in no call tree; *name* is that of an OutsideHeap."""
    return name if name == LATER else f"{name}, outside the heap"


def share(part: int, whole: int) -> str:
    """Return ``98 %`` or ``all``; 100 % and 0 % never result from rounding."""
    if part == whole:
        return "all"
    percent = 100 * part / whole
    if percent > 99:
        return "over 99 %"
    return f"{percent:.0f} %" if percent >= 1 else "under 1 %"
