"""What a user sees when a worker goes wrong: the fault matrix on one node."""
import os, re, signal, socket, subprocess, sys, tempfile, time

from harness import SANITIZED, SLACK, JobTest, cgroup2_root, is_root, main, parent_of, processor_ticks, read, state_of, until, write


ASKS = """import os, signal, socket, time
def line():
    agent = socket.socket(socket.AF_UNIX)
    agent.connect(os.environ["ACC_AGENT_SOCKET"].replace("@", "\\0", 1))
    agent.sendall(b"hello %s\\n" % os.environ["RANK"].encode())
    return agent
asking, other = line(), line()
def at_the_end(*_):
    print(asking.recv(4096, socket.MSG_DONTWAIT).decode().replace("\\n", "\\\\n"), flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, at_the_end)
asking.sendall(b"lost 60000\\n")
other.sendall(b"barrier all_ask 4 60000\\n")
assert other.recv(4096).startswith(b"number ")
if os.environ["RANK"] == "1": os.kill(os.getpid(), signal.SIGKILL)
while True: time.sleep(0.1)  # signal.pause() would not see one that came just before it
"""


# Traces a process as a debugger at its prompt does: it takes the process's status when its own input ends.
TRACER = """import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if libc.ptrace(0x4206, int(sys.argv[1]), None, None) != 0:  # PTRACE_SEIZE
    sys.exit(f"ptrace: errno {ctypes.get_errno()}")
print("traced", flush=True)
sys.stdin.read()
"""


