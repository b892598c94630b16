"""--preload: workers that are forked from a process which has imported their modules are as those of a cold start; what can't be
forked safely starts cold, with the reason."""
import json, os, re, signal, socket, subprocess, sys, tempfile, time, unittest

from harness import SANITIZED, JobTest, children_of, free_port, main, own_token, processes_with, read, state_of, until, write
from test_torch import PYTHON as TORCH

HERE = os.path.dirname(os.path.abspath(__file__))
# docs/operations.md, "Warm start", has the same list.
DIFFERENT = {
    # the base environment of the agent's moment, but not of what a program reads
    "environ": {"MASTER_PORT", "ACC_JOB_ID", "ACC_AGENT_SOCKET", "ACC_HEARTBEAT_PAGE", "TORCHELASTIC_ERROR_FILE", "WHOAMI", "TORCHELASTIC_RUN_ID"},
}


class WarmTest(JobTest):
    """Jobs of a Python script with modules of its own beside it and packages on PYTHONPATH."""

    def setUp(self):
        super().setUp()
        self.packages = self.folder_for("packages")
        self.here = self.folder_for("script")

    def folder_for(self, name):
        folder = tempfile.TemporaryDirectory(prefix=f"acc-{name}-")
        self.addCleanup(folder.cleanup)
        return folder.name

    def package(self, name, text):
        write(os.path.join(self.packages, f"{name}.py"), text)

    def script(self, text, name="train.py"):
        path = os.path.join(self.here, name)
        write(path, text)
        return path

    def start(self, flags, script, *words, env=None, **more):
        environment = {"PYTHONPATH": self.packages, "PYTHON_EXEC": sys.executable, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", **(env or {})}
        return self.job(flags, list(words), env=environment, program=[script], **more)

    def ended(self, job, code=0):
        self.assertEqual(job.wait(), code, job.stderr)
        return job

    def compare(self, answers):
        for cold, warm in zip(answers["cold"], answers["warm"]):
            for name in cold["facts"]:
                one, other = cold["facts"][name], warm["facts"][name]
                if name in ("environ", "c_environ"):
                    if name == "c_environ":
                        one, other = (dict(entry.split("=", 1) for entry in entries) for entries in (one, other))
                    one, other = ({k: v for k, v in each.items() if k not in DIFFERENT["environ"]} for each in (one, other))
                elif name == "argv" or name == "orig_argv":
                    one, other = ([re.sub(r"any=\w+", "any", word) for word in each] for each in (one, other))
                elif name == "proc_cmdline":
                    one, other = (re.sub(r"any=\w+", "any", each) for each in (one, other))
                elif name == "main":
                    one, other = (re.sub(r"0x[0-9a-f]+", "ADDRESS", str(each)) for each in (one, other))
                elif name == "cgroup":
                    one, other = (re.sub(r"acc-launch-job-\S+", "job", each) for each in (one, other))
                with self.subTest(what=name):
                    self.assertEqual(one, other)


HEAVY = """
import os
with open(os.environ["IMPORTS"], "a") as file:
    file.write(f"{os.getpid()}\\n")
"""
TRAIN = """
import os, signal, sys, time
import heavy
flag = os.environ["FLAG"]
print("rank", os.environ["RANK"], "attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
if os.environ["RANK"] == "0" and not os.path.exists(flag):
    open(flag, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
if not os.path.exists(flag):
    time.sleep(60)
"""


class Same(WarmTest):
    def know(self, flags, script, env=None):
        answers = {}
        for start in ("cold", "warm"):
            path = os.path.join(self.here, start)
            preload = ["--preload", "json,random"] if start == "warm" else []
            job = self.ended(self.start(["--num_processes", "2", *preload, *flags], script, "--lr", "3e-4", "ü", env={"WHOAMI": path, **(env or {})}))
            self.assertNotIn("start cold", job.stderr)
            self.assertEqual("preloaded json,random" in job.stderr, start == "warm", job.stderr)
            self.assertIn("hello from 1", job.stdout)
            texts = [read(f"{path}.{rank}").replace(job.folder, "FOLDER").replace(path, "PATH") for rank in (0, 1)]
            answers[start] = [json.loads(text) for text in texts]
        return answers

    def test_a_script_knows_nothing_of_a_warm_start(self):
        script = self.script(read(os.path.join(HERE, "whoami.py")))
        self.compare(self.know([], script))

    def test_nor_does_a_module(self):
        write(os.path.join(self.packages, "whoami_module.py"), read(os.path.join(HERE, "whoami.py")))
        self.compare(self.know(["-m"], "whoami_module"))

    def test_nor_does_one_that_writes_to_a_pseudo_terminal(self):
        script = self.script(read(os.path.join(HERE, "whoami.py")))
        self.compare(self.know(["--pty", "on"], script))

    def test_each_rank_has_random_numbers_of_its_own(self):
        script = self.script(read(os.path.join(HERE, "whoami.py")))
        first, second = (answer["own"] for answer in self.know([], script)["warm"])
        for name in first:
            with self.subTest(what=name):
                self.assertNotEqual(first[name], second[name])

    def test_a_traceback_is_that_of_a_cold_start(self):
        script = self.script("def f():\n    raise ValueError('no')\n\nf()\n")
        texts = []
        for flags in ([], ["--preload", "json"]):
            job = self.ended(self.start(["--num_processes", "1", "--max_restarts", "0", *flags], script), 1)
            texts.append(re.findall(r"Traceback.*?ValueError: no", job.stderr, re.S)[0])
        self.assertEqual(*texts)

    def test_exit_codes_and_atexit_and_signals(self):
        script = self.script("import atexit, os, signal, sys\natexit.register(lambda: print('at exit', flush=True))\n"
                             "exec(sys.argv[-1])\n")
        for words, code in (("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGTERM)", 143), ("sys.exit()", 0)):
            job = self.ended(self.start(["--num_processes", "1", "--max_restarts", "0", "--preload", "json"], script, words), code)
            self.assertEqual("at exit" in job.stdout, code != 143, job.stdout)

    def test_a_breakpoint_reads_the_terminal_as_in_a_cold_start(self):
        script = self.script("x = 41\nbreakpoint()\nx += 1\nprint('x is', x, flush=True)\n")
        keys = os.path.join(self.here, "keys")
        write(keys, "p x\nn\nc\n")
        said = []
        for start in ("cold", "warm"):
            with open(keys) as stdin:
                flags = ["--preload", "json"] if start == "warm" else []
                said.append(self.ended(self.start(["--num_processes", "1", "--max_restarts", "0", *flags], script, stdin=stdin)).stdout)
        self.assertIn("(Pdb) 41", said[0])
        self.assertIn("x is 42", said[0])
        self.assertEqual(*said)

    def test_a_core_file_is_written_as_in_a_cold_start(self):
        if read("/proc/sys/kernel/core_pattern").strip() not in ("core", "core.%p"):
            self.skipTest("core files of this machine don't go to the working directory")
        script = self.script("import os, resource, sys\nos.chdir(sys.argv[-1])\nresource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))\nos.abort()\n")
        for place in (self.folder_for("cold"), self.folder_for("warm")):
            flags = ["--preload", "json"] if "warm" in place else []
            job = self.ended(self.start(["--num_processes", "1", "--max_restarts", "0", *flags], script, place), 134)
            cores = [name for name in os.listdir(place) if name.startswith("core")]
            self.assertEqual(len(cores), 1, job.stderr)
            self.assertGreater(os.stat(os.path.join(place, cores[0])).st_size, 1 << 20)

    def test_coverage_counts_the_same_lines(self):
        python = next((each for each in ("/usr/bin/python3", sys.executable) if subprocess.run([each, "-c", "import coverage"], capture_output=True).returncode == 0), None)
        if not python:
            self.skipTest("no Python here has coverage")
        script = self.script("import json\ndef used():\n    return 1\ndef unused():\n    return 2\nprint(used())\n")
        data, counted = os.path.join(self.here, "data"), []
        for preload in ([], ["--preload", "json"]):
            job = self.ended(self.job(["--num_processes", "1", "--max_restarts", "0", *preload, "-m"], "", env={"PYTHON_EXEC": python},
                                      program=["coverage", "run", f"--data-file={data}", script]))
            self.assertEqual("preloaded json" in job.stderr, bool(preload), job.stderr)
            report = subprocess.run([python, "-m", "coverage", "report", "-m", f"--data-file={data}", f"--include={script}"], capture_output=True, text=True)
            self.assertIn("train.py", report.stdout, report.stderr + job.stderr)
            counted.append(report.stdout.split("train.py")[1].split()[:4])
            os.remove(data)
        self.assertEqual(counted, [["6", "1", "83%", "5"]] * 2)

    def test_a_worker_starts_processes_of_its_own_by_all_methods(self):
        script = self.script("""
import multiprocessing, sys
def double(n): return 2 * n
if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(double, [1, 2, 3]), flush=True)
""")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "multiprocessing.pool"], script))
        for method in ("fork", "spawn", "forkserver"):
            self.assertEqual(job.stdout.count(f"{method} [2, 4, 6]"), 2, job.stdout)

    def test_what_an_import_changes_in_the_environment_reaches_the_worker(self):
        self.package("sets", "import os\nos.environ['TOKENIZERS'] = 'off'\nos.environ.pop('GONE', None)\n")
        script = self.script("import os\nprint('found', os.environ.get('TOKENIZERS'), os.environ.get('GONE'))\n")
        job = self.ended(self.start(["--num_processes", "1", "--preload", "sets"], script, env={"GONE": "no"}))
        self.assertIn("found off None", job.stdout)


