"""scripts/setup on machines that lack things: real bash and coreutils, apt-get and python3 played by stubs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "scripts" / "setup"
NOBODY = 65534
# Programs that set-up looks for: this machine may lack some, and those of the tests have only what a test puts there.
NEEDS = re.findall(
    r"[(\s](\S+):[a-z]\S+", "".join(re.findall(r"^needs_\w+=\(.*?\)$", SETUP.read_text(), re.M | re.S))
)
TOOLS = {need for need in NEEDS if need != "-" and ".so." not in need} | {"prometheus"}
LIBRARIES = [need for need in NEEDS if ".so." in need]
# Programs that it would start.
WATCHED = TOOLS | {"sudo", "apt-get", "dpkg-deb", "dpkg-query", "ldconfig", "npm"}

# Makes a "virtual environment" that holds itself, and notes what pip was asked.
STUB_PYTHON = """#!/bin/bash
case "$*" in
  --version) echo Python 3.11.2 ;;
  "-m venv"*) mkdir -p "${@: -1}/bin"; cp "$0" "${@: -1}/bin/python" ;;
  "-m pip"*)
    echo "$PWD: $*" >>"$MACHINE/pip.calls"
    [ ! -e "$MACHINE/no-network" ] || { echo "ERROR: no route"; exit 1; } ;;
  *find_spec*) (cd "$(dirname "$0")/.." && pwd -P) ;;
esac
"""


class Machine:
    """A checkout in a folder with a blank and an underscore in its name, and a PATH that ends there."""

    def __init__(self, folder: Path, usual: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.usual = usual
        self.checkout = folder / "my code_1" / "gdbmem"
        self.path.mkdir()
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(SETUP, self.checkout / "scripts" / "setup")
        shutil.copy(ROOT / "pyproject.toml", self.checkout)
        shutil.copytree(ROOT / "requirements", self.checkout / "requirements")
        self.put("python3", STUB_PYTHON)

    def put(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def put_tools(self) -> None:
        for name in TOOLS:
            self.put(name)
        self.put("dpkg-query", "#!/bin/sh\necho installed\n")
        self.put("ldconfig", "#!/bin/sh\n" + "".join(f"echo '{name} (libc6)'\n" for name in LIBRARIES))

    def setup(self, *words: str, as_root: bool = False) -> subprocess.CompletedProcess[str]:
        command = [str(self.checkout / "scripts" / "setup"), *words]
        if not as_root and os.geteuid() == 0:
            shutil.chown(self.folder, NOBODY)
            subprocess.run(["chown", "-R", "--no-dereference", str(NOBODY), str(self.folder)], check=True)
            drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            command = drop + command
        environment = {**os.environ, "PATH": f"{self.path}:{self.usual}", "MACHINE": str(self.folder)}
        return subprocess.run(
            command,
            cwd="/",  # set-up is started from anywhere
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(scope="module")
def usual() -> Iterator[Path]:
    """Yield a folder with links to all programs of this machine but those that set-up looks for or starts."""
    folder = Path(tempfile.mkdtemp(prefix="gm-", dir="/tmp"))
    folder.chmod(0o755)  # another user looks into it
    for tool in Path("/usr/bin").iterdir():
        if tool.name not in WATCHED and not tool.name.startswith("python3"):
            (folder / tool.name).symlink_to(tool)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def machine(scratch: Path, usual: Path) -> Machine:
    return Machine(scratch, usual)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="plays root's part")


def the_sentence(ended: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that a failed set-up ends with."""
    assert ended.returncode == 1, ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("setup: ")
    return last


def test_without_root_and_sudo_the_command_to_type_is_named(machine: Machine) -> None:
    machine.put("apt-get")
    ended = machine.setup("demo")
    assert "as root type: apt-get install g++ gdb make valgrind" in the_sentence(ended)
    assert len(ended.stderr.splitlines()) == 1


def test_a_sudo_that_asks_for_a_password_where_nobody_can_answer_does_not_hang(machine: Machine) -> None:
    machine.put("apt-get")
    machine.put("sudo", "#!/bin/sh\nexit 1\n")
    assert "in a terminal type: sudo apt-get install" in the_sentence(machine.setup("test"))


