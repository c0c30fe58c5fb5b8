"""Run `gdbmem completion`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from gdbmem.api.profiles import Run, find_operand
from gdbmem.api.runs import saved_records
from gdbmem.commands.arguments import ArgumentParser
from gdbmem.commands.description import Command, Option
from gdbmem.commands.shell import SHELL_COMMANDS
from gdbmem.engines.engine import AUTO, NAMES
from gdbmem.errors import GdbmemError

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
        return [*SHELL_COMMANDS, "--help", "--version"]
    if before[0] not in SHELL_COMMANDS or "--" in before:  # the rest are the program's own words
        return []
    if before[0] == "help":
        from gdbmem.messages import message_names  # for it only

        return [*SHELL_COMMANDS, *message_names()]
    command = SHELL_COMMANDS[before[0]]
    actions = {action.name.rpartition(" ")[2]: action for action in command.actions}
    if actions and len(before) == 1:
        return actions
    return _words_of(actions.get(before[1], command) if actions else command, before, current)


def _words_of(command: Command, before: Sequence[str], current: str) -> Iterable[str]:
    options = command.options()
    for option in options:
        if before[-1] in option.names and option.metavar:
            return option.choices or _NAMED_ELSEWHERE.get(before[-1]) or _of_run(current)
    if current.startswith("-"):
        return ["-h", "--help", *(name for option in options for name in option.names)]
    operands = [option for option in options if not option.names]
    choices = [word for operand in operands for word in operand.choices]
    return choices or _word_beside_files(operands[:1], before, current) or _of_run(current)


def _word_beside_files(first: Sequence[Option], before: Sequence[str], current: str) -> Iterable[str]:
    """Return the word that the first operand may be instead of a file: metavar FILE|word, and no file of that name."""
    words = first[0].metavar.split("|") if first and len(before) == 1 and current else []
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
    names = [record.name for record in place.snapshots] + [record.name for record in saved_records(place)]
    return [f"{head}:{name}" for name in dict.fromkeys(names)]
