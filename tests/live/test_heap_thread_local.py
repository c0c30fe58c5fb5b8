"""`gdbmem heap`: the thread-local variables of libraries are holders with their names, in each thread."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.live.explaining import running
from tests.live.test_heap import EXACT, viewed

pytestmark = pytest.mark.needs("gdb", "gcc")

LIBRARY = """
#include <stdlib.h>
struct node { struct node *next; char text[100]; };
__thread long NAME_spare[3];
__thread struct node *NAME_first;
void NAME_fill(int count) {
    NAME_spare[0] += count;
    while (count--) {
        struct node *one = calloc(1, sizeof *one);
        one->next = NAME_first;
        NAME_first = one;
    }
}
"""
PROGRAM = """
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
void linked_fill(int);
static void (*loaded_fill)(int);
static void fill(const char *name, void (*with)(int), int count, const char *thread) {
    with(0);  /* which may allocate the thread's variables */
    size_t before = mallinfo2().uordblks;
    with(count);
    printf("holds %s %s %zu\\n", name, thread, mallinfo2().uordblks - before);
}
static void *other(void *made) {
    fill("loaded", loaded_fill, 300, "other");
    fill("linked", linked_fill, 500, "other");
    write(*(int *)made, "", 1);
    for (;;) pause();
}
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    loaded_fill = (void (*)(int))dlsym(library, "loaded_fill");
    fill("linked", linked_fill, 700, "first");
    fill("loaded", loaded_fill, 900, "first");
    int made[2];
    char byte;
    pthread_t thread;
    pipe(made);
    pthread_create(&thread, NULL, other, &made[1]);
    read(made[0], &byte, 1);
    printf("ready\\n");
    fflush(stdout);
    getchar();
}
"""


@pytest.mark.parametrize("stripped", [False, True])
def test_thread_local_variables_of_libraries_are_holders_linked_or_loaded_later(
    tmp_path: Path, stripped: bool
) -> None:
    for name in ("linked", "loaded"):
        source = LIBRARY.replace("NAME", name)
        if stripped:  # exported variables would keep their names
            source = source.replace("__thread", "static __thread")
        file = tmp_path / f"lib{name}.so"
        command = ["gcc", "-shared", "-fPIC", *["-s"] * stripped, "-o", str(file), "-xc", "-"]
        subprocess.run(command, input=source, text=True, check=True)
    command = [
        "gcc",
        "-o",
        str(tmp_path / "user"),
        "-xc",
        "-",
        f"-L{tmp_path}",
        "-llinked",
        "-ldl",
        "-lpthread",
    ]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}"], input=PROGRAM, text=True, check=True)
    with running(
        [tmp_path / "user", tmp_path / "libloaded.so"], {**EXACT, "MALLOC_ARENA_MAX": "1"}
    ) as target:
        found = viewed(target.pid)
        held = re.findall(r"^holds (\w+) (\w+) (\d+)", target.output, re.M)
    assert len(held) == 4
    for name, thread, size in held:
        variable = rf"lib{name}\.so\+0x\w+" if stripped else f"{name}_first"
        first = f"thread {target.pid} "
        mine = [
            one["retained_bytes"]
            for one in found["holders"]
            if re.fullmatch(variable, one["name"])
            and one["object"].startswith(f"lib{name}.so, ")
            and (first in f"{one['object']} ") == (thread == "first")
        ]
        assert mine == [int(size)], (name, thread, found["holders"])