def test_another_distribution_gets_the_list_of_packages(machine: Machine) -> None:
    sentence = the_sentence(machine.setup("test"))
    assert "neither Debian nor Ubuntu" in sentence
    for name in ("binutils", "g++", "gdb", "make", "sqlite3", "valgrind"):
        assert name in sentence


def test_another_distribution_that_has_the_tools_needs_no_apt_get(machine: Machine) -> None:
    machine.put_tools()
    (machine.path / "dpkg-query").unlink()
    assert machine.setup("test").returncode == 0


def test_passwordless_sudo_installs_what_is_missing_and_only_that(machine: Machine) -> None:
    machine.put_tools()
    (machine.path / "valgrind").unlink()
    machine.put("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    machine.put("apt-get", '#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >>"$MACHINE/apt.calls"\n')
    ended = machine.setup("demo")
    assert ended.returncode == 0, ended.stderr
    (call,) = machine.calls("apt")
    assert call.startswith("noninteractive ")
    assert call.endswith("install --no-install-recommends valgrind")


@needs_root
def test_the_package_lists_are_fetched_only_when_an_install_fails_without(machine: Machine) -> None:
    machine.put(
        "apt-get",
        '#!/bin/sh\necho "$*" >>"$MACHINE/apt.calls"\n'
        'case "$*" in *update*) touch "$MACHINE/lists";; *) [ -e "$MACHINE/lists" ];; esac\n',
    )
    ended = machine.setup("demo", as_root=True)
    assert ended.returncode == 0, ended.stderr
    kinds = ["update" if "update" in call else "install" for call in machine.calls("apt")]
    assert kinds == ["install", "update", "install"]


APT_GET_DOWNLOADS = """#!/bin/bash
echo "$*" >>"$MACHINE/apt.calls"
case "$*" in
  *update*) touch "$MACHINE/lists" ;;
  *download*) [[ -e $MACHINE/lists || -z $NEEDS_LISTS ]] && touch "${@: -1}_2_amd64.deb" ;;
esac
"""
DPKG_DEB_UNPACKS = """#!/bin/bash
name=$(basename "$2") name=${name%%_*}
mkdir -p "$3/usr/bin" && touch "$3/usr/bin/$name" && chmod +x "$3/usr/bin/$name"
"""


def test_prometheus_is_unpacked_and_never_installed_as_that_would_start_a_service(machine: Machine) -> None:
    machine.put_tools()
    (machine.path / "prometheus").unlink()
    machine.put("apt-get", APT_GET_DOWNLOADS)
    machine.put("dpkg-deb", DPKG_DEB_UNPACKS)
    ended = machine.setup("test")
    assert ended.returncode == 0, ended.stderr
    assert (machine.checkout / ".cache/prometheus/usr/bin/prometheus").exists()
    assert machine.setup("test").stderr == ""
    assert machine.calls("apt") == ["-q download prometheus", "-q download promtool"]
    assert (machine.checkout / ".cache/prometheus/usr/bin/promtool").exists()


@needs_root
def test_prometheus_of_old_package_lists_is_fetched_with_new_ones(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.put_tools()
    (machine.path / "prometheus").unlink()
    monkeypatch.setenv("NEEDS_LISTS", "yes")
    machine.put("apt-get", APT_GET_DOWNLOADS)
    machine.put("dpkg-deb", DPKG_DEB_UNPACKS)
    assert machine.setup("test", as_root=True).returncode == 0
    kinds = ["update" if "update" in call else "download" for call in machine.calls("apt")]
    assert kinds == ["download", "update", "download", "download"]


@needs_root
def test_a_release_without_prometheus_is_reported_once(machine: Machine) -> None:
    machine.put_tools()
    (machine.path / "prometheus").unlink()
    machine.put("apt-get", '#!/bin/sh\ncase "$*" in *download*) exit 100 ;; esac\n')
    machine.put("dpkg-deb", DPKG_DEB_UNPACKS)
    ended = machine.setup("test", as_root=True)
    assert ended.returncode == 0
    assert "tests that need it will be skipped" in ended.stderr
    assert machine.setup("test", as_root=True).stderr == ""


@needs_root
def test_what_a_release_has_no_package_of_is_reported_once_and_the_rest_installed(machine: Machine) -> None:
    machine.put_tools()
    machine.put("ldconfig")
    (machine.path / "heaptrack").unlink()
    lacks = "*libgoogle-perftools4*|*heaptrack*"
    machine.put(
        "apt-get", f'#!/bin/sh\necho "$*" >>"$MACHINE/apt.calls"\ncase "$*" in {lacks}) exit 100 ;; esac\n'
    )
    ended = machine.setup("test", as_root=True)
    assert ended.returncode == 0, ended.stderr
    for package in ("libgoogle-perftools4", "heaptrack"):
        assert f"this release has no package {package}: tests that need it will be skipped" in ended.stderr
    assert machine.calls("apt")[-1].endswith("--no-install-recommends libjemalloc2")
    machine.put("ldconfig", "#!/bin/sh\necho 'libjemalloc.so.2 (libc6)'\n")
    assert machine.setup("test", as_root=True).stderr == ""


NPM_PACKS = """#!/bin/bash
echo "$*" >>"$MACHINE/npm.calls"
[[ ! -e $MACHINE/no-network ]] || { echo "npm error network"; exit 1; }
mkdir -p package/dist/release && touch package/dist/release/index.html
word=$4; tar -czf "${word%@*}-${word#*@}.tgz" package && rm -r package
"""


@pytest.mark.parametrize("network", [True, False], ids=["network", "no-network"])
def test_packages_of_npm_are_asked_for_once_and_their_absence_stops_nothing(
    machine: Machine, network: bool
) -> None:
    machine.put_tools()
    machine.put("npm", NPM_PACKS)
    machine.put("sha512sum", "#!/bin/sh\nread -r line\n")  # printf would die of a pipe without a reader
    if not network:
        (machine.folder / "no-network").touch()
        machine.put("python3", STUB_PYTHON.replace("no-network", "never"))
    first = machine.setup("test")
    assert first.returncode == 0, first.stderr
    assert ("can't be fetched (npm error network)" in first.stderr) is not network
    assert (machine.checkout / ".cache/speedscope/package/dist/release/index.html").exists() is network
    assert machine.setup("test").stderr == ""
    asked = [call.split()[-1].partition("@")[0] for call in machine.calls("npm")]
    assert asked == ["speedscope", "typescript", "axe-core"]


@needs_root
def test_without_network_apt_gets_own_reason_is_in_the_sentence(machine: Machine) -> None:
    machine.put(
        "apt-get", "#!/bin/sh\necho 'E: Temporary failure resolving packages.example.org' >&2\nexit 100\n"
    )
    sentence = the_sentence(machine.setup("demo", as_root=True))
    assert "Temporary failure resolving packages.example.org" in sentence
    assert "network" in sentence


def test_pip_without_network_is_one_sentence_and_the_next_run_tries_again(machine: Machine) -> None:
    machine.put_tools()
    (machine.folder / "no-network").touch()
    sentence = the_sentence(machine.setup("demo"))
    assert "ERROR: no route" in sentence and "network" in sentence
    (machine.folder / "no-network").unlink()
    assert machine.setup("demo").returncode == 0


def test_the_second_run_prints_and_installs_nothing(machine: Machine) -> None:
    machine.put_tools()
    first = machine.setup("test")
    assert first.returncode == 0 and "installing gdbmem" in first.stderr
    calls = machine.calls("pip")
    second = machine.setup("test")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert machine.calls("pip") == calls


def test_the_demo_is_content_with_what_the_tests_have_set_up_but_not_the_other_way_round(
    machine: Machine,
) -> None:
    machine.put_tools()
    assert machine.setup("demo").returncode == 0
    assert not [call for call in machine.calls("pip") if "test.lock" in call]
    assert machine.setup("test").returncode == 0
    calls = machine.calls("pip")
    assert [call for call in calls if "test.lock" in call]
    (machine.checkout / ".venv" / "setup.demo").unlink()
    assert machine.setup("demo").returncode == 0
    assert machine.setup("quick").returncode == 0
    assert machine.calls("pip") == calls


def test_the_quick_tests_need_neither_packages_nor_root_nor_npm_and_leave_no_demo_to_set_up(
    machine: Machine,
) -> None:
    for name in ("apt-get", "npm", "sudo"):
        machine.put(name, f'#!/bin/sh\necho "$*" >>"$MACHINE/{name}.calls"\n')
    ended = machine.setup("quick")
    assert ended.returncode == 0, ended.stderr
    calls = machine.calls("pip")
    assert [call for call in calls if "quick.lock" in call]
    machine.put_tools()
    assert machine.setup("demo").returncode == 0
    assert machine.setup("quick").returncode == 0
    assert machine.calls("pip") == calls
    assert not any(machine.calls(name) for name in ("apt-get", "npm", "sudo"))


@pytest.mark.parametrize(
    ("words", "tier"),
    [
        (["--quick"], "quick"),
        (["--coverage=62", "--quick", "-x"], "quick"),
        (["--rest"], "test"),
        ([], "test"),
    ],
)
def test_each_tier_of_the_tests_sets_up_what_it_needs(machine: Machine, words: list[str], tier: str) -> None:
    shutil.copy(ROOT / "scripts" / "test", machine.checkout / "scripts" / "test")
    machine.put("stub", '#!/bin/sh\necho "$*"\nexit 3\n')
    shutil.copy(machine.path / "stub", machine.checkout / "scripts" / "setup")
    ended = subprocess.run(
        [str(machine.checkout / "scripts" / "test"), *words], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (3, f"{tier}\n")


def test_a_changed_pyproject_is_installed_again(machine: Machine) -> None:
    machine.put_tools()
    machine.setup("demo")
    calls = machine.calls("pip")
    with (machine.checkout / "pyproject.toml").open("a") as stream:
        stream.write("# another dependency\n")
    machine.setup("demo")
    assert len(machine.calls("pip")) == 2 * len(calls)


def test_what_pip_fetches_is_checked_by_its_hash(machine: Machine) -> None:
    machine.put_tools()
    machine.setup("test")
    *fetched, own = machine.calls("pip")
    assert len(fetched) == 2 and all("--require-hashes" in call for call in fetched)
    assert "--no-deps" in own and "--no-build-isolation" in own


def test_each_package_of_a_lock_has_hashes_and_no_address_of_a_registry() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.lock")):
        text = lock.read_text()
        packages = re.findall(r"^\S+==\S+.*(?:\n    --hash=sha256:[0-9a-f]{64}(?: \\)?)+", text, re.MULTILINE)
        assert len(packages) == len(re.findall(r"^\S+==", text, re.MULTILINE)) > 0, lock.name
        assert "://" not in text and "index" not in text


def test_a_speedscope_that_is_not_the_known_one_is_not_unpacked(machine: Machine) -> None:
    machine.put_tools()
    machine.put("npm", "#!/bin/sh\necho other >speedscope-1.25.0.tgz\n")
    ended = machine.setup("test")
    assert ended.returncode == 0
    assert "does not have the pinned checksum" in ended.stderr
    assert not list((machine.checkout / ".cache" / "speedscope").glob("*"))


def test_a_checkout_that_was_moved_gets_a_new_environment(machine: Machine) -> None:
    machine.put_tools()
    machine.setup("demo")
    # Scripts of an environment name the interpreter by its whole path: after a move they start nothing.
    machine.checkout.rename(machine.checkout.with_name("moved"))
    machine.checkout = machine.checkout.with_name("moved")
    ended = machine.setup("demo")
    assert ended.returncode == 0
    assert machine.calls("pip")[-1].startswith(f"{machine.checkout}:")


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of root's")
def test_a_checkout_of_another_user_is_one_sentence(machine: Machine) -> None:
    machine.put_tools()
    machine.setup("demo")  # gives everything to the user
    shutil.rmtree(machine.checkout / ".cache")
    shutil.chown(machine.checkout, 0)
    machine.checkout.chmod(0o755)
    drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    ended = subprocess.run(
        [*drop, str(machine.checkout / "scripts" / "setup"), "demo"],
        env={**os.environ, "PATH": f"{machine.path}:{machine.usual}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is not writable" in the_sentence(ended)


@pytest.mark.parametrize("script", ["setup", "demo", "test", "bench"])
def test_every_script_explains_itself_without_doing_anything(script: str) -> None:
    ended = subprocess.run(
        [str(ROOT / "scripts" / script), "--help"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0
    assert ended.stdout.startswith(f"usage: scripts/{script}")
    assert ended.stderr == ""
