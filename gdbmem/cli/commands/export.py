"""Run `gdbmem export`."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional
from urllib.parse import urlencode, urlsplit

from gdbmem.api import profiles
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import InputError, Notice, ToolError, UsageError
from gdbmem.files import spool_operands
from gdbmem.model.diff import Diff
from gdbmem.profiles.export import BINARY, PYROSCOPE, TRACE, encode, encode_course, encode_for_server
from gdbmem.profiles.paths import Query, counts_blocks
from gdbmem.terminal.console import open_output
from gdbmem.text import format_size, printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read, convert, write."""
    arguments = parser.parse_args(argv)
    if len(arguments.operands) > 2:
        raise UsageError("gdbmem export takes one snapshot, or two for their difference")
    if counts_blocks(arguments.metric):
        raise UsageError("an export always has both bytes and blocks", hint="leave 'blocks' out of --metric")
    if arguments.to in (TRACE, PYROSCOPE) and read_options_from(arguments).is_stretch:
        raise UsageError(f"--to {arguments.to} takes no --from and --until", hint="--to csv, pprof, …, do")
    if (
        arguments.to != PYROSCOPE
        and len(arguments.operands) == 1
        and profiles.has_series(Path(arguments.operands[0]))
    ):
        return _export_series(Path(arguments.operands[0]), arguments)
    if arguments.to == PYROSCOPE:
        return _push(arguments)
    if arguments.label:
        raise UsageError(f"--label is for --to {PYROSCOPE}")
    if arguments.to == TRACE:
        return _export_course(arguments)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to in BINARY and stream.isatty():
            raise UsageError(
                f"{arguments.to} is a binary format and is not written to a terminal",
                hint="name a file with -o",
            )
        arguments.operands = spool_operands(arguments.operands)
        content = _converted(arguments)
        stream.flush()
        stream.buffer.write(content)
    return 0


def _converted(arguments: argparse.Namespace) -> bytes:
    options, operands = read_options_from(arguments), arguments.operands
    said: list[Notice] = []
    if len(operands) > 1:
        what, is_change = profiles.diff(operands[0], operands[1], options=options), True
    else:
        shown = profiles.read_shown(operands[0], options)
        is_change = isinstance(shown, Diff)
        what = shown if isinstance(shown, Diff) else profiles.as_growth(shown.snapshot)
        said += () if isinstance(shown, Diff) else shown.notices
    _tell([*said, *what.notices])
    return encode(what, arguments.to, is_change=is_change)


def _tell(notices: Sequence[Notice]) -> None:
    for notice in dict.fromkeys(notices):
        print(f"gdbmem: {printable(notice.sentence)}", file=sys.stderr)


_LISTED = 20  # lines that have a counter of their own
_UNITS = {"s": 1.0, "ms": 1e-3}


def _export_course(arguments: argparse.Namespace) -> int:
    """Write the snapshots of a run or of a file over time."""
    if len(arguments.operands) > 1:
        raise UsageError(
            f"{TRACE} shows a series over time, not a difference", hint="name one run or one file of several"
        )
    (operand,) = spool_operands(arguments.operands)
    options = read_options_from(arguments)
    loaded = profiles.read_series(operand, options)
    seconds = _times(operand, loaded, options)
    found = profiles.diff(*loaded, options=options)
    _tell(found.notices)
    content = encode_course(found, seconds, Query(by="line", top=_LISTED, unchanged=True))
    with open_output(arguments.output, force=arguments.force) as stream:
        stream.write(content.decode())
    return 0


def _times(operand: str, loaded: Sequence[profiles.Loaded], options: profiles.ReadOptions) -> list[float]:
    place, _ = profiles.find_operand(operand)
    times: list[Optional[float]]
    if isinstance(place, profiles.Run):
        known = {record.name: record.seconds for record in place.snapshots}
        times = [known.get(one.snapshot.name) for one in loaded]
    else:
        scale = _UNITS.get(profiles.open_profile(place, options).time_unit)
        times = [None if scale is None else one.snapshot.totals.time * scale for one in loaded]
    seconds = [time for time in times if time is not None]
    if len(seconds) < len(times) or sorted(seconds) != seconds:
        raise InputError(
            f"the snapshots of {printable(operand)} have no times in seconds, which {TRACE} needs",
            slug="no-times",
            hint="take them with gdbmem launch, or massif's with --time-unit=ms; 'gdbmem report' draws any series",
        )
    return seconds


