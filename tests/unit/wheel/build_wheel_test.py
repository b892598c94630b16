"""A wheel's content: names, modes, digests, tags, and nothing of when and where it was built."""
import base64
import csv
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "cmake/wheel"))
import build_wheel  # noqa: E402
from platform_tag import platform_tag  # noqa: E402

PROGRAM = pathlib.Path("/bin/true").resolve()


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-wheel-test-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.programs = cls.folder / "programs"
        cls.programs.mkdir()
        for name in (*build_wheel.COMMANDS, *build_wheel.WORKERS):
            shutil.copy(PROGRAM, cls.programs / name)
        cls.pages = cls.folder / "pages"
        for name in ("man/man1/acc-launch.1.gz", "zsh/vendor-completions/_acc-launch", "bash-completion/completions/acc-ctl"):
            (cls.pages / name).parent.mkdir(parents=True)
            (cls.pages / name).write_text(name)
        (cls.pages / "bash-completion/completions/acc-top").symlink_to("acc-ctl")
        cls.version = build_wheel.project_version()
        cls.path = cls.build("first")
        cls.wheel = zipfile.ZipFile(cls.path)
        cls.addClassCleanup(cls.wheel.close)

    @classmethod
    def run_builder(cls, out, *words, **variables):
        command = [sys.executable, ROOT / "cmake/wheel/build_wheel.py", "--programs", cls.programs, "--pages", cls.pages, "--strip", "", "--out", cls.folder / out, *words]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})

    @classmethod
    def build(cls, out, **variables):
        done = cls.run_builder(out, **variables)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())

    def test_its_name_holds_version_and_platform(self):
        self.assertEqual(self.path.name, f"acc_launch-{self.version}-py3-none-{platform_tag([PROGRAM])}.whl")

    def test_two_builds_at_different_places_and_times_are_equal(self):
        for name in os.listdir(self.programs):
            os.utime(self.programs / name, (1e9, 1e9))
        self.assertEqual(self.path.read_bytes(), self.build("second").read_bytes())

    def test_its_time_is_the_one_that_is_given(self):
        with zipfile.ZipFile(self.build("dated", SOURCE_DATE_EPOCH="1000000000")) as wheel:
            self.assertEqual({entry.date_time for entry in wheel.infolist()}, {(2001, 9, 9, 1, 46, 40)})
        with zipfile.ZipFile(self.build("old", SOURCE_DATE_EPOCH="0")) as wheel:
            self.assertEqual({entry.date_time for entry in wheel.infolist()}, {(1980, 1, 1, 0, 0, 0)})

    def test_programs_are_executable_and_nothing_else_is(self):
        executable = {entry.filename for entry in self.wheel.infolist() if entry.external_attr >> 16 & 0o111}
        data = f"acc_launch-{self.version}.data"
        self.assertEqual(executable, {f"{data}/scripts/{name}" for name in (*build_wheel.COMMANDS, "acc-top")} 
                         | {f"{data}/data/libexec/acc/{name}" for name in build_wheel.WORKERS})
        for entry in self.wheel.infolist():
            self.assertEqual(entry.external_attr >> 28, 0o10, f"{entry.filename} is a plain file")

    def test_the_record_has_the_digest_of_each_file(self):
        info = f"acc_launch-{self.version}.dist-info"
        rows = list(csv.reader(io.StringIO(self.wheel.read(f"{info}/RECORD").decode())))
        self.assertEqual(sorted(name for name, _, _ in rows), sorted(self.wheel.namelist()))
        for name, digest, size in rows:
            if name == f"{info}/RECORD":
                self.assertEqual((digest, size), ("", ""))
                continue
            content = self.wheel.read(name)
            encoded = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            self.assertEqual((digest, int(size)), (f"sha256={encoded}", len(content)))

    def test_each_tag_of_its_name_is_told(self):
        told = [line[5:] for line in self.wheel.read(f"acc_launch-{self.version}.dist-info/WHEEL").decode().splitlines() if line.startswith("Tag: ")]
        self.assertEqual(told, [f"py3-none-{one}" for one in platform_tag([PROGRAM]).split(".")])

    def test_the_package_is_the_one_of_the_source_with_its_types(self):
        for path in [*sorted((ROOT / "runtime/python/acc_launch").glob("*.py")), ROOT / "runtime/python/acc_heartbeat.py"]:
            self.assertEqual(self.wheel.read(str(path.relative_to(ROOT / "runtime/python"))), path.read_bytes())
        self.assertIn("acc_launch/py.typed", self.wheel.namelist())

    def test_every_program_that_is_installed_otherwise_is_in_it(self):
        install = (ROOT / "cmake/Install.cmake").read_text()
        programs = install.split("foreach(program ", 1)[1].split(")", 1)[0].split()
        self.assertEqual(sorted(programs), sorted(build_wheel.COMMANDS))

    def test_pages_and_completions_lie_below_the_prefix_and_links_are_files(self):
        share = f"acc_launch-{self.version}.data/data/share"
        self.assertEqual({name: self.wheel.read(name).decode() for name in self.wheel.namelist() if name.startswith(share)},
                         {f"{share}/man/man1/acc-launch.1.gz": "man/man1/acc-launch.1.gz",
                          f"{share}/zsh/site-functions/_acc-launch": "zsh/vendor-completions/_acc-launch",
                          f"{share}/bash-completion/completions/acc-ctl": "bash-completion/completions/acc-ctl",
                          f"{share}/bash-completion/completions/acc-top": "bash-completion/completions/acc-ctl"})

    def test_missing_pages_are_named_with_what_builds_them(self):
        done = self.run_builder("none", "--pages", self.folder / "no")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--target acc-pages", done.stderr)

    def test_missing_programs_are_named_with_what_builds_them(self):
        done = self.run_builder("none", "--programs", self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn("lacks acc, acc-launch,", done.stderr)
        self.assertIn("--target acc-portable", done.stderr)

    def test_a_program_that_is_no_program_ends_the_build(self):
        broken = self.folder / "broken"
        shutil.copytree(self.programs, broken)
        (broken / "acc-env").write_text("#!/bin/sh\n")
        done = self.run_builder("none", "--programs", broken)
        self.assertEqual((done.returncode, list((self.folder / "none").glob("*.whl"))), (1, []))
        self.assertIn("acc-env: no ELF file", done.stderr)


if __name__ == "__main__":
    unittest.main()
