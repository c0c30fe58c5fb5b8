"""Text as its program wrote it: out of JSON, UTF-16, colours, and what logs, CI and chats put before its lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from gdbmem.files import Data

_BOMS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
LARGEST_BYTES = 256 << 20  # of what is unwrapped in memory
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()][0-9A-Za-z]|[@-Z\\-_])"
)
# Where collectors of logs put the line, and who wrote it.
_TEXTS = ("log", "message", "MESSAGE", "msg", "textPayload", "text", "traceback", "line", "_raw", "body")
_WRITERS = re.compile(
    r"(?i)(?:.*[._-])?(?:pod|pod_?name|pod_?id|container|container_?id|container_?name|host|host_?name|pid|rank|worker"
    r"|instance|instance_?id|replica|process|node|task|task_?id|tag|logstream|log_?stream|unit|_pid|_hostname|syslog_pid)"
)
_DEEPEST = 12
_START_BYTES = 4096
_SAMPLE_BYTES = 1 << 18
_TIME = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
# What is put before each line, by whom. The last blank may be missing from a line without text.
_MARKS = (
    *(
        re.compile(mark + rb"(?: |(?=\r?$))")
        for mark in (
            _TIME + rb" (?:stdout|stderr) [FP]",  # Kubernetes
            _TIME + rb" [0-9]{2}[OE]\+?",  # GitLab
            rb"\[" + _TIME + rb"\]",  # Jenkins
            _TIME,  # GitHub, docker logs -t
            # journald, syslog
            rb"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})? \S{1,255} "
            rb"[^\s:\[]{1,255}(?:\[[0-9]{1,10}\])?:",
            rb"[A-Z][a-z]{2} [ 0-9][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2}",  # ts
            rb"[A-Za-z0-9][\w.-]{0,100} +\|",  # docker compose
            rb"\[rank[0-9]{1,6}\]:",  # torch
            rb"\[[^\]\n]{1,300}\]",  # kubectl logs --prefix, _from_json()
            rb"[0-9]{1,6}:",  # ctest, srun -l
            rb" {0,5}[0-9]{1,6}:(?= [^ ]| ?\r?$)",  # srun -l with ten tasks or more, and no histogram of Java's
            rb">",  # mail and chats
        )
    ),
    # Without a blank: gh run view --log, Azure Pipelines, mpirun --tag-output of Open MPI 4, and torchrun.
    re.compile(rb"[^\t\n]{1,200}\t[^\t\n]{1,200}\t(?:\xef\xbb\xbf)?(?=" + _TIME + rb")"),
    re.compile(rb"##\[[a-z]{1,20}\]"),
    re.compile(rb"\[[0-9]{1,10},[0-9]{1,6}\]<std(?:out|err)>:"),
    re.compile(rb"\[[a-z_]{1,40}[0-9]{1,6}\]:"),
)
_MOST_MARKS = 4  # on one line
_SHARE = 0.9  # of the lines have a mark that is taken off
_FENCE = re.compile(rb"^ {0,3}(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^ {0,3}\1 *\r?$|\Z)", re.DOTALL | re.MULTILINE)


class PlainLog(NamedTuple):
    """The lines of a log, oldest first."""

    data: Data
    numbers: Optional[Sequence[int]] = None  # of the line in the file, for each line; None: the same

    def number(self, line: int) -> int:
        """Return where line number *line* stands in the file."""
        if self.numbers is None or line > len(self.numbers):
            return line
        return self.numbers[line - 1]


def unwrap(data: Data) -> PlainLog:
    """Return the lines in *data* out of what encloses them; what is not wrapped is returned as it is."""
    encoding = _utf16(data)
    if encoding is not None and len(data) <= LARGEST_BYTES:
        data = bytes(data).decode(encoding, "replace").lstrip("\ufeff").encode("utf-8", "surrogatepass")
    log = PlainLog(data)
    if _begins_as_json(data) and len(data) <= LARGEST_BYTES:
        log = _from_json(bytes(data)) or log
    if len(log.data) <= LARGEST_BYTES and log.data.find(b"\x1b") >= 0:
        log = PlainLog(_ESCAPE.sub(b"", bytes(log.data)), log.numbers)
    return log


def texts_in(data: Data) -> list[bytes]:
    """Return the text in *data* without the words before all of its lines; its fenced blocks if it has some."""
    log = unwrap(data)
    if len(log.data) > LARGEST_BYTES or b"\0" in bytes(log.data[:_START_BYTES]):
        return []
    text = bytes(log.data)
    for _ in range(_MOST_MARKS):
        mark = _mark_of(text)
        if mark is None:
            break
        text = re.sub(rb"(?m)^" + mark.pattern, b"", text)
    indents = re.findall(rb"(?m)^( *)\S", text[:_SAMPLE_BYTES])
    if indent := min(map(len, indents), default=0):
        text = re.sub(rb"(?m)^ {%d}" % indent, b"", text)
    has_fences = b"```" in text or b"~~~" in text
    return [fence[2] for fence in _FENCE.finditer(text)] if has_fences else [text]


def _mark_of(text: bytes) -> Optional[re.Pattern[bytes]]:
    """Return the mark before most lines of *text*."""
    sample = text[:_SAMPLE_BYTES].split(b"\n")[: -1 if len(text) > _SAMPLE_BYTES else None]
    lines = [line for line in sample if line.strip()]
    return next(
        (
            mark
            for mark in _MARKS
            if sum(mark.match(line) is not None for line in lines) > _SHARE * len(lines)
        ),
        None,
    )


def _utf16(data: Data) -> Optional[str]:
    start = bytes(data[:512])
    if start[:2] in _BOMS:
        return _BOMS[start[:2]]
    if len(start) >= 64 and not start[::2].count(0) and start[1::2].count(0) > len(start) * 0.45:
        return "utf-16-le"
    return None


# --- JSON


def _begins_as_json(data: Data) -> bool:
    return re.match(rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"])", bytes(data[:256])) is not None


def _from_json(data: bytes) -> Optional[PlainLog]:
    """Return the lines in a JSON document, or in one document a line; None if *data* is neither."""
    found: list[tuple[int, str]] = []
    try:
        found = [(1, text) for text in _texts(json.loads(data), 0)]
    except (ValueError, RecursionError):
        for number, line in enumerate(data.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                found += [(number, text) for text in _texts(json.loads(line), 0)]
            except (ValueError, RecursionError):
                if not found:
                    return None  # it only looked like JSON
                found.append((number, line.decode("utf-8", "replace")))
    lines = [(number, line) for number, text in found for line in text.rstrip("\n").split("\n")]
    if not lines:
        return None
    joined = "\n".join(line for _, line in lines) + "\n"
    return PlainLog(joined.encode("utf-8", "surrogatepass"), [number for number, _ in lines])


def _texts(value: Any, depth: int) -> Iterator[str]:
    """Yield the texts of a log in *value*, each with its writer in front, if that is named."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, depth + 1)
    elif isinstance(value, dict):
        key = next((key for key in _TEXTS if _line_of(value.get(key))), None)
        if key is not None:
            writer = " ".join(_writers(value, 0))
            lines = (_line_of(value[key]) or "").rstrip("\n").split("\n")
            yield "\n".join(f"[{writer}] {line}" if writer else line for line in lines)
        for other, one in value.items():
            if other != key and isinstance(one, (dict, list)):
                yield from _texts(one, depth + 1)


