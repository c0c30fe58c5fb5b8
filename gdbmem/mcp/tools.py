"""The tools of `gdbmem mcp` as a client sees them: descriptions, and the JSON schemas of arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Callable, NamedTuple, Optional

from gdbmem.errors import UsageError
from gdbmem.files import JsonObject
from gdbmem.mcp.calls import Job, Toolbox
from gdbmem.text import printable

_MOST_RECORD_SECONDS = 50  # most clients give up after a minute
_MOST_TEXT = 8_000  # characters of an argument


class Tool(NamedTuple):
    """A tool as the client sees it, and the function that answers its calls."""

    name: str
    title: str
    description: str
    takes: Mapping[str, JsonObject]  # the JSON schema of each argument
    needs: Sequence[str]  # the arguments that can't be left out
    returns: JsonObject  # a JSON schema
    call: Callable[[Toolbox, JsonObject, Job], JsonObject]
    only_reads: bool = True

    @property
    def description_json(self) -> JsonObject:
        """Its entry in the result of tools/list."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": dict(self.takes),
                "required": list(self.needs),
                "additionalProperties": False,
            },
            "outputSchema": self.returns,
            "annotations": {
                "readOnlyHint": self.only_reads,
                "destructiveHint": not self.only_reads,
                "idempotentHint": self.only_reads,
                "openWorldHint": False,
            },
        }


_TYPES: dict[str, type] = {"integer": int, "string": str}


def check_arguments(tool: Tool, arguments: object) -> JsonObject:
    """Return *arguments*, with defaults; raises UsageError if they don't have the form that *tool* takes."""
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise UsageError("the arguments are not an object", hint=f"{tool.name} takes {', '.join(tool.takes)}")
    for name in arguments:
        if name not in tool.takes:
            raise UsageError(
                f"{tool.name} has no argument '{printable(str(name))[:100]}'",
                hint=f"it takes {', '.join(tool.takes)}",
            )
    for name in tool.needs:
        if name not in arguments:
            raise UsageError(f"{tool.name} needs '{name}'", hint=str(tool.takes[name]["description"]))
    checked = {name: schema["default"] for name, schema in tool.takes.items() if "default" in schema}
    for name, value in arguments.items():
        _check(name, value, tool.takes[name])
        checked[name] = value
    return checked


def _check(name: str, value: object, schema: JsonObject) -> None:
    kind = schema["type"]
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        raise UsageError(f"'{name}' is not {'a whole number' if kind == 'integer' else 'a text'}")
    if isinstance(value, int) and not schema["minimum"] <= value <= schema["maximum"]:
        raise UsageError(f"'{name}' is not between {schema['minimum']} and {schema['maximum']}")
    if isinstance(value, str) and ("\0" in value or not 0 < len(value) <= _MOST_TEXT):
        raise UsageError(f"'{name}' is empty, too long, or has a null character")
    if "enum" in schema and value not in schema["enum"]:
        raise UsageError(f"'{name}' is none of {', '.join(schema['enum'])}")


def _integer(description: str, least: int, most: int, default: Optional[int] = None) -> JsonObject:
    schema: JsonObject = {"type": "integer", "description": description, "minimum": least, "maximum": most}
    return schema if default is None else {**schema, "default": default}


def _text(description: str, *choices: str) -> JsonObject:
    schema: JsonObject = {"type": "string", "description": description}
    return {**schema, "enum": list(choices), "default": choices[0]} if choices else schema


_OR_NULL = {"string": ["string", "null"], "integer": ["integer", "null"], "number": ["number", "null"]}
_PID = _integer("a process of the user who runs this server", 1, (1 << 31) - 1)
_TOP = _integer("return at most so many rows", 1, 200, 10)
_FILE = _text("a file or run folder below the server's folder, or RUN:NAME, a snapshot of a run")
_BY = _text("one row for each of these", "line", "function", "path", "file", "library")


def _object(properties: Mapping[str, object], *optional: str) -> JsonObject:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
    }


