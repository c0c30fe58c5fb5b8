"""Find what fragments TensorFlow's pool in train.py, and write the case study.

python hunt.py TENSORFLOW_PYTHON [--gdbmem GDBMEM] [--into FOLDER]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASE_STUDIES = HERE.parents[1] / "docs/case-studies"
SETTINGS = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "300",
    "CUDA_VISIBLE_DEVICES": "",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
EPOCHS = 3  # after which it fails


class Hunt:
    """The programs, and what they have printed."""

    def __init__(self, python: str, gdbmem: str, folder: Path) -> None:
        self.python, self.gdbmem, self.folder = python, gdbmem, folder
        self.environment = {**os.environ, **SETTINGS}
        self.told: dict[str, str] = {}

    def ask(self, *words: str) -> str:
        """Return what gdbmem prints."""
        ended = subprocess.run(
            [self.gdbmem, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise SystemExit(f"gdbmem {' '.join(words)}: {ended.stderr}")
        return ended.stdout.rstrip()

    def train(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [self.python, "train.py", *options]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )

    @contextlib.contextmanager
    def waiting(self, *options: str) -> Iterator[Waiting]:
        """Run train.py, which waits before each evaluation, until the block ends."""
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                [self.python, "train.py", "--wait", *options],
                cwd=self.folder, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=errors, text=True,
            )  # fmt: skip
        try:
            yield Waiting(process)
        finally:
            process.kill()
            process.communicate()

    def fail(self) -> None:
        """Let it run out of memory, and read the log."""
        ended = self.train()
        if not ended.returncode:
            raise SystemExit("train.py has not failed")
        (self.folder / "train.log").write_text(ended.stderr)
        error = next(line for line in reversed(ended.stderr.splitlines()) if "ResourceExhaustedError" in line)
        self.told["failed_run"] = ended.stdout.rstrip()
        self.told["error"] = error.rpartition("errors_impl.")[2]
        why = self.ask("bfc", "train.log", "--map", "failed.svg")
        self.told["why"] = why
        (free,) = re.findall(r"in use, (\S+ MiB) free in", why)
        (chunks,) = re.findall(r"freeing these (\d+) chunks of 64.0 KiB", why)
        words = {"2": "Two", "3": "Three", "4": "Four"}
        self.told["free"], self.told["chunks"] = free, words.get(chunks, chunks)

    def compare(self) -> None:
        """Compare the pool, and Python's objects, after two epochs."""
        with self.waiting("--trace") as program:
            pid = str(program.process.pid)
            self.told["pid"], self.told["first_moment"] = pid, program.until("epoch 0: trained")
            self.ask("bfc", pid, "--json", "-o", "one.json")
            self.ask("python", "traces", pid, "--profile", "one.pb.gz")
            program.go_on("epoch 1: trained")
            self.told["diff"] = self.ask("bfc", "diff", "one.json", pid)
            self.ask("python", "traces", pid, "--profile", "two.pb.gz")
        lines = self.ask("diff", "one.pb.gz", "two.pb.gz", "--by", "line", "--top", "3")
        self.told["lines"] = lines.partition("\n\nnote:")[0]
        (before, after) = re.findall(r"(\d+) chunks +(\d+) chunks  64.0 KiB", self.told["diff"])[0]
        self.told["more"] = str(int(after) - int(before))
        self.told["line"] = f"`{re.findall(r'train[.]py:[0-9]+', lines)[0]}`"

    def cure(self) -> None:
        """Show the same moment with the cure, and that all evaluations go well."""
        with self.waiting("--as-numbers") as program:
            pid = str(program.process.pid)
            lines = [program.until("epoch 0: trained")]
            lines += [program.go_on(f"epoch {epoch}: trained") for epoch in range(1, EPOCHS)]
            self.told["cured_pid"] = pid
            self.told["cured"] = self.ask("bfc", pid, "--request", "96MiB", "--map", "cured.svg")
            self.told["cured_run"] = "\n".join([*lines, program.go_on_to_the_end()])

    def write(self, folder: Path) -> None:
        """Fill the story, and put it with its pictures into *folder*."""
        version = "import tensorflow, platform; print(tensorflow.__version__, platform.python_version())"
        words = subprocess.run(
            [self.python, "-c", version], env=self.environment, capture_output=True, text=True, check=True
        )
        tensorflow, python = words.stdout.split()
        self.told["version"] = f"TensorFlow {tensorflow}, Python {python}"
        text = re.sub(r"\{\{(\w+)\}\}", lambda found: self.told[found[1]], (HERE / "story.md").read_text())
        folder.mkdir(parents=True, exist_ok=True)
        lines = [line.rstrip() for line in text.splitlines()]
        (folder / "bfc.md").write_text("\n".join(lines) + "\n")
        for name in ("failed", "cured"):
            shutil.copy(self.folder / f"{name}.svg", folder / f"bfc-{name}.svg")


class Waiting:
    """A train.py that waits before each evaluation."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, words: str) -> str:
        """Return what it prints until a line begins with *words*, that one included."""
        lines: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            lines.append(line.rstrip())
            if line.startswith(words):
                return "\n".join(lines)
        raise SystemExit(f"train.py ended before '{words}'")

    def go_on_to_the_end(self) -> str:
        """Let it run to its end, which has to be a good one; return what it prints."""
        lines, _ = self.process.communicate("\n" * 100)
        if self.process.returncode:
            raise SystemExit(f"train.py has failed with status {self.process.returncode}")
        return str(lines).rstrip()

    def go_on(self, words: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.until(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "python", help="one with TensorFlow, as in ~/.cache/gdbmem/bfc/newest (scripts/setup bfc)"
    )
    parser.add_argument("--gdbmem", default="gdbmem")
    parser.add_argument("--into", type=Path, default=CASE_STUDIES)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        hunt = Hunt(args.python, args.gdbmem, Path(name))
        shutil.copy(HERE / "train.py", hunt.folder)
        with ThreadPoolExecutor() as workers:  # the failing run waits for ten seconds by itself
            for done in [workers.submit(part) for part in (hunt.fail, hunt.compare, hunt.cure)]:
                done.result()
        hunt.write(args.into)


if __name__ == "__main__":
    main()
