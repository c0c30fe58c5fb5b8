"""What the source of a function says of each of its calls."""

from __future__ import annotations

from typing import Optional

import pytest

from gdbmem.symbols.function_text import (
    FunctionText,
    Side,
    beside,
    called_functions,
    code_lines,
    defined_on,
    definition,
    find_function,
    function_bodies,
    functions_at,
    loops_around,
    may_skip,
    surely_called,
    surely_calls,
    text_before,
    writing,
)


def body(text: str) -> FunctionText:
    found = find_function(code_lines(f"static int f(int n) {{ {text} }}"), "f(int)", 1)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "in_front"),
    [
        ("count++; if (n) g();", ""),
        ("++s.count; return g() ? 1 : 2;", ""),
        ("g(n); count += 1;", "g(n);"),
        ("return count++;", "return"),
        ("count.fetch_add(1, std::memory_order_relaxed);", ""),
        ("__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);", ""),
        ("auto less = [n](int x) { return x < n; }; count++;", "auto less = [n](int x) {};"),
        ("/* if (n) */ count++; // again: count++", ""),
        ('puts("if"); count++;', "puts(    );"),
        ("if (n) return 0; count++;", None),
        ("return 0; count++;", None),
        ("n && count++;", None),
        ("for_each(v, [&](int x) { count++; });", None),
        ("struct Local { int g() { return count++; } };", None),
        ("count++; g(); count++;", None),
        ("again: count++; if (n--) goto again;", None),
        ("count += 2;", None),
        ("count += 1 + n;", None),
        ("count += 1UL;", ""),
        ("counter++;", None),
    ],
)
def test_a_variable_counts_calls_if_each_adds_one_to_it_once_and_before_any_branch(
    text: str, in_front: Optional[str]
) -> None:
    before = body(text).before_count("count")
    assert (before if before is None else before.strip()) == in_front


@pytest.mark.parametrize(
    ("text", "is_reached"),
    [("g(n); if (n) h();", True), ("if (n) g(n);", False), ("g(n); g(n);", False), ("Guard g; h();", True)],
)
def test_a_function_is_called_once_if_its_name_stands_there_once_and_before_any_branch(
    text: str, is_reached: bool
) -> None:
    assert (body(text).before_name("g") is not None) == is_reached


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("g(n); x = NEED(n) + h (2);", {"g", "NEED", "h"}),
        ("std::lock_guard<std::mutex> guard(m); int k(3); q.wait(guard);", set()),
        ("return g(n);", {"g"}),
        ("if (n) while (n--) sizeof(n);", set()),
    ],
)
def test_what_a_text_calls_may_be_a_macro_but_not_a_variable_that_it_declares(
    text: str, called: set[str]
) -> None:
    assert called_functions(text) == called


SOURCE = """
int first(int n); // { not here
#define first(n) other(n) {
struct Pool {
  Pool(int n)
      : size(n)
  {
    made++;
  }
};
static long
first (int n)
{ return n ? first(n - 1) : 0; }
int main(void) { if (first(2)) { return second(1); } }
"""


def test_a_function_is_found_by_its_body_and_not_where_it_is_called_or_declared() -> None:
    lines = code_lines(SOURCE)
    found = definition(lines, "first")
    assert found is not None
    assert found.body.strip() == "return n ? first(n - 1) : 0;"
    assert found.calls_itself
    assert definition(lines, "second") is None
    made = find_function(lines, "Pool::Pool(int)", 8)
    assert made is not None
    assert made.before_count("made") is not None
    assert not made.calls_itself


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("total++;", 1),
        ("x.total = y.total;", 1),
        ("if (total == 3) print(total);", 0),
        ("int *p = &total;", 1),
        ("total.store(0);", 1),
        ("long n = total.load();", 0),
        ("COUNT(total);", 1),
    ],
)
def test_what_may_write_a_variable_is_found_under_its_name_and_its_address(line: str, writes: int) -> None:
    assert len(writing("total", "total", is_c=True).findall(line)) == writes