def _rows(row: Mapping[str, object], **beside: object) -> JsonObject:
    """Return the schema of a result with rows, which have *row*'s properties and their `bytes`."""
    return _object(
        {
            "answer": {"type": _OR_NULL["string"]},
            "total_bytes": {"type": _OR_NULL["integer"], "description": "null: unknown, or of no one thing"},
            "rows": {"type": "array", "items": _object({"bytes": {"type": "integer"}, **row})},
            "omitted_rows": {"type": "integer"},
            "omitted_bytes": {"type": _OR_NULL["integer"]},
            "warnings": {"type": "array", "items": {"type": "string"}},
            **beside,
        }
    )


_PAUSE = {
    "pause_seconds": {
        "type": _OR_NULL["number"],
        "description": "how long the process was stopped; null: it was not",
    }
}
_LINE = _object(
    {
        "function": {"type": _OR_NULL["string"]},
        "file": {"type": _OR_NULL["string"]},
        "line": {"type": _OR_NULL["integer"]},
        "object": {"type": "string", "description": "the program or library, where the file is not known"},
    },
    "object",
)
_PATH: JsonObject = {
    "uncertain_bytes": {"type": _OR_NULL["integer"], "description": "the possible error of 'bytes'"},
    "blocks": {"type": _OR_NULL["integer"]},
    "site": {**_LINE, "type": ["object", "null"], "description": "your own code nearest to the allocation"},
    "frames": {"type": "array", "items": _LINE, "description": "from the allocation outward"},
    "omitted_frames": {"type": "integer"},
}
_ENTRY: JsonObject = {
    "category": {"type": "string"},
    "label": {"type": "string"},
    "allocated_bytes": {"type": _OR_NULL["integer"]},
    "detail": {"type": "object"},
}


