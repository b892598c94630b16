"""The packages libacc and libacc-dev as a user gets them: installed into an empty prefix, used from there alone."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("ACC_BIN", ROOT / "build/release/bin")).resolve()
BUILD = BIN.parent
DEBIAN_PACKAGES = BUILD / "test_packages"
IMAGES = "/usr/share/datasets/fashion-mnist"
LIMIT_S = 240
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")
CCACHE = [tool] if (tool := shutil.which("ccache")) else []  # what was compiled in a run before, in another folder, isn't compiled again


def run(*command, limit_s=LIMIT_S, **how):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=limit_s, **how)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


@unittest.skipIf(os.environ.get("ACC_TEST_SANITIZED") == "1", "sanitized libraries ask for sanitized consumers")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "usr"
        for component in ("libacc", "libacc-dev"):
            run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", component)
        cls.lib = next(cls.prefix.rglob("libacc.so")).parent
        cls.caching = {"CCACHE_BASEDIR": str(cls.folder), "CCACHE_NOHASHDIR": "1"}
        if CCACHE:
            cls.caching.update((f"CMAKE_{language}_COMPILER_LAUNCHER", CCACHE[0]) for language in ("C", "CXX", "CUDA"))
        cls.environment = {**os.environ, "LD_LIBRARY_PATH": str(cls.lib), "PKG_CONFIG_PATH": str(cls.lib / "pkgconfig"),
                           "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1"}

    def build(self, source, build, *options):
        """Configured and built by CMake, with the package found by its prefix alone."""
        environment = {**os.environ, **self.caching}
        run("cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}", *options, env=environment)
        run("cmake", "--build", build, limit_s=600, env=environment)

    def compile(self, compiler, *words):
        """To an object file: without a complaint, or this fails."""
        run(*CCACHE, compiler, *WARNINGS, f"-I{self.prefix}/include", *words, "-c", "-o", self.folder / "compiled.o",
            cwd=self.folder, env={**os.environ, **self.caching})

    def built_project(self):
        self.build(HERE / "package", self.folder / "cmake", "-DCMAKE_BUILD_TYPE=Release")
        return self.folder / "cmake"

    def launch(self, ranks, *program):
        return run(BIN / "acc-launch", "--num_processes", ranks, *program, env=self.environment)

    def check_means(self, word, program):
        printed = self.launch(3, program)
        for rank in range(3):
            self.assertIn(f"{word}: rank {rank} of 3: mean 1.0\n", printed)

    def flags(self, *words):
        return run("pkg-config", *words, env=self.environment).split()

    def test_a_project_finds_both_libraries_by_cmake(self):
        build = self.built_project()
        self.check_means("C++", build / "mean_cpp")
        self.check_means("C", build / "mean_c")

    def test_a_trainer_of_the_whole_program_that_saved_when_it_was_destroyed_ran_for_ever(self):
        program, project = self.built_project() / "saves_at_end", self.folder / "saved_at_end"
        for launched in ((program,), (BIN / "acc-launch", "--num_processes", 2, program)):
            for run_before in range(2):
                printed = run(*launched, project, limit_s=60, env={**self.environment, "MALLOC_PERTURB_": "165"})
                self.assertIn(f"begins with {run_before}\n", printed)
                self.assertNotIn("not saved", printed)
            shutil.rmtree(project)

    def test_nothing_of_the_library_is_destroyed_before_what_its_user_has(self):
        """A destructor that is registered while main runs comes before those of the user's objects that are older."""
        library = next(self.prefix.rglob("libacc_runtime.a"))
        self.assertNotIn("__cxa_atexit", run("nm", library))

    def test_the_first_program_of_the_documents_builds_and_goes_on_where_it_was(self):
        text = (ROOT / "docs/runtime.md").read_text()
        project = self.folder / "first"
        project.mkdir()
        for language, name in (("cmake", "CMakeLists.txt"), ("cpp", "first.cpp")):
            (project / name).write_text(re.search(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)[1])
        expected = re.search(r"^```text\n(y = .*?)^```$", text, re.M | re.S)[1]
        self.build(project, project / "build", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        launched = (BIN / "acc-launch", "--num_processes", 2, project / "build/first")
        self.assertIn(expected, run(*launched, cwd=project, env=self.environment))
        self.assertIn("going on in epoch 10\n" + expected, run(*launched, cwd=project, env=self.environment))

    def fashion_mnist(self, folder, *options):
        """The C++ training, built by its own CMakeLists.txt against the package."""
        build = self.folder / folder
        self.build(ROOT / "examples/08_fashion_mnist_cpp", build, "-DCMAKE_BUILD_TYPE=Debug", *options)
        return build / "fashion_mnist"

    def test_the_training_with_an_early_stop_builds_by_itself_and_trains(self):
        build = self.folder / "early_stop"
        self.build(ROOT / "examples/09_early_stop_cpp", build, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        done = self.launch(2, build / "early_stop", "--epochs", 2, "--project", self.folder / "stopped")
        self.assertRegex(done, r"epoch 2  loss 0\.\d+ .* of 203 right")

    def refused_cuda(self, program):
        done = subprocess.run([program, "--device", "cuda"], capture_output=True, text=True, timeout=LIMIT_S,
                              env={**self.environment, "CUDA_VISIBLE_DEVICES": ""})
        self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1), done.stderr)
        return done.stderr

    def test_the_training_builds_without_the_cuda_toolkit_and_says_so_when_asked_for_a_gpu(self):
        program = self.fashion_mnist("training", "-DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON")
        self.assertIn("built without CUDA: install the CUDA toolkit", self.refused_cuda(program))
        if pathlib.Path(IMAGES).is_dir():
            done = self.launch(2, program, "--images", 640, "--epochs", 1, "--project", self.folder / "trained")
            self.assertIn("done: test accuracy 0.", done)

    @unittest.skipUnless(shutil.which("nvcc") or pathlib.Path("/usr/local/cuda/bin/nvcc").exists(), "no CUDA toolkit here")
    def test_the_training_builds_for_gpus_and_says_what_is_missing_where_there_is_none(self):
        program = self.fashion_mnist("training_cuda", "-DCMAKE_CUDA_ARCHITECTURES=90")
        self.assertRegex(self.refused_cuda(program), r"--device cuda: CUDA: .*(no driver|no device|not found).*--device cpu\n")
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", program))
        self.assertFalse([name for name in needed if re.match("libcu|libnccl", name)], "loaded when they are needed")

    def test_a_newer_version_than_this_is_not_found(self):
        project = self.folder / "newer"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(newer CXX)\nfind_package(acc 99 REQUIRED)\n")
        with self.assertRaisesRegex(AssertionError, "not\ncompatible|compatible|version"):
            run("cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={self.prefix}")

    def test_compilers_find_both_libraries_by_pkg_config(self):
        cpp, c = self.folder / "by_pc_cpp", self.folder / "by_pc_c"
        run("g++", "-std=c++20", HERE / "package/mean.cpp", "-o", cpp, *self.flags("--cflags", "--libs", "acc-runtime"))
        run("gcc", HERE / "package/mean.c", "-o", c, *self.flags("--cflags", "--libs", "acc"))
        self.check_means("C++", cpp)
        self.check_means("C", c)

    def test_python_loads_the_library_by_ctypes(self):
        printed = self.launch(4, ROOT / "examples/07_c_api_python/fit.py", "--folder", self.folder / "fit")
        self.assertIn("y = 3.00 x -2.00 from 1000 points on 4 ranks\nthe same bits on every rank\n", printed)

    def test_each_header_compiles_by_itself_from_the_prefix(self):
        headers = sorted((self.prefix / "include/acc").rglob("*.h*"))
        self.assertGreater(len(headers), 5)
        source = self.folder / "one_header.cpp"
        for header in headers:
            with self.subTest(header=header.name):
                source.write_text(f"#include <acc/{header.relative_to(self.prefix / 'include/acc')}>\n")
                self.compile("g++", "-std=c++20", source)
        source = self.folder / "one_header.c"
        for header in ("acc.h", "acc_training.h"):
            source.write_text(f"#include <acc/{header}>\ntypedef int nothing;\n")
            self.compile("gcc", "-std=c99", source)

    def test_a_program_of_an_older_standard_reads_first_that_the_headers_need_another(self):
        headers = sorted((self.prefix / "include/acc").glob("*.hpp"))
        source, refused = self.folder / "older.cpp", 0
        for compiler in [name for name in ("g++", "clang++") if shutil.which(name)]:
            for header in headers if compiler == "g++" else headers[:1]:
                source.write_text(f"#include <acc/{header.name}>\n")
                done = subprocess.run([compiler, "-std=c++17", "-Wfatal-errors", "-fsyntax-only", f"-I{self.prefix}/include", source], capture_output=True, text=True,
                                      timeout=LIMIT_S, check=False)
                if done.returncode != 0:
                    refused += 1
                    with self.subTest(compiler=compiler, header=header.name):
                        first = re.search("error: (.*)", done.stderr)[1]
                        self.assertIn("the headers acc/*.hpp need C++20: compile with -std=c++20", first)
        self.assertGreater(refused, 20)

    def test_options_named_one_by_one_give_no_warning(self):
        compilers = [name for name in ("g++", "clang++") if shutil.which(name)]
        for compiler in compilers:
            with self.subTest(compiler=compiler):
                self.compile(compiler, "-std=c++20", HERE / "package/designated.cpp")

    def test_headers_ask_for_the_standard_library_and_each_other_only(self):
        guests = {"json.hpp": r"nlohmann/", "torch.hpp": r"torch/|ATen/|c10/"}  # adapters, for users who have these
        for header in sorted((self.prefix / "include/acc").rglob("*.h*")):
            for name in re.findall(r'^#include\s+[<"]([^>"]+)', header.read_text(), re.M):
                allowed = re.match(r"acc/", name) or "/" not in name and not name.endswith(".hpp")
                guest = header.name in guests and re.match(guests[header.name], name)
                self.assertTrue(allowed or guest, f"{header.name} includes {name}")

    def test_what_is_installed_names_no_folder_of_the_build(self):
        for file in [*self.lib.glob("cmake/acc/*"), *self.lib.glob("pkgconfig/*.pc")]:
            text = file.read_text()
            for place in (ROOT, BUILD):
                self.assertNotIn(str(place), text, file.name)

    def test_the_shared_library_has_a_version_and_needs_libc_alone(self):
        library = (self.lib / "libacc.so").resolve()
        self.assertRegex(library.name, r"^libacc\.so\.\d+\.\d+\.\d+$")
        facts = run("readelf", "-d", library)
        self.assertRegex(facts, r"SONAME.*\[libacc\.so\.\d+\]")
        for needed in re.findall(r"NEEDED.*\[(.*)\]", facts):
            self.assertRegex(needed, r"^(libc|libm|ld-linux.*)\.so")

    @unittest.skipUnless(shutil.which("dpkg-deb") and DEBIAN_PACKAGES.is_dir(), f"no packages in {DEBIAN_PACKAGES}: see debian_packages.sh")
    def test_three_debian_packages_hold_what_their_users_need(self):
        made, root = DEBIAN_PACKAGES, self.folder / "root"
        packages = {file.name.split("_")[0]: file for file in made.glob("*.deb")}
        program = BIN / "acc-launch"
        if any(file.stat().st_mtime < program.stat().st_mtime for file in packages.values()):
            self.skipTest(f"the packages in {made} are older than {program}: debian_packages.sh makes them")
        self.assertEqual(set(packages), {"acc", "libacc", "libacc-dev"})

        def fact(package, field):
            return run("dpkg-deb", "-f", packages[package], field)

        self.assertRegex(fact("libacc", "Depends"), r"^libc6 \(>= [\d.]+\)\n$")
        self.assertRegex(fact("libacc-dev", "Depends"), r"^libacc \(= [\d.]+\), zlib1g-dev\n$")
        for file in packages.values():
            run("dpkg-deb", "-x", file, root)
        files = {str(file.relative_to(root)) for file in root.rglob("*")}
        for wanted in ("usr/bin/acc-launch", "usr/include/acc/acc.h", "usr/lib/libacc_runtime.a", "usr/lib/libacc.so"):
            self.assertIn(wanted, files)
        for package in packages:
            for wanted in ("copyright", "changelog.gz"):
                self.assertIn(f"usr/share/doc/{package}/{wanted}", files)
        # Without libacc-dev there is still what programs load.
        alone = self.folder / "alone"
        for package in ("acc", "libacc"):
            run("dpkg-deb", "-x", packages[package], alone)
        printed = run(alone / "usr/bin/acc-launch", "--num_processes", 2, ROOT / "examples/07_c_api_python/fit.py",
                      "--folder", self.folder / "fit_alone",
                      env={**os.environ, "LD_LIBRARY_PATH": str(alone / "usr/lib")})
        self.assertIn("on 2 ranks\nthe same bits on every rank\n", printed)


