"""What is uploaded, and Debian's package: one version, and what Debian 13 does not have is not needed."""

import re
from pathlib import Path

from gdbmem import __version__
from gdbmem.setup.requirements import REQUIREMENTS

ROOT = Path(__file__).parents[2]
_NOT_IN_DEBIAN_13 = {"inotify-simple", "plotext"}


def test_all_places_have_one_version() -> None:
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert (ROOT / "debian/changelog").read_text(encoding="utf-8").startswith(f"gdbmem ({__version__}) ")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)}(?: - \d{{4}}-\d\d-\d\d)?$", changes, re.MULTILINE)


def test_every_dependency_is_a_package_of_debian_13() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert listed is not None
    names = set(re.findall(r'^  "([a-z0-9-]+)', listed[1], re.MULTILINE))
    assert names >= {one.package for one in REQUIREMENTS}
    assert not names & _NOT_IN_DEBIAN_13