_PAUSES = "The process is paused for some milliseconds, as pause_seconds tells, and goes on unchanged."
READING = (
    Tool(
        "explain",
        "Where the memory of a process is",
        "Divides the resident set of a running process into entries that add up to it: live heap, freed "
        f"memory that malloc keeps, stacks, code, files, … {_PAUSES}",
        {"pid": _PID, "top": _TOP},
        ["pid"],
        _rows(_ENTRY, releasable_bytes={"type": _OR_NULL["integer"]}, **_PAUSE),
        Toolbox.explain,
    ),
    Tool(
        "explain_core",
        "Where the memory of a core file is",
        "As explain, for a core file, which has no page tables: what is said about resident memory is that "
        "of the pages in it.",
        {
            "core": _text("the core file, below the server's folder"),
            "program": _text("the program that left it"),
            "top": _TOP,
        },
        ["core"],
        _rows(_ENTRY, releasable_bytes={"type": _OR_NULL["integer"]}, **_PAUSE),
        Toolbox.explain_core,
    ),
    Tool(
        "heap",
        "Who holds the blocks of a heap",
        "Lists the variables, threads and other places outside of malloc's heap by what they alone keep "
        f"alive, and the blocks that nothing leads to. {_PAUSES}",
        {"pid": _PID, "top": _TOP},
        ["pid"],
        _rows(
            {
                "name": {"type": "string"},
                "kind": {"type": "string"},
                "blocks": {"type": "integer"},
                "parts": {"type": "array", "items": {"type": "object"}},
            },
            lost={"type": "object"},
            **_PAUSE,
        ),
        Toolbox.heap,
    ),
    Tool(
        "grow",
        "Which lines make a process bigger",
        "Records the page faults of a running process for some seconds, and lists the lines that made its "
        "memory grow. The process is not stopped, and nothing runs in it.",
        {
            "pid": _PID,
            "seconds": _integer("how long to record", 1, _MOST_RECORD_SECONDS, 10),
            "top": _TOP,
        },
        ["pid"],
        _rows(
            _PATH,
            unseen_bytes={"type": _OR_NULL["integer"]},
            lost_samples={"type": _OR_NULL["integer"]},
        ),
        Toolbox.grow,
    ),
    Tool(
        "show",
        "What a heap profile or a snapshot holds",
        "Lists the call paths of a file of massif, heaptrack, gperftools, jemalloc, DHAT, memray, pprof and "
        "others, or of a snapshot of a run. A run folder alone lists its snapshots.",
        {"file": _FILE, "by": _BY, "top": _TOP},
        ["file"],
        _rows(_PATH, snapshots={"type": "array", "items": {"type": "object"}}),
        Toolbox.show,
    ),
    Tool(
        "diff",
        "What grew between two snapshots",
        "Subtracts one heap snapshot from another: the call paths that grew or shrank, at their lines.",
        {"before": _FILE, "after": _FILE, "by": _BY, "top": _TOP},
        ["before", "after"],
        _rows(_PATH),
        Toolbox.diff,
    ),
    Tool(
        "monitor_verdict",
        "Whether a process grows",
        "Judges a recording of 'gdbmem monitor': growing, plateau, sawtooth, step, shrinking or "
        "inconclusive, with the slope and its 95 % interval. With 'pid' in place of 'run' it first records "
        "that process and its children for some seconds, without stopping them.",
        {
            "run": _text("a run of monitor, below the server's folder"),
            "pid": _PID,
            "seconds": _integer("how long to record", 5, _MOST_RECORD_SECONDS, 20),
        },
        [],
        _object(
            {
                "target": {"type": "string"},
                "seconds": {"type": "number"},
                "verdict": {"type": "object"},
                "peak_bytes": {"type": _OR_NULL["integer"]},
                "limit_bytes": {"type": _OR_NULL["integer"]},
                "seconds_to_limit": {"type": _OR_NULL["number"]},
                "warnings": {"type": "array", "items": {"type": "string"}},
            }
        ),
        Toolbox.monitor_verdict,
    ),
    Tool(
        "python_objects",
        "The live objects of a Python process",
        f"Counts the live objects of a running CPython by type, without running code in it. {_PAUSES}",
        {"pid": _PID, "top": _TOP},
        ["pid"],
        _rows({"type": {"type": "string"}, "count": {"type": "integer"}}, **_PAUSE),
        Toolbox.python_objects,
    ),
    Tool(
        "recipe_check",
        "Whether a recipe is valid",
        "Checks a recipe, a file that says at which lines of a program snapshots are taken. Runs nothing.",
        {"file": _text("the recipe, below the server's folder")},
        ["file"],
        _object(
            {
                "ok": {"type": "boolean"},
                "problems": {"type": "array", "items": {"type": "object"}},
            }
        ),
        Toolbox.recipe_check,
    ),
    Tool(
        "message",
        "What a message of gdbmem means",
        "Returns the paragraph about a message, by the name in brackets at its end.",
        {"slug": _text("the name in brackets, as format-unknown")},
        ["slug"],
        _object({"text": {"type": "string"}}),
        Toolbox.message,
    ),
)
_RECIPE_RESULT = _object(
    {
        "launcher": {"type": "integer", "description": "what recipe_result takes"},
        "is_running": {"type": "boolean"},
        "run": {"type": _OR_NULL["string"]},
        "status": {"type": _OR_NULL["integer"], "description": "of the program"},
        "expectations": {"type": "array", "items": {"type": "object"}},
        "diffs": {"type": "array", "items": {"type": "object"}},
        "said": {"type": "string"},
    }
)
# They run programs, or code in a process.
RUNNING = (
    Tool(
        "snap",
        "Take a heap snapshot of a process",
        "Makes the heap profiler that the process has (gperftools, jemalloc with prof:true, valgrind) write "
        "a snapshot, which show and diff read. Runs the profiler's function in the process, and pauses it.",
        {"pid": _PID, "name": _text("the name of the snapshot, letters and digits")},
        ["pid"],
        _object({"run": {"type": "string"}, "snapshot": {"type": "object"}, **_PAUSE}),
        Toolbox.snap,
        only_reads=False,
    ),
    Tool(
        "launch_recipe",
        "Run a recipe",
        "Starts the program that a recipe names, with snapshots at its lines; returns at once. "
        "recipe_result tells how it ended. A recipe can run any program.",
        {"file": _text("the recipe, below the server's folder")},
        ["file"],
        _RECIPE_RESULT,
        Toolbox.launch_recipe,
        only_reads=False,
    ),
    Tool(
        "recipe_result",
        "How a recipe ended",
        "Waits some seconds for the end of a recipe; its expectations, and what grew between its snapshots.",
        {
            "launcher": _integer("as launch_recipe returned it", 1, (1 << 31) - 1),
            "seconds": _integer("how long to wait", 0, _MOST_RECORD_SECONDS, 20),
        },
        ["launcher"],
        _RECIPE_RESULT,
        Toolbox.recipe_result,
    ),
)
