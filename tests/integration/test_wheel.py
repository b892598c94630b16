"""The wheel as a user gets it: built from the programs of this build, installed by pip into a fresh virtual environment, run there.

    test_wheel.py Venv         programs and package in an environment without anything else
    test_wheel.py Notebook     notebook_launcher, also with torch where this machine has it, and a notebook where it has Jupyter
"""
import contextlib
import gzip
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from harness import SLACK, free_port, own_token, processes_with, until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
BUILD = pathlib.Path(os.environ.get("ACC_BIN", ROOT / "build/release/bin")).resolve().parent
PORTABLE = BUILD / "portable"
COMMANDS = ("acc", "acc-launch", "acc-agent", "acc-rendezvous", "acc-test", "acc-ctl", "acc-env", "acc-config", "acc-top")
LIMIT_S = 120 * SLACK
# What users have: nothing of this machine's development, no network.
CLEAN = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, cwd="/").returncode == 0


def system_python():
    """The first interpreter that can make virtual environments with pip."""
    for python in ("/usr/bin/python3", sys.executable):
        if os.path.exists(python) and has(python, "venv, ensurepip"):
            return python
    return None


@unittest.skipIf(os.environ.get("ACC_TEST_SANITIZED") == "1", "no portable programs in a build with sanitizers")
@unittest.skipUnless((PORTABLE / "acc-launch").exists(), f"no {PORTABLE}: cmake --build --preset release --target acc-portable")
@unittest.skipUnless(system_python(), "no Python with venv and pip: apt-get install python3-venv")
class Installed(unittest.TestCase):
    WITH_SYSTEM_PACKAGES = False

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-wheel-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.python = system_python()
        done = cls.must(cls.python, ROOT / "cmake/wheel/build_wheel.py", "--programs", PORTABLE, "--pages", BUILD / "package/share", "--out", cls.folder, "--fast")
        cls.wheel = done.stdout.strip()
        cls.venv = cls.folder / "venv"
        cls.must(cls.python, "-m", "venv", *(["--system-site-packages"] if cls.WITH_SYSTEM_PACKAGES else []), cls.venv)
        cls.bin = cls.venv / "bin"
        cls.must(cls.bin / "pip", "install", "--no-index", cls.wheel)

    @classmethod
    def environment(cls, **more):
        return {**CLEAN, "HOME": str(cls.folder), "XDG_RUNTIME_DIR": str(cls.folder), **more}

    @classmethod
    def run_one(cls, *command, **how):
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, cwd=how.pop("cwd", cls.folder),
                              stdin=subprocess.DEVNULL, env=how.pop("env", cls.environment()), **how)

    @classmethod
    def must(cls, *command, **how):
        done = cls.run_one(*command, **how)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class Venv(Installed):
    def test_every_program_runs_without_activation(self):
        for name in COMMANDS:
            self.assertRegex(self.must(self.bin / name, "--help").stdout, f"usage: |{name} \\[options\\]")
        self.assertIn("usage: acc-ctl top", self.must(self.bin / "acc-top", "--help").stdout)

    def test_man_had_no_page_of_programs_from_the_wheel(self):
        for name in (*COMMANDS, "acc-merge-weights", "acc-estimate-memory"):
            with gzip.open(self.venv / f"share/man/man1/{name}.1.gz", "rt") as page:
                self.assertIn(".TH ", page.read())
        if shutil.which("man"):  # it looks beside the folders of PATH
            shown = self.must("man", "--path", env=self.environment(PATH=f"{self.bin}:/usr/bin:/bin")).stdout
            self.assertIn(f"{self.venv}/share/man", shown.strip().split(":"))

    def test_shells_had_no_completions_of_programs_from_the_wheel(self):
        share = self.venv / "share"
        for name in ("acc", "acc-launch", "acc-ctl", "acc-top", "acc-config"):
            self.must("bash", "-n", share / "bash-completion/completions" / name)
        for name in ("zsh/site-functions/_acc-launch", "fish/vendor_completions.d/acc-launch.fish", "fish/vendor_completions.d/acc-top.fish"):
            self.assertIn("acc-", (share / name).read_text())

    def test_acc_top_finds_acc_ctl_through_a_link(self):
        link = self.folder / "link"
        link.symlink_to(self.bin / "acc-top")
        self.assertIn("usage: acc-ctl top", self.must(link, "--help").stdout)

    def test_acc_test_finds_its_worker(self):
        self.assertIn("all is well", self.must(self.bin / "acc-test", "--num_processes", "2").stdout)

    def test_acc_finds_the_others(self):
        self.assertIn(f"{self.bin}/acc-env", self.must(self.bin / "acc", "env").stdout)

    def test_workers_get_the_interpreter_of_the_environment(self):
        script = self.file("who.py", "import sys; print(sys.prefix)\n")
        for command in ((self.bin / "acc-launch",), (self.bin / "python", "-m", "acc_launch")):
            done = self.must(*command, "--num_processes", "2", script)
            self.assertEqual(done.stdout, f"{self.venv}\n" * 2)

    def test_the_module_is_the_program(self):
        done = self.run_one(self.bin / "python", "-m", "acc_launch", "--num_processes", "1", "--no_python", "/bin/sh", "-c", "exit 7")
        self.assertEqual(done.returncode, 7)

    def test_a_script_runs_a_job_and_sends_heartbeats(self):
        worker = self.file("beats.py", "import acc_launch, acc_heartbeat\nacc_launch.heartbeat(3)\nprint(acc_heartbeat._page is not None)\n")
        script = self.file("runs.py", f"import acc_launch\nprint(acc_launch.run(['--num_processes', '1', {str(worker)!r}], check=True))\n")
        self.assertEqual(self.must(self.bin / "python", script).stdout, "True\n0\n")

    def test_every_file_of_its_record_is_there_and_pip_takes_all_away(self):
        venv = self.folder / "second"
        self.must(self.python, "-m", "venv", venv)
        before = {path for path in venv.rglob("*") if path.name != "__pycache__"}
        self.must(venv / "bin/pip", "install", "--no-index", self.wheel)
        self.assertIn("acc-launch", self.must(venv / "bin/pip", "list").stdout)
        self.must(venv / "bin/pip", "check")
        self.must(venv / "bin/pip", "uninstall", "-y", "acc-launch")
        left = {path for path in venv.rglob("*") if path.name != "__pycache__" and not path.is_dir() and path.suffix != ".pyc"} - before
        self.assertEqual(left, set())

    def test_a_target_folder_has_programs_and_package_together(self):
        target = self.folder / "target"
        self.must(self.bin / "pip", "install", "--no-index", "--target", target, self.wheel)
        found = self.must(self.python, "-c", "import acc_launch; print(acc_launch.find_program())", env=self.environment(PYTHONPATH=str(target)))
        self.assertEqual(found.stdout, f"{target}/bin/acc-launch\n")