def _line_of(value: Any) -> Optional[str]:
    """Return the text *value*, which journald may write as the numbers of bytes, and notebooks as lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        if all(isinstance(one, str) for one in value):
            return "".join(one if one.endswith("\n") else f"{one}\n" for one in value)
        if all(isinstance(one, int) and 0 <= one < 256 for one in value):
            return bytes(value).decode("utf-8", "replace")
    return None


def _writers(value: Mapping[str, object], depth: int) -> Iterator[str]:
    for key, one in value.items():
        if isinstance(one, dict) and depth < _DEEPEST:
            yield from _writers(one, depth + 1)
        elif isinstance(one, (str, int)) and not isinstance(one, bool) and _WRITERS.fullmatch(key):
            yield f"{one}".replace("\n", " ")[:100]


# --- the lines of an allocator's log: as above, and out of narrow terminals, oldest first

# TensorFlow's and onnxruntime's own prefix, and absl's, with the number of the thread.
STAMP = re.compile(
    rb"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3,9}):? (?:[IWEF] |\[[VIWEF]:)"
    rb"|\b[IWEF][0-9]{4} (?P<clock>[0-9]{2}:[0-9]{2}:[0-9.]{2,20}) +[0-9]+ "
)
_ALLOCATOR = re.compile(rb"bfc_a(?:llocator|rena)\.cc")
_LOG_SAMPLE_BYTES = 1 << 16  # at the beginning of a log
_FEWEST = 5  # stamps, or full lines, that show how a log was written
_WIDTHS = (60, 400)  # columns of terminals
_BROKEN_SHARE = 0.75  # of the full lines of a log that a terminal broke: others have this width by chance


def unwrap_log(data: Data) -> PlainLog:
    """Return the lines of a log, oldest first; what is not wrapped is returned as it is, for it may be large."""
    log = unwrap(data)
    return log if len(log.data) > LARGEST_BYTES else _oldest_first(_joined(log))


# --- lines that a terminal broke, and logs that begin with their end


def _joined(log: PlainLog) -> PlainLog:
    """Return *log* with the lines joined that a narrow terminal broke: none is wider, and no prefix follows them."""
    width = max(map(len, bytes(log.data[:_LOG_SAMPLE_BYTES]).split(b"\n")))
    if not _WIDTHS[0] <= width <= _WIDTHS[1]:
        return log
    lines = bytes(log.data).split(b"\n")
    if max(map(len, lines)) > width or not _are_broken(lines, width):
        return log
    joined: list[bytes] = []
    numbers: list[int] = []
    is_open = False
    for number, line in enumerate(lines, start=1):
        if is_open and STAMP.search(line) is None:
            joined[-1] += line
        else:
            joined.append(line)
            numbers.append(log.number(number))
        is_open = len(line) == width
    return PlainLog(b"\n".join(joined), numbers)


def _are_broken(lines: Sequence[bytes], width: int) -> bool:
    """Return whether *lines* of *width* go on in the next one: not if they are one line that several ranks wrote."""
    full = [number for number, line in enumerate(lines[:-1]) if len(line) == width]
    broken = [number for number in full if STAMP.search(lines[number + 1]) is None]
    if len(broken) < _BROKEN_SHARE * len(full):
        return False
    return len({_without_prefix(lines[number]) for number in broken}) >= _FEWEST


def _without_prefix(line: bytes) -> bytes:
    stamp = STAMP.search(line)
    return line[stamp.end() :] if stamp else line


def _oldest_first(log: PlainLog) -> PlainLog:
    """Return *log* from its end to its beginning if its times run backwards."""
    times = list(_times(log.data))
    back = sum(after < before for before, after in zip(times, times[1:]))
    forth = sum(after > before for before, after in zip(times, times[1:]))
    if back < _FEWEST or forth * 3 > back:
        return log
    lines = bytes(log.data).rstrip(b"\n").split(b"\n")
    numbers = [log.number(number) for number in range(len(lines), 0, -1)]
    return PlainLog(b"\n".join(reversed(lines)) + b"\n", numbers)


def _times(data: Data) -> Iterator[bytes]:
    """Yield the times of the first allocators' lines, as texts that sort."""
    for count, found in enumerate(_ALLOCATOR.finditer(data)):
        start = data.rfind(b"\n", max(found.start() - 400, 0), found.start()) + 1
        stamp = STAMP.search(data, start, found.start())
        if stamp is not None:
            yield stamp["time"] or stamp["clock"]
        if count > 200:
            return


