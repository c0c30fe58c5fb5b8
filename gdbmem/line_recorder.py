"""Memory by line: records how each line of selected functions changes the memory of this process.

Runs in the program's own Python (3.8 and later), also where gdbmem is not installed: it imports the standard library
only. Each change is charged to one line of a function, so that its lines add up to what it has changed; what a call to
another recorded function changes counts in both.
"""

from __future__ import annotations

import atexit
import builtins
import os
import sys
import threading
from types import CodeType

# Modules that are slow to import are imported where needed: typing, inspect and json load the module re.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Mapping, Optional, TypeVar

    _Decorated = TypeVar("_Decorated")

_PAGE = os.sysconf("SC_PAGE_SIZE")
RSS, USS, TRACEMALLOC = "rss", "uss", "tracemalloc"
BACKENDS = (RSS, USS, TRACEMALLOC)


class Meter:
    """Measures this process's memory in bytes, by one of the BACKENDS."""

    def __init__(self, backend: str = RSS) -> None:
        self.backend = backend
        self._file = -1
        self._has_begun_to_trace = False
        self.reopen()

    def reopen(self) -> None:
        """Measure the current process, after a fork."""
        if self.backend == TRACEMALLOC:
            import tracemalloc  # it is never loaded in a program that does not ask for it

            if not tracemalloc.is_tracing():
                tracemalloc.start()
                self._has_begun_to_trace = True
            self.read: Callable[[], int] = lambda: tracemalloc.get_traced_memory()[0]
            return
        name = "statm" if self.backend == RSS else "smaps_rollup"
        if self._file >= 0:
            os.close(self._file)  # the parent's
        self._file = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
        self.read = self._rss if self.backend == RSS else self._uss

    def close(self) -> None:
        """Stop measuring, and stop tracemalloc if it was not on before: it makes a program much slower."""
        last = self.read()
        self.read = lambda: last  # threads that run on may be recorded until they return
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._has_begun_to_trace:
            import tracemalloc  # loaded already

            tracemalloc.stop()
            self._has_begun_to_trace = False

    def _rss(self) -> int:
        return int(os.pread(self._file, 128, 0).split()[1]) * _PAGE

    def _uss(self) -> int:
        lines = os.pread(self._file, 4096, 0).split(b"\n")
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Private_"))


