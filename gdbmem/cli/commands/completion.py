"""Print the shell code that completes gdbmem's commands, options, choices and snapshots (RUN:NAME).

bash: put  eval "$(gdbmem completion bash)"  into ~/.bashrc
zsh:  put  eval "$(gdbmem completion zsh)"   into ~/.zshrc, after compinit
fish: gdbmem completion fish > ~/.config/fish/completions/gdbmem.fish
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gdbmem.api.profiles import Run, find_operand
from gdbmem.api.runs import kept_records
from gdbmem.arguments import ArgumentParser
from gdbmem.cli.main import SUBCOMMANDS, parser_of
from gdbmem.engines.engine import NAMES
from gdbmem.errors import GdbmemError
from gdbmem.launch.engine_choice import AUTO
from gdbmem.terminal.console import message_names

# Options whose values are validated after parsing, with a specific message.
_NAMED_ELSEWHERE = {"--engine": (*NAMES, AUTO)}
# Each asks this command for the words, so that the parsers are the only source. Where it has none, the shell
# completes file names. bash breaks words at colons: what stands before the last one is taken off.
_SCRIPTS = {
    "bash": """\
_gdbmem() {
  local IFS=$' \\t\\n' line=${COMP_LINE:0:COMP_POINT} words current
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  current=${words[${#words[@]}-1]}
  IFS=$'\\n'
  COMPREPLY=($(gdbmem completion --words "${words[@]}" 2>/dev/null))
  [[ $current == *:* ]] && COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
}
complete -o bashdefault -o default -F _gdbmem gdbmem
""",
    "zsh": """\
_gdbmem() {
  local -a found
  found=("${(@f)$(gdbmem completion --words "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _gdbmem gdbmem
""",
    "fish": """\
complete -c gdbmem -a '(gdbmem completion --words (commandline -opc) (commandline -ct) 2>/dev/null)'
""",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `gdbmem completion`."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help=", ".join(_SCRIPTS))


def run(argv: Sequence[str], parser: ArgumentParser) -> int:
    """Print the shell's script; after --words the candidates for the last of the words that follow."""
    if list(argv[:1]) == ["--words"]:
        sys.stdout.writelines(f"{word}\n" for word in candidates(argv[1:]) if word.isprintable())
    else:
        sys.stdout.write(_SCRIPTS[parser.parse_args(argv).shell])
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of *words*, the first of which is gdbmem; [] means file names."""
    if len(words) < 2:
        return []
    before, current = words[1:-1], words[-1]
    try:
        found = _all_candidates(before, current)
    except GdbmemError:  # a damaged run, …: completion is silent
        return []
    return [word for word in found if word.startswith(current)]


def _all_candidates(before: Sequence[str], current: str) -> Iterable[str]:
    if not before:
        return [*SUBCOMMANDS, "--help", "--version"]
    if before[0] not in SUBCOMMANDS or "--" in before:  # the rest are the program's own words
        return []
    if before[0] == "help":
        return [*SUBCOMMANDS, *message_names()]
    parser: argparse.ArgumentParser = parser_of(before[0])
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            if len(before) == 1:
                return list(action.choices)
            parser = action.choices.get(before[1], parser)
    return _words_of(parser, before, current)


def _words_of(parser: argparse.ArgumentParser, before: Sequence[str], current: str) -> Iterable[str]:
    for action in parser._actions:
        if before[-1] in action.option_strings and action.nargs != 0:
            choices = action.choices or _NAMED_ELSEWHERE.get(before[-1])
            return map(str, choices) if choices else _of_run(current)
    if current.startswith("-"):
        return [option for action in parser._actions for option in action.option_strings]
    operands = [action for action in parser._actions if not action.option_strings and action.choices]
    choices = [str(one) for action in operands for one in action.choices or ()]
    return choices or _word_beside_files(parser, before, current) or _of_run(current)


def _word_beside_files(parser: argparse.ArgumentParser, before: Sequence[str], current: str) -> Iterable[str]:
    """Return the word that the first operand may be instead of a file: metavar FILE|word, and no file of that name."""
    first = next((action for action in parser._actions if not action.option_strings), None)
    words = str(first.metavar).split("|") if first is not None and len(before) == 1 and current else []
    if any(path.name.startswith(current) for path in Path().iterdir()):
        return []
    return [word for word in words if word.islower() and word.startswith(current)]


def _of_run(current: str) -> Iterable[str]:
    head, colon, _ = current.rpartition(":")
    if not colon or not head:
        return []
    place, rest = find_operand(head)
    if not isinstance(place, Run) or rest is not None:
        return []
    names = [record.name for record in place.snapshots] + [record.name for record in kept_records(place)]
    return [f"{head}:{name}" for name in dict.fromkeys(names)]