# The writers of a log that several programs wrote, told apart by what stands in front of their lines.


# Each dump has at least two such lines.
_HEADS = re.compile(
    rb"ran out of memory trying to|BFCAllocator dump for|Sum Total of in-use chunks|BFCArena for "
)
_TIMES = re.compile(
    rb"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*(?:Z| ?[+-][0-9]{2}:?[0-9]{2})?"
    rb"|(?:[A-Z][a-z]{2} )?[A-Z][a-z]{2} +[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
    rb"|[0-9]{2}:[0-9]{2}:[0-9]{2}[.,0-9]*|[0-9]{10,13}(?:\.[0-9]+)?|\[ *[0-9]{1,9}\.[0-9]{3,9}\]"
)
_LONGEST = 300  # bytes of a prefix
_MOST = 64  # writers


class Writers:
    """The prefixes of a log's writers; their times are not compared."""

    def __init__(self, prefixes: Sequence[bytes]) -> None:
        self.prefixes = sorted(prefixes, key=len, reverse=True)
        time = b"(?:%s)" % _TIMES.pattern
        texts = [time.join(map(re.escape, prefix.split(b"\0"))) for prefix in self.prefixes]
        self._pattern = re.compile(b"|".join(b"(%s)" % text for text in texts))
        self._last = 0

    @property
    def names(self) -> Sequence[str]:
        """The name of each writer: its prefix, without times and what encloses it."""
        texts = (prefix.replace(b"\0", b"").decode("utf-8", "replace") for prefix in self.prefixes)
        return [
            " ".join(text.split()).strip(" |:[]<>-") or f"writer {at}" for at, text in enumerate(texts, 1)
        ]

    def of(self, line: bytes) -> tuple[int, bytes]:
        """Return the number of the writer of *line*, and the line without its prefix; unmarked lines follow others."""
        found = self._pattern.match(line)
        if found is None or found.lastindex is None:
            return self._last, line
        self._last = found.lastindex - 1
        return self._last, line[found.end() :]


def writers_of(data: Data) -> Optional[Writers]:
    """Return the writers of the allocators' lines in *data*; None if it has one, or they can't be told apart."""
    found: Counter[bytes] = Counter()
    for head in _HEADS.finditer(data):
        start = data.rfind(b"\n", max(head.start() - 2 * _LONGEST, 0), head.start()) + 1
        stamp = STAMP.search(data, start, head.start())
        if stamp is not None and stamp.start() - start <= _LONGEST:
            found[_TIMES.sub(b"\0", data[start : stamp.start()])] += 1
    # A number that each line has is no writer's.
    prefixes = [prefix for prefix, count in found.items() if count > 1]
    return Writers(prefixes) if 1 < len(prefixes) <= _MOST else None
