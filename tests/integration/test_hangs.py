"""Workers that make no progress: found by their heartbeats, the one that the others wait for is named with its stack, all restart."""
import contextlib, glob, json, os, pickle, re, shutil, signal, subprocess, tempfile, threading, time, unittest

from harness import BIN, PROGRAMS, SANITIZED, SLACK, JobTest, children_of, context_switches, free_port, is_root, main, own_token, read, state_of, until, write
from stuck_folder import StuckFolder, mount_answering
from test_control import ask_at
from test_torch import PYTHON as TORCH_PYTHON

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = shutil.copy(os.path.join(BIN, "heartbeat_worker"), PROGRAMS.name)
SCRIPT = os.path.join(HERE, "hang_worker.py")
MODULE = os.path.join(HERE, "../../runtime/python")
HANG = 124
COMPILER = shutil.which("cc") or shutil.which("gcc")
GDB = shutil.which("gdb") or shutil.which("eu-stack")


# Ranks that wait for each other in each step, in code of their own; those of FINISHED have no more data after step 20.
UNEVEN = """import os, sys, time
sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
folder = os.path.dirname(__file__)
def wait_for_all(step):
    open(f"{folder}/{step}-{rank}", "w").close()
    while not all(os.path.exists(f"{folder}/{step}-{one}") for one in range(size)): time.sleep(0.01)
for step in range(100000):
    if step == 20 and str(rank) in os.environ["FINISHED"]: break
    wait_for_all(step)
    acc_heartbeat.heartbeat(step)
    time.sleep(0.02)
"""


# Of three ranks two wait for rank 1, and none does anything.
STALL = """import os, sys, time
sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat
acc_heartbeat.heartbeat(0)
def MPI_Barrier(): time.sleep(1e6)
def load(): time.sleep(1e6)
load() if os.environ["RANK"] == "1" else MPI_Barrier()
"""


class HangTest(JobTest):
    def run_job(self, workers, words, code, flags="", program=None, timeout="4", env=None, deadline=90, interpreter="--no_python"):
        """`timeout`: longer than a busy machine holds up a rank that is well, or it is named."""
        job = self.job(f"--num_processes {workers} --hang_timeout {timeout} --first_step_timeout 60 --grace 2 --log_dir logs "
                       f"--report report.json {interpreter} {flags}", words, program=program or [WORKER], env=env)
        self.assertEqual(job.wait(deadline), code, job.stderr)
        self.assert_nothing_left(job)
        return job

    def run_python(self, workers, words, code, python="python3", **options):
        return self.run_job(workers, words, code, program=[shutil.which(python), SCRIPT], env={"ACC_HEARTBEAT_FOLDER": MODULE}, **options)

    def assert_culprit(self, job, rank, stack, words=""):
        report = self.report(job)
        failure = report["first_failure"]
        self.assertEqual(failure["rank"], rank, job.stderr)
        self.assertIn("hung", failure["cause"])
        self.assertIn(words, failure["cause"])
        self.assertIn(f"job failed: rank {rank} hung", job.stderr)
        text = read(failure["stacks"])
        self.assertTrue(failure["stacks"].startswith(os.path.join(job.folder, "logs")), failure["stacks"])
        self.assertIn(f"behind the others: rank {rank}", text)
        if stack:
            self.assertIn(stack, text)
            self.assertIn(stack, failure["cause"])
        return text


