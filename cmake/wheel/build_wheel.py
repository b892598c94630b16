#!/usr/bin/env python3
"""Builds acc_launch-VERSION-py3-none-PLATFORM.whl from programs that are built already, with the standard library alone.

    python3 cmake/wheel/build_wheel.py --programs build/release/portable --pages build/release/package/share --out build/release/wheel

Two builds of the same programs are equal byte by byte: entries are sorted, their time is SOURCE_DATE_EPOCH, else that of the last
commit, else 1980. ./cmake/wheel.sh builds the programs first.
"""
from __future__ import annotations

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from elf_file import NotSupported
from platform_tag import platform_tag

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "acc_launch"
COMMANDS = ("acc", "acc-launch", "acc-agent", "acc-rendezvous", "acc-test", "acc-ctl", "acc-env", "acc-config")
WORKERS = ("acc-test-worker", "acc-weights")  # started by acc-test and acc, by nobody else
# A wheel can't hold a link. Found beside acc-ctl wherever that is installed, also through a link to this file.
ACC_TOP = b'#!/bin/sh\nexec "$(dirname "$(readlink -f "$0")")/acc-ctl" top "$@"\n'
OLDEST_ZIP_TIME = 315532800  # 1980
FILE, PROGRAM = 0o100644, 0o100755

METADATA = """\
Metadata-Version: 2.1
Name: acc-launch
Version: {version}
Summary: Distributed launcher and process supervisor: a drop-in for accelerate launch and torchrun
License: Apache-2.0
Keywords: distributed training,launcher,torchrun,accelerate
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Requires-Python: >=3.8
Provides-Extra: notebook
Requires-Dist: cloudpickle ; extra == 'notebook'
Description-Content-Type: text/markdown

"""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build/release/portable", help="folder of the built programs")
    parser.add_argument("--pages", type=pathlib.Path, default=ROOT / "build/release/package/share", help="folder of the manual pages and completions")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/release/wheel", help="folder for the wheel")
    parser.add_argument("--strip", default="strip", help="of another processor's binutils: aarch64-linux-gnu-strip; empty: ship as built")
    parser.add_argument("--fast", action="store_true", help="compress little, for tests")
    return parser.parse_args()


def project_version() -> str:
    found = re.search(r"^project\(acc VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)
    assert found, "CMakeLists.txt has no version"
    return found[1]


def source_time() -> int:
    """Seconds since 1970, of all entries."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is None:
        done = subprocess.run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"], capture_output=True, text=True)
        told = done.stdout.strip() or "0"
    return max(int(told), OLDEST_ZIP_TIME)


def stripped(path: pathlib.Path, strip: str) -> bytes:
    if not strip:
        return path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / path.name
        subprocess.run([strip, "--strip-all", "-o", str(copy), str(path)], check=True)
        return copy.read_bytes()


def package_files() -> dict[str, bytes]:
    """The Python package, and the module that workers import alone."""
    source = ROOT / "runtime/python"
    paths = [source / "acc_heartbeat.py", *sorted((source / NAME).glob("*.py")), source / NAME / "py.typed"]
    return {str(path.relative_to(source)): path.read_bytes() for path in paths}


def page_files(pages: pathlib.Path) -> dict[str, bytes]:
    """Manual pages and completions by their places under the prefix. zsh's own folder there is not Debian's."""
    paths = [path for path in sorted(pages.rglob("*")) if path.is_file()]
    names = [f"share/{path.relative_to(pages)}".replace("/zsh/vendor-completions/", "/zsh/site-functions/") for path in paths]
    return {name: path.read_bytes() for name, path in zip(names, paths)}


def entries_of(programs: pathlib.Path, pages: pathlib.Path, strip: str, version: str) -> tuple[dict[str, tuple[int, bytes]], str]:
    """{name in the wheel: (mode, content)} without RECORD, and the platform tag."""
    data, info = f"{NAME}-{version}.data", f"{NAME}-{version}.dist-info"
    names = {f"{data}/scripts/{name}": programs / name for name in COMMANDS}
    names |= {f"{data}/data/libexec/acc/{name}": programs / name for name in WORKERS}
    tag = platform_tag(list(names.values()))
    entries = {name: (PROGRAM, stripped(path, strip)) for name, path in names.items()}
    entries[f"{data}/scripts/acc-top"] = (PROGRAM, ACC_TOP)
    entries.update({name: (FILE, content) for name, content in package_files().items()})
    entries.update({f"{data}/data/{name}": (FILE, content) for name, content in page_files(pages).items()})
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    wheel = f"Wheel-Version: 1.0\nGenerator: acc build_wheel\nRoot-Is-Purelib: false\n{tags}"
    description = (ROOT / "runtime/python/README.md").read_text()
    entries[f"{info}/METADATA"] = (FILE, (METADATA.format(version=version) + description).encode())
    entries[f"{info}/WHEEL"] = (FILE, wheel.encode())
    entries[f"{info}/LICENSE"] = (FILE, (ROOT / "LICENSE").read_bytes())
    entries[f"{info}/copyright"] = (FILE, (ROOT / "cmake/copyright").read_bytes())
    return entries, tag


def record(entries: dict[str, tuple[int, bytes]], own_name: str) -> bytes:
    lines = []
    for name, (_, content) in sorted(entries.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{own_name},,\n"]).encode()


def write_wheel(path: pathlib.Path, entries: dict[str, tuple[int, bytes]], own_name: str, seconds: int, level: int) -> None:
    """What describes the wheel is last, as its specification recommends; RECORD at the very end."""
    when = time.gmtime(seconds)[:6]
    order = sorted(entries, key=lambda name: (".dist-info/" in name, name))
    everything = {**entries, own_name: (FILE, record(entries, own_name))}
    part = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(part, "w") as wheel:
        for name in [*order, own_name]:
            mode, content = everything[name]
            entry = zipfile.ZipInfo(name, when)
            entry.create_system = 3  # Unix: the mode counts
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, content, compresslevel=level)
    part.replace(path)


def main() -> int:
    arguments = parse_arguments()
    missing = [name for name in (*COMMANDS, *WORKERS) if not (arguments.programs / name).exists()]
    if missing:
        print(f"build_wheel: {arguments.programs} lacks {', '.join(missing)}: cmake --build --preset release --target acc-portable", file=sys.stderr)
        return 1
    if not (arguments.pages / "man/man1/acc-launch.1.gz").exists():
        print(f"build_wheel: {arguments.pages} has no manual pages: cmake --build --preset release --target acc-pages", file=sys.stderr)
        return 1
    if arguments.strip and not shutil.which(arguments.strip):
        print(f"build_wheel: '{arguments.strip}' is not installed (Debian: binutils)", file=sys.stderr)
        return 1
    version = project_version()
    try:
        entries, tag = entries_of(arguments.programs, arguments.pages, arguments.strip, version)
    except NotSupported as error:
        print(f"build_wheel: {error}", file=sys.stderr)
        return 1
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / f"{NAME}-{version}-py3-none-{tag}.whl"
    write_wheel(path, entries, f"{NAME}-{version}.dist-info/RECORD", source_time(), 1 if arguments.fast else 9)
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