class Rounds(WarmTest):
    def test_a_restart_imports_nothing_again(self):
        self.package("heavy", HEAVY)
        imports, flag = os.path.join(self.here, "imports"), os.path.join(self.here, "flag")
        job = self.ended(self.start(["--num_processes", "3", "--max_restarts", "2", "--preload", "heavy"], self.script(TRAIN),
                                    env={"IMPORTS": imports, "FLAG": flag}))
        self.assertEqual(len(read(imports).split()), 1, "imported once, by the preloader")
        for rank in range(3):
            self.assertIn(f"rank {rank} attempt 1", job.stdout)
        self.assertIn("preloaded heavy", job.stderr)

    def test_many_restarts_leave_nothing_in_agent_and_preloader(self):
        """ACC_RESTARTS=200: the soak."""
        restarts = int(os.environ.get("ACC_RESTARTS", "10"))
        self.package("heavy", HEAVY)
        imports = os.path.join(self.here, "imports")
        script = self.script("""
import os, sys, time, heavy
agent, attempt = os.getppid(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
preloader = open(os.environ["IMPORTS"]).read().split()[0]
resident = [int(open(f"/proc/{pid}/statm").read().split()[1]) for pid in (agent, preloader)]
opened = lambda pid: min(len(os.listdir(f"/proc/{pid}/fd")) for look in range(20) if not time.sleep(0.005))
print("seen", attempt, os.environ["RANK"], opened(agent), opened(preloader), *resident, flush=True)
if attempt < int(sys.argv[-1]) and os.environ["RANK"] == "1":
    sys.exit(1)
if attempt < int(sys.argv[-1]):
    time.sleep(600)
""")
        job = self.start(["--num_processes", "2", "--max_restarts", str(restarts), "--restart_delay", "0", "--preload", "heavy"], script, str(restarts),
                         env={"IMPORTS": imports})
        self.assertEqual(job.wait(30 + restarts), 0, job.stderr)
        seen = {int(words[1]): [int(word) for word in words[3:]] for words in map(str.split, job.stdout.splitlines()) if words[:1] == ["seen"] and words[2:3] == ["1"]}
        self.assertEqual(sorted(seen), list(range(restarts + 1)))
        first, last = seen[2], seen[restarts]
        # More are open while the agent still starts the other worker, or already has some of the next round: a leak raises the least of them.
        half = restarts // 2
        few = lambda rounds, column: min(seen[number][column] for number in rounds)
        for column, process in enumerate(("agent", "preloader")):
            # One that leaked at each restart would raise it by half - 1 at least; a moment with fewer may be met in one half alone.
            self.assertLess(few(range(half, restarts + 1), column), few(range(1, half), column) + half - 1, f"descriptors of the {process}")
        if not SANITIZED:  # address sanitizer keeps what was freed for a while
            self.assertLess(last[2] - first[2], 256, "pages of the agent")
        self.assertLess(last[3] - first[3], 256, "pages of the preloader")
        self.assertEqual(len(read(imports).split()), 1)

    def test_auto_takes_what_the_script_imports_from_installed_packages(self):
        site = os.path.join(self.packages, "site-packages")
        os.mkdir(site)
        write(os.path.join(site, "heavy.py"), HEAVY)
        write(os.path.join(self.here, "own.py"), "import os\nprint('own', os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT'], flush=True)\n")
        imports, flag = os.path.join(self.here, "imports"), os.path.join(self.here, "flag")
        job = self.ended(self.start(["--num_processes", "2", "--max_restarts", "2", "--preload", "auto"], self.script("import own\n" + TRAIN),
                                    env={"IMPORTS": imports, "FLAG": flag, "PYTHONPATH": site}))
        self.assertIn("preloaded heavy in", job.stderr)
        self.assertEqual(len(read(imports).split()), 1)
        # Rank 1 of the first round may have been stopped before it came to its imports.
        own = {line for line in job.stdout.splitlines() if line.startswith("own ")} - {"own 1 0"}
        self.assertEqual(own, {"own 0 0", "own 0 1", "own 1 1"}, "the user's own module is imported by each worker of each round")

    def installed(self, **modules):
        site = os.path.join(self.packages, "site-packages")
        os.makedirs(site, exist_ok=True)
        for name, text in modules.items():
            write(os.path.join(site, f"{name}.py"), text)
        return site

    def said_cold_and_warm(self, preload, script, env, flags=(), **more):
        jobs = [self.ended(self.start(["--num_processes", "1", "--max_restarts", "0", *warm, *flags], script, env=env, **more)) for warm in ([], ["--preload", preload])]
        self.assertEqual(jobs[0].stdout, jobs[1].stdout)
        return jobs[1].stderr

    def test_auto_preloaded_an_installed_package_in_place_of_the_users_own_module(self):
        site = self.installed(heavy="", sixth="WHO = 'installed'\n", seventh="WHO = 'installed'\n")
        write(os.path.join(self.here, "sixth.py"), "WHO = 'own'\n")
        os.mkdir(os.path.join(self.here, "seventh"))  # data beside the script is no module where a package has the name
        text = "import heavy, sixth, seventh\nprint(sixth.WHO, seventh.WHO)\n"
        said = self.said_cold_and_warm("auto", self.script(text), {"PYTHONPATH": site})
        self.assertIn("preloaded heavy,seventh in", said)
        module = self.script(text, "prog.py")
        job = self.ended(self.job(["--num_processes", "1", "--preload", "auto", "-m"], "", env={"PYTHONPATH": site, "PYTHON_EXEC": sys.executable},
                                  program=["prog"], folder=self.here))
        self.assertTrue(os.path.exists(module))
        self.assertIn("own installed", job.stdout)
        self.assertIn("preloaded heavy,seventh in", job.stderr)

    def test_a_package_that_was_preloaded_brought_a_module_that_the_user_has_beside_the_script(self):
        site = self.installed(heavy="import sixth\n", sixth="WHO = 'installed'\n", standard="import queue\n")
        write(os.path.join(self.here, "sixth.py"), "WHO = 'own'\n")
        script = self.script("import heavy, sixth\nprint(sixth.WHO)\n")
        for preload in ("auto", "heavy", "sixth"):
            self.assertIn(f"--preload: 'sixth' is another module for the program, which has {self.here}/sixth.py beside it: the workers start cold",
                          self.said_cold_and_warm(preload, script, {"PYTHONPATH": site}))
        # Here the interpreter doesn't look beside the script, or finds the same file.
        if sys.version_info >= (3, 11):
            self.assertIn("preloaded heavy", self.said_cold_and_warm("heavy", script, {"PYTHONPATH": site, "PYTHONSAFEPATH": "1"}))
        self.assertIn("preloaded heavy", self.said_cold_and_warm("heavy", script, {"PYTHONPATH": f"{self.here}:{site}"}))
        write(os.path.join(self.here, "queue.py"), "WHO = 'own'\n")
        script = self.script("import queue, standard\nprint(queue.WHO)\n")
        self.assertIn("'queue' is another module for the program", self.said_cold_and_warm("standard", script, {"PYTHONPATH": site}))

    def test_a_preloader_that_is_killed_between_rounds_is_replaced(self):
        self.package("heavy", HEAVY)
        imports, flag, go = (os.path.join(self.here, name) for name in ("imports", "flag", "go"))
        script = self.script("""
import os, sys, time
import heavy
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
open(os.environ["FLAG"] + attempt, "w").close()
if attempt == "0":
    while not os.path.exists(os.environ["GO"]): time.sleep(0.01)
    sys.exit(5)
""")
        job = self.start(["--num_processes", "2", "--max_restarts", "1", "--preload", "heavy"], script, env={"IMPORTS": imports, "FLAG": flag, "GO": go})
        until(lambda: os.path.exists(flag + "0"), "the first attempt")
        preloader = int(read(imports).split()[0])
        until(lambda: state_of(preloader) == "S", "the preloader's wait for an order")
        os.kill(preloader, signal.SIGKILL)
        job.wait_stderr("another preloader is started")
        write(go, "")
        self.ended(job)
        self.assertTrue(os.path.exists(flag + "1"))
        self.assertEqual(len(read(imports).split()), 2, "once by each preloader")

    def test_nothing_is_left_when_guardian_or_agent_is_killed(self):
        for victim in ("guardian", "agent"):
            with self.subTest(victim=victim):
                self.package("heavy", HEAVY)
                imports, flag = os.path.join(self.here, f"imports-{victim}"), os.path.join(self.here, f"flag-{victim}")
                script = self.script("import os, time, heavy\nopen(os.environ['FLAG'] + os.environ['RANK'], 'w').close()\ntime.sleep(600)\n")
                job = self.start(["--num_processes", "2", "--preload", "heavy"], script, env={"IMPORTS": imports, "FLAG": flag})
                until(lambda: all(os.path.exists(flag + rank) for rank in "01"), "the workers")
                preloader = int(read(imports).split()[0])
                os.kill(job.pid if victim == "guardian" else children_of(job.pid)[0], signal.SIGKILL)
                until(lambda: not processes_with(job.token) and state_of(preloader) in (None, "Z"), "the end of all")

    def test_ctrl_c_while_modules_are_imported_ends_the_job_at_once(self):
        self.package("slow", "import os, time\nopen(os.environ['FLAG'], 'w').close()\ntime.sleep(600)\n")
        flag = os.path.join(self.here, "flag")
        job = self.start(["--num_processes", "2", "--preload", "slow"], self.script("print('ran')\n"), env={"FLAG": flag})
        until(lambda: os.path.exists(flag), "the import")
        os.kill(job.pid, signal.SIGINT)
        self.assertEqual(job.wait(), 130, job.stderr)
        self.assertNotIn("ran", job.stdout)
        self.assertFalse(processes_with(job.token))

    def test_several_nodes_restart_warm(self):
        self.package("heavy", HEAVY)
        port, flag = free_port(), os.path.join(self.here, "flag")
        script = self.script(TRAIN)
        token = own_token("warm")
        jobs = [self.start(["--num_processes", "4", "--num_machines", "2", "--machine_rank", str(node), "--main_process_ip", "127.0.0.1",
                            "--main_process_port", str(port), "--max_restarts", "2", "--preload", "heavy"], script,
                           env={"IMPORTS": os.path.join(self.here, f"imports{node}"), "FLAG": flag}, token=token) for node in (0, 1)]
        for job in jobs:
            self.ended(job)
        output = "".join(job.stdout for job in jobs)
        for rank in range(4):
            self.assertIn(f"rank {rank} attempt 1", output)
        for node in (0, 1):
            self.assertEqual(len(read(os.path.join(self.here, f"imports{node}")).split()), 1, "".join(job.stderr for job in jobs))


