"""A command of the shell or of gdb as text, from which its parser, help, completion, man page and reference are made.

gdb loads these at its start: nothing is imported, and no table is read, before a parser is needed.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself takes gdb 4 ms to import
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from gdbmem.arguments import ArgumentParser

EITHER = "either"  # the title above options of which only one can be given
# What a table can't state about an option, or about the operand of this attribute.
_SETTINGS: dict[str, dict[str, Any]] = {
    "--for": {"dest": "duration"},
    "-x": {"dest": "gdb_scripts"},
    "--ex": {"dest": "gdb_commands"},
    "--vs": {"dest": "second", "nargs": "+"},
    "--fork": {"action": "store_const", "const": True},
    "--hold": {"action": "store_const", "const": False, "dest": "fork"},
    "--no-color": {"action": "store_const", "const": False, "dest": "color"},
    "--to": {"required": True},
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
        self.group = group
        self.help = text
        self.names = [word.rstrip(",") for word in words.split(" ") if word[0] == "-"]
        rest = (
            words[words.index(self.names[-1]) + len(self.names[-1]) :]
            if self.names
            else words.partition(" ")[2]
        )
        self._shape = rest.strip()
        self.metavar = (self._shape[1:-1] if self._shape[:1] == "[" else self._shape).removesuffix(" …")
        key = self.names[0] if self.names else words.partition(" ")[0]
        self.settings = _SETTINGS.get(key, {})
        own = self.names[-1].lstrip("-").replace("-", "_") if self.names else key
        self.dest: str = self.settings.get("dest", own)

    @property
    def choices(self) -> Sequence[str]:
        """The only values; empty if there are others."""
        words = self.metavar.split("|")
        return words if len(words) > 1 and self._shape[0].islower() else self.settings.get("choices", ())

    @property
    def takes_value(self) -> bool:
        return bool(self.metavar)

    @property
    def placeholder(self) -> str:
        """An operand as usage lines have it, as in ``[FILE …]``."""
        return self._shape

    def declare(
        self, where: argparse._ActionsContainer, *, is_raw: bool, defaults: dict[str, object]
    ) -> None:
        """Add it to a parser or a group of one; a raw value is not read, but kept as text."""
        from gdbmem.commands.values import default_in, reader_for  # with what reads sizes, durations, …

        settings: dict[str, Any] = dict(self.settings)
        reader = None
        if self.metavar and not is_raw:
            reader = reader_for(self.names[-1] if self.names else self.dest, self.metavar)
        if reader is not None:
            settings["type"] = reader
        if self.choices:
            settings["choices"] = self.choices
        if self.metavar:
            settings["metavar"] = self.metavar
            default = default_in(self.help, reader) if reader is not None or self.choices else None
            settings.setdefault("default", defaults.get(self.dest, default))
        elif "action" not in settings:
            settings["action"] = "store_true"
        if not self.names:
            settings.pop("dest", None)
            if self._shape[0] == "[" or self._shape.endswith("…"):
                settings["nargs"] = (
                    "?" if not self._shape.endswith(("…", "…]")) else "*" if self._shape[0] == "[" else "+"
                )
        elif self._shape.endswith("…"):
            settings["action"] = "append"
        where.add_argument(*(self.names or [self.dest]), help=self.help.replace("%", "%%"), **settings)


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
        self.examples = examples
        self._raw = raw
        self.actions = actions  # its commands of two words
        self._defaults = defaults

    @property
    def summary(self) -> str:
        """The first line of its text, to be continued: ``show where …``."""
        line = self.text.partition("\n")[0].removesuffix(".")
        return line[:1].lower() + line[1:]

    @property
    def prose(self) -> str:
        """The text without its usage."""
        return self._parted()[1]

    def usage_lines(self) -> list[str]:
        """Return the lines of its usage."""
        usage = self._parted()[0]
        if usage:
            return [line.replace("COMMAND", self.name, 1) for line in usage]
        words = [one.placeholder for one in self.options() if not one.names]
        if self.actions:
            words = ["|".join(action.name.rpartition(" ")[2] for action in self.actions), "…"]
        return [" ".join([self.name, *([] if self.actions else ["[OPTIONS]"]), *words])]

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
        from gdbmem.arguments import ArgumentParser  # argparse takes 4 ms of gdb's start

        parser = ArgumentParser(prog=name or self.name)
        self._fill(parser)
        return parser

    def _fill(self, parser: ArgumentParser) -> None:
        parser.usage = "\n       ".join(self.usage_lines()).replace(self.name, "%(prog)s")
        parser.description, parser.epilog = self.prose.replace("%", "%%"), self.examples
        options = self.options()
        if self.actions:
            names = [action.name.rpartition(" ")[2] for action in self.actions]
            below = parser.add_subparsers(dest="action", required=True, metavar="|".join(names))
            for action, name in zip(self.actions, names):
                action._fill(below.add_parser(name, help=action.summary))
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

        rows = self.table.replace(OUTPUT, "  --json, -o FILE, --force\n").splitlines()
        table = [row for row in rows if row[:3] == "  -" or (row[:3] == "   " and row.strip())]
        lines = self.text.rstrip().splitlines()
        has_prose = "" in lines
        lines += ["", *table] if table and not has_prose else table
        lines += ["", *self.examples.rstrip().splitlines()] if self.examples else []
        return "\n".join(lines).replace("COMMAND", name)
