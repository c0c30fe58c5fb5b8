"""Run `gdbmem show`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, TextIO

from gdbmem.api import profiles
from gdbmem.commands.arguments import ArgumentParser, read_options_from
from gdbmem.errors import InputError, UsageError
from gdbmem.files import spool_operands
from gdbmem.model.calltree import Profile
from gdbmem.model.diff import Diff
from gdbmem.profiles.paths import Query, query_from
from gdbmem.profiles.text import print_diff, print_sites, print_timeline
from gdbmem.terminal.console import Working, make_console, open_output, print_notices
from gdbmem.terminal.drawing import source_roots
from gdbmem.text import printable


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Read and print."""
    arguments = parser.parse_args(argv)
    query = query_from(arguments)._replace(source_roots=source_roots())
    options = read_options_from(arguments)
    with open_output(arguments.output, force=arguments.force) as stream:
        (arguments.operand,) = spool_operands([arguments.operand])
        place, selector = profiles.find_operand(arguments.operand)
        if selector is not None and arguments.snapshot is not None:
            raise UsageError(
                f"'{printable(selector)}' and --snapshot both name a snapshot", hint="leave one of them out"
            )
        wanted = arguments.snapshot if selector is None else selector
        if options.is_stretch:
            place, wanted = profiles.file_of_stretch(place, wanted), None
        if not isinstance(place, profiles.Run):
            _show_file(place, wanted, query, options, arguments, stream)
        elif wanted is None and not place.snapshots and profiles.has_series(place.folder):
            _show_series(place.folder, arguments, stream)
        else:
            from gdbmem.cli.show_run import show_run  # a run may hold results of any kind

            show_run(place, wanted, query, options, arguments, stream)
    return 0


def _show_file(
    path: Path,
    wanted: Optional[str],
    query: Query,
    options: profiles.ReadOptions,
    arguments: argparse.Namespace,
    stream: TextIO,
) -> None:
    """Print a profile, or what is no profile but a recording or a saved heap."""
    with Working(f"reading {path}"):
        try:
            profile = profiles.open_profile(path, options)
        except InputError as error:
            if error.slug not in ("format-unreadable", "bad-heap"):
                raise
            from gdbmem.api.series import is_series_file  # seldom needed

            if wanted is None and is_series_file(path):
                _show_series(path, arguments, stream)
            elif not _show_kept(path, wanted, arguments, stream):
                raise
            return
        if profile.source_format == "heap":  # its holders; as a profile it is for pages and other tools
            _show_kept(path, wanted, arguments, stream)
            return
        difference = profiles.difference_in_file(profile)
        if difference is not None:
            _write_difference(difference, query, arguments, stream)
        else:
            _show_profile(profile, wanted, query, arguments, stream)


def _show_kept(path: Path, wanted: Optional[str], arguments: argparse.Namespace, stream: TextIO) -> bool:
    """Print the saved result in *path* that is no profile; return whether there is one."""
    from gdbmem.api.runs import kept_kind  # as in run()

    kind = kept_kind(path, wanted)
    if kind:
        from gdbmem.cli.show_run import show_kept  # as in run()

        show_kept(path, kind, wanted, arguments, make_console(stream, color=arguments.color))
    return bool(kind)


def _show_series(path: Path, arguments: argparse.Namespace, stream: TextIO) -> None:
    """Print a recording of memory over time, a file or a folder."""
    from gdbmem.api.series import recorded  # as the next: for series only
    from gdbmem.cli.monitor_reporting import show_series  # slow to import

    with recorded([path]) as (folder,):
        show_series(folder, arguments, stream)


def _write_difference(diff: Diff, query: Query, arguments: argparse.Namespace, stream: TextIO) -> None:
    if arguments.json:
        from gdbmem.profiles.documents import diff_json  # not always needed

        stream.write(diff_json(diff, query))
    else:
        print_diff(diff, query, make_console(stream, color=arguments.color), known_from=arguments.known or "")


def _show_profile(
    profile: Profile, wanted: Optional[str], query: Query, arguments: argparse.Namespace, stream: TextIO
) -> None:
    snapshot = None
    if wanted is not None or profile.peak_tree_index is not None:
        snapshot = profiles.load_from_profile(profile, wanted or "peak").snapshot
    # JSON has all frames of a path.
    is_wide = arguments.json and query.by == "path"
    uses = profiles.uses_of(profile, query._replace(all_frames=True) if is_wide else query)
    if arguments.json:
        from gdbmem.profiles.documents import profile_json  # not always needed

        stream.write(profile_json(profile, query, snapshot=snapshot, uses=uses))
        return
    console = make_console(stream, color=arguments.color)
    if len(profile.snapshots) > 1 or snapshot is None:
        print_timeline(profile, console)
    if snapshot is not None:
        if len(profile.snapshots) > 1:
            console.print()
        moment = f"snapshot {snapshot.totals.index}" if len(profile.snapshots) > 1 else snapshot.source
        moment = f"the peak of {moment}" if snapshot.totals.name == profiles.PEAK else moment
        print_sites(snapshot, query, console, moment=moment, known_from=arguments.known or "", uses=uses)
    if len(profile.snapshots) == 1 and snapshot is not None:
        print_notices(profile.notices, console)
