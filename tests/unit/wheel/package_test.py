"""acc_launch, the Python package, by itself: what it refuses, what it would run, what it makes of an end. A script plays acc-launch."""
import base64
import inspect
import io
import json
import os
import pathlib
import pickle
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCE = ROOT / "runtime/python"
sys.path.insert(0, str(SOURCE))
import acc_launch  # noqa: E402
from acc_launch import notebook, programs  # noqa: E402

DEADLINE_S = 60
# As huggingface.co/docs/accelerate has it.
ORIGINAL = {"function": inspect.Parameter.empty, "args": (), "num_processes": None, "mixed_precision": "no", "use_port": "29500",
            "master_addr": "127.0.0.1", "node_rank": 0, "num_nodes": 1, "rdzv_backend": "static", "rdzv_endpoint": "", "rdzv_conf": None,
            "rdzv_id": "none", "max_restarts": 0, "monitor_interval": 0.1, "log_line_prefix_template": None}


def flags(**changes):
    values = {"num_processes": 2, "precision": "no", "port": "29500", "master_addr": "127.0.0.1", "node_rank": 0, "num_nodes": 1,
              "rdzv_backend": "static", "rdzv_endpoint": "", "rdzv_conf": {}, "rdzv_id": "none", "max_restarts": 0, "monitor_interval": 0.1}
    return " ".join(notebook._flags(**{**values, **changes}))


def without_cloudpickle():
    return mock.patch.dict(sys.modules, {"cloudpickle": None})


class Played(unittest.TestCase):
    """A script that plays acc-launch is the only one that is found."""

    def play(self, script):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="acc-played-"))
        self.addCleanup(shutil.rmtree, folder)
        program = folder / "acc-launch"
        program.write_text(script)
        program.chmod(0o755)
        patch = mock.patch.object(programs, "_folders", lambda: [str(folder)])
        patch.start()
        self.addCleanup(patch.stop)
        return folder


class Arguments(unittest.TestCase):
    def launch(self, *args, **how):
        with mock.patch("sys.stdout", io.StringIO()) as out:
            acc_launch.notebook_launcher(*args, **how)
        return out.getvalue()

    def test_the_first_arguments_are_those_of_accelerate_with_its_defaults(self):
        parameters = list(inspect.signature(acc_launch.notebook_launcher).parameters.values())
        self.assertEqual({one.name: one.default for one in parameters[:len(ORIGINAL)]}, ORIGINAL)
        for one in parameters[len(ORIGINAL):]:
            self.assertEqual(one.kind, inspect.Parameter.KEYWORD_ONLY)

    def test_one_process_is_this_one(self):
        called = []
        self.launch(lambda *args: called.append((args, os.getpid())), (1, "two"), num_processes=1)
        self.assertEqual(called, [((1, "two"), os.getpid())])

    def test_an_exception_of_this_process_is_left_as_it_is(self):
        with self.assertRaises(ZeroDivisionError):
            self.launch(lambda: 1 / 0, num_processes=1)

    def test_what_makes_no_sense_is_refused_with_what_would(self):
        for message, how in (("num_processes=", {}), ("fp12.: expected no, fp8, fp16 or bf16", {"num_processes": 2, "mixed_precision": "fp12"}),
                             ("at least 1", {"num_processes": 0}), ("node_rank is 2", {"num_processes": 2, "num_nodes": 2, "node_rank": 2})):
            with self.assertRaisesRegex(ValueError, message):
                self.launch(print, **how)

    def test_what_is_of_another_type_ended_in_an_error_of_python_that_named_no_argument(self):
        for message, how in (("num_processes is '2', a str, but must be a whole number", {"num_processes": "2"}),
                             ("num_processes is 2.0, a float", {"num_processes": 2.0}), ("num_nodes is None", {"num_processes": 2, "num_nodes": None}),
                             (r"args is 5, but must be a tuple of the function's arguments, as \(5,\)", {"num_processes": 1, "args": 5}),
                             (r"as \('data',\)", {"num_processes": 1, "args": "data"})):
            with self.assertRaisesRegex(TypeError, message):
                self.launch(print, **how)

    def test_a_notebook_that_has_used_cuda_is_refused(self):
        cuda = types.SimpleNamespace(is_initialized=lambda: True)
        with mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(cuda=cuda)}), self.assertRaisesRegex(RuntimeError, "CUDA was initialized"):
            self.launch(print, num_processes=2)

    def test_a_notebook_that_has_made_an_accelerator_is_refused(self):
        state = types.SimpleNamespace(AcceleratorState=types.SimpleNamespace(_shared_state={"device": "cpu"}))
        with mock.patch.dict(sys.modules, {"accelerate.state": state}), self.assertRaisesRegex(ValueError, "An `Accelerator` was made"):
            self.launch(print, num_processes=2)


