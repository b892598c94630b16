"""acc-test as a user types it: all is well, something is wrong, and what it says then."""
import glob, json, os, re, shutil, signal, socket, subprocess, tempfile, unittest

from harness import BIN, PATIENCE, children_of, free_port, main, read, state_of
from hosts import needs_hosts

PLAIN = ["--cpu", "--num_machines=1", "--mixed_precision=no", "--dynamo_backend=no"]


def acc_test(*words, ranks=2, env=None, timeout=60):
    return subprocess.run([os.path.join(BIN, "acc-test"), *PLAIN, f"--num_processes={ranks}", *words], capture_output=True,
                          text=True, timeout=timeout * PATIENCE, env={**os.environ, **(env or {})}, check=False)


class Whole(unittest.TestCase):
    def test_any_number_of_ranks_passes(self):
        for ranks in (1, 2, 3, 5):
            done = acc_test(ranks=ranks)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"acc-test: all is well: 13 checks of this machine, 11 checks with %d ranks?, [0-9.]+ s\n\Z" % ranks)
            self.assertNotIn("failed  ", done.stdout)

    def test_json_says_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            done = acc_test("--json", path)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            with open(path) as file:
                told = json.load(file)
        self.assertTrue(told["ok"])
        self.assertEqual(told["ranks"], 2)
        self.assertEqual({one["name"] for one in told["results"]},
                         {"ranks", "reductions", "moves", "objects", "sub-groups", "sharding", "metrics", "training", "checkpoint",
                          "mismatch", "timeout"})
        self.assertEqual({one["verdict"] for one in told["results"]}, {"ok"})
        alone = acc_test("--json", "-")
        self.assertEqual(json.loads(alone.stdout)["ranks"], 2)

    def test_two_machines_of_a_job_may_be_on_one_host(self):
        port = free_port()
        words = [os.path.join(BIN, "acc-test"), *PLAIN[:1], *PLAIN[2:], "--nnodes=2", "--nproc-per-node=2", "--master-addr=127.0.0.1",
                 f"--master-port={port}", "--join_timeout=30"]
        second = subprocess.Popen([*words, "--node-rank=1"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            first = subprocess.run([*words, "--node-rank=0"], capture_output=True, text=True, timeout=60 * PATIENCE, check=False)
            said = second.communicate(timeout=30 * PATIENCE)[0]
        finally:
            second.kill()
            second.wait()
        self.assertEqual((first.returncode, second.returncode), (0, 0), first.stdout + first.stderr + said)
        for text in (first.stdout, said):
            self.assertIn("acc-test: all is well: 13 checks of this machine, 11 checks with 4 ranks", text)

    def test_a_config_file_that_starts_a_module_is_checked_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cfg.yaml")
            with open(path, "w") as file:
                file.write("module: true\nscript: pkg.train\nnum_processes: 2\ndistributed_type: MULTI_CPU\nuse_cpu: true\n")
            done = acc_test("--config_file", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("acc-test: all is well", done.stdout)

    def test_the_machine_alone(self):
        done = acc_test("--local_only")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("2 ranks", done.stdout)
        self.assertIn("all is well: 13 checks of this machine", done.stdout)


class Bandwidth(unittest.TestCase):
    def test_the_table_is_nccl_tests(self):
        done = acc_test("--bandwidth", "-b", "8", "-e", "64K", "-f", "8", "-n", "5", "--only", "all_reduce,all_gather")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        rows = re.findall(r"^ +(\d+) +(\d+) +f32 +(sum|none) +-1 +([0-9.]+) +([0-9.]+) +([0-9.]+) +(\d+)", done.stdout, re.M)
        self.assertEqual([int(row[0]) for row in rows], [8, 64, 512, 4096, 32768] * 2)
        self.assertEqual({row[6] for row in rows}, {"0"})
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)
        self.assertIn("# Avg bus bandwidth", done.stdout)

    def test_every_operation_and_type_is_right(self):
        done = acc_test("--bandwidth", "-b", "4K", "-e", "4K", "-n", "1", "-w", "0", "-d", "all", "-o", "all", "-r", "all", "-u", "1", "--only",
                        "all_reduce,reduce,broadcast,all_gather,reduce_scatter,all_to_all,gather,scatter", ranks=3)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_a_byte_that_can_t_hold_the_number_of_ranks_is_no_failure(self):
        # 130 ones were summed in a signed byte, and -126 was called wrong.
        done = acc_test("--bandwidth", "-b", "1K", "-e", "1K", "-n", "1", "-w", "0", "-d", "int8", "--only", "all_reduce", "-T", "60", ranks=130)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# Out of bounds values : 0 OK", done.stdout)

    def test_the_usual_line_of_nccl_tests_works(self):
        done = acc_test("--bandwidth", "-b", "8", "-e", "64", "-f", "2", "-g", "1", "-t", "1", "-n", "2", "--only", "all_reduce")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = acc_test("--bandwidth", "-b", "8", "-e", "64", "-g", "8")
        self.assertEqual(done.returncode, 2, done.stdout)
        self.assertIn("-g 8: every rank has one device: give --num_processes", done.stderr)

    def test_too_slow_for_what_was_asked_is_a_failure(self):
        done = acc_test("--bandwidth", "-b", "1K", "-e", "1K", "-n", "2", "--only", "all_reduce", env={"NCCL_TESTS_MIN_BW": "1e6"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("FAILED: bandwidth", done.stdout)


class Wrong(unittest.TestCase):
    def test_words_that_it_can_t_use(self):
        for words, said in ((["x.py"], "'x.py'"), (["-b", "8"], "--bandwidth"), (["--bandwidth", "-b", "much"], "-b 'much'"),
                            (["--bandwidth", "-b", "2M", "-e", "1M"], "-e is smaller"), (["--nprc=3"], "--nprc"),
                            (["--bandwith"], "did you mean --bandwidth?"), (["--bandwidth", "--only", "sum"], "one or more of all_reduce,")):
            done = acc_test(*words)
            self.assertEqual(done.returncode, 2, (words, done.stdout, done.stderr))
            self.assertIn(said, done.stderr)
            self.assertNotIn("job failed", done.stderr)  # nothing was started with them
            self.assertEqual(done.stdout, "", words)

    def test_ten_thousand_ranks_are_refused_before_they_are_started(self):
        done = acc_test(ranks=10_000)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"failed   cores .*\n +-> .* up to 512 ranks on a node\n")
        self.assertNotIn("acc-test: 10000 ranks\n", done.stdout)

    def test_a_port_that_is_taken_is_told(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            done = acc_test(f"--main_process_port={port}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"port {port} is already in use", done.stderr)


@needs_hosts
class WithGpus(unittest.TestCase):
    """On a machine that seems to have two GPUs: their nodes in /dev, and a driver in /proc; and neither NCCL nor the CUDA runtime."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="acc-gpus-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    @staticmethod
    def libraries_of_this_machine():
        known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        places = re.findall(r"lib(?:nccl|cudart)\.so.* => (/.*)", known) + glob.glob("/usr/local/cuda*/lib*/lib*[cr]*.so*")
        return {os.path.realpath(place) for place in places if re.match("lib(nccl|cudart)", os.path.basename(place))}

    def acc_test(self, *words, **variables):
        return self.run_there("acc-test", *PLAIN[1:], "--num_processes=2", *words, **variables)

    def run_there(self, program, *words, **variables):
        dev = os.path.join(self.folder, "dev")
        os.makedirs(dev, exist_ok=True)
        script = (f"mount -t tmpfs dev {dev} && cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx {dev}/ && "
                  f"ln -s /proc/self/fd {dev}/fd && mkdir {dev}/shm {dev}/pts && mount -t tmpfs shm {dev}/shm && touch {dev}/nvidiactl {dev}/nvidia0 {dev}/nvidia1 && "
                  "mount --rbind " + dev + " /dev && mount -t tmpfs driver /proc/driver && mkdir /proc/driver/nvidia && "
                  'echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue" > /proc/driver/nvidia/version && ' +
                  "".join(f"mount --bind /dev/null {place} && " for place in self.libraries_of_this_machine()) + 'exec "$@"')
        return subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", os.path.join(BIN, program), *words],
                              capture_output=True, text=True, timeout=60 * PATIENCE, env={**os.environ, **variables}, check=False)

    def test_a_job_on_the_cpu_needs_no_nccl(self):
        for words, variables in ((["--cpu"], {}), ([], {"ACC_BACKEND": "cpu"})):
            with self.subTest(words=words):
                done = self.acc_test(*words, ACC_NCCL_LIBRARY="/nonexistent/libnccl.so.2", **variables)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertRegex(done.stdout, r"\nok       GPUs           2 x unknown, driver 550\.54\.15\n")
                self.assertRegex(done.stdout, r"\nnote     NCCL           .*\(not needed on the CPU\)\n")
                self.assertIn("2 ranks, backend cpu", done.stdout)
        done = self.acc_test("--local_only", ACC_NCCL_LIBRARY="/nonexistent/libnccl.so.2")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\nfailed   NCCL ")

    def python_with(self, *libraries):
        """An interpreter, as far as acc-test looks, outside of any virtual environment, with torch and these libraries from wheels."""
        prefix = os.path.join(self.folder, "opt")
        packages = os.path.join(prefix, "lib/python3.11/site-packages")
        for folder in ("torch", "nvidia/nccl/lib", "nvidia/cuda_runtime/lib"):
            os.makedirs(os.path.join(packages, folder), exist_ok=True)
        os.makedirs(os.path.join(prefix, "bin"), exist_ok=True)
        with open(os.path.join(packages, "torch/__init__.py"), "w"):
            pass
        shutil.copy(os.path.realpath("/bin/sh"), os.path.join(prefix, "bin/python3.11"))
        for library, place in libraries:
            os.symlink(os.path.join(os.path.abspath(BIN), library), os.path.join(packages, place))
        return os.path.join(prefix, "bin/python3.11")

    def test_the_nccl_of_a_system_s_pytorch_is_found_and_used(self):
        python = self.python_with(("libfake_nccl.so", "nvidia/nccl/lib/libnccl.so.2"), ("libfake_cudart.so", "nvidia/nccl/lib/libfake_cudart.so"),
                                  ("libfake_cudart.so", "nvidia/cuda_runtime/lib/libcudart.so.12"))
        done = self.acc_test("--bandwidth", "-b", "8", "-e", "8", "--only", "all_reduce", PYTHON_EXEC=python, FAKE_CUDA="devices=2", VIRTUAL_ENV="", CONDA_PREFIX="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\nok       NCCL .*/site-packages/nvidia/nccl/lib/libnccl\.so\.2\)\n")
        self.assertIn("backend nccl", done.stdout)
        rank = {name: "1" if name.endswith("SIZE") else "0" for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        done = self.run_there("acc-test", "--on_rank", "--marked", PYTHON_EXEC=python, FAKE_CUDA="devices=1", VIRTUAL_ENV="", CONDA_PREFIX="", **rank, **place)
        self.assertIn("backend nccl", done.stdout, done.stderr)  # as with --hosts
        done = self.run_there("acc-env", PYTHON_EXEC=python, VIRTUAL_ENV="", CONDA_PREFIX="")
        self.assertRegex(done.stdout, r"NCCL.*/site-packages/nvidia/nccl/lib/libnccl\.so\.2")

    def test_a_pytorch_with_nccl_linked_in_is_a_warning(self):
        done = self.acc_test(PYTHON_EXEC=self.python_with(), VIRTUAL_ENV="", CONDA_PREFIX="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\nwarning  NCCL .*\n +-> PyTorch may bring its own; .* the ranks are checked on the CPU")
        self.assertIn("2 ranks, backend cpu", done.stdout)


class Left(unittest.TestCase):
    """Whatever happens to it, acc-test ends, with a code that says how, and leaves nothing."""

    def test_a_reader_that_has_seen_enough_is_no_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            line = f"{BIN}/acc-test {' '.join(PLAIN)} --num_processes=2 | head -1; exit ${{PIPESTATUS[0]}}"
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60 * PATIENCE, check=False,
                                  env={**os.environ, "TMPDIR": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "acc-test: this machine\n")
            self.assertIn("acc-test: all is well", done.stderr)  # to where somebody still reads
            self.assertEqual(os.listdir(folder), [])

    def test_where_no_file_can_be_made_the_check_that_needs_one_fails_alone(self):
        done = acc_test(env={"TMPDIR": "/dev/null/x"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("'/dev/null/x/acc-test-checkpoint.", done.stdout)
        self.assertIn("acc-test: FAILED: checkpoint (13 checks of this machine, 11 checks with 2 ranks)", done.stdout)

    def test_json_that_can_t_be_written_is_told_before_anything_runs(self):
        done = acc_test("--json", "/dev/null/out.json")
        self.assertEqual((done.returncode, done.stdout), (73, ""))
        self.assertIn("'/dev/null/out.json'", done.stderr)
        with open("/dev/full", "w") as full:
            for words in (["--help"], ["--json", "-"]):
                done = subprocess.run([os.path.join(BIN, "acc-test"), *PLAIN, *words], stdout=full, stderr=subprocess.PIPE, text=True,
                                      timeout=60 * PATIENCE, check=False)
                self.assertEqual(done.returncode, 73, done.stderr)
        done = acc_test("--json", "/dev/full")
        self.assertEqual(done.returncode, 73)
        self.assertIn("acc-test: all is well", done.stdout)  # the verdict isn't lost with the file

    def test_a_rank_that_stands_still_doesn_t_hold_it_up_for_ever(self):
        for rank in (0, 2):  # rank 0 is the one that tells how the checks went
            with self.subTest(rank=rank):
                tries = (self.with_stopped_rank(rank) for _ in range(5))
                out, err, code, pid = next(done for done in tries if done)
                self.assertEqual(code, 1, out + err)
                self.assertIn(f"timed out after 5 s: rank {rank} ", out + err)
                self.assertIn("acc-test: FAILED", out)
                self.assertIsNone(state_of(pid), "the rank that was stopped is still there")

    @staticmethod
    def with_stopped_rank(rank):
        """acc-test on four ranks, one of which gets SIGSTOP when the first check is done; None where we came too late, after the last one."""
        job = subprocess.Popen([os.path.join(BIN, "acc-test"), *PLAIN, "--num_processes=4", "-T", "5"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        try:
            said = []
            while not said or not said[-1].startswith("ok       ranks"):
                said.append(job.stdout.readline())
                assert said[-1], said
            try:
                agent = children_of(job.pid)[0]
                pid = next(pid for pid in children_of(agent) if f"\0RANK={rank}\0" in "\0" + read(f"/proc/{pid}/environ"))
                os.kill(pid, signal.SIGSTOP)
                out, err = job.communicate(timeout=30 * PATIENCE)
            except (IndexError, StopIteration, OSError, subprocess.TimeoutExpired):
                job.kill()
                out, err = job.communicate()
                assert "ok       timeout" in out, (said, out, err)  # the last check
                return None
            return None if "ok       timeout" in out else ("".join(said) + out, err, job.returncode, pid)
        finally:
            job.kill()
            job.wait()


if __name__ == "__main__":
    main()