class FunctionLines:
    """The changes of memory by the lines of one function."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.calls = 0
        self.total = 0  # bytes
        self.at_start: Optional[int] = None  # when it was first entered
        self.changes: Dict[int, int] = {}  # bytes by line
        self.highest: Dict[int, int] = {}  # bytes of the process, after the line
        self.counts: Dict[int, int] = {}  # how often the line was run

    def add(self, line: int, change: int, now: int) -> None:
        self.total += change
        self.changes[line] = self.changes.get(line, 0) + change
        self.highest[line] = max(self.highest.get(line, 0), now)

    def document(self, file: str) -> Dict[str, Any]:
        first, texts = self.code.co_firstlineno, self._texts()
        numbers = sorted({*range(first, first + len(texts)), *self.changes, *self.counts})
        return {
            "function": getattr(self.code, "co_qualname", self.code.co_name),
            "file": file,
            "first_line": first,
            "calls": self.calls,
            "start_bytes": self.at_start,
            "change_bytes": self.total,
            "lines": [
                {
                    "line": line,
                    "memory_bytes": self.highest.get(line),
                    "change_bytes": self.changes.get(line),
                    "count": self.counts.get(line, 0),
                    "text": texts[line - first] if 0 <= line - first < len(texts) else "",
                }
                for line in numbers
            ],
        }

    def _texts(self) -> List[str]:
        import inspect  # slow to import
        import linecache  # not always needed

        try:
            if self.code.co_name == "<module>":
                return [line.rstrip("\n") for line in linecache.getlines(self.code.co_filename)]
            return [line.rstrip("\n") for line in inspect.getsourcelines(self.code)[0]]
        except (OSError, TypeError, IndexError, SyntaxError):
            return []


class _CallsOfThread:
    """The calls of one function that one thread is in: the line of each, and the memory at the last event."""

    __slots__ = ("last", "lines")

    def __init__(self) -> None:
        self.lines: List[int] = []
        self.last = 0


class LineRecorder:
    """Records the lines of the functions that are added. There is one in a process at most."""

    def __init__(self, backend: str = RSS, names: Any = (), folder: Optional[str] = None) -> None:
        """Record functions called one of *names* too, wherever they are; write into *folder* when the program ends."""
        self.meter = Meter(backend)
        self.functions: Dict[CodeType, FunctionLines] = {}
        self.threads = 0  # at most at once
        self._names = frozenset(names)
        self._folder = folder
        self._running: Dict[Any, _CallsOfThread] = {}
        self._tool: Optional[int] = None
        self.first_process: Optional[int] = os.getpid()

    def add(self, code: CodeType) -> None:
        """Record the lines of *code*."""
        if code not in self.functions:
            self.functions[code] = FunctionLines(code)
            if self._tool is not None:
                self._monitor(code)

    def start(self) -> None:
        """Start recording."""
        if hasattr(sys, "monitoring") and self._start_monitoring():
            return
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    def stop(self) -> None:
        """Stop recording."""
        self._stop_tracing()
        self.meter.close()

    def _stop_tracing(self) -> None:
        if self._tool is None:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type,unused-ignore]  # older stubs know functions only
            return
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009  (not in all versions)
        monitoring.set_events(self._tool, 0)
        for code in self.functions:
            monitoring.set_local_events(self._tool, code, 0)
        monitoring.free_tool_id(self._tool)
        self._tool = None

    def wants(self, code: CodeType) -> bool:
        """Return whether *code* is recorded; one with a wanted name is from now on."""
        if code in self.functions:
            return True
        if self._names and (code.co_name in self._names or getattr(code, "co_qualname", None) in self._names):
            self.add(code)
            return True
        return False

    # Events in a recorded function.

    def entered(self, code: CodeType, line: int, *, resumed: bool) -> None:
        now = self.meter.read()
        function, running = self.functions[code], self._of_thread(code)
        if running.lines:
            function.add(running.lines[-1], now - running.last, now)
        if function.at_start is None:
            function.at_start = now
        if not resumed:
            function.calls += 1
        running.lines.append(line)
        running.last = now

    def reached(self, code: CodeType, line: int) -> None:
        running = self._of_thread(code)
        if not running.lines:
            return  # it was entered before recording began
        function, now = self.functions[code], self.meter.read()
        if function.counts.get(running.lines[-1]):
            function.add(running.lines[-1], now - running.last, now)
        elif now != running.last:
            function.add(line, now - running.last, now)  # before the first line
        running.lines[-1] = line
        running.last = now
        function.counts[line] = function.counts.get(line, 0) + 1

    def left(self, code: CodeType) -> None:
        running = self._of_thread(code)
        if not running.lines:
            return
        now = self.meter.read()
        self.functions[code].add(running.lines.pop(), now - running.last, now)
        running.last = now
        if not running.lines and self._is_child():
            self.write()  # a child process may end without notice

    def _of_thread(self, code: CodeType) -> _CallsOfThread:
        key = (threading.get_ident(), code)
        found = self._running.get(key)
        if found is None:
            found = self._running[key] = _CallsOfThread()
            self.threads = max(self.threads, threading.active_count())
        return found

    # Line events: by sys.settrace before 3.12 …

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event != "call" or not self.wants(frame.f_code):
            return None
        fresh = frame.f_lasti < 4 or frame.f_lineno == frame.f_code.co_firstlineno
        self.entered(frame.f_code, frame.f_lineno, resumed=not fresh)
        return self._trace_lines

    def _trace_lines(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.reached(frame.f_code, frame.f_lineno)
        elif event == "return":
            self.left(frame.f_code)
        return self._trace_lines

    # … and by sys.monitoring from 3.12 on.

    def _start_monitoring(self) -> bool:
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009
        free = [tool for tool in (monitoring.PROFILER_ID, 3, 4) if monitoring.get_tool(tool) is None]
        if not free:
            return False
        self._tool = tool = free[0]
        monitoring.use_tool_id(tool, "gdbmem")
        events = monitoring.events
        calls = {
            events.PY_START: lambda code, at: self._on_start(code),
            events.PY_RESUME: lambda code, at: self._on_resume(code),
            events.PY_THROW: lambda code, at, error: self._on_resume(code),
            events.LINE: lambda code, line: self.reached(code, line),
            events.PY_RETURN: lambda code, at, value: self.left(code),
            events.PY_YIELD: lambda code, at, value: self.left(code),
            events.PY_UNWIND: lambda code, at, error: self._on_unwind(code),
        }
        for event, call in calls.items():
            monitoring.register_callback(tool, event, call)
        monitoring.set_events(tool, events.PY_START | events.PY_UNWIND | events.PY_THROW)
        for code in list(self.functions):
            self._monitor(code)
        return True

    def _monitor(self, code: CodeType) -> None:
        monitoring: Any = getattr(sys, "monitoring")  # noqa: B009
        events = monitoring.events
        monitoring.set_local_events(
            self._tool, code, events.PY_RESUME | events.LINE | events.PY_RETURN | events.PY_YIELD
        )

    def _on_start(self, code: CodeType) -> Any:
        if not self.wants(code):
            return getattr(sys, "monitoring").DISABLE  # noqa: B009
        self.entered(code, code.co_firstlineno, resumed=False)
        return None

    def _on_resume(self, code: CodeType) -> None:
        if code in self.functions:
            frame = sys._getframe(2)
            self.entered(code, frame.f_lineno, resumed=True)

    def _on_unwind(self, code: CodeType) -> None:
        if code in self.functions:
            self.left(code)

    def _is_child(self) -> bool:
        return os.getpid() != self.first_process

    # The result.

    def document(self) -> Dict[str, Any]:
        """Return the recording as JSON values."""
        files = {code: code.co_filename for code in self.functions}
        return {
            "pid": os.getpid(),
            "parent": os.getppid(),
            "backend": self.meter.backend,
            "threads": self.threads,
            "functions": [one.document(files[code]) for code, one in self.functions.items() if one.calls],
        }

    def write(self) -> None:
        """Write the recording into the folder: a file for each process."""
        if self._folder is None or (
            self._is_child() and not any(one.calls for one in self.functions.values())
        ):
            return
        # Named by the time of the start, too: a process can get the number of one that has ended.
        name = f"{_started()}.{os.getpid()}.json"
        path = os.path.join(self._folder, name)  # noqa: PTH118  (starts sooner)
        try:
            import json  # not always needed

            with open(path + ".new", "w", encoding="ascii") as file:  # noqa: PTH123
                json.dump(self.document(), file)
            os.replace(path + ".new", path)  # noqa: PTH105
        except OSError as error:
            sys.stderr.write(f"gdbmem: the lines can't be written: {error.strerror}\n")

    def begin_anew(self) -> None:
        """Start over in a child process, which has its own table."""
        self.meter.reopen()
        self._running.clear()
        self.threads = 1
        for code in list(self.functions):
            self.functions[code] = FunctionLines(code)


_recorder: Optional[LineRecorder] = None


def _started() -> int:
    """Return when this process started, in clock ticks since the boot; 0 if /proc isn't there."""
    try:
        with open("/proc/self/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def profile(function: _Decorated) -> _Decorated:
    """Record memory by line in *function* (or in all functions of a class); the table is printed at the end.

    Under ``gdbmem python lines`` that command prints the tables. The function itself is returned, not a wrapper.
    """
    global _recorder
    if _recorder is None:
        _recorder = LineRecorder()
        os.register_at_fork(after_in_child=_recorder.begin_anew)
        _recorder.start()
        atexit.register(_print_at_end, _recorder)
    for code in _codes_of(function):
        _recorder.add(code)
    return function


def _codes_of(thing: Any) -> List[CodeType]:
    if isinstance(thing, type):
        return [code for one in vars(thing).values() for code in _codes_of(one)]
    thing, seen = getattr(thing, "__func__", thing), set()
    while callable(thing) and hasattr(thing, "__wrapped__") and id(thing) not in seen:
        seen.add(id(thing))
        thing = thing.__wrapped__
    thing = getattr(thing, "__func__", getattr(thing, "fget", thing))
    code = getattr(thing, "__code__", None)
    return [code] if isinstance(code, CodeType) else []


def _print_at_end(recorder: LineRecorder) -> None:
    recorder.stop()
    if recorder.functions:
        sys.stdout.write(plain_tables(recorder.document()))


def plain_tables(document: Mapping[str, Any]) -> str:
    """Return the tables as memory_profiler prints them."""
    parts = []
    for one in document["functions"]:
        parts.append(
            f"Filename: {one['file']}\n\n{'Line #':>6} {'Mem usage':>14} {'Increment':>14} {'Occurrences':>12}"
        )
        parts[-1] += "   Line Contents\n" + "=" * 61
        for row in one["lines"]:
            parts.append(_row(row, one))
        calls = f"{one['calls']} call{'' if one['calls'] == 1 else 's'}"
        parts.append(f"{one['function']}: {_mib(one['change_bytes'])} in {calls}\n")
    return "\n".join(parts) + "\n" if parts else ""


def _row(row: Dict[str, Any], function: Dict[str, Any]) -> str:
    memory, change, count = row["memory_bytes"], row["change_bytes"], row["count"]
    if row["line"] == function["first_line"] and change is None:
        memory, change = function["start_bytes"], None
    cells = (_mib(memory), "" if change is None else _mib(change), str(count) if count else "")
    return f"{row['line']:>6} {cells[0]:>14} {cells[1]:>14} {cells[2]:>12}   {row['text']}"


def _mib(size: Optional[int]) -> str:
    return "" if size is None else f"{size / 1048576:.3f} MiB"


def main(configuration: str, script: str) -> None:
    """Run *script* as Python itself would, and record; the rest of sys.argv is the script's."""
    sys.argv = [script, *sys.argv[3:]]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.abspath(script))  # noqa: PTH100, PTH120
    with open(script, "rb") as file:  # noqa: PTH123
        source = file.read()
    code = compile(source, script, "exec", dont_inherit=True)
    module = type(sys)("__main__")
    vars(module).update(__file__=script, __builtins__=builtins)
    sys.modules["__main__"] = module
    recorder = _prepared(configuration)
    recorder.start()
    try:
        exec(code, vars(module))
    finally:
        recorder.stop()