def start_time(pid):
    """In ticks since the machine's start; None if there is no such process."""
    try:
        return int(read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[19])
    except OSError:
        return None


AHEAD = """
import os, sys, time
import heavy
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
def mark(what, text=""):
    path = os.environ["MARKS"] + "." + what
    with open(path + ".new", "w") as file: file.write(str(text))
    os.rename(path + ".new", path)
mark(f"up.{attempt}.{rank}", os.getpid())
while not os.path.exists(f"{os.environ['MARKS']}.go.{attempt}"): time.sleep(0.01)
sys.exit(5 if attempt < sys.argv[-1] and rank == "0" else 0)
"""


STORE = """
import os, signal, socket, sys, time
import heavy
rank, attempt, marks = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["MARKS"]
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
def mark(what, text):
    with open(f"{marks}.{what}.{attempt}.{rank}.new", "w") as file:
        file.write(text)
    os.rename(file.name, f"{marks}.{what}.{attempt}.{rank}")
if rank == 0:
    time.sleep(0.01)
    store = socket.create_server(at)
else:
    refused = 0
    while True:
        try:
            socket.create_connection(at).close()
            break
        except ConnectionRefusedError:
            refused += 1
            time.sleep(0.001)
    mark("refused", str(refused))
mark("up", str(os.getpid()))
while not os.path.exists(f"{marks}.go.{attempt}"):
    time.sleep(0.01)
if attempt == "0" and rank == 0:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60 if attempt == "0" else 0)
"""


