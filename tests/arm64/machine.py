#!/usr/bin/env python3
"""Runs tests of build/arm64 in a virtual aarch64 machine with Debian's kernel: those that qemu-user can't run, or others that ctest's words select.

    python3 tests/arm64/machine.py                    # all with a label emulated-…
    python3 tests/arm64/machine.py -R 'agent: .*fork'
    python3 tests/arm64/machine.py --cores 4 -L unit
    python3 tests/arm64/machine.py --run 'build/arm64/bin/acc-test --num_processes 4'

Everything is in the machine's initial memory: busybox, the C library, the sources and the programs, under their paths here. Needs qemu-system-aarch64
and cpio; the kernel comes from Debian's archive into build/arm64-machine. Exit code 0 only if all tests ended and none failed.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/arm64"
LIBRARIES = ROOT / "build/arm64-root"
MACHINE = ROOT / "build/arm64-machine"
EMULATOR = str(ROOT / "cmake/arm64/emulate")
SKIPPED = 77

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root TMPDIR=/tmp LANG=C
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /dev/shm
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
hostname machine
uname -a
sh /tests.sh
poweroff -f
"""


def selected(words):
    """(name, command, folder) of the tests that ctest selects, disabled ones too."""
    shown = subprocess.run(["ctest", "--test-dir", BUILD, "--show-only=json-v1", *words], capture_output=True, text=True, check=True).stdout
    for test in json.loads(shown)["tests"]:
        command = test.get("command", [])
        if command[:1] == [EMULATOR]:
            folder = next((one["value"] for one in test["properties"] if one["name"] == "WORKING_DIRECTORY"), str(BUILD))
            yield test["name"], command[1:], folder


def copy(source, image):
    target = image / str(source).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=True)
    return target


def fill(image, tests):
    for folder in ("bin", "proc", "sys", "dev", "tmp", "root", "etc"):
        (image / folder).mkdir(parents=True)
    shutil.copy2(MACHINE / "bin/busybox", image / "bin/busybox")
    (image / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
    (image / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (image / "etc/hosts").write_text("127.0.0.1 localhost machine\n")
    for library in [*LIBRARIES.glob("lib/aarch64-linux-gnu/*.so*"), *LIBRARIES.glob("usr/lib/aarch64-linux-gnu/lib*.so.*")]:
        if re.match(r"(ld-linux|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|nss_\w+|resolv|util|z)\.so)", library.name):
            target = image / "lib/aarch64-linux-gnu" / library.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library, target, follow_symlinks=True)
    (image / "lib/ld-linux-aarch64.so.1").symlink_to("aarch64-linux-gnu/ld-linux-aarch64.so.1")
    for name in subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines():
        if not (ROOT / name).is_symlink():
            copy(ROOT / name, image)
    programs = {ROOT / command[0] for _, command, _ in tests} | {path for path in (BUILD / "bin").iterdir() if not path.name.startswith("test-")}
    for program in programs:
        if program.is_file():
            subprocess.run(["aarch64-linux-gnu-strip", copy(program, image)], stderr=subprocess.DEVNULL)
    for _, _, folder in tests:
        (image / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)


def write_scripts(image, tests, seconds, loud):
    (image / "init").write_text(INIT)
    (image / "init").chmod(0o755)
    lines = []
    for number, (_, command, folder) in enumerate(tests):
        lines.append(f"cd {shlex.quote(folder)}; timeout {seconds} {shlex.join(command)} </dev/null >/tmp/out 2>&1; code=$?\n"
                     f"[ $code = 0 ] && {'false' if loud else 'true'} || sed 's/^/| /' /tmp/out | tail -60\necho \"ended {number} $code\"\n")
    (image / "tests.sh").write_text("".join(lines) + "echo all ended\n")


def boot(image, arguments):
    archive = image.with_suffix(".cpio.gz")
    names = subprocess.run(["find", ".", "-print0"], cwd=image, capture_output=True, check=True).stdout
    made = subprocess.run(["cpio", "--null", "-o", "-H", "newc", "--quiet"], cwd=image, input=names, capture_output=True, check=True).stdout
    archive.write_bytes(gzip.compress(made, 1))
    kernel = next((MACHINE / "boot").glob("vmlinuz-*"))
    return subprocess.Popen(
        ["qemu-system-aarch64", "-M", "virt", "-cpu", arguments.cpu, "-smp", str(arguments.cores), "-m", arguments.memory, "-nographic", "-no-reboot",
         "-nic", "none", "-kernel", kernel, "-initrd", archive, "-append", "console=ttyAMA0 quiet panic=-1"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace")


def follow(machine, tests):
    """Prints what the machine prints; {number of a test: exit code}."""
    codes = {}
    for line in machine.stdout:
        line = line.rstrip("\r\n")
        if found := re.fullmatch(r"ended (\d+) (\d+)", line):
            number, codes[int(found[1])] = int(found[1]), int(found[2])
            word = {0: "passed", SKIPPED: "skipped", 143: "too slow"}.get(codes[number], "FAILED")
            print(f"{word:8} {tests[number][0]}", flush=True)
        else:
            print(line, flush=True)
    machine.wait()
    return codes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--memory", default="4G")
    parser.add_argument("--cpu", default="max,pauth-impdef=on", help="as qemu names them: neoverse-n1, cortex-a72 …")
    parser.add_argument("--seconds", type=int, default=300, help="limit of a test")
    parser.add_argument("--run", action="append", default=[], metavar="COMMAND", help="this instead of tests; its output is shown")
    arguments, words = parser.parse_known_args()
    for program in ("qemu-system-aarch64", "cpio", "aarch64-linux-gnu-strip"):
        if not shutil.which(program):
            sys.exit(f"machine.py: {program} is not installed (Debian: qemu-system-arm cpio g++-aarch64-linux-gnu)")
    subprocess.run([ROOT / "cmake/arm64/root.sh", "machine"], check=True)
    tests = list(selected(words or ["-L", "^emulated-"])) if not arguments.run else [(line, shlex.split(line), str(ROOT)) for line in arguments.run]
    if not tests:
        sys.exit("machine.py: no test of build/arm64 has such a name or label")
    with tempfile.TemporaryDirectory() as folder:
        image = pathlib.Path(folder) / "image"
        fill(image, tests)
        write_scripts(image, tests, arguments.seconds, bool(arguments.run))
        codes = follow(boot(image, arguments), tests)
    failed = [tests[number][0] for number, code in codes.items() if code not in (0, SKIPPED)]
    print(f"{sum(code == 0 for code in codes.values())} passed, {len(failed)} failed, {sum(code == SKIPPED for code in codes.values())} skipped, "
          f"{len(tests) - len(codes)} not reached")
    return 0 if not failed and len(codes) == len(tests) else 1


if __name__ == "__main__":
    sys.exit(main())
