"""The animals: small programs as the world has them, a row each, with what is known of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.zoo.building import Build

# Facts that an animal knows of itself, which a command that asks for them must report, not refuse:
HEAP = "heap"  # live blocks of glibc's malloc, reported by itself
LINES = "lines"  # tick() touches so many bytes in one line, and gdb can break there
CONTAINERS = "containers"  # how many elements each global container has

# Properties that may change by themselves at any moment:
THREADS, CHILDREN, INTERRUPTED, MEMORY, IMAGE = "threads", "children", "interrupted", "memory", "image"

C = Build("animal.c")
HALF_FREED = "heap:20000x200"


@dataclass(frozen=True)
class Animal:
    name: str
    about: str
    build: Build = C
    words: tuple[str, ...] = (HALF_FREED,)  # its natures
    small: tuple[str, ...] = ()  # these instead where each of its allocations costs microseconds
    keeper: tuple[str, ...] = ()  # the command that starts it, where that is part of its nature
    env: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()  # tools, libraries ("*.so*"), "root", "swap", "huge pages"
    knows: frozenset[str] = frozenset({HEAP, LINES})
    restless: frozenset[str] = frozenset()
    extra_blocks: int = 64  # of malloc's, that libraries may have beside those it reports
    is_stopped: bool = False
    is_traced: bool = False  # by another process: it can't be inspected
    ends_itself: bool = False
    takes_interrupts: bool = (
        False  # the terminal's own reach it, too, where it is launched there, as without gdbmem
    )
    is_damaged: bool = False  # malloc's bookkeeping
    meets: str = ""  # the command that it was found with, or that characterises it best
    may_refuse: tuple[str, ...] = ()  # commands that its nature doesn't allow
    unlaunchable: str = ""  # why no launch of ours is the one that starts it


NOTHING: frozenset[str] = frozenset()
JUST_HEAP, JUST_LINES = frozenset({HEAP}), frozenset({LINES})


def _preloaded(name: str, library: str, about: str, **settings: str) -> Animal:
    env = {"LD_PRELOAD": library, **settings}
    return Animal(name, about, env=env, needs=(library,), knows=JUST_LINES)


def _made(name: str, about: str, *flags: str, **more: object) -> Animal:
    return Animal(name, about, build=Build("animal.c", flags), **more)  # type: ignore[arg-type]


def _cpp(
    name: str, about: str, *flags: str, compiler: str = "", source: str = "container.cpp", meets: str = ""
) -> Animal:
    knows = JUST_LINES | {CONTAINERS} if "-O0" in flags or "-O1" in flags else JUST_LINES
    return Animal(name, about, build=Build(source, flags, compiler), words=(), knows=knows, meets=meets)


SIGNALS = (
    Animal("plain", "no nature at all: what all others are compared with"),
    Animal(
        "sigint-blocked", "blocks SIGINT", meets="memwatch next, Ctrl-C", words=("sigint:blocked", HALF_FREED)
    ),
    Animal(
        "sigint-ignored",
        "ignores SIGINT",
        meets="memwatch growth, Ctrl-C",
        words=("sigint:ignored", HALF_FREED),
    ),
    Animal(
        "sigint-handled",
        "handles SIGINT",
        meets="memwatch advance, Ctrl-C",
        words=("sigint:handled", HALF_FREED),
    ),
    Animal(
        "all-blocked",
        "blocks every signal",
        meets="memwatch limit, Ctrl-C",
        words=("sigint:blocked-all", HALF_FREED),
    ),
    Animal(
        "all-handled",
        "handles every signal that can be",
        meets="continue, Ctrl-C",
        words=("handlers", HALF_FREED),
    ),
    Animal(
        "sigwait",
        "waits for SIGINT in a thread (sigwait)",
        meets="memwatch function, Ctrl-C",
        words=("sigwait", HALF_FREED),
        takes_interrupts=True,
    ),
    Animal(
        "signalfd",
        "reads SIGINT from a descriptor (signalfd)",
        meets="membreak, Ctrl-C",
        words=("signalfd", HALF_FREED),
        takes_interrupts=True,
    ),
    Animal(
        "timer",
        "gets SIGALRM 333 times a second",
        words=("timer", HALF_FREED),
        restless=frozenset({INTERRUPTED}),
    ),
)

RIGHTS = (
    Animal(
        "seccomp-kill-clone",
        "dies of clone",
        meets="explain --fork",
        may_refuse=("explain --fork",),
        words=(HALF_FREED, "seccomp:kill:clone"),
    ),
    Animal(
        "seccomp-kill-wait4",
        "dies of wait4",
        meets="explain --fork",
        may_refuse=("explain --fork",),
        words=(HALF_FREED, "seccomp:kill:wait4"),
    ),
    Animal(
        "seccomp-trap-fork",
        "gets SIGSYS for fork",
        meets="explain --fork",
        may_refuse=("explain --fork",),
        words=(HALF_FREED, "seccomp:trap:fork"),
    ),
    Animal(
        "seccomp-errno-clone",
        "clone fails with EPERM",
        meets="explain --fork",
        may_refuse=("explain --fork",),
        words=(HALF_FREED, "seccomp:errno:clone"),
    ),
    Animal(
        "seccomp-kill-mmap",
        "dies of mmap",
        meets="explain --fork",
        may_refuse=("explain --fork",),
        words=(HALF_FREED, "seccomp:kill:mmap"),
        build=Build("animal.c", ("-g", "-O1", "-DTICK_STATIC")),
        knows=JUST_HEAP,
    ),
    Animal("nobody", "belongs to nobody", words=(HALF_FREED, "rights:nobody"), needs=("root",)),
    Animal(
        "undumpable",
        "has prctl(PR_SET_DUMPABLE, 0)",
        words=(HALF_FREED, "rights:undumpable"),
        needs=("root",),
    ),
    Animal(
        "little-memory",
        "may map 64 MiB (RLIMIT_AS)",
        meets="launch --engine massif",
        words=(HALF_FREED, "rights:little-memory"),
    ),
    Animal("few-files", "may open 4 files", words=(HALF_FREED, "rights:few-files")),
)

_WRAPPED = "its namespace is made by unshare, which a launch would be of"
NAMESPACES = (
    Animal(
        "pid-namespace",
        "is process 1 of a PID namespace",
        meets="explain --fork",
        keeper=("unshare", "--pid", "--fork", "--kill-child"),
        needs=("unshare", "root"),
        unlaunchable=_WRAPPED,
    ),
    Animal(
        "user-namespace",
        "is root of a user namespace",
        meets="attach, quit",
        keeper=("unshare", "--user", "--map-root-user"),
        needs=("unshare",),
        unlaunchable=_WRAPPED,
    ),
    Animal(
        "mount-namespace",
        "sees mounts of its own, its /proc too",
        meets="snap",
        keeper=("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        needs=("unshare", "root"),
        unlaunchable=_WRAPPED,
    ),
    Animal(
        "container",
        "lives in all the namespaces of a container",
        meets="explain --fork",
        keeper=(
            "unshare",
            "--user",
            "--map-root-user",
            "--mount",
            "--pid",
            "--ipc",
            "--uts",
            "--net",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ),
        needs=("unshare",),
        unlaunchable=_WRAPPED,
    ),
)

BUILDS = (
    _made("O0", "not optimised", "-g", "-O0"),
    _made("Og", "-Og", "-g", "-Og"),
    _made("O2", "-O2", "-g", "-O2"),
    _made("O3", "-O3", "-g", "-O3", meets="memwatch next"),
    _made("lto", "link-time optimisation", "-g", "-O2", "-flto", meets="memwatch step"),
    _made("no-pie", "at a fixed address", "-g", "-O1", "-no-pie"),
    _made("no-debug", "without debug information", "-O1", knows=JUST_HEAP),
    Animal(
        "stripped", "without any symbol", build=Build("animal.c", ("-O1",), stripped=True), knows=JUST_HEAP
    ),
    _made("static", "static", "-g", "-O1", "-static", knows=JUST_LINES),
    _made("static-pie", "static, at any address", "-g", "-O1", "-static-pie", knows=JUST_LINES),
    Animal(
        "static-stripped",
        "static, without any symbol",
        knows=NOTHING,
        build=Build("animal.c", ("-O1", "-static"), stripped=True),
    ),
    Animal(
        "musl",
        "with musl's libc",
        build=Build("animal.c", ("-g", "-O1"), "musl-gcc"),
        knows=JUST_LINES,
        meets="launch --engine memcheck",
    ),
    Animal(
        "musl-static",
        "static, with musl's libc",
        knows=JUST_LINES,
        build=Build("animal.c", ("-g", "-O1", "-static"), "musl-gcc"),
    ),
    _made(
        "compressed",
        "with compressed debug information in a file beside it",
        "-g",
        "-O1",
        "-gz",
        "-gsplit-dwarf",
    ),
    _made(
        "sanitised", "with the address sanitizer's malloc", "-g", "-O1", "-fsanitize=address", knows=NOTHING
    ),
    _cpp("containers", "C++ with containers", "-g", "-O0", "-std=c++17", meets="memcontainers"),
    _cpp("containers-O1", "the same, -O1", "-g", "-O1", "-std=c++17"),
    _cpp("containers-O2", "the same, -O2", "-g", "-O2", "-std=c++17"),
    _cpp("containers-O3", "the same, -O3", "-g", "-O3", "-std=c++17"),
    _cpp(
        "inlined",
        "the same, all of it inlined",
        "-g",
        "-O2",
        "-DINLINED",
        "-std=c++17",
        meets="memwatch function",
    ),
    _cpp(
        "clang",
        "the same by clang",
        "-g",
        "-O1",
        "-std=c++17",
        compiler="clang++",
        meets="memcontainers --everywhere",
    ),
    _cpp(
        "coroutine",
        "its day is a coroutine",
        "-g",
        "-O1",
        "-std=c++20",
        source="coroutine.cpp",
        meets="memwatch function",
    ),
)

PROCESSES = (
    Animal(
        "threads-500",
        "500 threads",
        meets="memexplain",
        words=("threads:500",),
        small=("threads:50",),
        extra_blocks=2100,
    ),
    Animal(
        "tls-1MiB",
        "1 MiB of thread-local variables",
        meets="explain",
        words=("threads:40", HALF_FREED),
        build=Build("animal.c", ("-g", "-O1", "-DTLS_BYTES=1048576")),
        extra_blocks=300,
    ),
    Animal("busy", "8 threads that compute", words=("busy:8", HALF_FREED), restless=frozenset({MEMORY})),
    Animal(
        "churn",
        "starts a thread each turn",
        words=("churn", HALF_FREED),
        restless=frozenset({THREADS, MEMORY}),
    ),
    Animal(
        "no-main-thread",
        "its first thread has ended, others run on",
        meets="monitor PID",
        words=("no-main",),
        knows=NOTHING,
    ),
    Animal(
        "forks",
        "forks each turn",
        meets="monitor PID",
        words=("children:fork", HALF_FREED),
        restless=frozenset({CHILDREN}),
    ),
    Animal(
        "vforks",
        "vforks and executes each turn",
        words=("children:vfork", HALF_FREED),
        restless=frozenset({CHILDREN}),
    ),
    Animal(
        "execs",
        "executes itself from a thread, three times a second",
        words=("exec", HALF_FREED),
        knows=NOTHING,
        restless=frozenset({THREADS, MEMORY, IMAGE}),
    ),
    Animal("zombie-parent", "has a zombie of its own", meets="explain --fork", words=("zombie", HALF_FREED)),
    Animal(
        "dying",
        "ends within a second, with 256 MiB to be taken down",
        meets="explain --fork",
        words=(HALF_FREED, "dies:400"),
        knows=NOTHING,
        restless=frozenset({MEMORY}),
        ends_itself=True,
    ),
    Animal(
        "stopped",
        "was stopped by SIGSTOP",
        meets="attach, quit",
        is_stopped=True,
        unlaunchable="it is stopped by its keeper",
    ),
    Animal(
        "traced",
        "is traced by another process",
        meets="attach, quit",
        words=("traced", HALF_FREED),
        knows=NOTHING,
        is_traced=True,
        unlaunchable="it is traced by its own parent",
    ),
)

MEMORIES = (
    Animal(
        "lazily-freed",
        "20 MiB of it MADV_FREE",
        words=("memory:lazily-freed", HALF_FREED),
        restless=frozenset({MEMORY}),
    ),
    Animal(
        "huge-pages",
        "34 MiB in transparent huge pages",
        words=("memory:huge", HALF_FREED),
        restless=frozenset({MEMORY}),
    ),
    Animal("hugetlb-map", "4 MiB of hugetlb", words=("memory:hugetlb", HALF_FREED), needs=("huge pages",)),
    Animal(
        "hugetlb-malloc",
        "malloc in hugetlb pages (GLIBC_TUNABLES)",
        meets="explain",
        words=("heap:4000x200",),
        env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"},
        needs=("huge pages",),
    ),
    Animal("shared-memory", "10 MiB of shared memory", words=("memory:shared", HALF_FREED)),
    Animal("memfd", "5 of 10 MiB of a memfd", words=("memory:memfd", HALF_FREED)),
    Animal(
        "maps-20000", "20,000 mappings", words=("maps:20000", HALF_FREED), small=("maps:200", "heap:2000x200")
    ),
    Animal(
        "swapped",
        "half its heap is swapped out",
        meets="explain",
        may_refuse=("explain --hold", "memexplain"),
        words=(HALF_FREED, "swapped"),
        needs=("swap",),
    ),
    Animal(
        "fastbins",
        "half of 10^6 blocks in fastbins, freed in random order",
        meets="explain",
        words=("scattered:1000000x40",),
        small=("scattered:20000x40",),
    ),
    Animal(
        "perturbed",
        "malloc fills what it frees (glibc.malloc.perturb)",
        env={"GLIBC_TUNABLES": "glibc.malloc.perturb=165"},
    ),
    Animal("no-tcache", "malloc without tcaches", env={"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}),
)

ALLOCATORS = (
    _preloaded("jemalloc", "libjemalloc.so.2", "jemalloc preloaded"),
    _preloaded(
        "jemalloc-profiled",
        "libjemalloc.so.2",
        "jemalloc that profiles",
        MALLOC_CONF="prof:true,lg_prof_sample:0,prof_prefix:/tmp/zoo-je",
    ),
    _preloaded("tcmalloc", "libtcmalloc.so.4", "tcmalloc preloaded"),
    _preloaded("tcmalloc-minimal", "libtcmalloc_minimal.so.4", "tcmalloc without its profiler"),
    _preloaded("mimalloc", "libmimalloc.so.2", "mimalloc preloaded"),
    _preloaded("tbbmalloc", "libtbbmalloc_proxy.so.2", "oneTBB's malloc preloaded"),
    _preloaded("malloc-debug", "libc_malloc_debug.so.0", "glibc's checking malloc", MALLOC_CHECK_="3"),
    Animal(
        "jemalloc-static",
        "jemalloc linked into it",
        meets="launch --engine gperftools",
        knows=JUST_LINES,
        build=Build("animal.c", libraries=("-l:libjemalloc_pic.a", "-ldl", "-lm", "-lstdc++")),
    ),
    Animal(
        "tcmalloc-linked",
        "linked with tcmalloc",
        knows=JUST_LINES,
        build=Build("animal.c", libraries=("-l:libtcmalloc.so.4",)),
    ),
)


def _speaks(language: str, source: str, *keeper: str, **more: object) -> Animal:
    restless = frozenset({MEMORY, THREADS, INTERRUPTED})
    return Animal(language, f"a {language} program", Build(source, ()), (), keeper=keeper, knows=NOTHING,
                  restless=restless, extra_blocks=1 << 30, **more)  # type: ignore[arg-type]  # fmt: skip


LANGUAGES = (
    _speaks("Python", "animal.py", "/usr/bin/python3", needs=("/usr/bin/python3",)),
    _speaks("Perl", "animal.pl", "perl", needs=("perl",)),
    _speaks("node", "animal.js", "node", needs=("node",)),
    _speaks("Java", "Animal.java", needs=("java",)),
    _speaks("Rust", "animal.rs", needs=("rustc",)),
    _speaks("Go", "animal.go", needs=("go",)),
)

_DAMAGES = {
    "size-huge": "a live block's size is 8 MiB",
    "size-zero": "a live block's size is 0",
    "size-11": "a live block's size is below the least",
    "size-1a1": "a live block's size reaches over the next eight",
    "size-271": "a live block's size reaches over the next twelve",
    "size-odd": "a live block's size is not a multiple of 16",
    "in-use-cleared": "a live block says that the one before it is free",
    "mmapped-flag": "a live block says that it was mapped by itself",
    "foreign-arena": "a live block says that another arena has it",
    "use-after-free-fd": "the link of a block in a fastbin was overwritten",
    "free-fd": "the forward link of a free block was overwritten",
    "free-bk": "the backward link of a free block leads to another",
    "free-size": "a free block's size reaches into the next",
    "free-footer": "the size behind a free block isn't the one before it",
    "overflow-64": "64 bytes were written behind a live block",
    "overflow-null": "one zero was written behind a live block",
    "top-huge": "the rest of the heap has all the address space's size",
    "top-zero": "the rest of the heap has size 0",
    "tcache-count": "a tcache counts more than it can hold",
    "tcache-loop": "a block in a tcache is its own next (freed twice)",
}
DAMAGED = tuple(
    Animal(f"damaged-{name}", about, words=(f"corrupt:{name}",), knows=NOTHING, is_damaged=True)
    for name, about in _DAMAGES.items()
)

ANIMALS = (*SIGNALS, *RIGHTS, *NAMESPACES, *BUILDS, *PROCESSES, *MEMORIES, *ALLOCATORS, *LANGUAGES, *DAMAGED)
BY_NAME = {animal.name: animal for animal in ANIMALS}