class Ahead(WarmTest):
    """The workers of the next round are forked while the present one runs."""

    def setUp(self):
        super().setUp()
        self.package("heavy", HEAVY)
        self.marks = os.path.join(self.here, "mark")
        self.imports = os.path.join(self.here, "imports")

    def begin(self, workers=2, restarts=2, last=1, flags=()):
        job = self.start(["--num_processes", str(workers), "--max_restarts", str(restarts), "--restart_delay", "0", "--preload", "heavy", *flags],
                         self.script(AHEAD), str(last), env={"MARKS": self.marks, "IMPORTS": self.imports})
        self.up(job, 0, workers)
        return job

    def up(self, job, attempt, workers):
        """Waits for the workers of an attempt. @return their pids"""
        places = [f"{self.marks}.up.{attempt}.{rank}" for rank in range(workers)]
        until(lambda: job.process.poll() is not None or all(os.path.exists(place) and os.path.getsize(place) for place in places), f"attempt {attempt}")
        self.assertIsNone(job.process.poll(), job.stderr)
        return [int(read(place)) for place in places]

    def go(self, attempt):
        write(f"{self.marks}.go.{attempt}", "")

    def preloader(self):
        return int(read(self.imports).split()[-1])

    def waiting(self, workers):
        """@return the maker and its workers, when all of them wait for their orders"""
        def look():
            for maker in children_of(self.preloader()):
                forked = children_of(maker)
                if len(forked) == workers and all(state_of(pid) == "S" for pid in (maker, *forked)):
                    found[:] = [maker, *forked]
                    return True
            return False
        found = []
        until(look, f"{workers} workers that wait")
        return found[0], found[1:]

    def gone(self, pids, what="their end"):
        until(lambda: all(state_of(pid) in (None, "Z", "X") for pid in pids), what)

    def test_a_restart_uses_them(self):
        job = self.begin()
        maker, forked = self.waiting(2)
        born = {pid: start_time(pid) for pid in forked}
        self.assertFalse(set(forked) & set(children_of(job.agent)), "no children of the agent until they are used")
        self.assertEqual({os.getpgid(pid) for pid in forked}, set(forked), "no signal to another's group reaches them")
        self.go(0)
        self.assertEqual(sorted(self.up(job, 1, 2)), sorted(forked))
        self.assertEqual({pid: start_time(pid) for pid in forked}, born, "they were there before the failure")
        self.gone([maker])
        self.assertTrue(set(forked) <= set(children_of(job.agent)))
        self.go(1)
        self.ended(job)
        self.assertEqual(len(read(self.imports).split()), 1)
        self.assertNotIn("ended by acc-launch", job.stderr)

    def test_the_store_of_rank_0_listens_when_the_other_ranks_connect(self):
        """A client of torch's store that is refused once sleeps for a second, which made a warm restart six times as long."""
        for tries in range(10):
            self.marks = os.path.join(self.here, f"mark{tries}")
            job = self.start(["--num_processes", "3", "--max_restarts", "1", "--restart_delay", "0", "--log_level", "info", "--preload", "heavy"], self.script(STORE),
                             env={"MARKS": self.marks, "IMPORTS": self.imports})
            self.up(job, 0, 3)
            self.waiting(3)  # it was seen to listen
            self.go(0)
            self.up(job, 1, 3)
            self.go(1)
            self.ended(job)
            # Rank 0 has 50 ms to listen. On a machine with other work it may need more, and then the others don't wait for it.
            if re.search(r"head_start\b.*store_listens=1", job.stderr):
                self.assertEqual([read(f"{self.marks}.refused.1.{rank}") for rank in (1, 2)], ["0", "0"])
                return
        self.fail(f"rank 0 never listened in its head start:\n{job.stderr}")

    def test_they_know_nothing_of_it(self):
        """As Same, in a round that used workers which were forked ahead, and in one that started cold."""
        whoami = read(os.path.join(HERE, "whoami.py"))
        script = self.script(whoami.replace('if __name__ == "__main__":\n', 'if __name__ == "__main__" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":\n'
            '    import time\n    open(os.environ["MARKS"] + ".up.0." + os.environ["RANK"], "w").write(str(os.getpid()))\n'
            '    while not os.path.exists(os.environ["MARKS"] + ".go.0"): time.sleep(0.01)\n    sys.exit(5) if os.environ["RANK"] == "0" else time.sleep(600)\n'
            'if __name__ == "__main__":\n    facts_pid = os.getpid()\n').replace('"hash":', '"pid": facts_pid, "hash":'))
        answers, forked = {}, []
        for start in ("cold", "warm"):
            path = self.marks = os.path.join(self.here, start)
            preload = ["--preload", "heavy,json,random"] if start == "warm" else []
            job = self.start(["--num_processes", "2", "--max_restarts", "1", "--restart_delay", "0", *preload], script, "--lr", "3e-4", "ü",
                             env={"WHOAMI": path, "MARKS": path, "IMPORTS": self.imports})
            self.up(job, 0, 2)
            if preload:
                _, forked = self.waiting(2)
            self.go(0)
            self.ended(job)
            texts = [read(f"{path}.{rank}").replace(job.folder, "FOLDER").replace(path, "PATH") for rank in (0, 1)]
            answers[start] = [json.loads(text) for text in texts]
        self.assertEqual(sorted(answer["pid"] for answer in answers["warm"]), sorted(forked))
        self.compare(answers)
        first, second = (answer["own"] for answer in answers["warm"])
        for name in first:
            self.assertNotEqual(first[name], second[name], name)

    def test_each_restart_has_a_set_of_its_own(self):
        job = self.begin(restarts=5, last=4)
        def opened():
            """Once both only wait: a set's workers may wait for their orders before the preloader has closed its ends of their sockets."""
            pids = job.agent, self.preloader()
            until(lambda: all(state_of(pid) == "S" for pid in pids), "agent and preloader to wait")
            return [len(os.listdir(f"/proc/{pid}/fd")) for pid in pids]
        used, descriptors = [], None
        for attempt in range(4):
            maker, forked = self.waiting(2)
            self.assertEqual(children_of(self.preloader()), [maker], "the makers before were reaped")
            if attempt == 1:
                descriptors = opened()
            elif attempt > 1:
                until(lambda: all(now <= then for now, then in zip(opened(), descriptors)), lambda: f"as few descriptors as {descriptors}; now {opened()}")
            self.go(attempt)
            self.assertEqual(sorted(self.up(job, attempt + 1, 2)), sorted(forked))
            used += forked
        self.assertEqual(len(set(used)), 8)
        self.go(4)
        self.ended(job)

    def test_none_is_forked_where_no_restart_is_left(self):
        job = self.begin(restarts=1)
        self.waiting(2)
        self.go(0)
        last = self.up(job, 1, 2)
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 2.5 or children_of(self.preloader()), "a time in which others fork")
        self.assertEqual(children_of(self.preloader()), [])
        self.assertFalse([pid for pid in last if state_of(pid) in (None, "Z", "X")], "they run on")
        self.go(1)
        self.ended(job)

    def test_a_round_that_comes_early_uses_those_that_wait_and_forks_the_others(self):
        job = self.begin(workers=6)
        until(lambda: any(children_of(maker) for maker in children_of(self.preloader())), "the first that waits")
        first = [pid for maker in children_of(self.preloader()) for pid in children_of(maker)][:1]
        self.go(0)
        used = self.up(job, 1, 6)
        self.assertTrue(set(first) <= set(used), (first, used))
        self.assertEqual(len(set(used)), 6)
        self.assertTrue(set(used) <= set(children_of(job.agent)))
        self.go(1)
        self.ended(job)
        self.assertNotIn("start cold", job.stderr)

    def test_the_report_counts_from_the_start_of_the_round(self):
        report = os.path.join(self.here, "report")
        job = self.begin(flags=["--report", report])
        _, forked = self.waiting(2)
        tick = os.sysconf("SC_CLK_TCK")
        until(lambda: all(time.clock_gettime(time.CLOCK_BOOTTIME) - start_time(pid) / tick > 0.5 for pid in forked), "half a second of waiting")
        failed = time.monotonic()
        self.go(0)
        self.up(job, 1, 2)
        self.go(1)
        self.ended(job)
        since = time.monotonic() - failed
        workers = json.loads(read(report))["workers"]
        self.assertEqual(sorted(worker["pid"] for worker in workers), sorted(forked))
        for worker in workers:
            self.assertLess(worker["seconds"], since, "its time is that of the round, not of the process")

    def test_one_that_is_killed_ends_the_set_and_another_is_forked(self):
        job = self.begin()
        maker, forked = self.waiting(2)
        os.kill(forked[1], signal.SIGKILL)
        self.gone([maker, *forked])
        _, again = self.waiting(2)
        self.assertFalse(set(again) & set(forked))
        self.go(0)
        self.assertEqual(sorted(self.up(job, 1, 2)), sorted(again))
        self.go(1)
        self.ended(job)
        self.assertNotIn("start cold", job.stderr)

    def test_a_maker_that_is_killed_takes_them_with_it(self):
        job = self.begin()
        maker, forked = self.waiting(2)
        os.kill(maker, signal.SIGKILL)
        self.gone(forked)
        self.go(0)
        self.up(job, 1, 2)
        self.go(1)
        self.ended(job)
        self.assertNotIn("start cold", job.stderr)
        self.assertFalse(job.all_alive())

    def test_a_preloader_that_is_killed_takes_them_with_it_and_its_successor_forks_others(self):
        job = self.begin()
        maker, forked = self.waiting(2)
        first = self.preloader()
        os.kill(first, signal.SIGKILL)
        self.gone([first, maker, *forked])
        until(lambda: len(read(self.imports).split()) == 2, "the second preloader")
        _, again = self.waiting(2)
        self.go(0)
        self.assertEqual(sorted(self.up(job, 1, 2)), sorted(again))
        self.go(1)
        self.ended(job)

    def test_nothing_is_left_when_guardian_or_agent_is_killed_or_the_job_is_stopped(self):
        for victim in ("guardian", "agent", "stop"):
            with self.subTest(victim=victim):
                self.marks, self.imports = (os.path.join(self.here, f"{name}-{victim}") for name in ("mark", "imports"))
                job = self.begin()
                maker, forked = self.waiting(2)
                preloader = self.preloader()
                os.kill(job.agent if victim == "agent" else job.pid, signal.SIGTERM if victim == "stop" else signal.SIGKILL)
                if victim == "stop":
                    job.wait()
                    self.assertFalse(job.all_alive(), "at the moment when acc-launch has ended")
                self.gone([preloader, maker, *forked])
                until(lambda: not job.all_alive(), "the end of all")

    def test_a_job_that_succeeds_ends_those_that_no_round_used(self):
        job = self.begin(last=0)
        maker, forked = self.waiting(2)
        self.go(0)
        self.ended(job)
        self.assertFalse(job.all_alive())
        self.gone([maker, *forked])

