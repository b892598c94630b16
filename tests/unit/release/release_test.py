#!/usr/bin/env python3
"""The steps of a release that aren't builds: notes, digests, comparison, bill of materials."""
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cmake/release"))

import artifacts  # noqa: E402
import sbom  # noqa: E402

CHANGELOG = "# Changelog\nAll changes.\n\n## Unreleased\n- new\n\n## 0.2.0 (2026-11-24)\n### Added\n- a thing\n\n## 0.1.0\n- first\n\n## 0.0.9\nnothing\n"
DEP5 = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\nCopyright: 2020 A. Uthor\nLicense: {}\n\nFiles: debian/*\nLicense: GPL-2+\n"


def folder(files):
    path = pathlib.Path(tempfile.mkdtemp())
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def deb(text, mtime=0):
    """An ar archive with a tar in it, as a package is."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        member = tarfile.TarInfo("./usr/bin/acc")
        member.size, member.mtime = len(text), mtime
        archive.addfile(member, io.BytesIO(text))
    data = tar.getvalue()
    return b"!<arch>\n" + f"{'data.tar.gz':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)


class Notes(unittest.TestCase):
    def test_the_section_of_a_version_ends_where_the_next_begins(self):
        self.assertEqual(artifacts.notes(CHANGELOG, "0.2.0"), "## 0.2.0 (2026-11-24)\n### Added\n- a thing\n")
        self.assertEqual(artifacts.notes(CHANGELOG, "0.1.0"), "## 0.1.0\n- first\n")

    def test_a_version_without_a_section_or_without_an_entry_is_refused(self):
        for version, why in (("0.3.0", "has no section"), ("0.2", "has no section"), ("0.0.9", "has no entry")):
            with self.assertRaisesRegex(artifacts.Problem, why):
                artifacts.notes(CHANGELOG, version)


class Digests(unittest.TestCase):
    def test_sha256sum_agrees_and_finds_a_changed_file(self):
        made = folder({"b.whl": b"two", "a.deb": b"one"})
        self.assertEqual(artifacts.main(["sums", str(made)]), 0)
        self.assertEqual([line.split()[1] for line in (made / "SHA256SUMS").read_text().splitlines()], ["a.deb", "b.whl"])
        check = ["sha256sum", "--check", "--quiet", "SHA256SUMS"]
        self.assertEqual(subprocess.run(check, cwd=made, capture_output=True).returncode, 0)
        (made / "a.deb").write_bytes(b"another")
        self.assertNotEqual(subprocess.run(check, cwd=made, capture_output=True).returncode, 0)

    def test_digests_of_digests_are_not_taken(self):
        made = folder({"a": b"one"})
        before = artifacts.sums(made)
        (made / "SHA256SUMS").write_text(before)
        self.assertEqual(artifacts.sums(made), before)


class Comparison(unittest.TestCase):
    def test_equal_folders_have_no_differences(self):
        self.assertEqual(artifacts.differences(folder({"a.deb": deb(b"x")}), folder({"a.deb": deb(b"x")})), [])

    def test_a_member_of_a_package_that_differs_is_named(self):
        self.assertRegex(artifacts.differences(folder({"a.deb": deb(b"x")}), folder({"a.deb": deb(b"y")}))[0], r"a\.deb: data\.tar\.gz: \./usr/bin/acc")

    def test_a_time_that_differs_is_a_difference(self):
        self.assertRegex(artifacts.differences(folder({"a.deb": deb(b"x")}), folder({"a.deb": deb(b"x", 7)}))[0], r"usr/bin/acc.* 0 / .* 7$")

    def test_a_file_that_one_build_lacks_is_named(self):
        self.assertRegex(artifacts.differences(folder({"a": b"1", "b": b"2"}), folder({"a": b"1"}))[0], "b: missing in")


class Licences(unittest.TestCase):
    def test_the_licence_of_all_files_counts_under_its_spdx_name(self):
        for debian, spdx in (("Expat", "MIT"), ("BSL-1.0", "BSL-1.0"), ("Apache-2.0", "Apache-2.0"), ("Zlib", "Zlib"), ("X11", "MIT")):
            self.assertEqual(sbom.licence_of(DEP5.format(debian), "p"), spdx)

    def test_x11_is_told_from_mit_by_its_text(self):
        self.assertEqual(sbom.licence_of(DEP5.format("MIT/X11") + "Except as contained in this notice, the name\n", "p"), "X11")
        self.assertEqual(sbom.licence_of(DEP5.format("X11") + "distribute with modifications\n", "p"), "X11-distribute-modifications-variant")

    def test_the_runtime_library_of_gcc_has_its_exception(self):
        self.assertEqual(sbom.licence_of("the GCC Runtime\nLibrary Exception, version 3.1", "libgcc-12-dev"), "GPL-3.0-or-later WITH GCC-exception-3.1")

    def test_an_unknown_licence_is_an_error_not_a_guess(self):
        for text in (DEP5.format("Beerware"), "All rights reserved.\n"):
            with self.assertRaises(sbom.Unknown):
                sbom.licence_of(text, "p")


class Linked(unittest.TestCase):
    def test_headers_are_read_from_what_ninja_keeps(self):
        deps = "a.o: #deps 3, deps mtime 5 (VALID)\n    /usr/include/zlib.h\n    ../../common/ids.hpp\n    /usr/include/boost/../zconf.h\n\n"
        self.assertEqual(sbom.headers_of(deps), {"/usr/include/zlib.h", "/usr/include/zconf.h"})

    def test_archives_are_read_from_the_link_commands(self):
        text = "build bin/acc: CXX_EXECUTABLE_LINKER__acc a.o\n  LINK_LIBRARIES = common/libacc_common.a  /usr/lib/x/libyaml-cpp.a  -lpthread\n"
        self.assertEqual(sbom.archives_of(text), {"/usr/lib/x/libyaml-cpp.a"})

    def test_a_file_that_belongs_to_no_package_is_an_error(self):
        def ask(paths):
            return "".join(f"zlib1g-dev:amd64: {path}\n" for path in paths if path.endswith("zlib.h"))
        self.assertEqual(sbom.packages_of({"/nowhere/zlib.h"}, ask), {"/nowhere/zlib.h": "zlib1g-dev"})
        with self.assertRaisesRegex(sbom.Unknown, "/nowhere/mine.h"):
            sbom.packages_of({"/nowhere/zlib.h", "/nowhere/mine.h"}, ask)

    def test_another_architecture_from_other_versions_is_an_error(self):
        here = [{"package": "zlib1g-dev", "version": "1:1.2.13"}, {"package": "libx-dev", "version": "2"}]
        sbom.check_same(here, "zlib1g-dev 1:1.2.13\nlibother-dev 7\n")
        with self.assertRaisesRegex(sbom.Unknown, "zlib1g-dev 1:1.2.13 here, 1:1.2.14 there"):
            sbom.check_same(here, "zlib1g-dev 1:1.2.14\n")

    def test_headers_of_cuda_are_declarations_of_what_is_loaded_later(self):
        self.assertEqual(sbom.packages_of({"/usr/local/cuda-13.0/include/cuda.h"}, lambda _: ""), {})
        for name in ("libc6-dev", "linux-libc-dev", "nvidia-cuda-dev", "libnccl-dev"):
            self.assertTrue(sbom.DECLARATIONS_ONLY.fullmatch(name), name)
        for name in ("libboost1.81-dev", "libssl-dev", "libcurl4-openssl-dev", "libstdc++-12-dev"):
            self.assertFalse(sbom.DECLARATIONS_ONLY.fullmatch(name), name)


class Document(unittest.TestCase):
    COMPONENTS = [{"package": name, "version": "1:1.2+x", "source": "s", "source_version": "1", "homepage": "", "licence": "MIT"} for name in ("libz-dev", "liba++-dev")]

    def made(self, text=b"program"):
        return sbom.document("acc", "0.2.0", self.COMPONENTS, [folder({"acc.deb": text}) / "acc.deb"], 1790000000)

    def test_it_has_what_spdx_demands(self):
        made = self.made()
        self.assertEqual((made["spdxVersion"], made["dataLicense"], made["SPDXID"]), ("SPDX-2.3", "CC0-1.0", "SPDXRef-DOCUMENT"))
        self.assertEqual(made["creationInfo"]["created"], "2026-09-21T14:13:20Z")
        self.assertRegex(made["documentNamespace"], r"^https://[^#]+$")
        names = [one["SPDXID"] for one in made["packages"] + made["files"]]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, r"^SPDXRef-[A-Za-z0-9.-]+$")
        for one in made["packages"]:
            self.assertTrue({"name", "SPDXID", "downloadLocation", "licenseDeclared"} <= one.keys())

    def test_what_is_linked_and_what_is_shipped_are_relations_of_ours(self):
        relations = {(one["relationshipType"], one["relatedSpdxElement"]) for one in self.made()["relationships"]}
        self.assertEqual(relations, {("DESCRIBES", "SPDXRef-acc"), ("STATIC_LINK", "SPDXRef-Package-libz-dev"), ("STATIC_LINK", "SPDXRef-Package-liba---dev"),
                                     ("CONTAINS", "SPDXRef-File-acc.deb")})

    def test_the_same_build_gives_the_same_document_and_another_one_another_name(self):
        self.assertEqual(self.made(), self.made())
        self.assertNotEqual(self.made()["documentNamespace"], self.made(b"other")["documentNamespace"])

    @unittest.skipUnless(os.path.exists("/usr/share/doc/zlib1g-dev/copyright"), "needs a Debian with zlib1g-dev")
    def test_version_and_licence_are_those_of_the_installed_package(self):
        found = sbom.component("zlib1g-dev")
        self.assertEqual((found["licence"], found["source"]), ("Zlib", "zlib"))
        self.assertEqual(found["version"], subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "zlib1g-dev"], capture_output=True, text=True).stdout)


class Sources(unittest.TestCase):
    def test_no_source_takes_the_time_at_which_it_is_compiled(self):
        for room in ("agent", "common", "launcher", "rendezvous", "runtime"):
            for path in (ROOT / room).rglob("*.[ch]pp"):
                self.assertIsNone(re.search(r"__(DATE|TIME|TIMESTAMP)__", path.read_text()), path)


class Command(unittest.TestCase):
    def test_a_version_that_is_not_the_projects_is_refused_before_anything_is_built(self):
        if not (ROOT / ".git").exists():
            self.skipTest("no git here")
        done = subprocess.run([ROOT / "cmake/release.sh", "99.0.0"], capture_output=True, text=True, env={**os.environ, "ACC_NO_SETUP": "1"}, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not 99.0.0", done.stderr)


if __name__ == "__main__":
    unittest.main()