class OfTheRuntime(HangTest):
    """Ranks that meet in our all_reduce: the others wait there for the one that hangs."""

    @unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "needs a file system of our own")
    def test_a_hang_was_not_ended_while_the_server_of_its_log_files_was_away(self):
        folder = tempfile.mkdtemp(prefix="acc-away-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.addCleanup(mount_answering(folder + "/served"))
        job = self.job(f"--num_processes 1 --hang_timeout 4 --grace 2 --redirects 3 --log_dir {folder}/served --report report.json --no_python",
                       "1000000 5 spin=0@20", program=[WORKER])
        until(lambda: glob.glob(folder + "/served/*/attempt_0/0"), "the folder of its log files")
        until(job.alive, "the worker")
        stuck = StuckFolder(folder + "/served")
        self.addCleanup(stuck.give_up)
        until(lambda: "job failed: rank 0 hung" in job.stderr, "the end of the hang", 40)
        stuck.give_up()  # until then no process ends that has a thread there
        self.assertEqual(job.wait(20), HANG, job.stderr)
        self.assertIn("spin_for_ever" if GDB else "stacks of node", read(self.report(job)["first_failure"]["stacks"]))

    def test_one_that_spins_is_named_and_not_its_victims(self):
        job = self.run_job(3, "1000000 5 spin=1@20", HANG)
        text = self.assert_culprit(job, 1, GDB and "spin_for_ever", "hasn't entered all_reduce #21, in which ranks 0,2 wait")
        self.assertIn("---- 1 rank: 1 ----", text)

    def test_one_that_never_enters_the_collective_is_named(self):
        job = self.run_job(2, "1000000 5 skip=0@20", HANG)
        self.assert_culprit(job, 0, GDB and "forget_the_collective", "rank 1 waits")

    def test_where_only_rank_0_sends_heartbeats_it_was_named_instead_of_the_one_for_which_it_waited(self):
        job = self.run_job(3, "1000000 5 sleep=1@20 only=0@0", HANG)
        self.assert_culprit(job, 1, GDB and "sleep_for_ever", "hung: no heartbeat in this attempt")
        self.assertIn("; it hasn't entered all_reduce #21, in which ranks 0,2 wait; rank 2 sent no heartbeat in this attempt", job.stderr)

    def test_one_that_is_stopped_is_named(self):
        job = self.run_job(3, "1000000 5 stop=2@20", HANG)
        text = self.assert_culprit(job, 2, None, "it was stopped by a signal (state T)")
        self.assertIn("state T (stopped)", text)

    def test_a_restart_follows_and_the_report_tells_what_was_lost(self):
        job = self.run_job(2, "30 5 spin=1@20", 0, flags="--max_restarts 1")
        self.assertIn("restarting all workers", job.stderr)
        self.assertRegex(job.stderr, r"rank 1 \(pid \d+\) hung: no heartbeat")
        goodput = self.report(job)["goodput"]
        self.assertLess(goodput["share"], 1)
        self.assertGreater(goodput["seconds_lost_work"], 1)

    def test_it_is_told_within_a_second_of_the_timeout(self):
        job = self.job("--num_processes 2 --hang_timeout 2 --first_step_timeout 60 --grace 1 --no_python", "1000000 5 sleep=1@20", program=[WORKER])
        told = until(lambda: re.search(r"sent no heartbeat for ([\d.]+) s", job.stderr), "the message", 30)
        # A look a second, and four seconds for an agent that the machine holds up.
        self.assertLessEqual(float(told[1]), (2 + 1 + 4) * SLACK)
        self.assertEqual(job.wait(60), HANG, job.stderr)


class Sections(HangTest):
    def test_no_heartbeat_is_due_in_a_section(self):
        job = self.run_job(1, "30 5 long=0@10", 0, timeout="2")  # the section takes 3 s, and looks are a second apart
        self.assertNotIn("hung", job.stderr)

    def test_a_section_that_takes_longer_than_its_limit_hangs(self):
        job = self.run_job(1, "1000000 5 section=0@10", HANG, timeout="1h")
        self.assertIn("hung in section 'a short one', which may take 1 s", job.stderr)

    def test_of_python(self):
        job = self.run_python(1, "1000000 5 section=0@10", HANG, timeout="1h")
        self.assertIn("hung in section 'evaluation', which may take 1 s", job.stderr)


class OneSaves(HangTest):
    """Ranks that meet in our all_reduce; one of them is in a section, or tries again and again, while the others wait there for it."""

    def test_a_healthy_job_was_ended_as_one_rank_saved(self):
        job = self.run_job(3, "30 5 save=1@10", 0)
        self.assertNotIn("hung", job.stderr)
        self.assertNotIn("sent no heartbeat", job.stderr)

    def test_those_that_waited_were_named_and_not_the_one_that_hung_in_its_section(self):
        job = self.run_job(3, "1000000 5 section=1@10", HANG)
        self.assert_culprit(job, 1, None, "in section 'a short one', which may take 1 s")

    def test_one_that_hangs_in_a_section_without_a_timeout_is_told(self):
        job = self.job("--num_processes 3 --hang_timeout 4 --first_step_timeout 60 --grace 1 --no_python", "1000000 5 free=1@10", program=[WORKER])
        # Said once, of those that are silent at that look: one of the two may have been a moment later.
        said = r"rank(s 0,2| 0| 2) sent no heartbeat for \S+ \w+, but rank 1 is in section 'checkpoint', which has no time-out: no rank counts as hung until it ends"
        until(lambda: re.search(said, job.stderr), lambda: f"the warning; stderr:\n{job.stderr}", 60)

    def test_those_that_waited_were_named_and_not_the_one_that_sent_heartbeats_of_one_step(self):
        # Looks are a second apart: of 2 s it would be half by chance.
        job = self.run_job(3, "1000000 5 retry=1@10", HANG, timeout="4")
        self.assert_culprit(job, 1, None, "hung: sends heartbeats, but only of step 10")
        self.assertIn("ranks 0,2 wait for it", job.stderr)


class Python(HangTest):
    def test_one_that_sleeps_is_named_with_its_python_stack(self):
        job = self.run_python(2, "1000000 20 sleep=1@5", HANG)
        report = self.report(job)["first_failure"]
        self.assertEqual(report["rank"], 1)
        self.assertIn("at sleep_for_ever (", report["cause"])
        self.assertIn("hang_worker.py:", read(report["stacks"]))


    def run_script(self, script, code, workers=2, flags="", env=None):
        begin = ("import os, subprocess, sys, threading, time\nsys.path.insert(0, os.environ['ACC_HEARTBEAT_FOLDER'])\nimport acc_heartbeat\n"
                 "rank = int(os.environ['RANK'])\n")
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-")), "train.py")
        write(path, begin + script)
        return self.run_job(workers, "", code, program=[shutil.which("python3"), path], env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE), **(env or {})}, flags=flags)

    def run_alone(self, script):
        """Without acc-launch, and without a complaint."""
        begin = "import sys, time; sys.path.insert(0, sys.argv[1]); import acc_heartbeat\n"
        done = subprocess.run(["python3", "-c", begin + script, MODULE], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_rank_that_may_wait_for_its_gpu_was_named_where_no_native_stack_can_be_read(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-gpu-"))
        write(folder + "/eu-stack", "#!/bin/sh\nexit 1\n", 0o755)
        job = self.run_script(f"""import mmap
def item(): time.sleep(1e6)
def MPI_Barrier(): time.sleep(1e6)
def load(): time.sleep(1e6)
if rank == 0:
    with open("{folder}/libcuda.so.1", "w+b") as f:
        f.write(b"x" * 4096)
        f.flush()
        driver = mmap.mmap(f.fileno(), 4096)
for step in range(3): acc_heartbeat.heartbeat(step)
(item, MPI_Barrier, load)[rank]()
""", HANG, 3, env={"PATH": f"{folder}:{os.environ['PATH']}"})
        failure = self.report(job)["first_failure"]
        self.assertEqual(failure["rank"], 2, job.stderr)
        self.assertIn("; ranks 0,1 wait for it", failure["cause"])

    def test_one_that_had_finished_was_told_nowhere_but_those_that_waited_for_it(self):
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-")), "train.py")
        write(path, UNEVEN)
        job = self.run_job(3, "", HANG, program=[shutil.which("python3"), path], flags="--events events",
                           env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE), "FINISHED": "1"})
        said = r"hung: may wait for rank 1, which had finished \(exit code 0\) \S+ s before: no heartbeat for \S+ s after step 19, at .*; likewise rank 2"
        self.assertRegex(job.stderr, rf"rank 0 \(pid \d+\) {said}, ")
        self.assertRegex(self.report(job)["first_failure"]["cause"], f"^{said}$")
        failure = next(e for e in map(json.loads, read(os.path.join(job.folder, "events")).splitlines()) if e["event"] == "failure")
        self.assertRegex(failure["cause"], f"^{said}$")
        self.assertRegex(read(failure["stacks"]), r"\nrank 1 had finished \(exit code 0\) \S+ s before\n")

    @unittest.skipUnless(COMPILER and GDB, "needs a C compiler, and gdb or eu-stack")
    def test_one_that_an_exception_ended_and_a_destructor_held_was_like_the_one_that_waited_for_it(self):
        library = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-")), "stay.so")
        source = "#include <unistd.h>\n__attribute__((destructor)) static void stay_here(void) { for (;;) pause(); }"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        job = self.run_script("""
def MPI_Barrier(): time.sleep(1e6)
acc_heartbeat.heartbeat(0)
if rank == 1:
    import ctypes
    ctypes.CDLL(os.environ["LIBRARY"])
    raise KeyError("no such sample")
MPI_Barrier()
""", HANG, env={"LIBRARY": library})
        self.assert_culprit(job, 1, "stay_here", "rank 0 waits for it")
        self.assertIn("KeyError", job.stderr.partition("job failed")[2])

    def test_heartbeats_of_what_a_rank_forked_hid_its_hang(self):
        job = self.run_script("""
def stuck_here(): time.sleep(1e6)
for step in range(100000):
    acc_heartbeat.heartbeat(step)
    if rank == 1 and step == 3 and os.fork() == 0:
        while True:
            acc_heartbeat.heartbeat(step)
            with acc_heartbeat.section("load"): time.sleep(0.05)
    if rank == 1 and step == 20: stuck_here()
    time.sleep(0.02)
""", HANG)
        self.assert_culprit(job, 1, "stuck_here", "after step 20")

    def test_the_process_that_a_rank_waits_for_was_not_in_the_stacks(self):
        job = self.run_script("""
for step in range(100000):
    acc_heartbeat.heartbeat(step)
    if rank == 1 and step == 20: subprocess.run(["sh", "-c", "sleep 1000; true"])
    time.sleep(0.02)
""", HANG)
        stacks = self.assert_culprit(job, 1, None, "after step 20")
        child = re.search(r"^    its child: pid (\d+) \(sh\), state S", stacks, re.M)
        self.assertTrue(child, stacks)
        self.assertRegex(stacks, rf"(?m)^    child of {child[1]}: pid \d+ \(sleep\), state S")

    def test_the_stack_of_a_helper_was_shown_for_its_ranks(self):
        job = self.run_script("""
def stuck_here(): time.sleep(1e6)
for step in range(100000):
    acc_heartbeat.heartbeat(step)
    if rank == 1 and step == 3:
        helper = "import acc_heartbeat, time; print('ready', flush=True); acc_heartbeat.heartbeat(9); time.sleep(1e6)"
        subprocess.Popen([sys.executable, "-c", helper], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": sys.path[0]}).stdout.readline()
    if rank == 1 and step == 20: stuck_here()
    time.sleep(0.02)
""", HANG)
        self.assert_culprit(job, 1, "stuck_here", "after step 20")

    def test_where_the_training_runs_in_a_thread_the_thread_is_judged(self):
        job = self.run_script("""
def never_comes(): time.sleep(1e6)
def all_reduce(): time.sleep(1e6)
def train():
    for step in range(9):
        acc_heartbeat.heartbeat(step)
        time.sleep(0.02)
    never_comes() if rank == 1 else all_reduce()
thread = threading.Thread(target=train)
thread.start()
thread.join()
""", HANG, workers=3)
        self.assert_culprit(job, 1, "never_comes")

    def test_of_more_than_a_hundred_threads_a_helper_was_named_as_the_place(self):
        """Where py-spy is installed and may not read them, the stacks that faulthandler wrote stay."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-"))
        write(folder + "/py-spy", "#!/bin/sh\necho Permission denied >&2; exit 1\n", 0o755)
        job = self.run_script("""