class Notebook(Installed):
    WITH_SYSTEM_PACKAGES = True

    def script(self, text, functions=""):
        """A script that launches functions of a module beside it: so plain pickle is enough."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        (folder / "functions.py").write_text(functions)
        (folder / "script.py").write_text("from acc_launch import *\nimport functions\nif __name__ == '__main__':\n"
                                          + "".join(f"    {line}\n" for line in text.splitlines()))
        return folder / "script.py"

    def launched(self, text, functions, must=True):
        done = self.run_one(self.bin / "python", self.script(text, functions))
        if must:
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done

    def test_a_function_runs_in_each_process_with_its_arguments_and_variables(self):
        done = self.launched("notebook_launcher(functions.tell, ('hi', 2), num_processes=2, mixed_precision='bf16')", """
import os
def tell(word, n):
    print(word * n, *(os.environ[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "ACCELERATE_MIXED_PRECISION")))
""")
        self.assertEqual(sorted(done.stdout.splitlines()), ["acc-launch: 2 workers", "hihi 0 2 0 bf16", "hihi 1 2 1 bf16"])

    def on_two_nodes(self, text, functions):
        """Two notebooks on this machine. @return what each printed"""
        script = self.script("import sys\nnode = int(sys.argv[1])\n" + text, functions)
        nodes = [subprocess.Popen([self.bin / "python", script, str(node)], env=self.environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for node in range(2)]
        try:
            return [node.communicate(timeout=LIMIT_S)[0] for node in nodes]
        finally:
            for node in nodes:
                node.kill()
                node.communicate()

    def test_notebooks_on_two_nodes_are_one_job(self):
        """Each has files of its own for its workers, whose paths differ."""
        for backend, more in (("static", ""), ("c10d", ""), ("static", ", preload='decimal'")):
            with self.subTest(backend=backend, more=more):
                texts = self.on_two_nodes(f"notebook_launcher(functions.tell, ('hi',), 2, num_nodes=2, node_rank=node, use_port={free_port()}, rdzv_backend='{backend}'{more})", """
