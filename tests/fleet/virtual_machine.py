"""A virtual machine with Debian's kernel and control groups of version 2, on the files of this machine.

The guest sees all files here, and writes to a disk of its own. It needs no KVM, and is some ten times slower than this
machine. By hand: virtual_machine.py SCRATCH-FOLDER COMMAND…, where SCRATCH-FOLDER/said gets what is printed.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

FOLDER = Path(__file__).resolve().parents[2] / ".cache" / "guest"  # of scripts/setup fleet
QEMU = "qemu-system-x86_64"
_DISK_BYTES = 4 << 30  # sparse
_MODULES = Path(__file__).with_name("guest_modules")  # in the order in which they are loaded
_INIT = """\
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for name in {modules}; do $b insmod /modules/$name.ko; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 host /host
$b mount -t ext2 -o noatime /dev/vda /disk
$b mkdir /disk/upper /disk/work
$b mount -t overlay -o lowerdir=/host,upperdir=/disk/upper,workdir=/disk/work overlay /root
$b mount -t proc proc /root/proc
$b mount -t sysfs sys /root/sys
$b mount -t devtmpfs dev /root/dev
$b mkdir -p /root/dev/shm /root/dev/pts
$b mount -t tmpfs shm /root/dev/shm
$b mount -t devpts devpts /root/dev/pts
$b mount -t tmpfs run /root/run
$b mount -t cgroup2 cgroup /root/sys/fs/cgroup
echo +memory > /root/sys/fs/cgroup/cgroup.subtree_control
$b ifconfig lo 127.0.0.1
$b hostname guest
$b chroot /root {command}
echo "the guest's status is $?"
$b poweroff -f
"""


def missing() -> Optional[str]:
    """Return what is missing to start one; None if nothing is."""
    if shutil.which(QEMU) is None:
        return QEMU
    return None if (FOLDER / "ready").exists() else f"{FOLDER}: scripts/setup fleet"


def run_in_guest(
    command: Sequence[str], scratch: Path, *, memory_mib: int = 2048, seconds: float
) -> tuple[int, str]:
    """Run *command* as root in a virtual machine, at most for *seconds*; return its status and all that was printed.

    The machine is ended in any case.
    """
    disk = scratch / "disk"
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
    subprocess.run(["mke2fs", "-q", "-t", "ext2", str(disk)], check=True)
    words = [
        *[QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"],
        *["-machine", "pc,accel=tcg"],
        *["-cpu", "max", "-smp", "1", "-m", str(memory_mib), "-serial", "stdio"],
        *["-kernel", str(FOLDER / "vmlinuz"), "-initrd", str(_initrd(scratch, command))],
        *["-append", "console=ttyS0 quiet panic=-1 mitigations=off"],
        *["-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap"],
        *["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"],
        *["-drive", f"file={disk},format=raw,if=none,id=disk,cache=unsafe"],
        *["-device", "virtio-blk-pci,drive=disk"],
    ]  # fmt: skip
    log = scratch / "said"
    with (
        log.open("wb") as output,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output) as machine,
    ):
        try:
            machine.wait(seconds)
        except subprocess.TimeoutExpired:
            output.write(f"it took more than {seconds:.0f} s\n".encode())
        finally:
            machine.kill()
            disk.unlink()
    said = log.read_text(errors="replace")
    lines = [line for line in said.splitlines() if line.startswith("the guest's status is ")]
    return int(lines[-1].split()[-1]) if lines else -1, said


def _initrd(scratch: Path, command: Sequence[str]) -> Path:
    """Return a file with what the kernel starts."""
    tree, file = scratch / "initrd.d", scratch / "initrd"
    for name in ("bin", "proc", "dev", "host", "disk", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(FOLDER / "busybox", tree / "bin")
    # One that is missing is built into the kernel.
    modules = [name for name in _MODULES.read_text().split() if (FOLDER / f"{name}.ko").exists()]
    for name in modules:
        shutil.copy(FOLDER / f"{name}.ko", tree / "modules")
    (tree / "init").write_text(_INIT.format(modules=" ".join(modules), command=shlex.join(command)))
    (tree / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with file.open("wb") as stream:
        pack = [str(FOLDER / "busybox"), "cpio", "-o", "-H", "newc"]
        subprocess.run(
            pack, cwd=tree, input=names.encode(), stdout=stream, stderr=subprocess.DEVNULL, check=True
        )
    return file


if __name__ == "__main__":
    sys.exit(run_in_guest(sys.argv[2:], Path(sys.argv[1]), seconds=1500)[0])