class CommandLine(unittest.TestCase):
    def test_processes_are_counted_per_node(self):
        self.assertEqual(flags(), "--nnodes 1 --nproc-per-node 2 --mixed_precision no --max-restarts 0 --monitor-interval 0.1 --rdzv-id none --node-rank 0")

    def test_the_default_port_is_left_to_acc_launch_on_one_node(self):
        self.assertIn("--master-addr 127.0.0.1 --master-port 29600", flags(port="29600"))
        self.assertIn("--node-rank 1 --master-addr a --master-port 29500", flags(num_nodes=2, node_rank=1, master_addr="a"))

    def test_a_static_endpoint_is_the_main_address(self):
        self.assertIn("--master-addr b --master-port 1234", flags(num_nodes=2, rdzv_endpoint="b:1234"))
        self.assertIn("--master-addr b --master-port 29500", flags(num_nodes=2, rdzv_endpoint="b"))

    def test_another_rendezvous_gets_its_endpoint_and_settings_but_no_node_rank(self):
        line = flags(num_nodes=2, rdzv_backend="c10d", master_addr="a", rdzv_conf={"timeout": 30, "rank": 0, "is_host": True})
        self.assertTrue(line.endswith("--rdzv-conf timeout=30,is_host=True --rdzv-backend c10d --rdzv-endpoint a:29500"), line)
        self.assertNotIn("--node-rank", line)
        self.assertNotIn("--rdzv-endpoint", flags(rdzv_backend="c10d"))

    def test_modules_to_preload_are_those_named_or_the_installed_ones_that_the_function_sees(self):
        self.assertEqual(notebook._modules_to_preload(print, "torch,numpy"), ["torch", "numpy"])
        self.assertEqual(notebook._modules_to_preload(print, ["torch"]), ["torch"])
        self.assertEqual(notebook._modules_to_preload(print, ()), [])
        package = types.ModuleType("fake_package.part")
        installed = types.ModuleType("fake_package")
        installed.__file__ = "/usr/lib/python3/dist-packages/fake_package/__init__.py"
        function = types.FunctionType((lambda: 0).__code__, {"part": package, "os": os, "number": 1})
        with mock.patch.dict(sys.modules, {"fake_package": installed}):
            self.assertEqual(notebook._modules_to_preload(function, "auto"), ["fake_package"])


