"""`git bisect run gdbmem bisect` on repositories whose commits are built and measured; baselines of real builds."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gdbmem.gates.baseline import Entry, Measure, baselines_json, judge_baseline, read_baselines
from gdbmem.model.judgement import BYTES, NOT_MET
from tests.live.user import GDBMEM, shell

pytestmark = [
    pytest.mark.needs("gdb", "valgrind", "vgdb", "gcc", "git"),
    pytest.mark.usefixtures("no_process_left"),
]

# Holds SIZE bytes, give or take a noise of 0.5 % from run to run, when it is `done`.
SOURCE = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
__attribute__((noinline)) void done(void) { __asm__ volatile(""); }
int main(int argc, char **argv) {
    unsigned words[2];
    if (getrandom(words, sizeof words, 0) != sizeof words) return 9;
    double a = (words[0] + 1.0) / 4294967297.0, b = words[1] / 4294967296.0;
    double noise = sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
    size_t size = SIZE * (1 + 0.005 * noise);
    char *block = malloc(size);
    block[0] = 1;
    done();
    if (argc > 1) printf("%zu\n", size);
    return block[0] - 1;
}
"""
RECIPE = "program: {program}\npoints:\n  - {{at: done, name: done}}\n"
GOOD, BAD = 1_000_000, 1_020_000


def git(folder: Path, *words: str) -> str:
    settings = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *settings, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0 or words[0] == "bisect", done.stderr
    return done.stdout + done.stderr


def history(folder: Path, count: int, culprit: int, broken: Sequence[int]) -> list[str]:
    """Make a repository of *count* commits, of which those from *culprit* on are bad; *broken* ones don't build."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    commits = []
    for number in range(count):
        size = BAD if number >= culprit else GOOD
        text = f"// {number}\n" + SOURCE.replace("SIZE", f"{size}.0")
        (folder / "p.c").write_text("syntax error\n" + text if number in broken else text)
        (folder / "Makefile").write_text("p: p.c\n\t@$(CC) -g -o $@ $< -lm 2>/dev/null\n")
        git(folder, "add", "p.c", "Makefile")
        git(folder, "commit", "-q", "-m", f"commit {number}")
        commits.append(git(folder, "rev-parse", "HEAD").strip())
    return commits


def save_sides(folder: Path, commits: Sequence[str], recipe: Path, file: Path, runs: int) -> None:
    for name, commit in (("good", commits[0]), ("bad", commits[-1])):
        git(folder, "checkout", "-q", commit)
        subprocess.run(["make", "-B"], cwd=folder, check=True, capture_output=True)
        words = ("--branch", name, "--file", file, "--runs", str(runs), "-q", recipe)
        shell(GDBMEM, "baseline", "save", *words, folder=folder, check=True)


def bisected(folder: Path, commits: Sequence[str], recipe: Path, file: Path) -> tuple[str, str]:
    """Return the commit that git finds, and what was printed."""
    git(folder, "bisect", "start", commits[-1], commits[0])
    words = ("--build", "make -B", "--good", "good", "--bad", "bad", "--file", str(file), "-q", str(recipe))
    printed = git(folder, "bisect", "run", GDBMEM, "bisect", *words)
    return git(folder, "rev-parse", "refs/bisect/bad").strip(), printed


def test_a_commit_is_built_run_and_decided_and_one_that_does_not_build_is_skipped(scratch: Path) -> None:
    recipe, file, folder = scratch / "p.yaml", scratch / "baselines.json", scratch / "repository"
    recipe.write_text(RECIPE.format(program=folder / "p"))
    good, broken = history(folder, 2, culprit=2, broken=[1])
    words = ("bisect", "--build", "make -B", "--file", file, "--good", "good", "--bad", "bad", recipe)
    subprocess.run(["git", "checkout", "-q", good], cwd=folder, check=True)
    subprocess.run(["make", "-B"], cwd=folder, check=True, capture_output=True)
    save = ("baseline", "save", "--branch", "main", "--file", file, "--runs", "1", recipe)
    saved = shell(GDBMEM, *save, folder=folder, check=True)
    assert saved.stdout == "p: 1 measure of 1 run saved as main\n" and "run 1 of 1" in saved.stderr
    (measured,) = read_baselines(file.read_text(), "")["main"].values()
    assert measured.commit == good and abs(measured.measures[0].value / GOOD - 1) < 0.03
    noise = [1 + n / 1000 for n in (-9, -6, -4, -3, -2, -1, 1, 2, 3, 4, 6, 9)]
    sides = {
        name: {
            "p": measured._replace(measures=(Measure("heap at done", BYTES, tuple(size * n for n in noise)),))
        }
        for name, size in (("good", GOOD), ("bad", BAD))
    }
    file.write_text(baselines_json(sides))
    decided = shell(GDBMEM, *words, folder=folder)
    assert decided.returncode == 0 and decided.stdout.startswith("good after "), decided
    subprocess.run(["git", "checkout", "-q", broken], cwd=folder, check=True)
    skipped = shell(GDBMEM, *words, folder=folder)
    assert skipped.returncode == 125 and "skipped: 'make -B' failed\n" in skipped.stdout
    wrong = ("bisect", "--build", "/no/such/builder", recipe)
    assert shell(GDBMEM, *wrong, folder=folder).returncode >= 128, "git would take 1 for bad"


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_bisect_is_right_in_twenty_histories_of_32_commits(scratch: Path) -> None:
    random.seed(5)
    recipe, file = scratch / "p.yaml", scratch / "baselines.json"
    for number in range(20):
        folder = scratch / f"repository{number}"
        recipe.write_text(RECIPE.format(program=folder / "p"))
        culprit = random.randrange(1, 32)
        others = [n for n in range(1, 31) if n not in (culprit, culprit - 1)]
        commits = history(folder, 32, culprit, random.sample(others, 4))
        if not number:
            save_sides(folder, commits, recipe, file, runs=12)
        found, printed = bisected(folder, commits, recipe, file)
        assert found == commits[culprit], (number, culprit, printed)
        print(
            number,
            culprit,
            [line for line in printed.splitlines() if " after " in line or "skipped: " in line],
        )


@pytest.mark.thorough
def test_of_200_pairs_equal_builds_fail_at_most_twice_and_two_percent_more_at_least_190_times(
    scratch: Path,
) -> None:
    for name, size in (("good", GOOD), ("bad", BAD)):
        (scratch / f"{name}.c").write_text(SOURCE.replace("SIZE", f"{size}.0"))
        subprocess.run(["gcc", "-o", name, f"{name}.c", "-lm"], cwd=scratch, check=True)

    def entry(name: str, runs: int) -> Entry:
        words = [str(scratch / name), "-"]
        sizes = [int(subprocess.run(words, capture_output=True, check=True).stdout) for _ in range(runs)]
        return Entry(None, "", {}, (Measure("heap at done", "bytes", tuple(sizes)),))

    failed = {"good": 0, "bad": 0}
    for _ in range(200):
        for name in failed:
            (judged,) = judge_baseline(entry("good", 12), entry(name, 5), branch="main")
            failed[name] += judged.judged == NOT_MET
    print(failed)
    assert failed["good"] <= 2 and failed["bad"] >= 190, failed
