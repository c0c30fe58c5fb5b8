"""The pages of a process, of a core, and of --json documents other than profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gdbmem.api.ledgers import Looks, explain, explain_core, read_ledger, saved_heap_map
from gdbmem.api.pools import answer_failed, read_pools
from gdbmem.errors import UsageError
from gdbmem.formats.documents import read_comparison, read_objects, read_steps
from gdbmem.page.ledger_page import ledger_growth_page, ledger_page
from gdbmem.page.page import Page
from gdbmem.page.pools_page import objects_growth_page, objects_page, pools_page
from gdbmem.page.steps_page import comparison_page, steps_page
from gdbmem.profiles.paths import Query
from gdbmem.runs.saved_results import file_text


def process_page(pid: int, say: Callable[[str], None]) -> Page:
    """Return the page of the resident memory of process *pid*, with a map of its heap if there is one."""
    look = Looks.asked(map_if_any=True)
    ledger = explain(pid, progress=say, look=look)
    return ledger_page(ledger, look.map if look is not None else None)


def core_page(core: Path) -> Page:
    """Return the page of the memory in the core file *core*."""
    look = Looks.asked(map_if_any=True)
    ledger = explain_core(core, look=look)
    return ledger_page(ledger, look.map if look is not None else None)


def _ledgers(operands: Sequence[str], query: Query) -> Page:
    del query
    ledgers = [read_ledger(one) for one in operands]
    if len(ledgers) == 1:
        return ledger_page(ledgers[0], saved_heap_map(operands[0]))
    return ledger_growth_page(ledgers, [Path(one).name for one in operands])


def _objects(operands: Sequence[str], query: Query) -> Page:
    del query
    moments = [read_objects(Path(one)) for one in operands]
    if len(moments) == 1:
        return objects_page(moments[0])
    return objects_growth_page(moments, [Path(one).name for one in operands])


def _steps(operands: Sequence[str], query: Query) -> Page:
    name = _one_alone(operands, "steps", "'memwatch report --since' compares two recordings of steps")
    return steps_page(read_steps(file_text(Path(name)), name), f"the steps of {Path(name).name}", query)


def _comparison(operands: Sequence[str], query: Query) -> Page:
    del query
    name = _one_alone(operands, "comparison", "'gdbmem compare' takes more runs on each side")
    return comparison_page(*read_comparison(file_text(Path(name)), name))


def pools_of_files(operands: Sequence[str], query: Query) -> Page:
    """Return the page of the pools in a log, a memory dump, or what `gdbmem bfc --json` wrote."""
    del query
    name = _one_alone(operands, "bfc", "'gdbmem bfc diff' compares two")
    pools = read_pools(name)
    decisions = [answer_failed(one) for one in pools.allocators]
    return pools_page(pools.allocators, decisions, pools.notices, Path(name).name)


def _one_alone(operands: Sequence[str], what: str, hint: str) -> str:
    if len(operands) > 1:
        raise UsageError(f"a page can show only one file of kind '{what}'", hint=hint)
    return operands[0]


# By the kind of a document.
PAGES: Mapping[str, Callable[[Sequence[str], Query], Page]] = {
    "bfc": pools_of_files,
    "comparison": _comparison,
    "ledger": _ledgers,
    "python-objects": _objects,
    "steps": _steps,
}