class WorkerFaults(JobTest):
    def traced(self, pid):
        tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(pid)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(tracer.communicate)
        if tracer.stdout.readline() != "traced\n":
            self.skipTest(f"no process can be traced here: {tracer.communicate()[1]}")
        return tracer

    def test_a_dead_worker_that_a_debugger_holds_was_spun_for_in_silence(self):
        job = self.job("--num_processes 2 --report report.json", "mark=up hold")
        pid = next(int(pid) for _, rank, _, pid in job.wait_events("up", 2) if rank == "1")
        tracer = self.traced(pid)
        agent = parent_of(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda: f"rank 1 (pid {pid}) is dead, but its debugger, python3" in job.stderr, "the line about the debugger", 20)
        self.assertIn(f"(pid {tracer.pid}) holds it", job.stderr)
        computed, looked = processor_ticks(agent), time.monotonic()
        time.sleep(1)  # of which it must compute next to nothing
        self.assertLess(processor_ticks(agent) - computed, 25 * (time.monotonic() - looked), "the agent spins")
        tracer.communicate()
        self.assertEqual(job.wait(30), 137)
        self.assertEqual(self.report(job)["first_failure"]["rank"], 1)

    def test_a_stop_while_a_debugger_holds_a_dead_worker_names_it(self):
        job = self.job("--num_processes 1 --grace 1s --report report.json", "mark=up hold")
        pid = int(job.wait_events("up", 1)[0][3])
        self.traced(pid)
        job.process.terminate()
        self.assertEqual(job.wait(60), 72)
        self.assertIn("gave up: a debugger holds dead workers: quit it", job.stderr)
        self.assertRegex(self.report(job)["unkillable"][0], rf"fake_worker \(pid {pid}\) dead, but held by its debugger, python3")

    def test_1_sigkill_is_named_and_the_group_restarts(self):
        job = self.finished("--num_processes 3 --max_restarts 1", "mark=up rank=1 attempt=0 all=up signal=KILL any attempt=0 hold")
        self.assertIn("rank 1", job.stderr)
        self.assertIn("SIGKILL (9)", job.stderr)
        self.assertIn("restart 1 of 1", job.stderr)
        self.assertEqual(len(job.events("up")), 6)

    def test_1_sigkill_without_a_restart_left_gives_137_and_a_report(self):
        job = self.finished("--num_processes 2 --report report.json", "err=last-words mark=up rank=1 all=up signal=KILL any hold", 137)
        self.assertRegex(job.stderr, r"job failed: rank 1 was killed by SIGKILL \(9\)")
        self.assertIn("last-words", job.stderr.split("job failed")[1])
        self.assertIn("we stopped rank 0", job.stderr)
        report = self.report(job)
        self.assertEqual(report["first_failure"]["rank"], 1)
        self.assertEqual(report["first_failure"]["exit"]["signal"], "SIGKILL")
        self.assertEqual(report["exit_code"], 137)

    def test_1_of_a_stopped_worker_that_reads_the_input_the_report_didnt_say_that_it_was_stopped(self):
        """Of rank 0, and on several nodes of each node's first rank: what looks after the terminal had asked for its stop before."""
        job = self.job("--num_processes 2 --stdin 0", "note=USR1 mark=up hold")
        pids = {rank: int(pid) for _, rank, _, pid in job.wait_events("up", 2)}
        os.kill(pids["0"], signal.SIGSTOP)
        until(lambda: state_of(pids["0"]) == "T", "the stop", 10)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 1)  # the kernel's signal of the stop came before
        os.kill(pids["1"], signal.SIGKILL)
        self.assertEqual(job.wait(60), 137)
        self.assertIn("rank 0 was stopped (state T); it was continued to end it", job.stderr)

    def test_1_the_others_are_told_who_was_lost_before_they_are_asked_to_end(self):
        job = self.finished("--num_processes 3 --grace 20s", "note=TERM mark=up rank=1 all=up signal=KILL any lost=20s lost=0 exit=0", 137)
        pid = next(pid for _, rank, _, pid in job.events("up") if rank == "1")
        self.assertEqual(job.stdout.splitlines().count(f"lost 1 {pid} killed by SIGKILL"), 4, job.stdout)
        self.assertEqual(len(job.events("told")), 4)
        coded = self.finished("--num_processes 2 --grace 20s", "note=TERM mark=up rank=1 all=up exit=3 any lost=20s exit=0", 3)
        self.assertRegex(coded.stdout, r"(?m)^lost 1 \d+ exit code 3$")
        program = os.path.join(coded.folder, "asks.py")
        write(program, ASKS)
        # At the very moment of SIGTERM the answer is there.
        early = self.finished("--num_processes 4", "", 137, program=["--no_python", sys.executable, program])
        self.assertEqual(len(re.findall(r"(?m)^value \d+\\n1 \d+ killed by SIGKILL\\n\\n$", early.stdout)), 3, early.stdout)

    def test_1_a_worker_that_ends_well_or_a_stop_is_no_loss(self):
        job = self.job("--num_processes 2 --grace 20s", "rank=1 exit=0 any on=TERM:0 mark=up lost=1s mark=asked hold")
        job.wait_events("asked", 1)
        until(lambda: "lost: no rank was lost within 1 s" in job.stdout, "its answer on stdout")
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)

    def test_2_segv_and_abrt_by_name(self):
        for name, code in (("SEGV", 139), ("ABRT", 134)):
            job = self.finished("--num_processes 2", f"err=before-the-end rank=0 signal={name} any hold", code)
            self.assertRegex(job.stderr, rf"rank 0 was killed by SIG{name}")
            self.assertIn("before-the-end", job.stderr.split("job failed")[1])

    def test_3_out_of_memory_is_told_apart(self):
        root = "/sys/fs/cgroup/memory"
        if not is_root() or not os.access(root + "/memory.oom_control", os.W_OK):
            self.skipTest("needs root and the v1 memory controller")
        if SANITIZED:
            self.skipTest("a sanitized launcher itself needs more than the limit")
        group = f"{root}/acc-test-{os.getpid()}"
        os.mkdir(group)
        try:
            write(group + "/memory.limit_in_bytes", "64M")
            job = self.finished("--num_processes 2", "rank=1 memory=200 any hold", 137,
                                wrap=["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"])
            self.assertRegex(job.stderr, r"rank 1 was killed by SIGKILL \(9\): out of memory \(limit 64 MiB")
        finally:
            until(lambda: not read(group + "/cgroup.procs"), "an empty cgroup")
            os.rmdir(group)

    def test_4_exit_code_is_passed_on_and_a_never_class_is_not_retried(self):
        job = self.finished("--num_processes 2 --max_restarts 5 --no_restart_codes 2,64-78", "mark=up rank=1 exit=65 any hold", 65)
        # Rank 0 may be asked to end before its first word.
        self.assertEqual({attempt for _, _, attempt, _ in job.events("up")}, {"0"})
        self.assertIn("--no_restart_codes", job.stderr)

    def test_5_a_rank_that_finishes_early_changes_nothing(self):
        job = self.finished("--num_processes 3", "mark=up rank=2 exit=0 any all=up after=300ms mark=done")
        self.assertEqual(len(job.events("done")), 2)
        self.assertEqual(job.stderr.count("job failed"), 0)

    def test_7_a_stopped_worker_is_continued_and_ended_in_time(self):
        job = self.job("--num_processes 2 --grace 60s", "on=TERM:0 mark=up rank=1 signal=STOP any hold")
        job.wait_events("up", 2)
        stopped = job.events("up")
        pid = next(e[3] for e in stopped if e[1] == "1")
        until(lambda: state_of(pid) == "T", "rank 1 to stop")
        t = time.monotonic()
        job.process.terminate()
        self.assertEqual(job.wait(), 143)
        self.assertLess(time.monotonic() - t, 30 * SLACK)  # well before the grace is over
        self.assert_nothing_left(job)

    def test_8_a_worker_that_ignores_sigterm_is_killed_after_the_grace(self):
        job = self.job("--num_processes 2 --grace 500ms", "ignore=TERM mark=up rank=0 all=up exit=3 any hold")
        self.assertEqual(job.wait(), 3)
        self.assertIn("did not end within 500 ms, killing", job.stderr)
        self.assertLess(job.seconds, (0.5 + 12) * SLACK)  # less than the grace that it has without the flag
        self.assert_nothing_left(job)

    def test_9_processes_that_escaped_are_gone_when_the_job_ends(self):
        job = self.job("--num_processes 2 --grace 1s", "escape escape_stubborn child after=100ms exit=0")
        self.assertEqual(job.wait(), 0)
        self.assertIn("left-over processes", job.stderr)
        self.assertIn("fake_worker", job.stderr)
        self.assert_nothing_left(job, 0.1)

    def test_9_and_before_the_next_round_starts(self):
        job = self.job("--num_processes 1 --max_restarts 2 --grace 200ms --restart_delay 0", "escape_stubborn mark=up after=50ms exit=1")
        self.assertEqual(job.wait(), 1)
        self.assertEqual(len(job.events("up")), 3)
        self.assert_nothing_left(job, 0.1)

    def test_10_an_unkillable_process_is_given_up_and_named(self):
        root = "/sys/fs/cgroup/freezer"
        if not is_root() or not os.path.isdir(root) or not os.access(root + "/cgroup.procs", os.W_OK):
            self.skipTest("needs root and the v1 freezer")
        group = f"{root}/acc-test-{os.getpid()}"
        os.mkdir(group)
        job = self.job("--num_processes 2 --grace 300ms --give_up 500ms", "mark=up hold")
        try:
            pid = next(e[3] for e in job.wait_events("up", 2) if e[1] == "0")
            write(group + "/cgroup.procs", str(pid))
            write(group + "/freezer.state", "FROZEN")
            until(lambda: read(group + "/freezer.state").strip() == "FROZEN", "a frozen worker")  # it is FREEZING before
            job.process.terminate()
            # The guardian tries for 5 s more before it leaves.
            self.assertEqual(job.wait(), 72, job.stderr)
            self.assertRegex(job.stderr, rf"fake_worker \(pid {pid}\) unkillable, state D")
        finally:
            write(group + "/freezer.state", "THAWED")
            until(lambda: not read(group + "/cgroup.procs"), "an empty cgroup")
            os.rmdir(group)

    def test_11_a_program_that_cannot_be_started_is_told_once_and_not_restarted(self):
        folder = tempfile.TemporaryDirectory(prefix="acc-test-")
        self.addCleanup(folder.cleanup)
        plain, bad = os.path.join(folder.name, "plain"), os.path.join(folder.name, "bad")
        write(plain, "not a program")
        write(bad, "#!/no/such/interpreter\n", 0o755)
        for program, code, words in (("./no-such-program", 127, "No such file or directory"), (plain, 126, "Permission denied"),
                                     (bad, 127, "/no/such/interpreter")):
            job = self.job("--num_processes 2 --max_restarts 3", "x", program=["--no_python", program])
            self.assertEqual(job.wait(), code, job.stderr)
            self.assertLess(job.seconds, 15 * SLACK)
            self.assertEqual(job.stderr.count("cannot start"), 1, job.stderr)
            self.assertIn(words, job.stderr)

    def test_22_a_taken_port_is_replaced_with_a_warning(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            port = s.getsockname()[1]
            job = self.finished(f"--num_processes 2 --main_process_port {port}", "mark=up exit=0")
            self.assertIn(str(port), job.stderr)
            self.assertIn("in use", job.stderr)

    def test_29_a_crash_loop_waits_longer_each_time_and_stops_at_the_budget(self):
        before = os.times()
        job = self.finished("--num_processes 2 --max_restarts 3 --restart_delay 200ms --report report.json", "mark=up exit=9", 9)
        self.assertEqual(len({e[2] for e in job.events("up")}), 4)
        self.assertGreater(job.seconds, (0.2 + 0.4) * 0.9)
        self.assertIn("restarted 3 of 3 times", job.stderr)
        report = self.report(job)
        self.assertEqual(len(report["failures"]), 4)
        usage = os.times()
        self.assertLess(usage.children_user + usage.children_system - before.children_user - before.children_system, 60)

    def test_29_rounds_without_progress_end_as_hopeless(self):
        job = self.finished("--num_processes 1 --max_restarts 50 --restart_delay 0 --max_no_progress 3", "mark=up exit=9", 93)
        self.assertEqual(len(job.events("up")), 3)
        self.assertIn("no progress", job.stderr)

    def test_progress_file_counts_as_progress(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        progress = os.path.join(folder, "step")
        script = os.path.join(folder, "w.sh")
        write(script, f'#!/bin/sh\n[ $ACC_ROUND -lt 4 ] && echo $ACC_ROUND > {progress}\nexit 9\n', 0o755)
        job = self.finished(f"--num_processes 1 --max_restarts 50 --restart_delay 0 --max_no_progress 2 --progress_file {progress}", "",
                            93, program=["--no_python", script])
        self.assertIn("restart 5 of 50", job.stderr)


class ErrorFiles(JobTest):
    def test_the_exception_that_record_wrote_is_in_the_report(self):
        script = ('import json, os\n'
                  'f = os.environ["TORCHELASTIC_ERROR_FILE"]\n'
                  'assert f.endswith("attempt_0/%s/error.json" % os.environ["LOCAL_RANK"]), f\n'
                  'json.dump({"message": {"message": "ValueError: bad data", "extraInfo": {"py_callstack": "Traceback (here)\\nValueError: bad data",'
                  ' "timestamp": "1"}}}, open(f, "w"))\n'
                  'raise SystemExit(5)\n')
        # Of a relative folder of logs a script that changes its folder, as Hydra's do, didn't find it.
        for flags in ("", "--log_dir logs"):
            job = self.job(f"--num_processes 2 {flags}", "", program=["--no_python", "/usr/bin/python3", "-c", "import os; os.chdir('/'); " + script])
            self.assertEqual(job.wait(), 5, job.stderr)
            self.assertIn("| ValueError: bad data", job.stderr)

    def test_the_temporary_folder_is_removed(self):
        name = f"removed{os.getpid()}"
        where = "/dev/shm" if os.path.isdir("/dev/shm") else "/tmp"
        self.finished(f"--num_processes 2 --rdzv_id {name}", "exit=0", env={"TMPDIR": ""})
        self.assertEqual([d for d in os.listdir(where) if name in d], [])


class Soak(JobTest):
    def facts(self, job):
        """Descriptors, resident KiB and children of the agent, while it only waits: the worker's first word may come before the agent
        has closed the last pipe of the start."""
        agent = job.agent
        counts = []

        def is_still():
            counts.append(os.listdir(f"/proc/{agent}/fd"))
            return len(counts) > 10 and all(count == counts[-1] for count in counts[-10:])
        until(is_still, "an agent that only waits", 10)
        status = read(f"/proc/{agent}/status")
        return len(os.listdir(f"/proc/{agent}/fd")), int(re.search(r"VmRSS:\s+(\d+)", status)[1]), len(read(f"/proc/{agent}/task/{agent}/children").split())

    def test_a_thousand_restarts_leave_nothing(self):
        early, late = 100, int(os.environ.get("ACC_SOAK_RESTARTS", "1000"))
        words = f"on=USR1:1 attempt={early} mark=early hold any attempt={late} mark=late hold any exit=1"
        job = self.job(f"--num_processes 2 --max_restarts {late} --restart_delay 0 --quiet", words, stderr=subprocess.DEVNULL)
        job.wait_events("early", 2, 60)
        before = self.facts(job)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("late", 2, 60 + late / 10)
        after, agent = self.facts(job), job.agent
        job.process.terminate()
        self.assertEqual(job.wait(), 143)
        self.assertEqual(after[0], before[0], "descriptors")
        if not SANITIZED:  # a sanitizer keeps what was freed
            self.assertLessEqual(after[1], before[1] + 256, "resident KiB")
        self.assertEqual(after[2], 2, "children: zombies would count")
        self.assert_nothing_left(job)
        root = cgroup2_root()
        if root and is_root():
            self.assertEqual([d for d in os.listdir(root) if d.startswith(f"acc-launch-job-{agent}-")], [])


if __name__ == "__main__":
    main()
