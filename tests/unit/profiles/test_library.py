from __future__ import annotations

import re

import pytest

from gdbmem.model.calltree import Frame
from gdbmem.profiles.own_code import is_library, own_frame, qualified_name
from gdbmem.profiles.paths import matches
from tests.unit.trees import at

HEADERS = "/usr/include/c++/12/bits"


@pytest.mark.parametrize(
    "frame",
    [
        at("operator new(unsigned long)"),
        at("malloc", "vg_replace_malloc.c:381"),
        at("g_malloc", "/usr/lib/x86_64-linux-gnu/libglib-2.0.so.0.7400.6"),
        at("strdup", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        at(None, "/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30"),
        at(None, "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
        at(None, "/lib64/ld-2.17.so"),
        at(None, "/lib64/libc-2.17.so"),
        at("allocate", f"{HEADERS}/new_allocator.h:137"),
        at("_M_get_node", f"{HEADERS}/stl_tree.h:561"),
        at("operator[]", f"{HEADERS}/stl_map.h:511"),
        at("__allocate", "/usr/lib/llvm-14/include/c++/v1/new:238"),
        at("f", "/usr/include/x86_64-linux-gnu/c++/12/bits/gthr-default.h:1"),
        at("f", "/usr/lib/gcc/x86_64-pc-linux-gnu/12/include/g++-v12/bits/stl_map.h:1"),
        at("allocate", "new_allocator.h:127"),
        at("_M_create_node", "stl_tree.h:600"),
        at("allocate", "allocator.h:197"),
        at("std::vector<int, std::allocator<int> >::push_back(int const&)", "stl_vector.h:1287"),
        at("void std::vector<A, std::allocator<A> >::_M_realloc_insert<A>(A&&)", "vector.tcc:440"),
        at(
            "std::_Rb_tree_iterator<A> std::_Rb_tree<A, B<C> >::_M_emplace<std::tuple<> >(A&&)", "foreign.h:1"
        ),
        at("__gnu_cxx::new_allocator<char>::allocate(unsigned long, void const*)", "somewhere.h:1"),
        at("_IO_file_doallocate", "libio/./libio/filedoalloc.c:101"),
        at("(below main)", "./csu/../sysdeps/nptl/libc_start_call_main.h:58"),
        at("(below main)", "libc_start_call_main.h:58"),
        at("call_init", "dl-init.c:74"),
        at("(below main)", "csu/../sysdeps/nptl/libc_start_call_main.h:58"),
        at("(below main)", "/usr/bin/git"),
        at("_start", "/usr/bin/git"),
        at("__libc_start_main@@GLIBC_2.34", "csu/../csu/libc-start.c:347"),
        at("call_init", "csu/../csu/libc-start.c:145"),
        at("_dl_init", "elf/./elf/dl-init.c:121"),
        at("_dl_map_segment", "elf/./dl-map-segments.h:29"),
        at("calloc", "elf/../include/rtld-malloc.h:44"),
        at("_dl_sysdep_start", "elf/../sysdeps/unix/sysv/linux/dl-sysdep.c:140"),
        at("__mmap64", "misc/../sysdeps/unix/sysv/linux/mmap64.c:58"),
        at("__mmap64", "mmap64.c:58"),
        at("brk", "brk.c:37"),
        at("tcache_init.part.0", "malloc.c:3238"),
        at("clone", "misc/../sysdeps/unix/sysv/linux/x86_64/clone.S:100"),
        at("clone", "clone.S:100"),
        at("start_thread", "/lib/x86_64-linux-gnu/libc.so.6"),
        at("_nl_make_l10nflist", "intl/../intl/l10nflist.c:242"),
        at(None),
    ],
)
def test_nobody_is_sent_to_a_line_of_the_standard_library(frame: Frame) -> None:
    assert is_library(frame)


@pytest.mark.parametrize(
    "frame",
    [
        at("main", "main.cpp:9"),
        at("Decoder::decode(long) [clone .isra.0]", "/home/u/decoder.cpp:25"),
        at("std::vector<int, std::allocator<int> > make<int>(int)", "make.cpp:2"),
        at("std::vector<int> make<int>(int)", "/home/u/make.cpp:2"),
        at("std::hash<Mine>::operator()(Mine const&) const", "/home/u/mine.h:7"),
        at("MyPool::get(int)", "allocator.h:30"),
        at("get", "/home/u/allocator.h:30"),
        at("get", "allocator.h:30"),
        at("Signal::invoke()", "invoke.h:12"),
        at("load", "/home/u/include/c++/load.h:3"),
        at("compile_regex", "regcomp.c:90"),
        at("load", "/home/u/include/c/stl.h:3"),
        at("load", "/home/u/./stdlib/load.c:3"),
        at(None, "/usr/bin/python3.11"),
        at("call_init", "call.c:3"),
        at("clone", "shape.cpp:3"),
        at("start_thread", "/home/u/pool.cpp:9"),
        at("load", "/home/u/io/../include/load.h:3"),
        at("mmap_index", "index.c:3"),
        at("sqlite3Malloc", "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0.8.6"),
        at("my_malloc", "my.c:3"),
        at("boost::container::vector<int>::reserve(unsigned long)", "/opt/boost/container/vector.hpp:1"),
        at("std_like::f(std::string const&)", "f.cpp:1"),
    ],
)
def test_a_users_own_frame_is_never_folded_away(frame: Frame) -> None:
    assert not is_library(frame)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("std::vector<int> make<int>(int)", "make<int>"),
        ("void ns::f<std::pair<int, int> >(std::string const&)", "ns::f<std::pair<int, int> >"),
        ("main::{lambda(int)#3}::operator()(int) const", "main::{lambda(int)#3}::operator()"),
        (
            "f(int)::{lambda(auto:1)#1}::operator()<int>(int) const",
            "f(int)::{lambda(auto:1)#1}::operator()<int>",
        ),
        (
            "Foo::bar(int) const::{lambda()#2}::operator()() const",
            "Foo::bar(int) const::{lambda()#2}::operator()",
        ),
        ("void A<int>::b() const &::{lambda()#1}::f<int>()", "A<int>::b() const &::{lambda()#1}::f<int>"),
        ("char const g<int>(int)", "g<int>"),
        ("ns::(anonymous namespace)::f(int (*)(char))", "ns::(anonymous namespace)::f"),
        ("(anonymous namespace)::Pool::get(unsigned long)", "(anonymous namespace)::Pool::get"),
        ("(below main)", "(below main)"),
        ("Foo::operator bool() const", "Foo::operator bool"),
        ("bool operator<(A const&, A const&)", "operator<"),
        ("std::ostream& operator<< <int>(std::ostream&, int)", "operator<< <int>"),
        ("Decoder::decode(long) [clone .isra.0]", "Decoder::decode"),
        ("fopen@@GLIBC_2.2.5", "fopen"),
        ("operator[]", "operator[]"),
        ("f()>>(", "f()>>("),
        ("", ""),
        ("f (module)", "f (module)"),
        ("-[Buffer grow by]", "-[Buffer grow by]"),
        ("main.(*Server).grow", "main.(*Server).grow"),
        ("a b c", "a b c"),
        ("operator new", "operator new"),
    ],
)
def test_a_function_is_named_without_return_type_and_parameters(function: str, name: str) -> None:
    assert qualified_name(function) == name


