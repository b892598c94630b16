"""The platform tag of a wheel (PEP 600): which machines its programs run on, computed from the programs themselves."""
from __future__ import annotations

import pathlib
import re

from elf_file import ElfFile, NotSupported

# What every Linux with glibc has; anything else a wheel would have to bring along.
LIBRARIES = re.compile(r"lib(c|m|dl|rt|pthread)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+")
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?")
OLDEST = (2, 17)  # there are no tags for less on aarch64, and no machines
OLD_NAMES = {(2, 17): "manylinux2014"}  # what pip before 20.3 calls it


def newest_glibc(programs: list[ElfFile]) -> tuple[int, int]:
    """@throws NotSupported  a program needs a library, or a private version, that a tag can't promise."""
    newest = OLDEST
    for program in programs:
        if strange := [name for name in program.libraries if not LIBRARIES.fullmatch(name)]:
            raise NotSupported(f"{program.path}: linked with {', '.join(strange)}, which is not on every machine")
        for library, names in program.versions.items():
            for name in names:
                if not (version := GLIBC.fullmatch(name)):
                    raise NotSupported(f"{program.path}: uses {name} of {library}, which is in no other version of it")
                newest = max(newest, (int(version[1]), int(version[2])))
    return newest


def platform_tag(paths: list[pathlib.Path]) -> str:
    """As "manylinux_2_17_x86_64.manylinux2014_x86_64": a set of tags, joined by dots."""
    programs = [ElfFile(path) for path in paths]
    if len(machines := {program.machine for program in programs}) != 1:
        raise NotSupported(f"programs for different processors: {', '.join(sorted(machines))}")
    machine = machines.pop()
    version = newest_glibc(programs)
    tags = [f"manylinux_{version[0]}_{version[1]}_{machine}"]
    if version in OLD_NAMES:
        tags.append(f"{OLD_NAMES[version]}_{machine}")
    return ".".join(tags)
