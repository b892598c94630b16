"""What a program needs of a machine is read from its file, and told as the platform tag of a wheel."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cmake/wheel"))
from elf_file import ElfFile, NotSupported  # noqa: E402
from platform_tag import newest_glibc, platform_tag  # noqa: E402

PROGRAM = pathlib.Path("/bin/sh").resolve()


def program(versions=("GLIBC_2.17",), libraries=("libc.so.6",)):
    return types.SimpleNamespace(path="program", machine="x86_64", libraries=list(libraries), versions={"libc.so.6": set(versions)})


class Elf(unittest.TestCase):
    @unittest.skipUnless(shutil.which("readelf"), "no readelf here")
    def test_libraries_and_versions_are_those_that_readelf_prints(self):
        for path in (PROGRAM, pathlib.Path(sys.executable).resolve(), pathlib.Path("/bin/bash").resolve()):
            elf = ElfFile(path)
            printed = subprocess.run(["readelf", "-W", "-d", "-V", path], capture_output=True, text=True, check=True).stdout
            self.assertEqual(elf.libraries, re.findall(r"\(NEEDED\).*\[(.*)\]", printed))
            needs = printed[printed.index("Version needs section"):]
            self.assertEqual(set().union(*elf.versions.values()), set(re.findall(r"Name: (\S+)  Flags", needs)))

    def test_the_processor_is_named_as_uname_does(self):
        self.assertEqual(ElfFile(PROGRAM).machine, subprocess.run(["uname", "-m"], capture_output=True, text=True).stdout.strip())

    def test_what_is_no_elf_file_is_refused(self):
        with tempfile.NamedTemporaryFile() as file:
            for content in (b"", b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x02" + bytes(100)):
                pathlib.Path(file.name).write_bytes(content)
                with self.assertRaisesRegex(NotSupported, "no ELF file of 64 bits"):
                    ElfFile(pathlib.Path(file.name))

    def test_an_unknown_processor_is_refused(self):
        data = bytearray(PROGRAM.read_bytes())
        data[18:20] = (243).to_bytes(2, "little")  # RISC-V
        with tempfile.NamedTemporaryFile() as file:
            pathlib.Path(file.name).write_bytes(data)
            with self.assertRaisesRegex(NotSupported, "processor 243"):
                ElfFile(pathlib.Path(file.name))

    def test_a_file_that_was_cut_anywhere_is_refused_or_read(self):
        data = PROGRAM.read_bytes()
        with tempfile.NamedTemporaryFile() as file:
            for length in [*range(6, 1500, 7), *range(1500, len(data), 4999)]:
                pathlib.Path(file.name).write_bytes(data[:length])
                try:
                    ElfFile(pathlib.Path(file.name))
                except NotSupported:
                    pass


class Tag(unittest.TestCase):
    def test_the_newest_version_of_any_program_counts_as_a_number(self):
        self.assertEqual(newest_glibc([program(["GLIBC_2.9", "GLIBC_2.34"]), program(["GLIBC_2.4"])]), (2, 34))
        self.assertEqual(newest_glibc([program(["GLIBC_2.4"]), program(["GLIBC_2.100", "GLIBC_2.36"])]), (2, 100))

    def test_older_than_the_oldest_tag_counts_as_that(self):
        self.assertEqual(newest_glibc([program(["GLIBC_2.2.5"])]), (2, 17))

    def test_a_private_version_promises_nothing(self):
        with self.assertRaisesRegex(NotSupported, "GLIBC_PRIVATE"):
            newest_glibc([program(["GLIBC_2.2.5", "GLIBC_PRIVATE"])])

    def test_a_library_that_not_every_machine_has_is_refused(self):
        for name in ("libssl.so.3", "libstdc++.so.6", "libgcc_s.so.1", "libc++.so.1"):
            with self.assertRaisesRegex(NotSupported, re.escape(name)):
                newest_glibc([program(libraries=["libc.so.6", name])])
        every = ["libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
        self.assertEqual(newest_glibc([program(libraries=every)]), (2, 17))

    def test_a_tag_names_version_and_processor(self):
        version = newest_glibc([ElfFile(PROGRAM)])
        machine = ElfFile(PROGRAM).machine
        self.assertEqual(platform_tag([PROGRAM]).split(".")[0], f"manylinux_{version[0]}_{version[1]}_{machine}")


if __name__ == "__main__":
    unittest.main()