class Order(unittest.TestCase):
    """What the workers get, as notebook_worker.py reads it."""

    def order(self, function, *args):
        return pickle.loads(notebook._order(function, args))

    def test_a_function_of_a_module_travels_with_plain_pickle(self):
        with without_cloudpickle():
            function, args = pickle.loads(self.order(os.path.join, "a", "b")["call"])
        self.assertEqual(function(*args), "a/b")

    def test_without_cloudpickle_a_function_of_the_notebook_is_refused_with_the_cure(self):
        function = types.FunctionType((lambda: 0).__code__, {"__name__": "__main__"}, "train")
        function.__module__ = "__main__"
        with without_cloudpickle(), self.assertRaisesRegex(pickle.PicklingError, r"'.*' is defined in this notebook.*pip install cloudpickle"):
            self.order(function)

    def test_what_pickle_refuses_is_told_with_its_reason(self):
        with without_cloudpickle(), self.assertRaisesRegex(pickle.PicklingError, r"lock.*install cloudpickle"):
            self.order(print, threading.Lock())

    def test_lines_of_cells_that_are_in_no_file_go_along(self):
        import linecache
        code = compile("def train():\n    pass\n", "<cell 1>", "exec")
        linecache.cache["<cell 1>"] = (0, None, ["def train():\n", "    pass\n"], "<cell 1>")
        self.addCleanup(linecache.cache.pop, "<cell 1>")
        scope = {"__name__": "__main__"}
        exec(code, scope)
        self.assertEqual(notebook._sources(scope["train"]), {"<cell 1>": ["def train():\n", "    pass\n"]})
        self.assertEqual(notebook._sources(os.path.join), {})


class Ends(unittest.TestCase):
    FAILURE = {"rank": 1, "pid": 42, "cause": "exited with code 1", "error": None, "last_lines": ["so long"]}

    def error(self, failure, *records):
        report = json.dumps({"first_failure": failure}).encode() if failure else b""
        return notebook._error(1, report, b"".join(json.dumps(one).encode() + b"\n" for one in records))

    def record(self, **changes):
        exception = base64.b64encode(pickle.dumps(ValueError("no 7"))).decode()
        return {"rank": 1, "pid": 42, "host": os.uname().nodename, "traceback": "Traceback …\nValueError: no 7\n", "exception": exception, **changes}

    def test_the_exception_of_the_rank_that_failed_first_comes_back(self):
        error = self.error(self.FAILURE, self.record(rank=0, pid=41, traceback="a peer's"), self.record(pid=40, traceback="of the attempt before"),
                           self.record())
        self.assertEqual((error.rank, error.exit_code, error.traceback), (1, 1, "Traceback …\nValueError: no 7\n"))
        self.assertEqual(repr(error.__cause__), "ValueError('no 7')")
        self.assertIn("rank 1 exited with code 1\n\nTraceback", str(error))

    def test_an_exception_that_can_not_travel_is_its_traceback(self):
        for exception in (None, "gibberish", base64.b64encode(b"\x80\x04N.").decode()):
            error = self.error(self.FAILURE, self.record(exception=exception))
            self.assertIsNone(error.__cause__)
            self.assertIn("ValueError: no 7", str(error))

    def test_a_failure_of_another_node_is_told_from_the_report(self):
        failure = {**self.FAILURE, "error": {"message": "x", "traceback": "Traceback of b"}}
        error = self.error(failure, self.record(host="b", traceback="not this one's"))
        self.assertEqual(error.traceback, "Traceback of b")

    def test_a_worker_that_was_killed_is_told_with_its_last_lines(self):
        self.assertEqual(str(self.error({**self.FAILURE, "cause": "was killed by SIGSEGV (11)"})),
                         "rank 1 was killed by SIGSEGV (11); its last lines:\n  so long")

    def test_without_a_report_the_exit_code_is_told(self):
        error = self.error(None)
        self.assertEqual((error.rank, error.exit_code), (None, 1))


