"""Names of functions as they are typed, and as gdb prints them."""

from __future__ import annotations

import pytest

from gdbmem.symbols.function_names import is_named, named_function


@pytest.mark.parametrize(
    ("location", "symbol"),
    [
        ("reset", "Engine::reset()"),
        ("Engine::reset", "app::Engine::reset()"),
        ("engine.cpp:Engine::reset", "Engine::reset()"),
        ("-function reset", "reset"),
        ("f", "ns::f<int>(int)"),
        ("f<int>", "void f<int>(int)"),
        ("f(int)", "A::f(int) const"),
        ("push_back", "std::vector<std::pair<int, A::B>, x<y> >::push_back(int const&)"),
        ("f", "(anonymous namespace)::f(char const*)"),
        ("A::operator()", "A::operator()(int) const"),
        ("operator<<", "std::ostream& operator<< <int>(std::ostream&)"),
        ("A::operator bool", "A::operator bool() const"),
        ("~A", "A<int>::~A()"),
        ("Cache::name", "Cache::name[abi:cxx11](int)"),
        ("name[abi:cxx11]", "name[abi:cxx11]()"),
    ],
)
def test_a_point_finds_the_function_that_its_user_means(location: str, symbol: str) -> None:
    wanted = named_function(location)
    assert wanted is not None
    assert is_named(wanted, symbol)


@pytest.mark.parametrize(
    ("location", "symbol"),
    [
        ("set", "Engine::reset()"),
        ("Other::reset", "Engine::reset()"),
        ("f(int)", "f(char)"),
        ("f<int>", "f<char>(char)"),
        ("operator<", "operator<<(A&)"),
    ],
)
def test_a_point_does_not_count_another_function(location: str, symbol: str) -> None:
    wanted = named_function(location)
    assert wanted is not None
    assert not is_named(wanted, symbol)


@pytest.mark.parametrize("location", ["x.cpp:12", "12", "+1", "*0x12", "-source x.c -line 3", "-line 3", ""])
def test_a_line_or_an_address_names_no_function(location: str) -> None:
    assert named_function(location) is None
