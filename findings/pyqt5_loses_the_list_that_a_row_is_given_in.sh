#!/usr/bin/env bash
# PyQt5 loses the list that a row of a model is given in
#
# Seen with PyQt5 5.15.11, its wheel for Linux, and CPython 3.11. QStandardItemModel.appendRow takes one item, or a list
# of the row's items. Given the items alone, a model of 20,000 rows that is cleared and deleted has returned all of its
# memory to malloc. Given a list of one, 80 bytes of each row stay allocated, with two items as well: it is the QList that
# the binding makes of the Python list, not the items. No object of Python or Qt is left that one could count or delete,
# so that a table which is filled again each second grows for ever; insertRow and appendRows do the same.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install -q --disable-pip-version-check PyQt5==5.15.11 PyQt5-Qt5==5.15.19 PyQt5-sip==12.20.0
cat >program.py <<'P'
import ctypes
import gc

from PyQt5.QtGui import QStandardItem, QStandardItemModel

ROWS = 20_000


class Information(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks".split()]
    _fields_ += [("fordblks", ctypes.c_size_t), ("keepcost", ctypes.c_size_t)]


libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Information


def in_use():
    found = libc.mallinfo2()
    return found.uordblks + found.hblkhd


def fill(row):
    model = QStandardItemModel()
    for _ in range(ROWS):
        model.appendRow(row())
    model.clear()
    del model
    gc.collect()


ways = (
    ("an item", lambda: QStandardItem("x")),
    ("a list of one", lambda: [QStandardItem("x")]),
    ("a list of two", lambda: [QStandardItem("x"), QStandardItem("y")]),
)
for name, row in ways:
    fill(row)
    before = in_use()
    fill(row)
    print(f"{name}: {round((in_use() - before) / ROWS)} bytes a row")
P
found=$(PYTHONMALLOC=malloc environment/bin/python program.py)
echo "$found"
[[ $found == $'an item: 0 bytes a row\na list of one: 80 bytes a row\na list of two: 80 bytes a row' ]] ||
  { echo "this has changed" && exit 1; }
echo "as recorded"