def _export_series(folder: Path, arguments: argparse.Namespace) -> int:
    """Write a monitor's series, row by row."""
    if arguments.to not in ("csv", "json", TRACE):
        raise UsageError(
            f"a recorded series can be exported to csv, json and {TRACE}", hint=f"--to csv, json or {TRACE}"
        )
    if read_options_from(arguments).is_stretch:
        raise UsageError("a recorded series is exported whole", hint="leave --from and --until out")
    from gdbmem.api.series import Recording, summary_of  # for a series only, as the next
    from gdbmem.series.document import (  # slow to import
        write_series_csv,
        write_series_json,
        write_series_trace,
    )

    recording = Recording(folder)
    with open_output(arguments.output, force=arguments.force) as stream:
        if arguments.to == "csv":
            write_series_csv(stream, recording.samples(), recording.lines)
        elif arguments.to == TRACE:
            write_series_trace(stream, recording.facts, recording.samples(), recording.marks, recording.lines)
        else:
            write_series_json(
                stream, summary_of(recording), recording.samples(), recording.marks, recording.lines
            )
    return 0


# A snapshot, pushed to a server of Pyroscope by one of its two endpoints.


_PUSH, _INGEST = "/push.v1.PusherService/Push", "/ingest"
_ANSWER_SECONDS = 15.0
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}=[^\x00-\x1f\x7f]{1,1024}")
_SERVICE = "service_name"
_SAMPLED = {"sampled": False, "cumulative": False, "aggregation": "average"}


def _push(arguments: argparse.Namespace) -> int:
    """Push one snapshot to the server that -o names."""
    if len(arguments.operands) > 1:
        raise UsageError(f"{PYROSCOPE} keeps snapshots, not differences", hint="push each of the two")
    base, endpoint = _server(arguments.output)
    wrong = next((text for text in arguments.label if not _LABEL.fullmatch(text)), None)
    if wrong is not None:
        raise UsageError(f"--label {printable(wrong)} is not NAME=VALUE", hint="--label service_name=solver")
    arguments.operands = spool_operands(arguments.operands)
    (operand,) = arguments.operands
    shown = profiles.read_snapshot(operand, read_options_from(arguments))
    _tell(shown.notices)
    found = profiles.as_growth(shown.snapshot)
    taken_at, labels = _origin(operand, shown)
    labels.update(text.split("=", 1) for text in arguments.label)
    labels.setdefault(_SERVICE, Path(shown.snapshot.command.partition(" ")[0]).name or "unknown")
    labels = {name: printable(value) for name, value in labels.items()}  # in UTF-8
    content = encode_for_server(found, taken_at)
    if endpoint == _INGEST:
        _post_form(base, content, labels, taken_at)
    else:
        _post_series(base, content, labels)
    named = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
    print(f"pushed {format_size(found.delta_bytes)} to {printable(base)}: {printable(named)}")
    return 0


def _server(output: Optional[str]) -> tuple[str, str]:
    """Return the address of the server that *output* names, without the path, and the path."""
    try:
        parts = urlsplit(output or "")
        host, _ = parts.hostname, parts.port  # raises ValueError
    except ValueError:
        host = None
    if (
        not host
        or parts.scheme not in ("http", "https")
        or "@" in parts.netloc
        or parts.query
        or parts.fragment
    ):
        raise UsageError(
            f"--to {PYROSCOPE} needs the address of a server, without a name or password in it",
            hint=f"-o http://localhost:4040, or -o http://localhost:4040{_INGEST} for servers before 1.0",
        )
    path = parts.path.rstrip("/")
    above = path.removesuffix(_PUSH).removesuffix(_INGEST)
    return f"{parts.scheme}://{parts.netloc}{above}", _INGEST if path.endswith(_INGEST) else _PUSH


