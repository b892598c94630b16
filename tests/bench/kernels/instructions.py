#!/usr/bin/env python3
"""Instructions for each element that the vector kernels execute, counted by qemu-user: of aarch64, or of this machine's build.

    python3 tests/bench/kernels/instructions.py build/arm64/bin/acc-bench-kernels
    python3 tests/bench/kernels/instructions.py --cpu Nehalem build/release/bin/acc-bench-kernels

A count and no time: qemu says nothing about how long a processor takes. The difference of two runs is taken, so that the program's
start doesn't count. The inputs are zeros; no kernel branches on a value.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cmake/wheel"))
from elf_file import ElfFile  # noqa: E402

FLOATS = ("f32", "f64", "f16", "bf16")
KERNELS = [*(("sum", name) for name in (*FLOATS, "i8", "i32", "i64")), ("avg", "f32"), ("avg", "i32"), *(("max", name) for name in FLOATS),
           *((way, name) for way in ("widen", "narrow") for name in ("f16", "bf16"))]
FEW, MANY = 4096, 36864  # elements: whole blocks of every kernel


def executed(command):
    """Instructions of a run: qemu in single steps names each one before it is executed."""
    log = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = sum(chunk.count(b"\nTrace ") for chunk in iter(lambda: log.stdout.read(1 << 20), b""))
    if log.wait() != 0:
        sys.exit(f"instructions.py: failed: {' '.join(map(str, command))}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--cpu", help="processor that qemu plays: Nehalem has no AVX, Haswell has AVX2, cortex-a57 is an ARMv8.0")
    parser.add_argument("kernels", nargs="*", default=[], help="such as sum:f16 (all)")
    arguments = parser.parse_args()
    machine = ElfFile(arguments.program).machine
    qemu = next(filter(None, map(shutil.which, (f"qemu-{machine}-static", f"qemu-{machine}"))), None)
    if qemu is None:
        sys.exit(f"instructions.py: qemu-{machine} is not installed (Debian: qemu-user-static)")
    if machine == "aarch64":
        os.environ.setdefault("QEMU_LD_PREFIX", str(ROOT / "build/arm64-root"))
    start = [qemu, *(["-cpu", arguments.cpu] if arguments.cpu else []), "-singlestep", "-d", "exec,nochain", arguments.program]
    for name, element in [tuple(kernel.split(":")) for kernel in arguments.kernels] or KERNELS:
        few, many = (executed([*start, name, element, str(count)]) for count in (FEW, MANY))
        print(f"{name:7}{element:5}{(many - few) / (MANY - FEW):7.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