# A preloader that reports a worker which doesn't exist: what the agent sees if one is gone before it can be watched.
LIAR = """#!%s
import os, socket, sys
if "-c" not in sys.argv[1:3]:
    os.execv(%r, [%r, *sys.argv[1:]])
control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=3)
for _ in range(2):
    control.recv(1 << 18)
control.send(b"started")
control.send(b"ready" + b"\\0" + b"0.1" + b"\\0" + b"1" + b"\\0" + b"heavy")
kept = []
while True:
    data, fds, _, _ = socket.recv_fds(control, 4096, 8)
    if not data: break
    kept += fds
    word, number = data.split(b"\\0")[:2]
    if word == b"round":
        control.send(b"\\0".join([b"maker", number, b"%%d" %% os.getpid()]))
        control.send(b"\\0".join([b"worker", number, b"0", b"%%d" %% (2 ** 31 - 1)]))
    elif word == b"collect":
        control.send(b"\\0".join([b"made", number, b"0", b"1"]))
"""


class Refused(WarmTest):
    def test_a_worker_that_cannot_be_watched_is_a_failed_start(self):
        wrapper = os.path.join(self.here, "python-liar")
        write(wrapper, LIAR % (sys.executable, sys.executable, sys.executable), 0o755)
        job = self.ended(self.start(["--num_processes", "2", "--max_restarts", "1", "--restart_delay", "0", "--preload", "heavy"], self.script("print('ran')\n"),
                                    env={"PYTHON_EXEC": wrapper}), 126)
        self.assertIn("pidfd_open", job.stderr)
        self.assertNotIn("ran", job.stdout)
        self.assertFalse(job.all_alive())