def test_the_users_own_frame_is_the_first_outside_the_library() -> None:
    allocate, mine, main = (
        at("allocate", f"{HEADERS}/new_allocator.h:137"),
        at("f", "f.cpp:1"),
        at("main", "m.c:1"),
    )
    assert own_frame([allocate, mine, main]) == 1
    assert own_frame([at(None, "/lib/libc.so.6"), allocate]) == 0
    assert own_frame([at(None, "/lib/libc.so.6"), at(None, "/lib/ld.so")]) == 0
    assert own_frame([]) == -1


def test_a_program_without_symbols_is_blamed_itself_not_what_started_it() -> None:
    below_main = at("(below main)", "csu/../sysdeps/nptl/libc_start_call_main.h:58")
    git, thread, clone = at(None, "/usr/bin/git"), at("start_thread", "libc.so.6"), at("clone", "clone.S:100")
    assert own_frame([at("malloc"), git, git, below_main]) == 1
    assert own_frame([at("malloc"), git, thread, clone]) == 1
    assert own_frame([at("malloc"), git, at("git_main", "/usr/bin/git"), below_main]) == 2


def test_a_frame_is_distinguished_once_however_often_it_comes() -> None:
    frames = [at(f"std::map<int, K{n}>::operator[](int const&)", "stl_map.h:511") for n in range(10_000)]
    is_library.cache_clear()
    for _ in range(2):
        assert all(is_library(frame) for frame in frames)
    assert is_library.cache_info().misses == is_library.cache_info().hits == 10_000


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_D3app4loadFiZv", "app.load"),
        ("_D3app5Cache3getMFiZPv", "app.Cache.get"),
        ("_D3app10__T3mapTiZ3mapFiZi", "app.map!.map"),
        ("_D3app__T3mapTiZQhFiZi", "app.map!"),
        ("__grid_MOD_refine", "grid::refine"),
        ("_DYNAMIC", "_DYNAMIC"),
        ("_D9app", "_D9app"),
        ("_Z3fooi", "_Z3fooi"),
    ],
)
def test_a_function_of_d_or_fortran_is_called_as_in_its_source(symbol: str, name: str) -> None:
    assert qualified_name(symbol) == name
    if name != symbol:
        assert matches(re.compile(f"^{re.escape(name)}$"), Frame(symbol))
    assert matches(re.compile(re.escape(symbol)), Frame(symbol))
