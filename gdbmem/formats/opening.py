"""Open a heap profile of any format that is read, telling formats apart by what is in the file."""

from __future__ import annotations

import contextlib
import errno
import importlib
import mmap
import os
import re
import stat
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Optional, Union

from gdbmem.errors import InputError, Notice
from gdbmem.files import Data, location
from gdbmem.formats.addresses import Symbols
from gdbmem.formats.valgrind.massif import MassifProfile, read_massif
from gdbmem.model.calltree import Profile, Stretch, no_block_sizes, no_threads
from gdbmem.text import format_size, printable

if TYPE_CHECKING:
    from gdbmem.formats.stacks import StackProfile  # of every format but massif's

# Smaller files are read whole: they are then not affected if the file is rewritten.
_MAPPED_FROM_BYTES = 16 << 20
# The largest unpacked size, and the largest file that is read whole. A bomb of some MiB would fill any disk.
_LIMIT_BYTES = 1 << 30
_HELD_BYTES = 64 << 20  # more than that is unpacked to a file
_STEP_BYTES = 1 << 20
_UNWRAPPED_BYTES = 64 << 20  # a larger text is not looked for in logs and chats

ENDS_EARLY = "compressed-file-truncated"
_GZIP = b"\x1f\x8b"
_BZIP2 = b"BZh"
_ZSTD = b"\x28\xb5\x2f\xfd"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class OpenOptions:
    """Options for reading files; None is determined from the file."""

    def __init__(
        self,
        format: Optional[str] = None,  # noqa: A002  (as the option that gives it)
        metric: Optional[str] = None,
        symbols: Optional[Symbols] = None,
        *,
        by_size: bool = False,
        by_thread: bool = False,
        with_threads: bool = False,
        stretch: Optional[Stretch] = None,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise InputError(
                f"gdbmem does not read the format '{printable(format)}'",
                slug="format-unknown",
                hint=f"it reads {', '.join(FORMATS)}",
            )
        self.format = format  # a key of FORMATS
        self.metric = metric  # of those that the file holds
        self.symbols = symbols  # names addresses; None: they stay unnamed
        self.by_size = by_size  # trees begin with the size of the blocks
        self.by_thread = by_thread  # … with the thread that allocated
        self.with_threads = with_threads  # by_thread for files that record it
        self.stretch = stretch  # the part of a recording to read; None: all


class _Format(NamedTuple):
    start: bytes  # a regex of the start of the file
    reader: str  # module:function of this folder
    has_addresses: bool = False  # which someone must name
    has_times: bool = False  # it can be read in part: the reader takes a Stretch
    has_threads: bool = False
    anywhere: Sequence[bytes] = ()  # one of these is in the file, whose start is of any form
    is_in_logs: bool = False  # it is recognised also where its lines are wrapped


def _begins(start: bytes, data: Data) -> bool:
    # Compiled when first used, because most of the patterns are never needed.
    return re.compile(start, re.DOTALL).match(data) is not None


# Logs have the time in it with --time-stamp=yes.
_VALGRINDS_MARK = rb"==(?:[0-9:.]{12,20} )?[0-9]+== "

# In the order of the checks: the first match reads the file.
FORMATS = {
    "massif": _Format(
        rb"desc:(?! xtree\.produce_report)|cmd:|#-+\r?\nsnapshot=", "valgrind.massif:read_massif"
    ),
    "ms_print": _Format(rb"-{40,}\r?\nCommand: ", "reports.ms_print:read_ms_print"),
    "gperftools": _Format(
        rb"heap profile: |--- symbol\r?\n(?:[^\n]*\n){1,1000000}?heap profile: ",
        "heap_profilers.gperftools:read_gperftools",
        has_addresses=True,
    ),
    "pprof-raw": _Format(
        rb"--- symbol\r?\n(?:[^\n]*\n){1,1000000}?--- profile\n", "heap_profilers.pprof_text:read_pprof_raw"
    ),
    # In a frame of lz4 whose first bytes are not packed.
    "memray": _Format(
        rb"\x04\x22\x4d\x18.{4,32}?memray|memray\0",
        "heap_profilers.memray_file:read_memray",
        has_times=True,
        has_threads=True,
    ),
    "jemalloc": _Format(rb"heap_v2/", "heap_profilers.jemalloc:read_jemalloc", has_addresses=True),
    "memcheck": _Format(
        _VALGRINDS_MARK
        + rb".*?(?: are [a-z ]+ in loss record [0-9]|LEAK SUMMARY:|All heap blocks were freed -- )",
        "valgrind.memcheck:read_memcheck_log",
    ),
    "memcheck-xml": _Format(
        rb"\s*(?:<\?xml[^>]{0,200}\?>)?\s*<valgrindoutput>", "valgrind.memcheck:read_memcheck_xml"
    ),
    "pprof-callgrind": _Format(
        rb"positions: instr line\r?\nevents: [^\n]*\(", "heap_profilers.pprof_text:read_pprof_callgrind"
    ),
    "callgrind": _Format(
        rb"# callgrind format|(?:version|creator|positions|events): ", "valgrind.callgrind:read_callgrind"
    ),
    "xtree": _Format(rb"desc: xtree\.produce_report\r?\n", "valgrind.callgrind:read_xtree"),
    "faults": _Format(rb'\{"gdbmem_faults":', "json_profiles:read_faults"),
    "tracemalloc": _Format(rb'\{"gdbmem_tracemalloc":', "json_profiles:read_tracemalloc"),
    "heap": _Format(
        rb'\s*\{\s*"format_version": ?[0-9]+,\s*"kind": ?"heap",', "json_profiles:read_heap_tree"
    ),
    "speedscope": _Format(
        rb'\s*\{.{0,400}?"\$schema"\s*:\s*"https?://(?:www\.)?speedscope\.app/file-format-schema\.json"',
        "flame_graphs:read_speedscope",
    ),
    "dhat": _Format(rb"\s*\{.{0,200}\"dhatFileVersion\"", "valgrind.dhat:read_dhat"),
    "heaptrack": _Format(
        rb"v [0-9a-f]{1,8} [0-9a-f]{1,8}\n", "heap_profilers.heaptrack:read_heaptrack", has_times=True
    ),
    "torch": _Format(
        rb"\x80[\x02-\x05].{0,400}?(?:segments|device_traces|total_size)",
        "bfc.torch_snapshot:read_torch_profile",
    ),
    # Fields of a protobuf come in any order: sample_type, period_type, sample or string_table may be first.
    "pprof": _Format(
        rb"[\x0a\x5a][\x01-\x20][\x08\x10]|\x12.{1,2}[\x08\x0a]|\x32\x00",
        "heap_profilers.pprof:read_pprof",
        has_addresses=True,
    ),
    "mtrace": _Format(
        rb"(?:= Start\r?\n)?@ [^\n]{0,4000}?\[0x[0-9a-f]+\] [-+<>!] (?:0x|\(nil)",
        "reports.glibc_malloc:read_mtrace",
    ),
    "malloc_info": _Format(
        rb'.{0,4000}?<malloc version="1">\s*<heap nr=',
        "reports.glibc_malloc:read_malloc_info",
        is_in_logs=True,
    ),
    "smaps": _Format(
        rb"[0-9a-f]{8,16}-[0-9a-f]{8,16} [-rwxsp]{4} [^\n]*\n(?:Size|Rss): +[0-9]+ kB",
        "reports.smaps:read_smaps",
    ),
    "pmap": _Format(
        rb"[0-9]{1,10}: +[^\n]*\n *(?:Address |[0-9a-f]{16} +[0-9]+K [-rwxs]{5} )", "reports.smaps:read_pmap"
    ),
    "java-histogram": _Format(
        rb"(?:[0-9]+:)?\s* num +#instances +#bytes +[Cc]lass", "reports.java:read_histogram"
    ),
    "java-native": _Format(rb"(?:[0-9]+:)?\s*Native Memory Tracking:\s", "reports.java:read_native_memory"),
    "heapsnapshot": _Format(rb'\s*\{\s*"snapshot"\s*:\s*\{\s*"meta"', "reports.v8:read_heapsnapshot"),
    "heapprofile": _Format(rb'\s*\{\s*"head"\s*:\s*\{\s*"callFrame"', "reports.v8:read_heapprofile"),
    "tcmalloc-stats": _Format(
        rb".{0,4000}?MALLOC: +[0-9]+ \([^\n)]*\) Bytes in use by application",
        "reports.allocator_stats:read_tcmalloc_stats",
        is_in_logs=True,
    ),
    "jemalloc-stats": _Format(
        rb'.{0,4000}?___ Begin jemalloc statistics ___|\s*\{\s*"jemalloc"\s*:\s*\{',
        "reports.allocator_stats:read_jemalloc_stats",
        is_in_logs=True,
    ),
    "mimalloc-stats": _Format(
        rb".{0,4000}?heap stats: +peak +total +freed +current ",
        "reports.allocator_stats:read_mimalloc_stats",
        is_in_logs=True,
    ),
    # glibc's counts nothing if another allocator, whose statistics follow, has taken its place.
    "malloc_stats": _Format(
        rb".{0,4000}?Arena 0:\r?\nsystem bytes +=",
        "reports.glibc_malloc:read_malloc_stats",
        is_in_logs=True,
    ),
    "torch-summary": _Format(
        rb".{0,4000}?PyTorch CUDA memory summary, device ID",
        "reports.allocator_stats:read_torch_summary",
        is_in_logs=True,
    ),
    "folded": _Format(
        # Lines of a single function may precede the first with several. mprof begins with the command's line.
        rb"(?!CMDLINE )(?:[^\s;{\[\x00-\x1f][^\n;\x00]* [0-9]{1,25}\r?\n){0,9}"
        rb"[^\s;{\[\x00-\x1f][^\n;\x00]*(?:;[^\n;\x00]+)+ [0-9]{1,25}\r?(?:\n|\Z)",
        "flame_graphs:read_folded",
    ),
    "sanitizer": _Format(
        b"",
        "reports.sanitizers:read_sanitizer",
        anywhere=(
            b"ERROR: LeakSanitizer: detected memory leaks",
            b" object(s) allocated from:",
            b"LeakSanitizer does not work under ptrace",
        ),
        is_in_logs=True,
    ),
}


_OF_VALGRIND = ("memcheck", "memcheck-xml", "xtree", "dhat")  # and massif
_SERIES = ("massif", "ms_print")  # of several snapshots
_PIECEWISE = (
    "massif",
    "heaptrack",
    "torch",
    "heapsnapshot",
)  # formats of which a file's size costs no memory


class _Other(NamedTuple):
    start: bytes
    name: str
    hint: str


_FIND = "give a heap profile of massif, gperftools, jemalloc, DHAT, heaptrack or pprof"
_PICKLE = (
    "a pickle can run any code when it is read, so it is not; docs/reference/formats.md has the four lines of Python"
    " that make folded stacks of it: tracemalloc.Snapshot.load(FILE).traces as lines 'outer;…;inner BYTES'"
)
_RECORDED = "give the file that the tool recorded"
_DOCUMENT = rb"\{\s*\"format_version\": [0-9]+,\s*\"kind\": \""
_OTHERS = tuple(
    _Other(start, name, hint)
    for start, name, hint in (
        (rb"\x7fELF", "a program, library or core file (ELF)", _FIND),
        (rb"\xfd7zXZ", "compressed with xz", "unpack it with unxz first"),
        (rb"\x04\x22\x4d\x18", "compressed with lz4", "unpack it with unlz4 first"),
        (rb"PK\x03\x04", "a zip archive", "unpack it with unzip first"),
        (
            _DOCUMENT + rb"(?:profile|diff)\"",
            "a JSON document for other programs",
            "give the file or run that it was made from ('gdbmem grow --profile FILE' saves a recording)",
        ),
        (
            _DOCUMENT,
            "a JSON document of gdbmem without call paths",
            "'gdbmem report FILE' shows most of these, and --since FILE of the command that wrote it compares",
        ),
        (
            rb"--- heapz 1 ---\s",
            "a Java agent's heap samples",
            "'go tool pprof -proto -output FILE.pb.gz FILE' makes a profile of it that gdbmem reads",
        ),
        (rb"\x80[\x02-\x05]", "a Python pickle (tracemalloc writes such files)", _PICKLE),
        (rb"CMDLINE |MEM [0-9.]+ [0-9.]+", "a record of mprof", _FIND),
        (
            _VALGRINDS_MARK + rb"|--[0-9]+-- ",
            "a log of valgrind's without a leak search",
            "memcheck writes one with --leak-check=full",
        ),
        (
            rb"JAVA PROFILE 1\.0",
            "a heap dump of Java (hprof)",
            "of the running process, 'jcmd PID GC.class_histogram' prints its classes, which gdbmem reads",
        ),
        (
            rb"FLR\0",
            "a recording of Java Flight Recorder",
            "'jcmd PID GC.class_histogram' and 'jcmd PID VM.native_memory summary' print what gdbmem reads",
        ),
        (
            rb"(?:reading file \"[^\n]*\" - please wait|Debuggee command was: |MOST CALLS TO ALLOCATION FUNCTIONS\s)",
            "the text of heaptrack_print",
            f"{_RECORDED}: heaptrack.PROGRAM.PID.zst",
        ),
        (
            rb"\s*(?:\x1b\[[0-9;]*m)*\s*Memory usage summary:",
            "the summary of glibc's memusage, which has no call paths",
            "'gdbmem launch --engine massif -- PROGRAM' counts by call path; an mtrace log has each call",
        ),
        (
            rb"\s*(?:- 0x[0-9a-f]+ (?:Free|Realloc) [0-9]+ was never|Memory not freed:\s)",
            "the text of mtrace(1)",
            f"{_RECORDED}, whose name was in MALLOC_TRACE",
        ),
        (
            rb"\[\s*\[\s*-?[0-9]+\s*,\s*(?:-?[0-9]+|\")",
            "a memory timeline of PyTorch's profiler, which has no call paths",
            "torch.cuda.memory._dump_snapshot(FILE) writes blocks with their stacks",
        ),
        (
            rb"\s*\{.{0,400}?\"(?:alloc_samples|growth_rate|max_footprint_mb|max_footprint_fname)\"\s*:",
            "a profile of scalene, in megabytes of samples",
            "'memray run' records each allocation; 'gdbmem python lines PROGRAM' counts memory by line",
        ),
        (
            rb"allocator,num_allocations,size,tid",
            "a table that memray made (memray transform csv)",
            f"{_RECORDED}: memray-PROGRAM.PID.bin",
        ),
        (
            rb"\s*\{\s*\"total_num_allocations\"\s*:",
            "the statistics of memray (memray stats --json)",
            f"{_RECORDED}: memray-PROGRAM.PID.bin",
        ),
        (
            rb"MOJ[\x00-\x09]|# austin: ",
            "a recording of austin",
            "record with 'austin -m', then convert it: 'mojo2austin FILE TEXT', 'austin2speedscope TEXT JSON'",
        ),
    )
)


DEFAULT = OpenOptions()


def open_profile(path: Union[str, os.PathLike[str]], reading: OpenOptions = DEFAULT) -> Profile:
    """Return the profile in the file *path*, which may be compressed with gzip, bzip2 or zstd.

    Totals are read now, call trees when they are asked for. Raises InputError when there is no such
    file, when it can't be read, or when it is of another format, which the message names.
    """
    source = os.fspath(path)
    packed = _Unpacking(source)
    if reading.format in (None, "heaptrack") and packed.is_heaptrack():
        return _read_as("heaptrack", packed, source, reading, packed.notices)
    data, notices = read_data(source)
    name = reading.format or _format_of(data)
    if (name is None or FORMATS[name].is_in_logs) and len(data) <= _UNWRAPPED_BYTES:
        name, data = _out_of_wrapping(name, data, source)
    if name is None:
        raise _of_another_format(data, source)
    return _read_as(name, data, source, reading, notices)


def _format_of(data: Data) -> Optional[str]:
    return next((name for name, entry in FORMATS.items() if _is_of(entry, data)), None)


def _is_of(entry: _Format, data: Data) -> bool:
    if entry.anywhere:
        return any(data.find(text) >= 0 for text in entry.anywhere)
    return _begins(entry.start, data)


def _out_of_wrapping(name: Optional[str], data: Data, source: str) -> tuple[Optional[str], Data]:
    """Return the format and text that a collector of logs, CI or a chat wrapped; what was given if there is none."""
    from gdbmem.formats.unwrapping import texts_in  # seldom needed

    found = [(kind, text) for text in texts_in(data) if (kind := _format_of(text)) is not None]
    if len(found) > 1:
        raise InputError(
            f"{printable(source)} holds several profiles: {', '.join(kind for kind, _ in found)}",
            slug="several-dumps",
            hint="put each into a file of its own",
        )
    return found[0] if found else (name, data)


def is_heaptrack(path: Union[str, os.PathLike[str]], reading: OpenOptions = DEFAULT) -> bool:
    """Return whether the file *path* is one of heaptrack's, or to be read as one.

    Raises InputError as open_profile().
    """
    if reading.format is not None:
        return reading.format == "heaptrack"
    source = os.fspath(path)
    with _opened(source) as (file, packing):
        if packing is None:
            return _begins(FORMATS["heaptrack"].start, file.read(64))
    return _Unpacking(source).is_heaptrack()


def unpacks_to(path: Union[str, os.PathLike[str]], size: int) -> bool:
    """Return whether at least *size* bytes of the file *path* can be read, unpacked if it is compressed."""
    source, found = os.fspath(path), 0
    with contextlib.suppress(InputError), _opened(source) as (file, packing):  # found again by who reads it
        if packing is None:
            return os.fstat(file.fileno()).st_size >= size
        return any((found := found + len(block)) >= size for block in _Unpacking(source)())
    return False


def _read_as(
    name: str, data: Union[Data, _Unpacking], source: str, reading: OpenOptions, notices: list[Notice]
) -> Profile:
    if name in _SERIES and not isinstance(data, _Unpacking):
        if reading.metric not in (None, "in-use"):
            raise InputError(
                f"{printable(source)} does not hold the metric '{printable(reading.metric or '')}'",
                slug="no-such-metric",
                hint="massif counts what is in use; FILE:peak is its largest snapshot",
            )
        if reading.by_size:
            raise no_block_sizes(source)
        if reading.by_thread:
            raise no_threads(source, name)
        found = _read_series(name, data, source, notices)
        found.symbols = reading.symbols
        if reading.stretch is not None:
            found.choose_stretch(reading.stretch)
        return found
    entry = FORMATS[name]
    if not isinstance(data, _Unpacking) and len(data) > _LIMIT_BYTES and name not in _PIECEWISE:
        raise InputError(
            f"{printable(source)} is larger than {format_size(_LIMIT_BYTES)}, and {name} files are read as a whole",
            slug="file-too-big",
            hint="no tool writes such a file of a heap: is it damaged?",
        )
    module, _, function = entry.reader.partition(":")
    read = getattr(importlib.import_module(f"gdbmem.formats.{module}"), function)
    symbols = (reading.symbols,) if entry.has_addresses else ()
    profile: StackProfile = read(data, source, reading.metric, *symbols, **_parts_of(name, source, reading))
    profile.notices[:0] = notices
    for one in (profile, *((profile.earlier,) if profile.earlier is not None else ())):
        one.by_size = reading.by_size
    profile.symbols = reading.symbols if name in _OF_VALGRIND else None
    return profile


def _parts_of(name: str, source: str, reading: OpenOptions) -> dict[str, object]:
    """Return what the reader of *name* is to be asked for beside the metric. Raises InputError if it can't."""
    if reading.by_thread and not FORMATS[name].has_threads:
        raise no_threads(source, name)
    if reading.stretch is not None and not FORMATS[name].has_times:
        raise InputError(
            f"{printable(source)} does not record when memory was allocated, as no file of {name} does",
            slug="no-stretch",
            hint="files of heaptrack, memray and massif do; leave --from and --until out",
        )
    by_thread = reading.by_thread or (reading.with_threads and FORMATS[name].has_threads)
    asked = {"by_thread": by_thread or None, "stretch": reading.stretch}
    return {name: part for name, part in asked.items() if part is not None}


def _read_series(name: str, data: Data, source: str, notices: list[Notice]) -> MassifProfile:
    if name == "massif":
        return read_massif(data, source, notices)
    from gdbmem.formats.reports.ms_print import read_ms_print  # seldom needed

    return read_ms_print(data, source, notices)


def _of_another_format(data: Data, path: str) -> InputError:
    known = next((entry for entry in _OTHERS if _begins(entry.start, data)), None)
    what = f"is {known.name}" if known else "has no format known to gdbmem"
    return InputError(
        f"{printable(path)} {what}",
        slug="format-unreadable",
        hint=known.hint if known else f"{_FIND}, or name its format with --format",
    )


# --- what is in the file, in memory or mapped


def read_data(path: str) -> tuple[Data, list[Notice]]:
    """Return what is in the file *path*, unpacked if it is compressed; a big one is mapped. Raises InputError."""
    with _opened(path) as (file, packing):
        return _unpack(file, path, packing) if packing is not None else (_load(file), [])


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[IO[bytes], Optional[bytes]]]:
    """Open *path* for reading; return it with its compression. Raises InputError for any failure."""
    try:
        with _open_file(path) as file:
            start = file.read(4)  # the size of a file in /proc is 0
            if not start:
                raise InputError(
                    f"{printable(path)} is empty",
                    slug="empty-file",
                    hint="most tools write their files when the program ends, unless it is killed with SIGKILL",
                )
            file.seek(0)
            yield file, next((magic for magic in (_GZIP, _BZIP2, _ZSTD) if start.startswith(magic)), None)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot read {printable(path)}: {reason}", slug="file-unreadable") from None