# The preloader's forks without an agent: "round" and "collect" come over descriptor 3, as from an agent.
SERVE = """
import sys
sys.path.insert(0, sys.argv[1])
import forked_workers
class Imports:
    agent, changes, control = 0, [], forked_workers.Channel(3)
forked_workers.serve(Imports)
"""


class Surplus(unittest.TestCase):
    def test_a_round_with_fewer_workers_than_wait_ends_the_others(self):
        ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(ours.close)
        orders, orders_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asks_end, asks = os.pipe()
        gate_end, gate = os.pipe()
        plan = os.memfd_create("environment")
        os.write(plan, b"RANK=0\0")
        room = os.path.join(HERE, "../../agent/preload")
        process = subprocess.Popen([sys.executable, "-B", "-c", SERVE, room], preexec_fn=lambda: os.dup2(control.fileno(), 3), pass_fds=[3], close_fds=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = lambda: ours.recv(1000).decode().split("\0")
        socket.send_fds(ours, [b"round\0" b"7\0" b"0"], [orders_end.fileno(), asks_end])
        for end in (control, orders_end):
            end.close()
        os.close(asks_end)
        word, number, maker = said()
        self.assertEqual((word, number), ("maker", "7"))
        os.write(asks, (3).to_bytes(4, sys.byteorder))
        self.assertEqual([said()[:2] for _ in range(3)], [["waits", "7"]] * 3)
        forked = children_of(int(maker))
        self.assertEqual(len(forked), 3)
        os.write(asks, (2 | 1 << 31).to_bytes(4, sys.byteorder))
        for rank in (b"0", b"1"):
            socket.send_fds(orders, [b"\0".join([b"worker", rank, b"0", b"7", b"", b"0"])], [gate_end, plan, 0, 1, 2])
        used = []
        for _ in range(2):
            word, number, rank, pid = said()
            self.assertEqual((word, number), ("worker", "7"))
            used.append(int(pid))
        self.assertTrue(set(used) < set(forked))
        os.close(asks)
        orders.close()
        ours.send(b"collect\0" b"7")
        self.assertEqual(said()[:3], ["made", "7", "0"])
        until(lambda: all(state_of(pid) in (None, "Z", "X") for pid in set(forked) - set(used)), "the end of the one without an order")
        until(lambda: [state_of(pid) for pid in used] == ["S", "S"], "two that wait at the gate")  # after what they said
        os.close(gate)
        until(lambda: all(state_of(pid) in (None, "Z", "X") for pid in used), "the end of those whose gate didn't open")
        os.close(gate_end)
        os.close(plan)


TEE = '''
import sys
class Tee:
    def __init__(self, stream): self.stream = stream
    def write(self, text): self.stream.write(text)
    def flush(self): self.stream.flush()
'''
# What a module does at import, and the reason that the user reads.
HOSTILE = {
    "threads": ("import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n", "'hostile' started 1 thread"),
    "socket": ("import socket\nkept = socket.socket()\n", "'hostile' opened a socket"),
    "device": ("kept = open('/dev/full', 'wb')\n", "'hostile' opened /dev/full"),
    "handler": ("import signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n", "'hostile' changed a signal handler"),
    "ignores": ("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n", "'hostile' ignores signals"),
    "fork": ("import os\nif os.fork() == 0: os._exit(0)\nos.wait()\n", "'hostile' called os.fork"),
    "child": ("import subprocess\nkept = subprocess.Popen(['sleep', '600'])\n", "'hostile' started a process"),
    "exit": ("import sys\nsys.exit(3)\n", "'hostile' called sys.exit"),
    "crash": ("import os\nos._exit(3)\n", "exited with code 3 while it imported 'hostile'"),
    "kill": ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "was killed by SIGSEGV (11) while it imported 'hostile'"),
    "hang": ("import time\ntime.sleep(600)\n", "the import of 'hostile' was not over after 6 s"),
    "print": ("print('hello')\n", "'hostile' printed 'hello'"),
    "error": ("raise ImportError('broken')\n", "'hostile' can't be imported: ImportError: broken"),
    "rank": ("import os\nrank = os.environ.get('LOCAL_RANK')\n", "'hostile' read LOCAL_RANK, which differs between ranks, at import"),
    "shared": ("import mmap\nkept = mmap.mmap(-1, 4096)\n", "'hostile' mapped"),
    "tracer": ("import sys\nsys.setprofile(lambda *_: None)\n", "'hostile' installed a tracer"),
    "tee": (TEE + "sys.stdout = Tee(sys.stdout)\n", "'hostile' replaced sys.stdout"),
    "tee of errors": (TEE + "sys.stderr = Tee(sys.stderr)\n", "'hostile' replaced sys.stderr"),
    "codec": ("import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)\n", "'hostile' replaced sys.stdout"),
    "binary": ("import os, sys\nsys.stdout = os.fdopen(1, 'wb', 0)\nimport builtins\nprinted = print\n"
               "builtins.print = lambda *words, **_: sys.stdout.write((' '.join(map(str, words)) + '\\n').encode())\n", "'hostile' replaced sys.stdout"),
    "no output": ("import sys\nkept = sys.stdout\nsys.stdout = None\nimport builtins\nprinted = print\n"
                  "builtins.print = lambda *words, **more: printed(*words, file=kept, **more)\n", "'hostile' replaced sys.stdout"),
    "input": ("import io, sys\nsys.stdin = io.StringIO('')\n", "'hostile' replaced sys.stdin"),
    "detached": ("import sys\nsys.stdin.detach()\n", "'hostile' closed or detached sys.stdin"),
    "environment": ("import os\nos.environ = dict(os.environ)\n", "'hostile' replaced os.environ"),
}


