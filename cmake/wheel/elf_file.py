"""What an ELF program (64 bits, little-endian) needs of the machine that runs it: processor, libraries, versions of their symbols."""
from __future__ import annotations

import pathlib
import struct

MACHINES = {62: "x86_64", 183: "aarch64"}
PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


class NotSupported(Exception):
    pass


class ElfFile:
    """machine: as uname prints it. libraries: DT_NEEDED, in order. versions: {library: {"GLIBC_2.17", …}}. All empty of a static program."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.data = path.read_bytes()
        try:
            self.read()
        except (struct.error, ValueError) as error:
            raise NotSupported(f"{path}: a damaged ELF file: {error}") from error

    def read(self) -> None:
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise NotSupported(f"{self.path}: no ELF file of 64 bits, little-endian")
        (number,) = struct.unpack_from("<H", self.data, 18)
        if number not in MACHINES:
            raise NotSupported(f"{self.path}: processor {number} of elf.h: known are {', '.join(MACHINES.values())}")
        self.machine = MACHINES[number]
        (offset,) = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        self.segments = [struct.unpack_from("<IIQQQQ", self.data, offset + i * size) for i in range(count)]
        self.libraries: list[str] = []
        self.versions: dict[str, set[str]] = {}
        entries = self.dynamic_entries()
        if entries:
            first = {tag: value for tag, value in reversed(entries)}
            self.strings = self.at(first[DT_STRTAB])
            self.libraries = [self.string(value) for tag, value in entries if tag == DT_NEEDED]
            if DT_VERNEED in first:
                self.read_versions(self.at(first[DT_VERNEED]), first[DT_VERNEEDNUM])

    def at(self, address: int) -> int:
        """The place in the file of what is loaded to an address."""
        for kind, _, offset, begin, _, size in self.segments:
            if kind == PT_LOAD and begin <= address < begin + size:
                return int(offset + address - begin)
        raise ValueError(f"nothing is loaded to {address:#x}")

    def string(self, offset: int) -> str:
        begin = self.strings + offset
        return self.data[begin : self.data.index(b"\0", begin)].decode()

    def dynamic_entries(self) -> list[tuple[int, int]]:
        for kind, _, offset, _, _, size in self.segments:
            if kind == PT_DYNAMIC:
                pairs = [struct.unpack_from("<qQ", self.data, offset + i * 16) for i in range(size // 16)]
                return pairs[: next(i for i, (tag, _) in enumerate(pairs) if tag == 0)]
        return []

    def read_versions(self, place: int, count: int) -> None:
        for _ in range(count):
            _, names, library, first, following = struct.unpack_from("<HHIII", self.data, place)
            name_place = place + first
            found = self.versions.setdefault(self.string(library), set())
            for _ in range(names):
                _, _, _, name, next_name = struct.unpack_from("<IHHII", self.data, name_place)
                found.add(self.string(name))
                name_place += next_name
            place += following