def begin_in_child(configuration: str) -> None:
    """Record in a process that multiprocessing has started: it imports the script, and runs functions of it."""
    recorder = _prepared(configuration)
    recorder.first_process = None
    recorder.start()


def _prepared(configuration: str) -> LineRecorder:
    """Return this process's recorder, with the decorator in place of which scripts have the name only."""
    global _recorder
    import json  # not always needed

    settings = json.loads(configuration)
    recorder = _recorder = LineRecorder(settings["backend"], settings["names"], settings["folder"])
    os.register_at_fork(after_in_child=recorder.begin_anew)
    vars(builtins)["profile"] = profile
    sys.modules["gdbmem.line_recorder"] = sys.modules.pop(__name__)
    sys.meta_path[:] = [_Spawning(configuration), *sys.meta_path, _Named()]
    atexit.register(recorder.write)
    return recorder


class _Spawning:
    """Has the Pythons that multiprocessing starts by spawn and forkserver record too, as soon as it is imported."""

    def __init__(self, configuration: str) -> None:
        # Its own parsing of the command's arguments stays as it is: the code goes before multiprocessing's.
        self._code = (
            f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); "  # noqa: PTH120
            f"from line_recorder import begin_in_child; del sys.path[0]; begin_in_child({configuration!r}); "
        )

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "multiprocessing.util":
            return None
        sys.meta_path.remove(self)  # it finds nothing else
        import importlib.util  # not always needed

        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_change(module: Any) -> None:
                run(module)
                start = module.spawnv_passfds
                module.spawnv_passfds = lambda path, args, passfds: start(path, self._changed(args), passfds)

            spec.loader.exec_module = run_and_change  # type: ignore[method-assign]
        return spec

    def _changed(self, arguments: Any) -> Any:
        starts = (
            "from multiprocessing.spawn import spawn_main",
            "from multiprocessing.forkserver import main",
        )
        return [
            self._code + one if isinstance(one, str) and any(start in one for start in starts) else one
            for one in arguments
        ]


class _Named:
    """Provides a module for ``import gdbmem`` with the decorator if gdbmem is not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return type(os.__spec__)(name, self) if name == "gdbmem" else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> Any:
        module = type(sys)("gdbmem")
        vars(module)["profile"] = profile
        return module

    def exec_module(self, module: Any) -> None:
        """Do nothing: the module is complete."""