class Hostile(WarmTest):
    def test_threads_of_openmp_had_places_among_the_cores_of_all_workers(self):
        """libgomp takes them as it is loaded: in the preloader, which is bound to no worker's cores."""
        siblings = {read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in os.sched_getaffinity(0)}
        if len(siblings) < 2:
            self.skipTest("one core only: nothing to share out")
        self.package("heavy", "import os\npid = os.getpid()\n")
        script = self.script("import heavy, os\nprint('warm' if heavy.pid != os.getpid() else 'cold', flush=True)\n")
        binding = "--numa_binding exclusive"
        for flags, environment, cause in ((binding, {"OMP_PROC_BIND": "true"}, "OMP_PROC_BIND"), (binding, {"OMP_PLACES": "cores"}, "OMP_PLACES"),
                                          (binding, {"GOMP_CPU_AFFINITY": "0-1"}, "GOMP_CPU_AFFINITY"), (binding, {"OMP_PROC_BIND": "False"}, None),
                                          (binding, {}, None), ("", {"OMP_PLACES": "cores"}, None)):
            with self.subTest(flags=flags, environment=environment):
                job = self.ended(self.start(f"--num_processes 2 --preload heavy {flags}".split(), script, env=environment))
                self.assertEqual(job.stdout.split(), ["cold" if cause else "warm"] * 2)
                told = f"--preload: {cause} is set, by which OpenMP takes cores while it is loaded, and each worker is bound to its own: the workers start cold"
                if cause:
                    self.assertIn(told, job.stderr)
                else:
                    self.assertNotIn("--preload:", job.stderr)

    def test_each_ends_in_a_cold_start_with_its_reason(self):
        for name, (text, reason) in HOSTILE.items():
            with self.subTest(module=name):
                self.package("hostile", text)
                timeout = ["--preload_timeout", "6"] if name == "hang" else []
                job = self.ended(self.start(["--num_processes", "2", "--preload", "hostile", *timeout],
                                            self.script("import os\nprint('ran', os.environ['RANK'], flush=True)\n")))
                self.assertIn(reason, job.stderr)
                self.assertEqual(job.stderr.count("start cold"), 1, job.stderr)
                for rank in (0, 1):
                    self.assertIn(f"ran {rank}", job.stdout)
                self.assertFalse(processes_with(job.token))

    def test_threads_that_their_library_ends_before_a_fork_are_no_reason(self):
        """As OpenBLAS does by pthread_atfork."""
        self.package("polite", """
import os, threading
stop = threading.Event()
thread = threading.Thread(target=stop.wait)
thread.start()
def end():
    stop.set()
    thread.join()
os.register_at_fork(before=end)
""")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "polite"], self.script("print('ran')\n")))
        self.assertIn("preloaded polite", job.stderr)
        self.assertNotIn("start cold", job.stderr)

    def test_the_module_inside_a_package_that_did_it_is_named(self):
        self.package("culprit", HOSTILE["threads"][0] + "import leaf\n")
        self.package("leaf", "")
        self.package("innocent", "import json, culprit, random\nimport another\n")
        self.package("another", "import wave\n")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "innocent"], self.script("print('ran')\n")))
        self.assertIn("'culprit' started 1 thread", job.stderr)

    def test_the_module_inside_a_package_that_replaced_stdout_is_named(self):
        self.package("culprit", TEE + "sys.stdout = Tee(sys.stdout)\n")
        self.package("innocent", "import json, culprit, random\n")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "innocent"], self.script("print('ran')\n")))
        self.assertIn("'culprit' replaced sys.stdout", job.stderr)

    def test_a_module_that_silences_another_ones_import_is_no_reason_and_not_named(self):
        self.package("silent", "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()): import loud\n")
        self.package("loud", "print('hello')\n")
        self.package("culprit", HOSTILE["threads"][0])
        job = self.ended(self.start(["--num_processes", "2", "--preload", "silent"], self.script("print('ran')\n")))
        self.assertIn("preloaded silent", job.stderr)
        self.package("both", "import silent, culprit\n")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "both"], self.script("print('ran')\n")))
        self.assertIn("'culprit' started 1 thread", job.stderr)

    def test_a_site_that_replaces_stdout_in_each_interpreter_killed_the_workers(self):
        self.package("sitecustomize", TEE + "sys.stdout = Tee(sys.stdout)\n")
        self.package("heavy", "")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "heavy"], self.script("print('ran', flush=True)\n")))
        self.assertIn("sys.stdout isn't the interpreter's own at its start: the workers start cold", job.stderr)
        self.assertEqual(job.stdout.count("ran"), 2)

    def test_an_error_of_ours_in_a_forked_worker_looked_as_one_of_the_script(self):
        self.package("hostile", "import sys, types\nsys.modules['numpy.random'] = types.ModuleType('numpy.random')\n")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "hostile"], self.script("print('ran', flush=True)\n")))
        self.assertIn("the workers could not be forked: local rank", job.stderr)
        self.assertIn("AttributeError: module 'numpy.random' has no attribute 'seed'", job.stderr)
        self.assertIn("in this round they start cold", job.stderr)
        self.assertEqual(job.stdout.count("ran"), 2)

    def test_an_error_of_ours_in_the_preloader_ran_the_script_in_it(self):
        self.package("hostile", "import os\nos.listdir = None\n")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "hostile"], self.script("print('ran', flush=True)\n")))
        self.assertIn("the preloader failed: TypeError: 'NoneType' object is not callable: the workers start cold", job.stderr)
        self.assertEqual(job.stdout.count("ran"), 2)

    def test_an_interpreter_that_ignores_the_environment_is_found_out_before_the_script_runs(self):
        self.package("heavy", HEAVY)
        wrapper = os.path.join(self.here, "isolated-python")
        write(wrapper, f'#!/bin/sh\nexec {sys.executable} -I "$@"\n', 0o755)
        job = self.ended(self.start(["--num_processes", "2", "--preload", "heavy"], self.script("import os\nprint('ran', os.environ['RANK'])\n"),
                                    env={"PYTHON_EXEC": wrapper}))
        self.assertIn("the interpreter ignores PYTHONPATH", job.stderr)
        self.assertEqual(job.stdout.count("ran"), 2, "no run but those of the ranks")

    def test_a_wrapper_that_starts_python_is_fine(self):
        self.package("heavy", HEAVY)
        wrapper = os.path.join(self.here, "python-wrapper")
        write(wrapper, f'#!/bin/sh\nexec {sys.executable} "$@"\n', 0o755)
        imports = os.path.join(self.here, "imports")
        job = self.ended(self.start(["--num_processes", "2", "--preload", "heavy"], self.script("import heavy\n"),
                                    env={"PYTHON_EXEC": wrapper, "IMPORTS": imports}))
        self.assertIn("preloaded heavy", job.stderr)
        self.assertEqual(len(read(imports).split()), 1)

    def test_what_is_not_python_is_refused(self):
        job = self.job(["--num_processes", "2", "--preload", "torch"], "exit=0")
        self.assertEqual(job.wait(), 2, job.stderr)
        self.assertIn("isn't started by Python", job.stderr)
        job = self.start(["--num_processes", "2", "--preload", "torch;numpy"], self.script(""))
        self.assertEqual(job.wait(), 2, job.stderr)
        self.assertIn("'torch;numpy' is no name of a Python module", job.stderr)