class Programs(Played):
    def test_a_program_of_this_environment_comes_before_one_on_the_path(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"PATH": folder}):
            with self.assertRaisesRegex(FileNotFoundError, "is acc-launch installed here"):
                acc_launch.find_program()
            on_path = pathlib.Path(folder) / "acc-launch"
            on_path.touch(mode=0o755)
            self.assertEqual(acc_launch.find_program(), str(on_path))
            own = self.play("")
            self.assertEqual(acc_launch.find_program(), str(own / "acc-launch"))

    def test_workers_get_this_interpreter_unless_another_is_chosen(self):
        self.assertEqual(programs.environment_of_programs({})["PYTHON_EXEC"], sys.executable)
        self.assertEqual(programs.environment_of_programs({"PYTHON_EXEC": "mine"})["PYTHON_EXEC"], "mine")

    def test_run_gives_the_exit_code_or_raises(self):
        self.play('#!/bin/sh\nexit "$1"\n')
        self.assertEqual(acc_launch.run(["0"]), 0)
        self.assertEqual(acc_launch.run([3]), 3)
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            acc_launch.run([3], check=True)
        self.assertEqual((caught.exception.returncode, caught.exception.cmd), (3, ["acc-launch", "3"]))

    def test_an_acc_launch_that_a_signal_ended_is_told_as_by_a_shell(self):
        self.play("#!/bin/sh\nkill -9 $$\n")
        self.assertEqual(acc_launch.run([]), 137)

    def test_a_line_in_place_of_words_is_refused(self):
        with self.assertRaises(TypeError):
            acc_launch.run("--num_processes 2 train.py")

    def test_an_interrupt_is_passed_on_and_raised_when_the_job_has_ended(self):
        folder = self.play('#!/bin/sh\ntrap \'echo stopped >>"$0.log"; exit 130\' INT\ntouch "$0.up"\nwhile :; do sleep 0.05; done\n')

        def interrupt():
            end = time.monotonic() + DEADLINE_S
            while not (folder / "acc-launch.up").exists() and time.monotonic() < end:
                time.sleep(0.01)
            signal.pthread_kill(main, signal.SIGINT)

        main = threading.get_ident()
        threading.Thread(target=interrupt, daemon=True).start()
        with self.assertRaises(KeyboardInterrupt):
            programs.Job([], stdin=subprocess.DEVNULL).wait(lambda: False)
        self.assertEqual((folder / "acc-launch.log").read_text(), "stopped\n")


class Worker(unittest.TestCase):
    def test_without_acc_launch_a_workers_messages_do_nothing(self):
        acc_launch.heartbeat(1)
        acc_launch.checkpoint(1)
        with acc_launch.section("evaluation", timeout=1):
            pass

    def test_the_daemons_socket_exported_for_acc_ctl_was_taken_for_the_workers(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as daemon:
            daemon.bind(folder + "/agent.sock")
            daemon.listen()
            daemon.setblocking(False)
            with open(folder + "/page", "wb") as page:
                page.write(b"ACCBEAT1" + struct.pack("I", 1) + bytes(8192))
            for address in (folder + "/agent.sock", folder + "/none"):
                subprocess.run([sys.executable, "-c", "import acc_heartbeat; acc_heartbeat.heartbeat(1)"], check=True, text=True,
                               env={**os.environ, "PYTHONPATH": str(SOURCE), "ACC_AGENT_SOCKET": address, "RANK": "0", "ACC_ROUND": "0",
                                    "ACC_HEARTBEAT_PAGE": folder + "/page:256"})
            self.assertRaises(BlockingIOError, daemon.accept)

    def test_the_package_alone_asks_for_nothing_that_belongs_to_a_rank(self):
        """So --preload may import it: acc_heartbeat opens the rank's page at its import."""
        asked = subprocess.run([sys.executable, "-c", "import acc_launch, sys; print('acc_heartbeat' in sys.modules)"], capture_output=True,
                               text=True, env={**os.environ, "PYTHONPATH": str(SOURCE)})
        self.assertEqual(asked.stdout, "False\n", asked.stderr)

    @unittest.skipUnless(shutil.which("mypy") or os.path.exists("/usr/bin/mypy"), "no mypy here")
    def test_the_package_is_typed(self):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run([shutil.which("mypy") or "/usr/bin/mypy", "--strict", "--cache-dir", cache, "--ignore-missing-imports",
                                   "--allow-untyped-calls", SOURCE / "acc_launch/__init__.py", SOURCE / "acc_launch/__main__.py"],
                                  capture_output=True, text=True, cwd=SOURCE)
            found = [line for line in done.stdout.splitlines() if line.startswith("acc_launch/") or "/acc_launch/" in line]
        self.assertEqual(found, [], done.stdout)


if __name__ == "__main__":
    unittest.main()
