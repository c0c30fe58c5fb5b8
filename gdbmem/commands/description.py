"""A command of the shell or of gdb as text, from which its parser, help, completion, man page and reference are made.

gdb loads these at its start: nothing is imported, and no table is read, before a parser is needed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes gdb 4 ms to import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from gdbmem.commands.arguments import ArgumentParser

EITHER = "either"  # the title above options of which only one can be given
# What a table can't state about an option, or about the operand of this attribute.
_SETTINGS: dict[str, dict[str, Any]] = {
    "--for": {"dest": "duration"},
    "-x": {"dest": "gdb_scripts"},
    "--ex": {"dest": "gdb_commands"},
    "--vs": {"dest": "second", "nargs": "+"},
    "--try": {"dest": "tried", "nargs": "?", "const": "all", "choices": ("purge", "trim", "all")},
    "--fork": {"action": "store_const", "const": True},
    "--hold": {"action": "store_const", "const": False, "dest": "fork"},
    "--no-color": {"action": "store_const", "const": False, "dest": "color"},
    "--to": {"required": True},
    "--from": {"dest": "begin"},
    "--until, --to MOMENT": {"dest": "end"},
    "--until MOMENT": {"dest": "end"},
    "argument": {"default": ""},
    "state": {"default": ""},
    "topic": {"choices": ("help",)},
}


class Option:
    """An option or an operand, a line of a table.

    Options: ``--json`` (a flag), ``--top N``, ``-o, --output FILE``, ``--by line|file`` (one of these values),
    ``--env NAME=VALUE …`` (repeated). Operands begin with their attribute of the parsed arguments: ``pid PID``,
    ``target [PID]`` (may be left out), ``files FILE …`` (at least one), ``first [RUN …]``.
    """

    def __init__(self, words: str, text: str, group: str) -> None:
        parts = words.split(" ")
        self.group = group
        self.help = text
        self.names = [part.rstrip(",") for part in parts if part[0] == "-"]
        self.placeholder = " ".join(parts[len(self.names) or 1 :])  # as in usage lines
        self.may_be_missing = self.placeholder[:1] == "["
        self.repeats = "…" in self.placeholder
        inside = self.placeholder[1:-1] if self.may_be_missing else self.placeholder
        self.metavar = inside.removesuffix(" …")  # empty: a flag
        self._settings = _SETTINGS.get(words) or _SETTINGS.get(self.names[0] if self.names else parts[0], {})
        own = self.names[-1].lstrip("-").replace("-", "_") if self.names else parts[0]
        self.dest: str = self._settings.get("dest", own)

    @property
    def choices(self) -> Sequence[str]:
        """The only values; empty if there are others."""
        if "|" in self.metavar and self.metavar[0].islower() and not self.may_be_missing:
            return self.metavar.split("|")
        found: Sequence[str] = self._settings.get("choices", ())
        return found

    def declare(
        self, where: argparse._ActionsContainer, *, is_raw: bool, defaults: dict[str, object]
    ) -> None:
        """Add it to a parser or a group of one; a raw value is not read, but kept as text."""
        from gdbmem.commands.arguments import default_in, reader_for  # with what reads sizes, durations, …

        settings: dict[str, Any] = {"help": self.help.replace("%", "%%"), **self._settings}
        if self.metavar:
            reader = None if is_raw else reader_for(self.names[-1] if self.names else self.dest, self.metavar)
            states_default = reader is not None or self.choices
            default = default_in(self.help, reader) if states_default else None
            settings.update(type=reader, choices=self.choices or None, metavar=self.metavar)
            settings.setdefault("default", defaults.get(self.dest, default))
        else:
            settings.setdefault("action", "store_true")
        if self.names:
            if self.repeats:
                settings["action"] = "append"
        elif self.repeats or self.may_be_missing:
            settings["nargs"] = "?" if not self.repeats else "*" if self.may_be_missing else "+"
        where.add_argument(*(self.names or [self.dest]), **settings)


class Command:
    """A command: its text, the table of its options and operands, and examples.

    *text* is a line that says what it does, its usage if [OPTIONS] and the operands would not do, and prose. COMMAND in
    the text and in the *examples* stands for the name. Options in *raw* keep their values as text; *defaults* are those
    of options that their help doesn't state as (default: VALUE), and of attributes that no option has.
    """

    def __init__(
        self,
        name: str,
        text: str,
        table: str = "",
        examples: str = "",
        *,
        raw: Sequence[str] = (),
        actions: Sequence[Command] = (),
        **defaults: object,
    ) -> None:
        self.name = name
        self.text = text
        self.table = table
        self._examples = examples
        self._raw = raw
        self.actions = actions  # its commands of two words
        self._defaults = defaults

    @property
    def summary(self) -> str:
        """The first line of its text, to be continued: ``show where …``."""
        line = self.text.partition("\n")[0].removesuffix(".")
        return line[:1].lower() + line[1:]

    @property
    def examples(self) -> str:
        return self._examples.replace("COMMAND", self.name)

    @property
    def prose(self) -> str:
        """The text without its usage."""
        return self._parted()[1]

    def usage_lines(self) -> list[str]:
        """Return the lines of its usage."""
        usage = self._parted()[0]
        if usage:
            return [line.replace("COMMAND", self.name, 1) for line in usage]
        if self.actions:
            return [f"{self.name} {'|'.join(action.name.rpartition(' ')[2] for action in self.actions)} …"]
        options = self.options()
        words = ["[OPTIONS]"] if any(one.names for one in options) else []
        return [" ".join([self.name, *words, *(one.placeholder for one in options if not one.names)])]

    def _parted(self) -> tuple[list[str], str]:
        usage: list[str] = []
        prose: list[str] = []
        for line in self.text.splitlines():
            is_usage = line.startswith("Usage: ") or (
                usage and len(prose) == 1 and line.startswith("       ")
            )
            (usage if is_usage else prose).append(line[7:] if is_usage else line)
        return usage, "\n".join(prose).strip().replace("COMMAND", self.name)

    def options(self) -> list[Option]:
        """Return the options and operands, in order."""
        group = ""
        lines: list[tuple[str, str, str]] = []
        for line in self.table.splitlines():
            if not line.startswith("  "):
                group = line.rstrip(":")
                group += str(len(lines)) if group == EITHER else ""  # each of these is a group of its own
            elif line[2] != " ":
                words, _, text = line[2:].partition("  ")
                lines.append((words, text.strip(), group))
            else:
                words, text, group = lines[-1]
                lines[-1] = (words, f"{text} {line.strip()}".strip(), group)
        return [Option(*line) for line in lines]

    def sections(self) -> list[tuple[str, list[Option]]]:
        """Return the operands, the options and the groups with their titles, as --help shows them."""
        found: dict[str, list[Option]] = {"operands": [], "options": []}
        for one in self.options():
            title = "options" if not one.group or one.group.startswith(EITHER) else one.group
            found.setdefault(title if one.names else "operands", []).append(one)
        return [section for section in found.items() if section[1]]

    def parser(self, name: str = "") -> ArgumentParser:
        """Return a parser of its options and operands; *name* is another one of its names."""
        from gdbmem.commands.arguments import ArgumentParser  # argparse is slow to import

        parser = ArgumentParser(prog=name or self.name)
        self._fill(parser)
        return parser

    def _fill(self, parser: ArgumentParser) -> None:
        parser.usage = "\n       ".join(self.usage_lines()).replace(self.name, "%(prog)s")
        parser.description, parser.epilog = self.prose, self.examples
        options = self.options()
        if self.actions:
            names = [action.name.rpartition(" ")[2] for action in self.actions]
            below = parser.add_subparsers(
                dest="action", required=True, metavar="|".join(names), prog=self.name
            )
            for action, name in zip(self.actions, names):
                action._fill(below.add_parser(name, help=action.summary, is_action=True))
        groups: dict[str, argparse._ActionsContainer] = {"": parser}
        for one in options:
            if one.group not in groups:
                is_choice = one.group.startswith(EITHER)
                groups[one.group] = (
                    parser.add_mutually_exclusive_group()
                    if is_choice
                    else parser.add_argument_group(one.group)
                )
            one.declare(groups[one.group], is_raw=one.dest in self._raw, defaults=self._defaults)
        taken = {one.dest for one in options}
        parser.set_defaults(**{name: one for name, one in self._defaults.items() if name not in taken})


class GdbCommand(Command):
    """A command of gdb, under each of its *names*, of which the first is the one that documentation uses."""

    def __init__(
        self,
        names: str,
        text: str,
        table: str = "",
        examples: str = "",
        *,
        implementation: str,
        category: str = "data",
        completer: str = "",
        is_prefix: bool = False,
        repeats: bool = False,
        **defaults: Any,
    ) -> None:
        self.names = names.split(", ")
        super().__init__(self.names[0], text, table, examples, **defaults)
        self.implementation = implementation  # module:class in debugger/
        self.category = category  # gdb's COMMAND_…
        self.completer = completer  # gdb's COMPLETE_…; empty: the command's options and operands
        self.is_prefix = is_prefix  # of commands of two words
        self.repeats = repeats  # by an empty line

    def help_for(self, name: str) -> str:
        """Return the text of `help` for one of its names: without titles and operands, -o and its like in one row."""
        from gdbmem.commands.options import OUTPUT  # which gdb has loaded

        rows: list[str] = []
        is_shown = False
        for row in self.table.replace(OUTPUT, "  --json, -o FILE, --force\n").splitlines():
            is_shown = is_shown if row[:3] == "   " else row[:3] == "  -"
            rows += [row] if is_shown else []
        text = self.text.rstrip()
        parts = [text, *([""] if rows and "\n\n" not in text else []), *rows]
        parts += ["", self._examples.rstrip()] if self._examples else []
        return "\n".join(parts).replace("COMMAND", name)