TRAINING = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
import torch.multiprocessing as multiprocessing

def child(index, queue):
    queue.put(index + 10)

@record
def main():
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.randn(64, 8, generator=torch.Generator().manual_seed(rank))
    for step, (batch,) in enumerate(DataLoader(TensorDataset(data), batch_size=16, num_workers=2)):
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        print("loss", rank, attempt, step, loss.item().hex(), flush=True)
    queue = multiprocessing.get_context("spawn").SimpleQueue()
    process = multiprocessing.get_context("spawn").Process(target=child, args=(rank, queue))
    process.start(); print("child", rank, attempt, queue.get(), flush=True); process.join()
    if attempt == "0" and rank == 1:
        raise ValueError("as planned")
    dist.barrier()

if __name__ == "__main__":
    main()
"""


@unittest.skipUnless(TORCH, "no Python here has torch")
class Torch(WarmTest):
    def test_a_training_is_bit_equal_cold_and_warm_and_over_a_restart(self):
        lines = {}
        for start in ("cold", "warm"):
            preload = ["--preload", "auto"] if start == "warm" else []
            job = self.start(["--num_processes", "2", "--max_restarts", "1", *preload], self.script(TRAINING), env={"PYTHON_EXEC": TORCH, "PYTHONPATH": ""})
            self.assertEqual(job.wait(240), 0, job.stderr)
            self.assertEqual("preloaded torch" in job.stderr, start == "warm", job.stderr)
            self.assertIn("ValueError: as planned", job.stderr, "as @record wrote it down")
            lines[start] = sorted(line for line in job.stdout.splitlines() if line.startswith(("loss", "child")))
            # Rank 0 of the first round may have been stopped before the lines that follow its last step.
            lines[start] = [line for line in lines[start] if not line.startswith(("loss 0 0 3", "child 0 0"))]
            self.assertEqual(len(lines[start]), 2 * 2 * 5 - 2, job.stdout)
        self.assertEqual(lines["cold"], lines["warm"])

    def seeds(self, *words):
        """Of two ranks in two attempts: {(rank, attempt): [seed, a number, an order of a shuffling DataLoader]}."""
        script = self.script("import json, os, time, torch\nfrom torch.utils.data import DataLoader\n"
                             "who = [os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']]\n"
                             "order = [int(x) for x in DataLoader(range(50), shuffle=True)]\n"
                             "print(json.dumps([who, [torch.initial_seed(), float(torch.rand(1)), order]]), flush=True)\n"
                             "open(os.environ['FAKE_EVENTS'] + '.'.join(who), 'w').close()\n"
                             "while not all(os.path.exists(os.environ['FAKE_EVENTS'] + rank + '.' + who[1]) for rank in '01'): time.sleep(0.01)\n"
                             "if who == ['1', '0']: raise SystemExit(1)\n")
        job = self.start(["--num_processes", "2", "--max_restarts", "1", *words], script, env={"PYTHON_EXEC": TORCH})
        self.assertEqual(job.wait(240), 0, job.stderr)
        self.assertEqual("preloaded" in job.stderr, bool(words), job.stderr)
        found = {tuple(who): numbers for who, numbers in map(json.loads, job.stdout.splitlines())}
        self.assertEqual(len(found), 4, job.stdout)
        return found

    def test_each_rank_and_attempt_has_random_numbers_of_torch_of_its_own(self):
        """Warm, all had one seed, and so the same dropout and the same order of the data."""
        for words in ([], ["--preload", "torch"], ["--preload", "numpy,torch"]):
            found = self.seeds(*words)
            for n in range(3):
                self.assertEqual(len({json.dumps(numbers[n]) for numbers in found.values()}), 4, found)

    def test_a_module_that_seeds_torch_at_its_import_seeds_all_ranks(self):
        write(os.path.join(self.packages, "seeds_torch.py"), "import torch\ntorch.manual_seed(11)\n")
        found = self.seeds("--preload", "seeds_torch")
        self.assertEqual({numbers[0] for numbers in found.values()}, {11})


if __name__ == "__main__":
    main()
