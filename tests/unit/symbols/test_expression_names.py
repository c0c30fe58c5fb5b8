"""Which names of an expression may be variables."""

from __future__ import annotations

import pytest

from gdbmem.symbols.function_names import names_in, replace_names


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("n % 3 == 0", ["n"]),
        ("this->name[0] == 'n' && size > n", ["this", "size", "n"]),
        ("a.b->c + d . e", ["a", "d"]),
        ("ns::n + ::m", []),
        ('strcmp(text, "text n \\" m") == 0', ["strcmp", "text"]),
        ("sizeof(struct node) < $n + $_exitcode", ["sizeof"]),
        ("1.5e3 < x && y == 0x1f", ["x", "y"]),
        ("n == 10ul && m == .5f", ["n", "m"]),
        ("größe > 1", ["größe"]),
        ("'file.c'::n == n", ["n"]),
        ("", []),
    ],
)
def test_members_qualified_names_text_and_gdbs_variables_are_no_names(
    expression: str, names: list[str]
) -> None:
    assert [name.text for name in names_in(expression)] == names


def test_only_names_are_replaced() -> None:
    stand_in = {"n": "(*$p)", "m": "$m"}.get
    assert replace_names("n + a->n * m - k.m(n) 'n'", stand_in) == "(*$p) + a->n * $m - k.m((*$p)) 'n'"