def _origin(operand: str, shown: profiles.Loaded) -> tuple[float, dict[str, str]]:
    """Return when a snapshot was taken, by itself or by its file, and the labels that tell its rank."""
    place, name = profiles.find_operand(operand)
    labels = {}
    if isinstance(place, profiles.Run):
        record = place.record(name) if name is not None else profiles.asked_for(place.snapshots)[-1]
        rank = place.facts.get("rank") or {}
        labels = {key: str(rank[key]) for key in ("rank", "host") if rank.get(key) not in (None, "")}
        place = place.path(record)
    moment = shown.moment
    if moment is not None and moment.clock == "epoch":
        return moment.time, labels
    return place.stat().st_mtime, labels


def _post_series(base: str, content: bytes, labels: Mapping[str, str]) -> None:
    import uuid  # for a push only, as the next

    named = {"__name__": "memory", **labels}
    series = {
        "labels": [{"name": name, "value": value} for name, value in sorted(named.items())],
        "samples": [{"rawProfile": base64.b64encode(content).decode(), "ID": str(uuid.uuid4())}],
    }
    answer = _post(f"{base}{_PUSH}", json.dumps({"series": [series]}).encode(), "application/json")
    try:
        is_accepted = isinstance(json.loads(answer), dict)
    except ValueError:
        is_accepted = False
    if not is_accepted:
        raise _refused(base, "it answered, but not as Pyroscope does")


def _post_form(base: str, content: bytes, labels: Mapping[str, str], taken_at: float) -> None:
    import uuid

    others = sorted((name, value) for name, value in labels.items() if name != _SERVICE)
    named = ",".join(f"{name}={re.sub('[{},=]', '_', value)}" for name, value in others)
    service = re.sub("[{},=]", "_", labels[_SERVICE])
    query = {
        "name": f"{service}{{{named}}}",
        "from": int(taken_at),
        "until": int(taken_at) + 1,
        "spyName": "gdbmem",
        "format": "pprof",
    }
    kinds = {
        "inuse_objects": "objects",
        "inuse_space": "bytes",
        "alloc_objects": "objects",
        "alloc_space": "bytes",
    }
    config = json.dumps({kind: {"units": unit, **_SAMPLED} for kind, unit in kinds.items()}).encode()
    boundary = uuid.uuid4().hex
    body = b""
    for name, part in (("profile", content), ("sample_type_config", config)):
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        body += f"{head}Content-Type: application/octet-stream\r\n\r\n".encode() + part + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    _post(f"{base}{_INGEST}?{urlencode(query)}", body, f"multipart/form-data; boundary={boundary}")


def _post(address: str, body: bytes, kind: str) -> bytes:
    """Post *body* once and return the answer; raises ToolError for any other than that it was taken."""
    import http.client  # these are slow to import
    import urllib.request
    from urllib.error import HTTPError, URLError

    class Stay(urllib.request.HTTPRedirectHandler):
        """Follows no redirection, which would send a GET without the profile."""

        def redirect_request(self, *_: object) -> None:
            return None

    request = urllib.request.Request(address, body, {"Content-Type": kind, "Connect-Protocol-Version": "1"})
    base = address.partition("?")[0]
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=_ANSWER_SECONDS) as answer:
            content: bytes = answer.read(1 << 16)
            return content
    except HTTPError as error:
        with error, contextlib.suppress(OSError, http.client.HTTPException):
            said = error.read(1 << 16).decode(errors="replace")
            raise _refused(base, f"{error.code} {error.reason} {_message(said)}".strip()) from None
        raise _refused(base, str(error.code)) from None
    except URLError as error:
        why = error.reason
        raise _refused(base, _reason(why) if isinstance(why, OSError) else str(why)) from None
    except OSError as error:
        raise _refused(base, _reason(error)) from None
    except http.client.HTTPException as error:
        raise _refused(base, f"its answer is not HTTP ({type(error).__name__})") from None


def _reason(error: OSError) -> str:
    import socket  # as urllib, which has imported it

    if isinstance(error, (TimeoutError, socket.timeout)):  # before Python 3.10 two
        return f"no answer within {_ANSWER_SECONDS:.0f} s"
    return error.strerror or str(error)


def _message(said: str) -> str:
    try:
        found = json.loads(said)
        said = str(found["message"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(said.split())[:200]


def _refused(base: str, why: str) -> ToolError:
    return ToolError(
        f"{printable(base)} did not take the profile: {printable(why)}",
        slug="not-pushed",
        hint="nothing was changed here; mend that and push it again, or write it to a file with --to pprof -o FILE",
    )