@pytest.mark.parametrize(
    ("text", "caller"),
    [
        ("static int g(int x) { if (x) { return f(x); } return 0; }", "g"),
        ('extern "C" { void g(void) { f(9); } }', "g"),
        ("namespace a { struct S { int use() { return f(3); } }; }", "use"),
        ("struct S { S(int v) : at(f(v)) { } int at; };", ""),
        ("struct S { int at = f(1); };", ""),
        ("struct S { ~S() { f(2); } };", ""),
        ("struct S { operator bool() { return f(4); } };", ""),
        ("S::~S() { f(5); }", ""),
        ("int table[] = { f(6) };", ""),
        ("auto l = [](int x) { return f(x); };", ""),
    ],
)
def test_a_call_in_what_nobody_calls_by_its_name_is_found(text: str, caller: str) -> None:
    bodies = function_bodies("void other() { g(); } " + text + " int main() { return 0; }")
    assert [name for name, body in bodies if "f(" in body] == [caller]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("push(m, 1);", True),
        ("push (m,\n  n ? 1 : 2);", True),
        ("long got = 1 + m->push(3), x = n ? 1 : 2;", True),
        ("if (push(m, 1) < 0 && n)\n  f();", True),
        ("return !push(m, 1);", True),
        ("i < push(m, 1); i++) {", True),
        ("push(m, 1)) { f(); }", True),
        ("n && push(m, 1);", False),
        ("n ? push(m, 1) : 0;", False),
        ("if (n) push(m, 1);", False),
        ("for (int i = 0; i < push(m, 1); i++) {}", False),
        ("f(n); push(m, 1);", False),
        ("f(sizeof(push(m, 1)));", False),
        ("auto f = [&](int n) { push(m, n); };", False),
        ("static long push(struct vm *m, long v) { return v; }", False),
        ("unpush(m, 1);", False),
        ("push = 1;", False),
        ("push(m, 1)", False),
    ],
)
def test_a_statement_calls_a_function_each_time_only_where_no_branch_is_in_front(
    text: str, calls: bool
) -> None:
    lines = code_lines(f"/* a */ {text}")
    assert surely_calls(lines, 1, 9, "push") == calls


@pytest.mark.parametrize(
    ("before", "follows"),
    [
        ("push(m, 1);", True),
        ("x = push(m, n ? 1 : 2);\n\n", True),
        ("if (n) f(); push(m, 1); // why", True),
        ("f(); push(m,\n 1);", True),
        ("push(m, 1); f();", False),
        ("if (n)\n push(m, 1);", False),
        ("else push(m, 1);", False),
        ("n && push(m, 1);", False),
        ("return push(m, 1);", False),
        ("push(m, 1); again:", False),
        ("push(m, 1); case 3:", False),
        ("push(m, 1); }", False),
        ("for (push(m, 1);", False),
        ("while (push(m, 1));", False),
    ],
)
def test_a_statement_follows_one_that_calls_a_function_each_time(before: str, follows: bool) -> None:
    lines = code_lines(before)
    column = len(lines[-1]) + 2
    lines[-1] += " next();"
    assert surely_called(lines, len(lines), column, "push") == follows


def test_a_function_is_defined_on_the_line_of_its_name() -> None:
    assert defined_on(code_lines(SOURCE), "first") == [12]
    assert defined_on(["int other(void);", "static int", "other(void)", "{ return 1; }"], "other") == [3]
    assert defined_on([], "other") == []


REACHED = """static inline int put(struct buf *b, int n)
{
    if (n > 9) {
        grow(b);
        n = 9;
    } else
        n++;
    while (b->busy) wait(b);
    b->n = f(b->d[n]);
    switch (b->n) {
    case 1: return 2;
    }
    return b->n;
}
"""


@pytest.mark.parametrize(
    ("text", "is_reached"),
    [
        ("n > 9", True),
        ("(b)", False),
        ("n++", False),
        ("busy", False),
        ("wait", False),
        ("= f", True),
        ("d[n]", True),
        ("n) {\n    case", True),
        ("1:", False),
        ("n;\n}", False),
    ],
)
def test_a_place_is_reached_once_only_where_no_loop_or_branch_has_it_and_none_in_front_leaves(
    text: str, is_reached: bool
) -> None:
    before = REACHED[: REACHED.index(text)].split("\n")
    place = len(before), len(before[-1]) + 1
    assert (text_before(code_lines(REACHED), "put", 1, *place) is not None) == is_reached