import os
def tell(word):
    said = [word, os.environ["RANK"], os.environ["WORLD_SIZE"], [name for name in os.environ if "NOTEBOOK" in name]]
    os.write(1, (" ".join(map(str, said)) + "\\n").encode())  # at once: two ranks share the line
""")
                said = sorted(line for text in texts for line in text.splitlines() if line.startswith("hi"))
                self.assertEqual(said, [f"hi {rank} 4 []" for rank in range(4)], texts)

    def test_an_exception_on_another_node_is_told_on_both(self):
        texts = self.on_two_nodes(f'''try:
    notebook_launcher(functions.fail, (), 2, num_nodes=2, node_rank=node, use_port={free_port()})
except WorkerError as error:
    print("failed", error.rank, error.exit_code, "no luck" in error.traceback, repr(error.__cause__))''', """
import os, time
def fail():
    if os.environ["GROUP_RANK"] == "1" and os.environ["LOCAL_RANK"] == "0":
        raise ValueError("no luck")
    time.sleep(600)
""")
        self.assertIn("failed 2 1 True None\n", texts[0])
        self.assertIn("failed 2 1 True ValueError('no luck')\n", texts[1])

    def test_what_workers_print_is_in_sys_stdout_whatever_that_is(self):
        done = self.launched("""import io, sys
sys.stdout = caught = io.StringIO()
notebook_launcher(functions.tell, num_processes=2)
sys.stdout = sys.__stdout__
print(repr(caught.getvalue()))""", "def tell():\n    print('größer')\n")
        self.assertEqual(done.stdout, repr("acc-launch: 2 workers\ngrößer\ngrößer\n") + "\n")

    def test_an_exception_is_raised_with_the_rank_and_its_traceback(self):
        done = self.launched("""try:
    notebook_launcher(functions.fail, (7,), num_processes=2, max_restarts=1)
except WorkerError as error:
    print(error.rank, error.exit_code, repr(error.__cause__), error.report["restarts_used"])
    print(error.traceback)""", """
import os, time
def fail(n):
    if os.environ["RANK"] == "1":
        raise functions_error(f"no {n}")
    time.sleep(600)
class functions_error(ValueError): pass
""")
        self.assertIn("1 1 functions_error('no 7') 1\nTraceback (most recent call last):\n", done.stdout)
        self.assertIn("in fail\n    raise functions_error(", done.stdout)
        self.assertNotIn("notebook_worker", done.stdout)

    def test_an_exception_with_a_long_text_is_in_the_report(self):
        done = self.launched("""try:
    notebook_launcher(functions.fail, num_processes=2)