class _Unpacking:
    """The content of a compressed file, block by block, unpacked again at each use.

    heaptrack's files unpack to sixty times their size, and are read once from the start to the end.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.notices: list[Notice] = []

    def is_heaptrack(self) -> bool:
        with _opened(self.path) as (file, packing):
            if packing is None:
                return False
            with contextlib.suppress(EOFError, OSError, InputError):  # found again by who reads on
                first = next(_unpacked_blocks(file, self.path, packing), b"")
                return _begins(FORMATS["heaptrack"].start, first)
        return False

    def __call__(self) -> Iterator[bytes]:
        with _opened(self.path) as (file, packing):
            try:
                yield from _unpacked_blocks(file, self.path, packing or b"")
            except EOFError:
                notice = _ends_early(self.path)
                self.notices += [notice] if notice not in self.notices else []


def _ends_early(path: str) -> Notice:
    return Notice(ENDS_EARLY, f"{printable(path)} ends early: its last part is missing")


def _damaged(error: Exception) -> OSError:
    return OSError(errno.EIO, f"its compressed data is damaged ({error})")


def _open_file(path: str) -> IO[bytes]:
    # Without O_NONBLOCK a FIFO would keep us waiting for someone who writes to it.
    descriptor = os.open(location(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _refuse_unless_file(os.fstat(descriptor), printable(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_unless_file(found: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "of a special kind")
        raise InputError(f"{name} is {kind}, not a file", slug="not-a-file", hint=_FIND)


def _load(file: IO[bytes]) -> Data:
    if os.fstat(file.fileno()).st_size < _MAPPED_FROM_BYTES:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _unpack(file: IO[bytes], path: str, packing: bytes) -> tuple[Data, list[Notice]]:
    """Unpack *file*; a big one into a temporary file, so that it is mapped rather than held."""
    import tempfile  # not always needed

    notices = []
    with tempfile.SpooledTemporaryFile(_HELD_BYTES) as unpacked:
        try:
            for block in _unpacked_blocks(file, path, packing):
                unpacked.write(block)
        except EOFError:
            notices.append(_ends_early(path))
        size = unpacked.tell()
        if not size:
            raise InputError(f"{printable(path)} holds nothing when unpacked", slug="empty-file")
        unpacked.seek(0)  # flushes, too
        return unpacked.read() if size <= _HELD_BYTES else _load(unpacked), notices


def _unpacked_blocks(file: IO[bytes], path: str, packing: bytes) -> Iterator[bytes]:
    """Yield the unpacked content of *file*. Raises EOFError at a cut, after everything before it."""
    import zlib  # not always needed

    total = 0
    # read1: read would lose what it has unpacked when it comes upon a cut.
    with _decompressor(file, packing) as stream:
        read = stream.read1 if packing != _ZSTD else stream.read
        while True:
            try:
                block = read(_STEP_BYTES)
            except zlib.error as error:
                raise _damaged(error) from None
            if not block:
                return
            total += len(block)
            if total > _LIMIT_BYTES:
                raise InputError(
                    f"{printable(path)} unpacks to more than {format_size(_LIMIT_BYTES)}",
                    slug="compressed-file-too-big",
                    hint="unpack it yourself and give the file that comes out",
                )
            yield block


def _decompressor(file: IO[bytes], packing: bytes) -> Any:
    if packing == _GZIP:
        import gzip  # not always needed

        return gzip.GzipFile(fileobj=file)
    try:
        if packing == _ZSTD:
            import zstandard  # not always needed

            return _Zstd(zstandard.ZstdDecompressor(max_window_size=1 << 31), zstandard.ZstdError, file)
        import bz2  # not always needed
    except ImportError:  # gdb's Python, or one that was built without it
        tool = "zstd, unpack it with unzstd" if packing == _ZSTD else "bzip2, unpack it with bunzip2"
        raise OSError(errno.ENOSYS, f"this Python can't unpack {tool}") from None
    return bz2.BZ2File(file)


class _Zstd:
    # zstandard's reader ends a cut file like a whole one; its decompression object distinguishes them.
    def __init__(self, decompressor: Any, error: type[Exception], file: IO[bytes]) -> None:
        self._decompressor = decompressor
        self._error = error
        self._file = file
        self._stream = decompressor.decompressobj()
        self._left = b""
        self._begun = False

    def __enter__(self) -> _Zstd:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing: the file belongs to the caller."""

    def read(self, size: int) -> bytes:
        """Return the next unpacked bytes, b"" at the end. Raises EOFError at a cut."""
        try:
            return self._read(size)
        except self._error as error:
            raise _damaged(error) from None

    def _read(self, size: int) -> bytes:
        while True:
            # Small pieces: one of them may unpack to very much.
            packed = self._left or self._file.read(min(size, 1 << 11))
            self._left = b""
            if not packed:
                if self._begun and not self._stream.eof:
                    raise EOFError
                return b""
            if self._stream.eof:  # another frame follows
                self._stream = self._decompressor.decompressobj()
            self._begun = True
            block: bytes = self._stream.decompress(packed)
            self._left = self._stream.unused_data if self._stream.eof else b""
            if block:
                return block