def helper(): time.sleep(1e6)
for i in range(105): threading.Thread(target=helper, daemon=True).start()
for step in range(9):
    acc_heartbeat.heartbeat(step)
    time.sleep(0.02)
time.sleep(1e6)
""", HANG, env={"PATH": f"{folder}:{os.environ['PATH']}"})
        failure = self.report(job)["first_failure"]
        self.assertRegex(read(failure["stacks"]), r"  helper  \S+train.py:6")
        self.assertNotIn("helper", failure["cause"])
        self.assertIn("main thread: not among those that faulthandler wrote", read(failure["stacks"]))

    def test_work_of_a_child_that_a_thread_had_started_was_no_work(self):
        """--stall_action restart ended the job."""
        script = "import time; end = time.time() + 8\nwhile time.time() < end: pass"
        job = self.job("--num_processes 1 --stall_timeout 4 --stall_action restart --no_python", "", program=[
            shutil.which("python3"), "-c", "import subprocess, sys, threading\n"
            f"thread = threading.Thread(target=subprocess.run, args=([sys.executable, '-c', {script!r}],)); thread.start(); thread.join()"])
        self.assertEqual(job.wait(60), 0, job.stderr)
        self.assertNotIn("hung", job.stderr)

    def test_a_step_that_is_no_number_of_the_page_ended_the_training(self):
        self.run_script("for step in (0, True, 2**64): acc_heartbeat.heartbeat(step); acc_heartbeat.checkpoint(step)\n", 0)

    def test_a_negative_step_or_a_fraction_of_one_was_taken_for_another_without_a_word(self):
        self.run_script("""
class Scalar:  # of NumPy or torch
    def __index__(self): return 5
class Text(str):
    def __float__(self): return 4.0
said = []
for report in (acc_heartbeat.heartbeat, acc_heartbeat.checkpoint):
    report(Scalar())
    for step in (-1, 3.7, float("nan"), float("inf"), -1.0, "4", Text("4"), None):
        try: report(step)
        except (TypeError, ValueError) as error: said.append(f"{type(error).__name__}: {error}")
assert said[:8] == said[8:] == ["ValueError: a step is 0 or above, not -1"] + [f"TypeError: a step is a whole number, not {no}" for no in ("3.7", "nan", "inf")] + [
    "ValueError: a step is 0 or above, not -1"] + [f"TypeError: a step is a whole number, not {no}" for no in ("'4'", "'4'", "None")], said
beats, _, last = acc_heartbeat.struct.unpack_from("QQQ", acc_heartbeat._page, acc_heartbeat._at)
assert (beats, last) == (1, 5), (beats, last)  # those refused left nothing in the page
""", 0)

    def test_a_whole_step_that_was_computed_as_a_float_ended_the_training(self):
        """What worked before: 3.0, numpy.float64(3), torch.tensor(3.)."""
        self.run_script("""
class Scalar:  # of torch: a tensor of floats refuses to be an index
    def __index__(self): raise TypeError("only integer tensors of a single element can be converted to an index")
    def __float__(self): return 7.0
class Floating(float): pass  # of NumPy
for step, seen in ((3.0, 3), (Floating(4), 4), (Scalar(), 7), (-0.0, 0), (1e30, 2**64 - 1)):
    acc_heartbeat.heartbeat(step); acc_heartbeat.checkpoint(step)
    assert acc_heartbeat.struct.unpack_from("QQQ", acc_heartbeat._page, acc_heartbeat._at)[2] == seen, step
""", 0)

    def test_a_section_without_an_end_ended_the_training(self):
        """OverflowError, also without acc-launch; a huge limit left the section in the page half changed, and open for good."""
        script = ("import math\nfor step in range(4): acc_heartbeat.heartbeat(step)\n"
                  "for limit in (math.inf, 1e30, 2**63 - 1, 2**64, 1e18, -math.inf, math.nan, 0, None):\n"
                  "    with acc_heartbeat.section('evaluation', timeout=limit): time.sleep(0.3)\n"
                  "assert not acc_heartbeat._sections\n")
        self.run_script(script, 0)
        self.run_alone(script)

    def test_a_section_of_no_name_or_limit_is_refused_before_it_begins(self):
        script = """
said = []
for name, limit in ((None, 1), (5, None), ("evaluation", "3"), ("evaluation", [3])):
    try:
        with acc_heartbeat.section(name, timeout=limit): raise SystemExit("it began")
    except TypeError as error: said.append(str(error))
assert said == ["a section's name is text, not None", "a section's name is text, not 5", "timeout is a number of seconds, not '3'", "timeout is a number of seconds, not [3]"], said
assert not acc_heartbeat._sections
with acc_heartbeat.section("later", timeout=5): acc_heartbeat.heartbeat(1)
class Scalar:  # of NumPy or torch
    def __float__(self): return 2.5
with acc_heartbeat.section("\\udc80", timeout=Scalar()): pass
with acc_heartbeat.section("later", timeout=10**400): pass
"""
        self.run_script(script, 0)
        self.run_alone(script)

    def test_a_wrong_step_was_noticed_under_acc_launch_only(self):
        self.run_alone("""
for report in (acc_heartbeat.heartbeat, acc_heartbeat.checkpoint):
    report(3.0)
    for step in (0.37, -1, "12", None):
        try: report(step)
        except (TypeError, ValueError): continue
        raise SystemExit(f"{step!r} was taken")
""")


class SeveralPrograms(HangTest):
    """A worker that is a script around programs: each of them has the page of heartbeats in turn."""
    TRAIN = """import os, signal, sys, time
sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat
rank = os.environ["RANK"]
def train(steps):
    for step in range(steps):
        acc_heartbeat.heartbeat(step)
        time.sleep(0.05)