@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("put(1);", (0, 0)),
        ("for (;;) f(); put(1);", (0, 0)),
        ("for (;;) put(1);", (1, 1)),
        ("for (int i = 0; i < 4; i++) put(1);", (1, 0)),
        ("for (int i = 0; i < SLOTS; i++) { f(); while (g()) put(1); }", (2, 1)),
        ("for (int i = 0; i < n; i++) put(1);", (1, 1)),
        ("for (int i = 0; i < 4 && f(); i++) put(1);", (1, 1)),
        ("for (;;) { f(); for (;;) g(); while (h()) put(1); }", (2, 2)),
        ("for (;;) { for (;;) g(); put(1); }", (1, 1)),
        ("for (;;) if (f()) do { g(); put(1); } while (h());", (2, 2)),
        ("while (put(1)) f();", (1, 1)),
        ("while (f()) { if (g()) put(1); }", (1, 1)),
        ("do put(1); while (f());", (1, 1)),
        ("do f(); while (put(1));", (1, 1)),
        ("do f(); while (g()); put(1);", (0, 0)),
        ("if (f()) put(1);", (0, 0)),
        ("if (f()) g(); else { h(); put(1); }", (0, 0)),
        ("if (f()) for (;;) put(1);", (1, 1)),
        ("switch (f()) { case 1: put(1); }", (0, 0)),
        ("again: put(1); if (f()) goto again;", None),
        ("again: put(1);", (0, 0)),
    ],
)
def test_a_call_stands_in_as_many_loops_as_go_around_it(text: str, loops: Optional[tuple[int, int]]) -> None:
    found = loops_around(["void work(void) {", text, "}"], "work", 2, "put")
    assert ((found.number, found.variable) if found.is_known else None) == loops


def test_a_call_that_is_not_found_may_stand_in_a_loop() -> None:
    assert not loops_around(["void work(void) { f(); }"], "work", 1, "put").is_known
    assert not loops_around([], "work", 1, "put").is_known


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("HERE = 1; put(1);", Side.IN_FRONT),
        ("HERE[n] = put(1);", Side.IN_FRONT),
        ("put(1); HERE = 1;", Side.BEHIND),
        ("if (a) HERE = 1; put(1);", Side.IN_FRONT),
        ("if (a) put(1); HERE = 1;", None),
        ("if (put(1)) HERE = 1;", None),
        ("HERE = 1; if (a) put(1);", None),
        ("HERE = 1; a && put(1);", None),
        ("while (a) put(1); HERE = 1;", None),
        ("HERE = 1; } put(1);", None),
        ("case 1: put(1); HERE = 1;", None),
    ],
)
def test_a_place_is_beside_a_call_only_where_control_passes_both(text: str, side: Optional[Side]) -> None:
    lines = ["void work(void) {", f"  {text}", "}"]
    assert beside(lines, 2, "put", 2, lines[1].index("HERE") + 1) is side


def test_a_function_is_named_behind_its_attributes() -> None:
    lines = ["__attribute__((noinline, aligned(8))) static int work(int n) {", "  return n;", "}"]
    assert functions_at(lines, {(2, 3)}) == {(2, 3): (1, "work")}
    assert [name for name, _ in function_bodies("\n".join(lines))] == ["work"]


@pytest.mark.parametrize(
    ("text", "is_decided"),
    [
        ("if (a) put(1);", True),
        ("if (a) { b = 1; put(1); }", True),
        ("if (a) b = 1; else put(1);", True),
        ("if (a) b = 1; else if (c) put(1);", True),
        ("if (a && put(1)) b = 1;", True),
        ("if (put(1) && a) b = 1;", False),
        ("if (put(1)) b = 1;", False),
        ("if (!put(1)) break;", False),
        ("if (put(1)) put(2);", True),
        ("if (a) b = 1; put(1);", False),
        ("if (a) continue; put(1);", True),
        ("if (a) { b = 1; return; } put(1);", True),
        ("a = b ? 1 : put(1);", False),
        ("iffy(put(1));", False),
    ],
)
def test_an_if_decides_on_a_call_in_it_and_on_all_that_is_behind_it_where_it_leaves(
    text: str, is_decided: bool
) -> None:
    assert may_skip(["void work(void) {", f"  {text}", "}"], 2, 3, ["put"]) == is_decided