except WorkerError as error:
    print(len(str(error.__cause__)))""", "def fail():\n    raise ValueError('begin' + 'x' * 2_000_000 + 'end')\n")
        self.assertEqual(done.stdout.splitlines()[-1], str(2_000_008))
        self.assertIn("ValueError: beginxxx", done.stderr)

    def test_flags_as_one_text_are_refused(self):
        done = self.launched("notebook_launcher(functions.no, num_processes=2, launch_args='--log_dir logs')", "def no(): pass\n", must=False)
        self.assertIn("TypeError: launch_args is a list of words", done.stderr)

    def test_a_worker_that_is_killed_is_told(self):
        done = self.launched("notebook_launcher(functions.die, num_processes=2)",
                             "import os, signal, time\ndef die():\n    os.environ['RANK'] == '0' and os.kill(os.getpid(), 9)\n    time.sleep(600)\n", must=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"WorkerError: rank 0 was killed by SIGKILL")

    def start_sleepers(self):
        """(the notebook's process, the token that its workers have in their names) when both workers run."""
        token = own_token("sleepers")
        script = self.script(f"notebook_launcher(functions.sleep, num_processes=2, launch_args=['--rdzv-id', {token!r}])", f"""
import os, sys, time
def sleep():
    os.close(os.open("up" + os.environ["RANK"], os.O_CREAT))
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {token!r}])
""")
        process = subprocess.Popen([str(self.bin / "python"), str(script)], cwd=script.parent, env=self.environment(), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background job ignores it
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(self.end, process, token)
        until(lambda: sum(b"time.sleep" in word.encode() for word in processes_with(token).values()) >= 2, "both workers", 60)
        return process, token

    def end(self, process, token):
        process.kill()
        process.wait()
        for pid in processes_with(token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def test_an_interrupt_of_the_notebook_ends_the_workers_and_then_the_cell(self):
        for to_group in (False, True):
            process, token = self.start_sleepers()
            (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
            self.assertIn("KeyboardInterrupt", errors)
            self.assertEqual(processes_with(token), {}, "nothing is left when the cell ends")

    def test_a_notebook_that_is_killed_leaves_nothing(self):
        process, token = self.start_sleepers()
        process.kill()
        until(lambda: not processes_with(token), "its workers' end", 60)

    def test_workers_are_forked_with_preload(self):
        done = self.launched("notebook_launcher(functions.tell, num_processes=2, preload='decimal', launch_args=['--log_level', 'debug'])",
                             "import os, sys\ndef tell():\n    print('warm' if 'decimal' in sys.modules else 'cold')\n")
        self.assertEqual(done.stdout.splitlines()[1:], ["warm", "warm"], done.stderr)

    def test_a_function_of_the_notebook_itself_travels_by_cloudpickle(self):
        if not has(self.bin / "python", "cloudpickle"):
            self.skipTest("no cloudpickle here: apt-get install python3-cloudpickle")
        script = self.file("own.py", """
from acc_launch import notebook_launcher
factor = 3
def train(n):
    import os
    print(n * factor + int(os.environ["RANK"]))
notebook_launcher(train, (5,), num_processes=2)
""")
        self.assertEqual(sorted(self.must(self.bin / "python", script).stdout.splitlines()[1:]), ["15", "16"])

    @unittest.skipUnless(system_python() and has(system_python(), "jupyter_client, ipykernel"), "no Jupyter: apt-get install python3-ipykernel")
    def test_an_interrupted_kernel_stops_the_workers_and_stays_usable(self):
        """As Jupyter's button does it."""
        self.must(self.bin / "python", "-m", "ipykernel", "install", "--sys-prefix")  # Debian's own kernel has /usr/bin/python3
        script = self.file("kernel.py", """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
def texts(cell, until=None):
    # Without stop_on_error=False a kernel refuses what arrives right after a cell that failed.
    message, found, state = client.execute(cell, stop_on_error=False), "", ""
    while state != "idle":
        answer = client.get_iopub_msg(timeout=60)
        if answer["parent_header"].get("msg_id") == message:
            content = answer["content"]
            found += content.get("text", "") + content.get("ename", "")
            state = content.get("execution_state", state)
            if until and found.count(until) == 2:
                until = manager.interrupt_kernel()
    return found
print(texts("import functions\\nfrom acc_launch import notebook_launcher"))
print(texts("notebook_launcher(functions.sleep, num_processes=2)", until="I sleep"))
print(texts("notebook_launcher(functions.tell, num_processes=2)"))
client.stop_channels()
manager.shutdown_kernel()
""")
        token = own_token("kernel")
        self.file("functions.py", f"""
import os, sys, time
def sleep():
    print("I sleep")
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {token!r}])
def tell():
    print("again")
""")
        done = self.must(self.bin / "python", script)
        self.assertIn("KeyboardInterrupt", done.stdout)
        self.assertEqual(done.stdout.splitlines().count("again"), 2, done.stdout)
        self.assertEqual(processes_with(token), {})

    def test_torch_reduces_over_the_processes(self):
        if not has(self.bin / "python", "numpy, torch.distributed"):
            self.skipTest("no torch in this Python: apt-get install python3-torch")
        done = self.launched("notebook_launcher(functions.train, (10.0,), num_processes=2)", """
import torch, torch.distributed as dist
def train(base):
    dist.init_process_group("gloo")
    value = torch.full((3,), base + dist.get_rank())
    dist.all_reduce(value)
    print(value.tolist())
    dist.destroy_process_group()
""")
        self.assertEqual(done.stdout.splitlines()[1:], ["[21.0, 21.0, 21.0]"] * 2)


if __name__ == "__main__":
    unittest.main()