def stuck_here(): time.sleep(1e6)
"""

    def run_script(self, script, code, *programs):
        """`programs`: what the files 0.py, 1.py … do; the timeout is 4 s."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-"))
        for number, program in enumerate(programs):
            write(os.path.join(folder, f"{number}.py"), self.TRAIN + program)
        return self.run_job(2, "", code, program=["/bin/sh", "-c", script],
                            env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE), "PY": shutil.which("python3"), "F": folder, "CPP": WORKER})

    def test_the_second_one_was_ended_as_hung_while_it_started(self):
        self.run_script("$PY $F/0.py && $PY $F/1.py", 0, "train(60)", "time.sleep(7); train(60)")

    def test_a_healthy_job_was_ended_between_two_of_them(self):
        self.run_script("$PY $F/0.py && sleep 7 && exec $PY $F/0.py", 0, "train(60)")

    def test_one_that_starts_itself_anew_by_exec_was_ended_as_hung(self):
        self.run_script("exec $PY $F/0.py", 0, """
if len(sys.argv) > 1: time.sleep(7)
train(60)
if len(sys.argv) == 1: os.execv(sys.executable, [sys.executable, __file__, "again"])
""")

    def test_of_cpp_a_healthy_job_was_ended_between_two_of_them(self):
        self.run_script("$CPP 60 50 && sleep 7 && $CPP 60 50", 0)

    def test_a_section_that_a_killed_one_left_open_ended_its_successor(self):
        job = self.run_script("$PY $F/0.py; $PY $F/1.py", 0, """
train(60)
with acc_heartbeat.section("checkpoint", timeout=3): os.kill(os.getpid(), signal.SIGKILL)
""", "train(120)")
        self.assertNotIn("collecting stacks", job.stderr)

    def test_one_that_hangs_after_its_start_is_named(self):
        job = self.run_script("$PY $F/0.py && $PY $F/1.py", HANG, "train(60)", """
train(60 if rank == "1" else 1000)
stuck_here()
""")
        self.assert_culprit(job, 1, "stuck_here", "after step 59")

    def test_children_that_a_rank_forks_one_after_the_other_have_the_page_in_turn(self):
        job = self.run_script("$PY $F/0.py", HANG, """
def child(part):
    train(60)
    if part == 1 and rank == "1": stuck_here()
    train(part * 1000)
    os._exit(0)
for part in range(2):
    pid = os.fork()
    if pid == 0: child(part)
    os.waitpid(pid, 0)
""")
        self.assert_culprit(job, 1, "stuck_here", "after step 59")