@unittest.skipIf(os.environ.get("ACC_TEST_SANITIZED") == "1", "its pages come from running the programs, in other builds")
class Programs(unittest.TestCase):
    """The package acc, likewise."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-programs-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.prefix = cls.folder / "usr"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", "acc")

    def completed(self, *words):
        """What bash offers for the last word; `--flag=` comes as two words, as from readline."""
        script = """source "$1"; shift; compopt() { :; }
                    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _acc_launch; printf '%s\\n' "${COMPREPLY[@]}" """
        completion = self.prefix / "share/bash-completion/completions/acc-launch"
        return set(run("bash", "-c", script, "bash", completion, "acc-launch", *words, cwd=self.folder).split())

    def test_every_link_in_the_documents_leads_to_a_file(self):
        pages = sorted((self.prefix / "share/doc/acc").rglob("*.md"))
        self.assertGreater(len(pages), 20)
        for page in pages:
            text = re.sub(r"^```.*?^```|`[^`]*`", "", page.read_text(), flags=re.M | re.S)
            for link in re.findall(r"\]\(([^)#\s]+)", text):
                if "://" not in link:
                    self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")

    @unittest.skipUnless(shutil.which("man"), "no man here")
    def test_manual_pages_are_shown_without_a_warning(self):
        wanted = {"acc": "to-fsdp2", "acc-launch": "--num_processes N", "acc-test": "--bandwidth", "acc-rendezvous": "--listen ADDRESS",
                  "acc-agent": "--state-dir FOLDER", "acc-ctl": "submit -- WORDS", "acc-env": "--config_file FILE", "acc-top": "top [ID]",
                  "acc-config": "--config_file FILE", "acc-merge-weights": "--max_shard_size SIZE", "acc-estimate-memory": "--dtypes TYPE"}
        for program, word in wanted.items():
            page = self.prefix / f"share/man/man1/{program}.1.gz"
            shown = subprocess.run(["man", "--warnings", "--local-file", page], capture_output=True, text=True, timeout=LIMIT_S,
                                   env={**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn(word, re.sub(r".\x08", "", shown.stdout))

    def test_bash_completes_flags_values_and_leaves_the_script_its_own(self):
        self.assertEqual(self.completed("--num_p"), {"--num_processes"})
        self.assertEqual(self.completed("--num-p"), {"--num-processes"})
        self.assertEqual(self.completed("--mixed_precision", "f"), {"fp16", "fp8"})
        self.assertEqual(self.completed("--mixed-precision", "=", "b"), {"bf16"})
        self.assertEqual(self.completed("--num_processes", "2", "--cp"), {"--cpu"})
        self.assertEqual(self.completed("train.py", "--num_p"), set())
        (self.folder / "cfg.yaml").touch()
        self.assertEqual(self.completed("--config_file", "cf"), {"cfg.yaml"})

    def test_other_shells_read_their_completions(self):
        for shell, file in (("zsh", "zsh/vendor-completions/_acc-launch"), ("fish", "fish/vendor_completions.d/acc-launch.fish"),
                            ("zsh", "zsh/vendor-completions/_acc-ctl"), ("fish", "fish/vendor_completions.d/acc-ctl.fish"),
                            ("zsh", "zsh/vendor-completions/_acc-config"), ("fish", "fish/vendor_completions.d/acc-config.fish"),
                            ("bash", "bash-completion/completions/acc-config"), ("bash", "bash-completion/completions/acc"),
                            ("zsh", "zsh/vendor-completions/_acc"), ("fish", "fish/vendor_completions.d/acc.fish"),
                            ("bash", "bash-completion/completions/acc-ctl"), ("bash", "bash-completion/completions/acc-top")):
            with self.subTest(shell=shell):
                if not shutil.which(shell):
                    self.skipTest(f"no {shell} here")
                run(shell, "-n", self.prefix / "share" / file)

    def test_what_only_acc_test_starts_is_no_command_and_is_found(self):
        commands = {file.name for file in (self.prefix / "bin").iterdir()}
        self.assertEqual(commands, {"acc", "acc-launch", "acc-agent", "acc-test", "acc-rendezvous", "acc-ctl", "acc-env", "acc-config", "acc-top"})
        self.assertIn("usage: acc-ctl top", run(self.prefix / "bin/acc-top", "--help"))
        for word in ("launch", "config", "env", "test", "ctl", "agent", "rendezvous"):
            self.assertIn(f"acc-{word}", run(self.prefix / "bin/acc", word, "--help").splitlines()[0])
        for word in ("merge-weights", "estimate-memory"):
            self.assertIn(f"usage: acc {word}", run(self.prefix / "bin/acc", word, "--help"))
        self.assertEqual(run(self.prefix / "bin/acc", "env", "--version"), run(self.prefix / "bin/acc-env", "--version"))
        self.assertIn("all is well", run(self.prefix / "bin/acc-test", "--local_only"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