@unittest.skipUnless(TORCH_PYTHON, "no Python here has torch (Debian: python3-torch)")
class Ddp(HangTest):
    """Three ranks of PyTorch's DDP, one of which hangs; ACC_HANG_REPEATS runs each case so often. Most take torch from the agent, as three
    imports keep two cores busy for seconds."""

    def train(self, words, code, env=None, interpreter="--preload torch"):
        return self.run_job(3, f"{words} ddp", code, program=[SCRIPT], timeout="5", deadline=180, interpreter=interpreter,
                            env={"ACC_HEARTBEAT_FOLDER": MODULE, "PYTHON_EXEC": TORCH_PYTHON, **(env or {})})

    def named(self, fault, stack, words=(), env=None, **options):
        for _ in range(int(os.environ.get("ACC_HANG_REPEATS", "1"))):
            job = self.train(f"1000000 5 {fault}", HANG, env, **options)
            text = self.assert_culprit(job, int(fault[fault.index("=") + 1]), stack, words)
            print(f"{fault}: {self.report(job)['first_failure']['cause']}")
        return text

    def test_one_that_sleeps_in_python_is_named(self):
        for interpreter in ("--preload torch", ""):
            with self.subTest(interpreter=interpreter):
                self.named("sleep=1@20", "sleep_for_ever", "ranks 0,2 wait for it", interpreter=interpreter)

    @unittest.skipUnless(COMPILER and GDB, "needs a C compiler, and gdb or eu-stack")
    def test_one_that_spins_in_c_is_named(self):
        folder = tempfile.mkdtemp(prefix="acc-spin-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        library = os.path.join(folder, "libspin.so")
        source = "volatile unsigned long n; void spin_for_ever(void) { for (;;) ++n; }"
        subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", library], input=source, text=True, check=True)
        text = self.named("spin=2@20", "spin_in_c", "ranks 0,1 wait for it", {"SPIN_LIBRARY": library})
        self.assertIn("spin_for_ever", text)  # the native stack

    def test_a_healthy_job_was_ended_as_one_rank_saved(self):
        self.assertNotIn("hung", self.train("30 5 save=1@20", 0).stderr)

    def test_one_that_hangs_in_its_section_is_named(self):
        self.named("section=1@20", "sleep_for_ever", "hung in section 'evaluation', which may take 1 s")

    def test_one_that_sends_heartbeats_of_one_step_is_named(self):
        self.named("retry=1@20", None, "hung: sends heartbeats, but only of step 20")

    def test_one_that_sends_heartbeats_inside_the_step_at_whose_end_the_others_send_theirs_was_not_named(self):
        self.named("retry=1@20", "try_again", "hung: sends heartbeats, but only of step 20", {"HEARTBEAT_AT_END": "1"})

    def test_one_that_is_stopped_is_named(self):
        text = self.named("stop=0@20", None, "it was stopped by a signal (state T)")
        self.assertNotIn("at PyObject_", text.partition("\n----")[0])
        self.assertIn("state T (stopped)", text)

    def test_one_that_never_enters_the_collective_is_named(self):
        self.named("skip=1@20", "forget_the_collective", "ranks 0,2 wait for it")

    def test_where_only_rank_0_sends_heartbeats_it_was_named_instead_of_the_one_for_which_it_waited(self):
        self.named("sleep=2@20", "sleep_for_ever", "ranks 0,1 wait for it", {"ONLY_RANK": "0"})


@unittest.skipUnless(is_root(), "mounts need root")
class FullDisk(HangTest):
    """A hang's stacks are its only evidence: they are not lost without a word."""

    def hang(self, *others):
        """The folder for temporary files, and `others`, are file systems without a free byte."""
        folder = tempfile.mkdtemp(prefix="acc-test-")
        os.mkdir(f"{folder}/full")
        fill = " && ".join(f"mount -t tmpfs -o size=4k none {at} && {{ head -c 8192 /dev/zero >{at}/fill 2>/dev/null || true; }}"
                           for at in (f"{folder}/full", *others))
        job = self.job("--num_processes 2 --hang_timeout 4 --first_step_timeout 60 --grace 2 --report report.json", "1000000 20 stop=1@20",
                       program=["--no_python", WORKER], env={"TMPDIR": f"{folder}/full"}, wrap=["unshare", "-m", "sh", "-c", f'{fill} && exec "$@"', "sh"],
                       folder=folder)
        self.assertEqual(job.wait(90), 124, job.stderr)
        self.assertIn("No space left on device", job.stderr)
        return job, self.report(job)["first_failure"]["stacks"]

    def test_stacks_that_the_disk_has_no_room_for_lie_in_another_folder(self):
        job, file = self.hang()
        self.assertRegex(job.stderr, rf"stacks of all ranks here: {re.escape(file or '')} \(write '{job.folder}/full/\S+': No space left on device\)")
        self.addCleanup(os.unlink, file)
        self.assertIn("behind the others: rank 1", read(file))

    def test_stacks_that_no_folder_has_room_for_are_on_stderr(self):
        job, file = self.hang("/var/tmp", "/dev/shm")
        self.assertEqual(file, "stderr")
        self.assertIn("the stacks can't be saved", job.stderr)
        self.assertIn("behind the others: rank 1", job.stderr)


class Stacks(HangTest):
    def start(self, workers, words="1000000 20", flags="", program=None, env=None, wrap=()):
        runtime = tempfile.mkdtemp(prefix="acc-runtime-")
        os.chmod(runtime, 0o700)
        self.addCleanup(shutil.rmtree, runtime, ignore_errors=True)
        job = self.job(f"--num_processes {workers} --log_dir logs --no_python {flags}", words, program=program or [WORKER],
                       env={"XDG_RUNTIME_DIR": runtime, **(env or {})}, wrap=wrap)
        folder = os.path.join(runtime, "acc/jobs")
        until(lambda: os.path.isdir(folder) and [n for n in os.listdir(folder) if not n.startswith(".")], "the control socket")
        self.socket = os.path.join(folder, next(n for n in os.listdir(folder) if not n.startswith(".")))
        until(lambda: len(job.alive()) == workers, "the workers")
        self.runtime = runtime
        return job

    def tools(self, script, name="eu-stack"):
        """A folder with a debugger, which gets: -p PID …"""
        folder = tempfile.mkdtemp(prefix="acc-tools-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        with open(os.path.join(folder, name), "w") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        os.chmod(f.name, 0o755)
        return folder

    def with_gdb_alone(self):
        """Options of start(): the only debugger is a gdb, which writes to the file .gdb_ran that it ran."""
        self.gdb_ran = os.path.join(tempfile.mkdtemp(prefix="acc-gdb-"), "ran")
        self.addCleanup(shutil.rmtree, os.path.dirname(self.gdb_ran), ignore_errors=True)
        folder = self.tools(f"echo \"$2\" >>{self.gdb_ran}\necho 'Thread 1 (LWP 1):'\necho '#0  a_frame_of_gdb () at x.c:1'", "gdb")
        hidden = [at for at in ("/usr/local/bin/eu-stack", "/usr/bin/eu-stack", "/bin/eu-stack") if os.access(at, os.X_OK)]
        if hidden and not is_root():
            self.skipTest("eu-stack is installed here, and only root can hide it")
        mounts = "".join(f"mount --bind /dev/null {at} && " for at in sorted({os.path.realpath(at) for at in hidden}))
        return {"env": {"PATH": f"{folder}:/usr/bin:/bin"}, "wrap": ["unshare", "-m", "sh", "-c", f'{mounts}exec "$@"', "sh"] if hidden else ()}

    def test_of_a_healthy_job_where_only_gdb_is_installed_stopped_each_worker_for_seconds(self):
        job = self.start(2, **self.with_gdb_alone())
        reply = ask_at(self.socket, {"do": "stacks"}, timeout=20)
        self.assertFalse(os.path.exists(self.gdb_ran), reply)
        self.assertRegex(reply["text"], r"no native stacks of node \S+: they need eu-stack \(apt-get install elfutils\); gdb would stop each worker for seconds")
        self.assertIsNone(job.process.poll())

    def stacks_of_script(self, script):
        """Of one that makes a file `ready`, and ends when there is one `asked`. Its job, and the text."""
        job = self.start(1, "", program=[shutil.which("python3"), "-c", script], env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE)})
        until(lambda: os.path.exists(os.path.join(job.folder, "ready")), "the worker")
        return job, ask_at(self.socket, {"do": "stacks"}, timeout=20)["text"]

    def let_end(self, job):
        write(os.path.join(job.folder, "asked"), "")
        self.assertEqual(job.wait(60), 0, job.stderr)

    def test_of_a_job_that_waited_for_rank_0s_store_ended_it_with_interrupted_system_call(self):
        """As torch does between two tries to connect: nanosleep, and an error if it returns early."""
        script = ("import ctypes, os, sys; sys.path.insert(0, os.environ['ACC_HEARTBEAT_FOLDER']); import acc_heartbeat; open('ready', 'w').close()\n"
                  "while not os.path.exists('asked'):\n"
                  "    if ctypes.CDLL(None).nanosleep((ctypes.c_long * 2)(5, 0), None): sys.exit(9)")
        job, text = self.stacks_of_script(script)
        self.assertIn("before its first heartbeat no signal asks for its Python stack", text)
        self.let_end(job)

    def test_of_a_program_that_had_closed_their_descriptor_emptied_a_file_of_its_own(self):
        script = ("import os, sys, time; sys.path.insert(0, os.environ['ACC_HEARTBEAT_FOLDER']); import acc_heartbeat\n"
                  "for step in 1, 2: acc_heartbeat.heartbeat(step)\n"
                  "os.closerange(3, 256)\n"
                  "files = [open(f'shard{i}', 'w') for i in range(16)]\n"
                  "for file in files: print('x' * 1000, file=file, flush=True)\n"
                  "open('ready', 'w').close()\n"
                  "while not os.path.exists('asked'): time.sleep(0.05)")
        job, text = self.stacks_of_script(script)
        self.assertIn("its descriptor for Python stacks was closed, and is another file's now", text)
        for number in range(16):
            self.assertEqual(read(os.path.join(job.folder, f"shard{number}")), "x" * 1000 + "\n")
        self.let_end(job)

    def test_of_a_job_that_sigquit_ends_gdb_reads_them(self):
        job = self.start(2, **self.with_gdb_alone())
        os.kill(job.agent, signal.SIGQUIT)
        self.assertEqual(job.wait(60), 128 + signal.SIGQUIT, job.stderr)
        self.assertEqual(len(read(self.gdb_ran).split()), 2, job.stderr)
        text = read(re.search(r"stacks of all ranks here: (\S+)", job.stderr)[1])
        self.assertIn("a_frame_of_gdb", text)
        self.assertNotIn("elfutils", text)

    def test_of_a_healthy_job_change_nothing(self):
        job = self.start(2, "1000 20")  # they live for 20 s
        until(lambda: any(w["step"] for w in ask_at(self.socket, {"do": "status"})["workers"]), "a step")
        reply = ask_at(self.socket, {"do": "stacks"}, timeout=20)
        self.assertTrue(reply.get("ok"), reply)
        self.assertEqual(read(reply["file"]), reply["text"])
        for rank in (0, 1):
            self.assertRegex(reply["text"], rf"rank {rank}  pid \d+ \(heartbeat_worke")
        self.assertEqual(job.wait(60), 0, job.stderr)

    def test_ranks_that_a_debugger_left_stopped_go_on(self):
        """Its collecting process is killed in the middle; a rank that was stopped before stays so."""
        tools = self.tools('kill -STOP "$2"; exec sleep 60')
        job = self.start(2, "hold", program=[os.path.join(PROGRAMS.name, "fake_worker")], env={"PATH": f"{tools}:{os.environ['PATH']}"})
        runs, stopped = job.alive()
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: state_of(stopped) == "T", "the stop")
        replies = []
        asks = threading.Thread(target=lambda: replies.append(ask_at(self.socket, {"do": "stacks"}, timeout=30)))
        asks.start()
        until(lambda: state_of(runs) == "T", "the debugger")
        collector = next(pid for pid in children_of(job.agent) if "--collect_evidence" in read(f"/proc/{pid}/cmdline"))
        os.kill(collector, signal.SIGKILL)
        asks.join(60)
        self.assertFalse(replies[0].get("ok"), replies)
        until(lambda: state_of(runs) != "T", "rank 0 to go on")
        self.assertEqual(state_of(stopped), "T")
        os.kill(stopped, signal.SIGCONT)

    def test_ranks_that_a_debugger_holds_are_neither_silent_nor_slow(self):
        tools = self.tools('kill -STOP "$2"; sleep 6; kill -CONT "$2"')
        job = self.start(2, "1000 20", flags="--hang_timeout 4 --first_step_timeout 60", env={"PATH": f"{tools}:{os.environ['PATH']}"})
        until(lambda: any(w["step"] for w in ask_at(self.socket, {"do": "status"})["workers"]), "a step")
        self.assertTrue(ask_at(self.socket, {"do": "stacks"}, timeout=30).get("ok"))
        self.assertEqual(job.wait(90), 0, job.stderr)
        self.assertNotIn("sent no heartbeat", job.stderr)
        self.assertNotIn("times slower", job.stderr)

    @unittest.skipUnless(shutil.which("gdb"), "needs gdb")
    def test_one_that_a_debugger_holds_was_called_stopped_by_a_signal(self):
        job = self.start(2, "1000000 20", flags="--hang_timeout 4 --first_step_timeout 60 --report report.json")
        until(lambda: any(w["step"] for w in ask_at(self.socket, {"do": "status"})["workers"]), "a step")
        held = list(job.alive())[1]
        gdb = subprocess.Popen(["gdb", "-nx", "-p", str(held)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(gdb.communicate)
        self.addCleanup(gdb.kill)
        until(lambda: state_of(held) == "t", "the debugger", 30)
        job.wait_stderr("it is held by a debugger", 30)
        gdb.kill()  # it would hold the worker against SIGKILL as well
        self.assertEqual(job.wait(60), HANG, job.stderr)
        self.assertRegex(self.report(job)["first_failure"]["cause"], rf"^hung.*; it is held by a debugger, gdb \(pid {gdb.pid}\)")

    def test_acc_ctl_prints_them(self):
        job = self.start(2)
        shown = subprocess.run([os.path.join(BIN, "acc-ctl"), "stacks", "heartbeat_worker"], capture_output=True, text=True, timeout=30 * SLACK,
                               env={**os.environ, "XDG_RUNTIME_DIR": self.runtime, "HOME": job.folder})
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("asked for over the control socket", shown.stdout)
        self.assertIn("rank 1", shown.stdout)

    def test_a_dump_of_torchs_flight_recorder_says_who_has_not_come(self):
        folder = tempfile.mkdtemp(prefix="acc-flight-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        job = self.start(3, env={"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": os.path.join(folder, "trace_")})
        def entry(number, state):
            return {"process_group": ("0", "default_pg"), "collective_seq_id": number, "profiling_name": "nccl:all_reduce", "state": state, "is_p2p": False}
        for rank, states in enumerate((["completed", "started"], ["completed"])):
            with open(os.path.join(folder, f"trace_{rank}"), "wb") as f:
                pickle.dump({"version": "2.5", "entries": [entry(number + 41, state) for number, state in enumerate(states)]}, f, protocol=2)
        class Evil:  # what a dump may not do
            def __reduce__(self):
                return os.mkdir, (os.path.join(folder, "made"),)
        with open(os.path.join(folder, "trace_2"), "wb") as f:
            pickle.dump({"entries": [Evil()]}, f)
        reply = ask_at(self.socket, {"do": "stacks"}, timeout=20)
        self.assertIn("torch's flight recorder: rank 1 hasn't come to all_reduce #42 of 0:default_pg, in which rank 0 waits\n", reply["text"])
        self.assertIn(f"torch's flight record: {folder}/trace_2\n", reply["text"])
        self.assertFalse(os.path.exists(os.path.join(folder, "made")))
        self.assertIsNone(job.process.poll())

    def test_ranks_of_another_group_of_torch_without_a_description_were_said_to_be_missing(self):
        folder = tempfile.mkdtemp(prefix="acc-flight-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.start(4, env={"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": os.path.join(folder, "trace_")})
        calls = [("1", 8, "started"), ("1", 7, "completed"), ("2", 3, "completed"), ("2", 3, "completed")]
        for rank, (group, number, state) in enumerate(calls):
            entry = {"process_group": (group, "undefined"), "collective_seq_id": number, "profiling_name": "nccl:all_reduce", "state": state, "is_p2p": False}
            with open(os.path.join(folder, f"trace_{rank}"), "wb") as f:
                pickle.dump({"version": "2.5", "entries": [entry]}, f, protocol=2)
        text = ask_at(self.socket, {"do": "stacks"}, timeout=20)["text"]
        self.assertEqual(re.findall("torch's flight recorder: (rank.*)", text), ["rank 1 hasn't come to all_reduce #8 of 1, in which rank 0 waits"])

    def test_sigquit_by_acc_ctl_wrote_none(self):
        job = self.start(2)
        until(lambda: any(w["step"] for w in ask_at(self.socket, {"do": "status"})["workers"]), "a step")
        self.assertTrue(ask_at(self.socket, {"do": "signal", "signal": "SIGQUIT"}).get("ok"))
        self.assertEqual(job.wait(60), 128 + signal.SIGQUIT, job.stderr)
        self.assertIn("stacks of all ranks here: ", job.stderr)

    def test_sigquit_writes_them_and_ends_the_job(self):
        job = self.start(2)
        os.kill(job.pid, signal.SIGQUIT)
        self.assertEqual(job.wait(60), 128 + signal.SIGQUIT, job.stderr)
        found = re.search(r"stacks of all ranks here: (\S+)", job.stderr)
        self.assertIn("SIGQUIT to acc-launch", read(found[1]))

    def test_of_64_ranks_take_ten_seconds_at_most(self):
        self.start(64, "hold", program=[os.path.join(PROGRAMS.name, "fake_worker")])
        began = time.monotonic()
        reply = ask_at(self.socket, {"do": "stacks"}, timeout=30)
        self.assertTrue(reply.get("ok"), reply)
        self.assertLessEqual(time.monotonic() - began, 15 * SLACK)  # ten, and what a busy machine adds
        self.assertEqual(len(set(re.findall(r"^  rank (\d+) ", reply["text"], re.M))), 64)


class Watching(HangTest):
    def wakeups(self, job):
        return sum(voluntary for voluntary, _ in context_switches(job.agent).values())

    @unittest.skipIf(SANITIZED, "a sanitizer has a thread of its own, which wakes up often")
    def test_heartbeats_wake_the_agent_once_a_second_and_without_them_nothing_does(self):
        for words, most in (("hold", 0), (None, 1)):
            program = [WORKER] if words is None else [os.path.join(PROGRAMS.name, "fake_worker")]
            job = self.job("--num_processes 2 --hang_timeout 1h --no_python", words or "1000000 10 nosave=0@0", program=program)
            until(lambda: len(job.alive()) == 2, "the workers")
            found = []
            def is_quiet():
                """In these four seconds, or what a busy machine makes of them. The first ones may still see work of the start."""
                before, began = self.wakeups(job), time.monotonic()
                time.sleep(4)
                found.append((self.wakeups(job) - before, time.monotonic() - began))
                return found[-1][0] <= most * found[-1][1] + 1
            with self.subTest(words=words):
                until(is_quiet, lambda: f"at most {most} a second; wakeups and seconds: {found}", 8)
            job.close()

    def test_a_start_that_hung_was_never_told_after_ctrl_z(self):
        job = self.job("--num_processes 1 --hang_timeout 1 --first_step_timeout 1 --stall_timeout 1 --no_python", "mark=up hold",
                       program=[os.path.join(PROGRAMS.name, "fake_worker")])
        job.wait_events("up", 1)
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: state_of(job.pid) == "T", "the launcher to stop")
        time.sleep(2)  # nothing tells that the time for the first step would be over
        before, began = self.wakeups(job), time.monotonic()
        time.sleep(2)
        if not SANITIZED:
            self.assertLess((self.wakeups(job) - before) / (time.monotonic() - began), 100)  # it was a thousand a second
        job.process.send_signal(signal.SIGCONT)
        self.assertEqual(job.wait(60), HANG, job.stderr)

    def test_a_straggler_is_told_once(self):
        job = self.job("--num_processes 3 --no_python --events events.jsonl", "400 40 slow=2@60", program=[WORKER])
        self.assertEqual(job.wait(90), 0, job.stderr)
        told = re.findall(r"rank (\d) on \S+ is ([\d.]+) times slower than the other ranks here", job.stderr)
        self.assertEqual([rank for rank, _ in told], ["2"], job.stderr)
        events = [json.loads(line) for line in read(os.path.join(job.folder, "events.jsonl")).splitlines()]
        stragglers = [event for event in events if event["event"] == "straggler"]
        self.assertEqual([event["rank"] for event in stragglers], [2])
        self.assertGreater(stragglers[0]["times_slower"], 2)

    def test_a_program_that_does_nothing_is_told_and_by_wish_restarted(self):
        job = self.job("--num_processes 2 --stall_timeout 2 --no_python", "hold", program=[os.path.join(PROGRAMS.name, "fake_worker")])
        until(lambda: "no worker here has used the CPU, read or written anything" in job.stderr, "the warning", 30)
        until(lambda: "stacks of all ranks here" in job.stderr, "the stacks", 30)
        self.assertEqual(len(job.alive()), 2)
        job.close()
        job = self.job("--num_processes 2 --stall_timeout 2 --stall_action restart --grace 1 --no_python", "hold",
                       program=[os.path.join(PROGRAMS.name, "fake_worker")])
        self.assertEqual(job.wait(60), HANG, job.stderr)

    def test_an_unchanged_stall_was_told_again_and_again_and_the_warning_named_no_rank(self):
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-stall-")), "train.py")
        write(path, STALL)
        job = self.job("--num_processes 3 --stall_timeout 2 --no_python", "", program=[shutil.which("python3"), path],
                       env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE)})
        until(lambda: "warning: behind the others: rank 1, at load (train.py:6): ranks 0,2 wait for it" in job.stderr, lambda: job.stderr, 30)
        time.sleep(8)
        self.assertEqual(job.stderr.count("(--stall_timeout): collecting stacks"), 1, job.stderr)

    @unittest.skipUnless(shutil.which("nc"), "no nc (Debian: netcat-openbsd)")
    def test_a_checkpoint_is_progress(self):
        flags = "--max_restarts 9 --max_no_progress 2 --restart_delay 0 --report report.json --no_python"
        script = 'printf "hello $RANK\\ncheckpoint 5\\n" | nc -N -U "$ACC_AGENT_SOCKET"; exit 3'
        job = self.job(flags + " --num_processes 2", "", program=["/bin/sh", "-c", script])
        self.assertEqual(job.wait(60), 3, job.stderr)
        self.assertEqual(self.report(job)["restarts"], 9, job.stderr)


class SeveralNodes(HangTest):
    def start(self, nodes, words="1000000 20", flags="", is_named=True, lost="--dead_after 20 --lease 40"):
        """A job on several nodes, each with two ranks; the control sockets by node rank. `lost`: when a node is, no other test's matter."""
        port, token = free_port(), own_token("stacks")
        folders, jobs = [], []
        for rank in range(nodes):
            runtime = tempfile.mkdtemp(prefix="acc-runtime-")
            os.chmod(runtime, 0o700)
            self.addCleanup(shutil.rmtree, runtime, ignore_errors=True)
            folders.append(os.path.join(runtime, "acc/jobs"))
            jobs.append(self.job(f"--num_machines {nodes} --num_processes {2 * nodes} --main_process_ip 127.0.0.1 --main_process_port {port} "
                                 f"--machine_rank {rank} {f'--node_name n{rank}' * is_named} --log_dir logs --grace 2 {lost} --no_python {flags}", words,
                                 program=[WORKER], token=token, env={"XDG_RUNTIME_DIR": runtime}))
        def control_socket(folder):
            return os.path.isdir(folder) and next((os.path.join(folder, name) for name in os.listdir(folder) if not name.startswith(".")), None)
        self.sockets = [until(lambda: control_socket(folder), "the control socket") for folder in folders]
        for at in self.sockets:
            until(lambda: any(w["step"] for w in ask_at(at, {"do": "status"})["workers"]), "a step of each node", 30)
        return jobs

    def test_of_two_nodes_with_one_host_name_each_blamed_its_own_rank(self):
        for job in self.start(2, "1000000 20 sleep=3@100", "--hang_timeout 4", is_named=False):
            self.assertEqual(job.wait(60), 124, job.stderr)
            self.assertRegex(job.stderr, r"job failed: rank 3 (on \S+ )?hung: no heartbeat for \S+ s after step 100")

    def test_sigquit_saved_the_stacks_of_one_node_alone(self):
        jobs = self.start(2)
        jobs[0].process.send_signal(signal.SIGQUIT)
        self.assertEqual([job.wait(40) for job in jobs], [131, 131], jobs[0].stderr)
        path = re.search(r"stacks of all ranks\D*: (\S+)", jobs[0].stderr)[1]
        self.assertEqual(sorted(re.findall(r"^  rank (\d)  on n\d ", read(os.path.join(jobs[0].folder, path)), re.M)), list("0123"))

    def test_a_second_sigquit_waits_for_no_other_nodes_stacks(self):
        jobs = self.start(2)
        agent = jobs[1].agent
        os.kill(agent, signal.SIGSTOP)  # it would be waited for
        self.addCleanup(lambda: os.path.exists(f"/proc/{agent}") and os.kill(agent, signal.SIGCONT))
        jobs[0].process.send_signal(signal.SIGQUIT)
        jobs[0].wait_stderr("collecting the workers' stacks")
        jobs[0].process.send_signal(signal.SIGQUIT)
        jobs[0].wait_stderr("got SIGQUIT", 5)

    def test_stacks_are_those_of_all_ranks_in_one_text(self):
        jobs = self.start(3)
        for asked in (0, 2):  # the coordinator's node, and another
            reply = ask_at(self.sockets[asked], {"do": "stacks"}, timeout=30)
            self.assertTrue(reply.get("ok"), reply)
            self.assertEqual(sorted(re.findall(r"^  rank (\d)  on (n\d) ", reply["text"], re.M)),
                             [(str(rank), f"n{rank // 2}") for rank in range(6)], reply["text"])
            self.assertIn(", node n0, n1, n2, ", reply["text"])
            self.assertNotIn("no answer", reply["text"])
            self.assertEqual(read(reply["file"]), reply["text"])
        self.assertNotIn("stacks of all ranks here", jobs[1].stderr)  # it was not asked itself
        for job in jobs:
            self.assertIsNone(job.process.poll())

    def test_a_node_that_does_not_answer_is_named_within_ten_seconds(self):
        jobs = self.start(3, lost="--dead_after 30 --lease 60")
        agent = jobs[1].agent
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: os.path.exists(f"/proc/{agent}") and os.kill(agent, signal.SIGCONT))
        began = time.monotonic()
        reply = ask_at(self.sockets[0], {"do": "stacks"}, timeout=30)
        os.kill(agent, signal.SIGCONT)
        self.assertTrue(reply.get("ok"), reply)
        self.assertLessEqual(time.monotonic() - began, 15 * SLACK)  # ten, and what a busy machine adds
        self.assertIn("no answer from node n1 (ranks 2-3)\n", reply["text"])
        self.assertEqual(sorted(set(re.findall(r"^  rank \d  on (n\d) ", reply["text"], re.M))), ["n0", "n2"])

    def test_stacks_asked_for_when_a_node_is_lost_are_those_of_the_rest(self):
        jobs = self.start(3, lost="--dead_after 5 --lease 10")
        agent = jobs[1].agent
        os.kill(agent, signal.SIGSTOP)  # silent for 5 s it is lost, and the round ends
        self.addCleanup(lambda: os.path.exists(f"/proc/{agent}") and os.kill(agent, signal.SIGCONT))
        reply = ask_at(self.sockets[0], {"do": "stacks"}, timeout=30)
        self.assertTrue(reply.get("ok"), reply)
        self.assertIn("no answer from node n1 (ranks 2-3)\n", reply["text"])
        self.assertEqual(sorted(set(re.findall(r"^  rank \d  on (n\d) ", reply["text"], re.M))), ["n0", "n2"])

    def test_a_healthy_job_was_ended_as_a_rank_of_another_node_saved(self):
        for job in self.start(2, "40 20 save=0@20", "--hang_timeout 6"):
            self.assertEqual(job.wait(90), 0, job.stderr)
            self.assertNotIn("sent no heartbeat", job.stderr)
            self.assertNotIn("the workers go on", job.stderr)

    def test_one_that_hangs_in_the_step_of_another_nodes_section_was_not_named_but_the_one_that_saved(self):
        for job in self.start(2, "1000000 20 save=0@100 sleep=3@100", "--hang_timeout 6"):
            self.assertEqual(job.wait(90), HANG, job.stderr)
            self.assertRegex(job.stderr, r"job failed: rank 3 (on \S+ )?hung")

    def test_the_rank_on_another_node_is_named_by_both(self):
        for job in self.named_by_both("spin=3@20"):
            self.assertIsNone(self.report(job)["first_failure"]["exit"])

    def test_where_only_rank_0_sends_heartbeats_the_one_on_another_node_was_not_looked_at(self):
        for job in self.named_by_both("sleep=3@20 only=0@0"):
            self.assertIn("hung: no heartbeat in this attempt", job.stderr)
            self.assertIn("ranks 0-2 wait; ranks 1,2 sent no heartbeat in this attempt", job.stderr)

    def test_ranks_of_another_node_that_had_finished_were_told_nowhere(self):
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-hang-")), "train.py")
        write(path, UNEVEN)
        flags = (f"--num_machines 2 --num_processes 4 --main_process_ip 127.0.0.1 --main_process_port {free_port()} --hang_timeout 4 "
                 "--first_step_timeout 60 --grace 2 --dead_after 20 --lease 40 --no_python")
        token = own_token("finished")
        jobs = [self.job(f"{flags} --machine_rank {rank} --node_name n{rank} --report report.json", "", program=[shutil.which("python3"), path],
                         token=token, env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE), "FINISHED": "2,3"}) for rank in (0, 1)]
        for job in jobs:
            self.assertEqual(job.wait(120), HANG, job.stderr)
            failure = self.report(job)["first_failure"]
            self.assertEqual(failure["rank"], 0, job.stderr)
            self.assertRegex(failure["cause"], r"^hung: may wait for ranks 2,3, which had finished \(exit code 0\), the last of them \S+ s before: no heartbeat ")
        self.assertIn("\nranks 2,3 had finished (exit code 0), the last of them ", read(self.report(jobs[0])["first_failure"]["stacks"]))

    def test_of_a_stall_that_is_only_told_nodes_with_one_worker_each_named_no_rank(self):
        path = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-stall-")), "train.py")
        write(path, STALL)
        flags = (f"--num_machines 3 --num_processes 3 --main_process_ip 127.0.0.1 --main_process_port {free_port()} --stall_timeout 2 "
                 "--grace 2 --dead_after 20 --lease 40 --no_python")
        token = own_token("stall")
        jobs = [self.job(f"{flags} --machine_rank {rank} --node_name n{rank}", "", program=[shutil.which("python3"), path], token=token,
                         env={"ACC_HEARTBEAT_FOLDER": os.path.abspath(MODULE)}) for rank in range(3)]
        named = "warning: behind the others: rank 1, at load (train.py:6): ranks 0,2 wait for it"
        for job in jobs:
            until(lambda: named in job.stderr, lambda: job.stderr, 40)
        for job in jobs:
            self.assertIsNone(job.process.poll(), job.stderr)

    def test_a_job_of_which_one_node_works_was_ended_for_the_stall_of_those_that_wait_for_it(self):
        """Rank 0 computes for four times the limit, as in an evaluation, and rank 1 waits for it; then it does so in vain."""
        script = ("import os, time\n"
                  "work = int(os.environ['RANK'] == '0' and os.environ['WORK'])\n"
                  "end = time.monotonic() + work\n"
                  "while time.monotonic() < end: pass\n"
                  "os.open(os.environ['FIFO'], os.O_WRONLY if work else os.O_RDONLY)\n")
        for work, code in ((8, 0), (0, HANG)):
            folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-stall-"))
            os.mkfifo(folder + "/fifo")
            write(folder + "/train.py", script)
            flags = (f"--num_machines 2 --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port {free_port()} --stall_timeout 2 "
                     "--stall_action restart --grace 1 --dead_after 20 --lease 40 --report report.json --no_python")
            token = own_token("stall")
            jobs = [self.job(f"{flags} --machine_rank {rank} --node_name n{rank}", "", program=[shutil.which("python3"), folder + "/train.py"],
                             token=token, env={"FIFO": folder + "/fifo", "WORK": str(work)}) for rank in range(2)]
            with self.subTest(code):
                self.assertEqual([job.wait(90) for job in jobs], [code, code], [job.stderr for job in jobs])
                self.assertIn("collecting stacks; the round ends when all nodes are so", jobs[1].stderr)
            if code:
                self.assertRegex(self.report(jobs[0])["first_failure"]["cause"], "^hung: no worker used the CPU")

    def test_one_on_another_node_that_sent_heartbeats_of_one_step_was_not_looked_at(self):
        for job in self.named_by_both("retry=1@20", per_node=1):
            self.assertIn("hung: sends heartbeats, but only of step 20", job.stderr)
            self.assertIn("rank 0 waits for it", job.stderr)

    def named_by_both(self, words, per_node=2):
        port, last = free_port(), 2 * per_node - 1
        flags = (f"--num_machines 2 --num_processes {2 * per_node} --main_process_ip 127.0.0.1 --main_process_port {port} --hang_timeout 4 "
                 "--first_step_timeout 60 --grace 2 --dead_after 20 --lease 40 --no_python")
        token = own_token("hangs")
        jobs = [self.job(f"{flags} --machine_rank {rank} --node_name n{rank} --report report.json", f"1000000 5 {words}", program=[WORKER], token=token)
                for rank in (0, 1)]
        for job in jobs:
            self.assertEqual(job.wait(120), HANG, job.stderr)
        for job in jobs:
            self.assertEqual(self.report(job)["first_failure"]["rank"], last, job.stderr)
        stacks = [self.report(job)["first_failure"]["stacks"] for job in jobs]
        self.assertEqual(stacks[0], stacks[1], "the file lies on the node of the rank that hung")
        self.assertRegex(jobs[0].stderr, rf"stacks +{re.escape(stacks[0])} \(there\)")
        self.assertIn(f"behind the others: rank {last}", read(stacks[0]))
        # The node of the rank has the stacks of all.
        stacks = read(self.report(jobs[1])["first_failure"]["stacks"])
        self.assertIn(f"behind the others: rank {last}", stacks)
        self.assertEqual(sorted(re.findall(r"^  rank (\d)  on n\d ", stacks, re.M)), [str(rank) for rank in range(last + 1)], stacks)
        return jobs


if __name__ == "__main__":
    main()
