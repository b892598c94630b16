"""Signals, Ctrl-C, the terminal, and the stop of a job."""
import contextlib, os, pty, re, select, shutil, signal, subprocess, sys, tempfile, time, unittest

from harness import ACC, FAKE, PATIENCE, SLACK, JobTest, children_of, free_port, is_pending, main, read, state_of, until, write


def is_watched(launcher):
    """A process of acc-launch tells it of a Ctrl-C in the worker's terminal, and is in the worker's group: what is typed earlier it doesn't see."""
    with contextlib.suppress(OSError):  # one that ended meanwhile
        return any(read(f"/proc/{pid}/comm") == "acc:ctrl-c\n" and os.getpgid(pid) != os.getpgid(launcher) for pid in children_of(launcher))
    return False


class Signals(JobTest):
    def test_sigterm_reaches_every_rank_and_gives_143(self):
        job = self.job("--num_processes 3", "on=TERM:0 mark=up hold")
        job.wait_events("up", 3)
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)
        self.assert_nothing_left(job)

    def test_a_signal_ends_acc_launch_that_waits_for_a_pipe_in_a_flag(self):
        pipe, writer = os.pipe()
        self.addCleanup(os.close, pipe)
        self.addCleanup(os.close, writer)
        fifo = os.path.join(tempfile.mkdtemp(prefix="acc-test-"), "fifo")
        os.mkfifo(fifo)
        for path in fifo, f"/dev/fd/{pipe}":
            for flags in f"--hostfile {path} --ssh", f"--host_facts {path}":
                for number in signal.SIGINT, signal.SIGTERM:
                    with self.subTest(flags=flags, number=number):
                        launcher = subprocess.Popen([ACC, *flags.split(), "--num_processes", "1", "s.py"], pass_fds=[pipe], stderr=subprocess.PIPE, text=True)
                        # Its system call: poll or ppoll.
                        waits = lambda: [one for one in children_of(launcher.pid) if read(f"/proc/{one}/syscall").split()[0] in ("7", "73")]
                        until(waits, "acc-launch to wait for the pipe")
                        launcher.send_signal(number)
                        _, said = launcher.communicate(timeout=10 * PATIENCE)
                        self.assertEqual((launcher.returncode, said), (128 + number, ""))

    def test_30_preemption_forwards_waits_and_asks_for_a_requeue(self):
        job = self.job("--num_processes 2 --preempt_signals USR1,TERM --preempt_grace 20s", "on=USR1:0 mark=up hold")
        job.wait_events("up", 2)
        t = time.monotonic()
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(5), 75)
        self.assertLess(time.monotonic() - t, 8 * SLACK)  # and not the grace
        self.assertIn("pre-empted by SIGUSR1", job.stderr)

    def test_usr1_usr2_and_hup_go_to_the_workers(self):
        job = self.job("--num_processes 2", "note=USR1 note=USR2 on=HUP:0 mark=up after=0 hold")
        job.wait_events("up", 2)
        for name in ("USR1", "USR2"):
            job.process.send_signal(getattr(signal, "SIG" + name))
            job.wait_events("got_SIG" + name, 2)
        job.process.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait(5), 129)

    def test_a_second_sigterm_changes_nothing_a_second_and_third_ctrl_c_do(self):
        job = self.job("--num_processes 2 --grace 30s", "note=INT note=TERM mark=up hold hold hold hold hold")
        job.wait_events("up", 2)
        job.process.send_signal(signal.SIGINT)
        job.wait_events("got_SIGINT", 2)
        job.process.send_signal(signal.SIGINT)
        job.wait_events("got_SIGTERM", 2)
        t = time.monotonic()
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(5), 130)
        self.assertLess(time.monotonic() - t, 8 * SLACK)  # and not the grace
        self.assert_nothing_left(job)

    def test_a_stopped_agent_took_a_third_ctrl_c_silently_for_20_seconds(self):
        job = self.job("--num_processes 2", "mark=up hold")
        job.wait_events("up", 2)
        agent = job.agent
        os.kill(agent, signal.SIGSTOP)
        until(lambda: state_of(agent) == "T", "the stop")
        job.process.send_signal(signal.SIGINT)
        until(lambda: f"the agent (pid {agent}) is stopped" in job.stderr, "the line about the agent", 15)
        self.assertIn(f"'kill -CONT {agent}' lets it go on, a third Ctrl-C kills it and the workers", job.stderr)
        self.assertIsNone(job.process.poll())
        # Each is taken before the next one is sent: equal signals that are pending are one.
        for count in (2, 3):
            until(lambda: not is_pending(job.pid, signal.SIGINT), "the end of the last Ctrl-C")
            job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(10), 70)
        self.assert_nothing_left(job)

    def test_stop_while_waiting_for_a_restart_is_immediate(self):
        job = self.job("--num_processes 1 --max_restarts 5 --restart_delay 30s", "mark=up exit=1")
        job.wait_events("up", 2)
        until(lambda: "restart 2 of 5" in job.stderr, "the wait before the second restart")
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)

    def test_under_nohup_a_hang_up_is_ignored(self):
        job = self.job("--num_processes 1", "note=HUP mark=up hold", wrap=["nohup"])
        job.wait_events("up", 1)
        os.kill(job.pid, signal.SIGHUP)
        job.process.terminate()  # the first signal decides the code
        self.assertEqual(job.wait(5), 143)
        self.assertEqual(job.events("got_SIGHUP"), [])

    def test_the_whole_job_is_suspended_and_continued(self):
        job = self.job("--num_processes 2", "mark=up hold")
        pids = [e[3] for e in job.wait_events("up", 2)]
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: all(state_of(p) == "T" for p in [*pids, job.pid]), "workers and launcher to stop")
        job.process.send_signal(signal.SIGCONT)
        until(lambda: all(state_of(p) == "S" for p in pids), "workers to go on")
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)

    def test_a_suspended_job_began_its_next_attempt(self):
        job = self.job("--num_processes 1 --max_restarts 5 --restart_delay 4s", "mark=up attempt=0 exit=1 any attempt=1 exit=1 any hold")
        until(lambda: "restart 2 of 5" in job.stderr, "the wait before the second restart")
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: state_of(job.pid) == "T", "the launcher to stop")
        time.sleep(6)  # nothing tells that it would have begun by now
        self.assertEqual(len(job.events("up")), 2)
        job.process.send_signal(signal.SIGCONT)
        job.wait_events("up", 3)
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)

    def test_workers_that_were_made_during_ctrl_z_ran_while_the_job_was_suspended(self):
        job = self.job("--num_processes 200", "mark=up hold")
        until(lambda: children_of(job.agent), "the first worker")
        job.process.send_signal(signal.SIGTSTP)
        until(lambda: state_of(job.pid) == "T", "the launcher to stop")
        until(lambda: len(children_of(job.agent)) == 200, "all workers", 30)
        until(lambda: {state_of(pid) for pid in children_of(job.agent)} == {"T"}, "all of them to stop", 30)
        job.process.send_signal(signal.SIGCONT)
        job.wait_events("up", 200)
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)

    def test_ctrl_z_into_a_full_pipe_made_a_job_on_several_nodes_deaf(self):
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        events = tempfile.NamedTemporaryFile(prefix="acc-events-")
        self.addCleanup(events.close)
        process = subprocess.Popen([ACC, *"--nnodes 1:2 --nproc_per_node 1 --insecure --last_call 0s --rdzv_backend tcp --rdzv_id deaf --rdzv_endpoint".split(),
                                    f"127.0.0.1:{free_port()}", "--no_python", FAKE, "mark=up", "hold"],
                                   env={**os.environ, "FAKE_EVENTS": events.name}, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing)
        self.addCleanup(process.kill)
        until(lambda: read(events.name).startswith("up"), "the worker")
        os.set_blocking(writing, False)  # the description is shared: acc-launch opens its own, or polls
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x")
        os.set_blocking(writing, True)
        os.close(writing)
        process.send_signal(signal.SIGTSTP)
        until(lambda: not is_pending(process.pid, signal.SIGTSTP), "the end of Ctrl-Z")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20 * PATIENCE), 143)


# What a training script does at a signal, and a fork of it that helps, as a data loader does. It marks what it got.
SAVES = """
import multiprocessing, os, signal, subprocess, sys, time
events = os.environ["FAKE_EVENTS"]
def mark(word):
    with open(events, "a") as file:
        file.write(f"{word} {os.environ['RANK']} 0 {os.getpid()}\\n")
def help():
    if "dies" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_DFL)
    mark("helps")
    time.sleep(600)
def take(signo, frame):
    mark("got_" + signal.Signals(signo).name)
    if signo == signal.SIGUSR1: return
    time.sleep(0.3)
    mark("saved" if helper.is_alive() else "lost")
    os._exit(0)
for signo in (signal.SIGTERM, signal.SIGUSR1): signal.signal(signo, take)
helper = multiprocessing.get_context("fork").Process(target=help)
helper.start()
mark("up")
while True: time.sleep(0.05)
"""


class Helpers(JobTest):
    """Processes that a worker forks to help itself."""

    def training(self, flags, *words, wrapper=None):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script = os.path.join(folder, "train.py")
        write(script, SAVES)
        program = [script]
        if wrapper:
            program = ["--no_python", os.path.join(folder, "run.sh")]
            write(program[1], f"#!/bin/sh\n{wrapper.format(python=sys.executable, script=script)}\n", 0o755)
        job = self.job(flags, list(words), program=program, env={"PYTHON_EXEC": sys.executable})
        job.wait_events("up", 1)
        job.wait_events("helps", 1)
        return job

    def test_a_data_loader_died_of_the_sigterm_at_which_the_worker_was_to_save(self):
        for flags, code in (("--nproc_per_node 1", 143), ("--nproc_per_node 1 --preempt_signals TERM", 75), ("--nproc_per_node 1 --preload json", 143)):
            job = self.training(flags, "dies")
            job.process.terminate()
            self.assertEqual(job.wait(5), code)
            self.assertEqual([event[0] for event in job.events()][2:], ["got_SIGTERM", "saved"], job.stderr)
            self.assertNotIn("left-over", job.stderr)
            self.assert_nothing_left(job)

    def test_a_handler_ran_in_each_fork_of_a_worker(self):
        job = self.training("--nproc_per_node 1")
        job.process.send_signal(signal.SIGUSR1)
        worker, = (event[3] for event in job.events("up"))
        job.wait_events("got_SIGUSR1", 1)
        job.process.terminate()
        self.assertEqual(job.wait(5), 143)
        self.assertEqual([event[3] for event in job.events("got_SIGUSR1")], [worker])
        self.assert_nothing_left(job)

    def test_a_shell_around_the_program_passes_signals_on(self):
        for wrapper in ('trap "" TERM USR1; {python} {script} "$@" & wait $!; wait $!', '({python} {script} "$@" &); exec sleep 600',
                        'trap : TERM; ({python} {script} "$@"; exit $?); exit 0', '{python} {script} "$@"; exit $?'):
            job = self.training("--nproc_per_node 1", "dies", wrapper=wrapper)
            job.process.terminate()
            self.assertEqual(job.wait(10), 143, job.stderr)
            self.assertEqual([event[0] for event in job.events()][2:], ["got_SIGTERM", "saved"], wrapper)
            self.assert_nothing_left(job)


# A process of multiprocessing is the rank, as in scripts that start one for each GPU: it saves for a second.
SAVES_IN_A_CHILD = """
import multiprocessing, os, signal, sys, time
def mark(word):
    with open(os.environ["FAKE_EVENTS"], "a") as file:
        file.write(f"{word} {os.environ['RANK']} 0 {os.getpid()}\\n")
def train():
    def save(signo, frame):
        mark("got_" + signal.Signals(signo).name)
        end = time.monotonic() + 1
        while time.monotonic() < end: time.sleep(0.05)
        mark("saved")
        os._exit(0)
    signal.signal(signal.SIGTERM, save)
    mark("up")
    while True: time.sleep(0.05)
if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    children = [multiprocessing.get_context(sys.argv[-1]).Process(target=train) for _ in range(2)]
    for child in children: child.start()
    for child in children: child.join()
"""


class Children(JobTest):
    def test_processes_of_multiprocessing_got_sigterm_twice_and_the_second_one_into_their_checkpoint(self):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script = os.path.join(folder, "train.py")
        write(script, SAVES_IN_A_CHILD)
        for method in ("fork", "spawn"):
            for signo, flags, code in ((signal.SIGTERM, "", 143), (signal.SIGUSR1, "--preempt_signals USR1", 75)):
                job = self.job("--nproc_per_node 1 " + flags, [method], program=[script], env={"PYTHON_EXEC": sys.executable})
                job.wait_events("up", 2)
                job.process.send_signal(signo)
                self.assertEqual(job.wait(15), code, job.stderr)
                for child in {event[3] for event in job.events("up")}:
                    self.assertEqual([event[0] for event in job.events() if event[3] == child], ["up", "got_SIGTERM", "saved"], job.stderr)
                self.assert_nothing_left(job)


# Rank 0 waits at its end for an upload, which has a session of its own and ends when rank 0 has received its signal.
UPLOADS = """
import os, signal, subprocess, sys
events = os.environ["FAKE_EVENTS"]
def mark(word):
    with open(events, "a") as file:
        file.write(f"{word} {os.environ['RANK']} 0 {os.getpid()}\\n")
if os.environ["RANK"] == "1":
    mark("up")
    while not os.path.exists(sys.argv[2]): signal.sigtimedwait([signal.SIGCHLD], 0.05)
    sys.exit(5 if sys.argv[3] == "fails" else 0)
service = subprocess.Popen(["sh", "-c", "read line; sleep 0.5; exit 0"], stdin=subprocess.PIPE, start_new_session=True)
def save(signo, frame):
    if signo == signal.SIGUSR1: return
    service.communicate(b"end\\n")
    mark("uploaded" if service.returncode == 0 else f"upload_got_{-service.returncode}")
    os._exit(0)
for signo in (signal.SIGTERM, signal.SIGUSR1): signal.signal(signo, save)
mark("up")
while True: signal.pause()
"""


class Uploads(JobTest):
    """A program in a session of its own, which a rank started and waits for while it saves."""

    def uploads(self, flags, what, do, code):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script = os.path.join(folder, "train.py")
        write(script, UPLOADS)
        go = os.path.join(folder, "go")
        job = self.job("--nproc_per_node 2 " + flags, [go, what], program=[script], env={"PYTHON_EXEC": sys.executable})
        job.wait_events("up", 2)
        do(job, go)
        self.assertEqual(job.wait(15), code)
        self.assertEqual([event[0] for event in job.events() if event[0].startswith("upload")], ["uploaded"], job.stderr)
        self.assertNotIn("left-over", job.stderr)
        self.assert_nothing_left(job)

    def test_the_upload_that_a_rank_waited_for_was_ended_when_another_rank_failed(self):
        for flags in ("", "--preload json"):
            self.uploads(flags, "fails", lambda job, go: write(go, ""), 5)

    def test_and_when_the_time_after_a_preemption_signal_was_over(self):
        self.uploads("--preempt_signals USR1 --preempt_grace 300ms", "ends",
                     lambda job, go: (write(go, ""), job.process.send_signal(signal.SIGUSR1)), 75)


    def test_what_a_rank_left_was_killed_unasked_as_another_one_hung_until_the_end_of_the_grace(self):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script, go = os.path.join(folder, "train.sh"), os.path.join(folder, "go")
        write(script, """#!/bin/bash
mark() { echo "$1 $RANK 0 $$" >>"$FAKE_EVENTS"; }
case $RANK in
0) trap 'exit 0' TERM
   setsid bash -c 'trap "echo asked 0 0 $$ >>$FAKE_EVENTS; exit" TERM; echo up 0 0 $$ >>$FAKE_EVENTS; while :; do sleep 0.05; done' & ;;
1) mark up; until [ -e "$2" ]; do sleep 0.05; done; exit 5 ;;
2) trap '' TERM; mark up ;;
esac
while :; do sleep 0.05; done
""", 0o755)
        job = self.job("--nproc_per_node 3 --grace 3s --no_python", [go], program=[script])
        job.wait_events("up", 3)
        write(go, "")
        self.assertEqual(job.wait(20), 5)
        self.assertEqual(len(job.events("asked")), 1, job.stderr)
        self.assert_nothing_left(job)


# Saves for a second at the first signal, and marks each that it gets; a second one finds it in the middle.
SAVES_SLOWLY = """
import os, signal, sys, time
def mark(word):
    with open(os.environ["FAKE_EVENTS"], "a") as file:
        file.write(f"{word} {os.environ['RANK']} {os.environ.get('ACC_ROUND', 0)} {os.getpid()}\\n")
def save(signo, frame):
    mark("got_" + signal.Signals(signo).name)
    if "hangs" in sys.argv: return
    end = time.monotonic() + 1
    while time.monotonic() < end: time.sleep(0.05)
    mark("saved")
    os._exit(0)
for signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1): signal.signal(signo, save)
if os.environ.get("ACC_ROUND", "0") != "0": mark("again"), os._exit(0)
mark("up")
while True:
    time.sleep(0.05)
    if "fails" in sys.argv and os.environ["RANK"] == "1" and os.path.exists(sys.argv[-1]): os._exit(5)
"""


class Wrappers(JobTest):
    """A shell is the worker, and dies of the signal at which the program in it saves."""

    def wrapped(self, flags, words=(), interpreter="/bin/bash", wrapper='{python} {script} "$@"\necho "ended $?"', ranks=2):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script, shell, self.go = (os.path.join(folder, name) for name in ("train.py", "run.sh", "go"))
        write(script, SAVES_SLOWLY)
        write(shell, f"#!{interpreter}\n{wrapper.format(python=sys.executable, script=script)}\n", 0o755)
        job = self.job(f"--nproc_per_node {ranks} {flags} --no_python", [word if word != "GO" else self.go for word in words], program=[shell])
        job.wait_events("up", ranks)
        return job

    def assert_saved(self, job, code, signo, ranks=(0, 1)):
        self.assertEqual(job.wait(15), code, job.stderr)
        for rank in ranks:
            got = [event[0] for event in job.events() if event[1] == str(rank) and event[0] != "up"]
            self.assertEqual(got[:2], [f"got_{signo}", "saved"], (rank, job.events(), job.stderr))
            self.assertNotIn("got", " ".join(got[2:]), (rank, job.events()))
        self.assertNotIn("left-over", job.stderr)
        self.assert_nothing_left(job)

    def test_the_checkpoint_of_a_wrapped_program_was_lost_at_a_preemption(self):
        for interpreter in ("/bin/bash", "/bin/dash"):
            for wrapper in ('{python} {script} "$@"\necho "ended $?"', '{python} {script} "$@"', "{python} {script} 2>&1 | cat",
                            "({python} {script}; true)", "bash -c '{python} {script}; echo done'"):
                job = self.wrapped("--preempt_signals USR1 --preempt_grace 60", interpreter=interpreter, wrapper=wrapper)
                job.process.send_signal(signal.SIGUSR1)
                self.assert_saved(job, 75, "SIGUSR1")

    def test_what_a_script_had_started_with_an_ampersand_or_nohup_took_the_whole_grace(self):
        for signo, beside in ((signal.SIGINT, "sleep 1000 &"), (signal.SIGHUP, "nohup sleep 1000 >/dev/null 2>&1 &")):
            job = self.wrapped("--grace 120", wrapper=beside + "\n{python} {script}")
            begin = time.monotonic()
            job.process.send_signal(signo)
            self.assertEqual(job.wait(30), 128 + signo, job.stderr)
            self.assertLess(time.monotonic() - begin, 30 * PATIENCE)  # of the 120 s
            self.assert_nothing_left(job)

    def test_a_wrapped_program_got_sigterm_twice_within_150_ms(self):
        for signo, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            job = self.wrapped("")
            job.process.send_signal(signo)
            self.assert_saved(job, code, signo.name)

    def test_the_attempt_after_a_failure_began_while_a_wrapped_program_still_saved(self):
        job = self.wrapped("--max_restarts 1 --restart_delay 0", ["fails", "GO"], wrapper='{python} {script} "$@" || exit $?')
        write(self.go, "")
        self.assert_saved(job, 0, "SIGTERM", ranks=(0,))
        words = [event[0] for event in job.events()]
        self.assertGreater(words.index("again"), words.index("saved"), words)

    def test_the_program_behind_timeout_lost_its_checkpoint(self):
        """`timeout` makes a group of its own, and passes on what it handles: USR1 it dies of."""
        self.assert_all_saved([(interpreter, wrapper) for interpreter in ("/bin/bash", "/bin/dash") for wrapper in (
            'timeout 1000 {python} {script} "$@"\necho "ended $?"', "timeout --foreground 1000 {python} {script}; true",
            "(timeout 1000 {python} {script}; true)", "exec timeout 1000 {python} {script}")])

    def assert_all_saved(self, shells):
        """At SIGTERM and at a pre-emption. All jobs at once."""
        ways = (("--grace 60", signal.SIGTERM, 143), ("--preempt_signals USR1 --preempt_grace 60", signal.SIGUSR1, 75))
        jobs = [(self.wrapped(flags, interpreter=interpreter, wrapper=wrapper), code, signo)
                for interpreter, wrapper in shells for flags, signo, code in ways]
        for job, _, signo in jobs:
            job.process.send_signal(signo)
        for job, code, signo in jobs:
            self.assert_saved(job, code, signo.name)

    def test_under_a_manager_that_signals_all_processes_of_a_job_the_checkpoint_was_interrupted(self):
        """As Slurm's steps and systemd do. The sender is known by its name; the order is chance."""
        # The workers first: those that die of it, as a shell, may be seen before the agent knows.
        for wrapper, order in (("exec {python} {script}", "1"), ("exec {python} {script}", "-1"), ("{python} {script}; true", "1"),
                               ("trap 'exit 143' TERM USR1; {python} {script} & wait $!", "1")):
            for flags, signo, code_of_job in (("--grace 60", signal.SIGTERM, 143), ("--preempt_signals USR1 --preempt_grace 60", signal.SIGUSR1, 75)):
                job = self.wrapped(flags, wrapper=wrapper)
                self.signal_all_processes(job, signo, order)
                self.assert_saved(job, code_of_job, signo.name)

    def test_of_many_ranks_under_a_manager_those_looked_at_last_had_the_signal_again_in_their_checkpoint(self):
        """Their shells die of it while the agent still looks at the others."""
        ranks = 48
        job = self.wrapped("--grace 60", wrapper="{python} {script}; true", ranks=ranks)
        self.signal_all_processes(job, signal.SIGTERM, "1")
        self.assert_saved(job, 143, "SIGTERM", ranks=range(ranks))

    def test_a_program_whose_script_passes_the_signal_on_got_it_twice_and_its_checkpoint_was_destroyed(self):
        """As entry points of containers and batch scripts do."""
        self.assert_all_saved([(interpreter, "trap 'kill -TERM $PID' TERM; trap 'kill -USR1 $PID' USR1\n{python} {script} & PID=$!\nwait $PID; wait $PID")
                               for interpreter in ("/bin/bash", "/bin/dash")])

    def test_a_program_was_ended_as_left_over_in_its_checkpoint_when_the_script_that_had_passed_the_signal_on_ended(self):
        """The trap ends the script's one `wait`."""
        self.assert_all_saved([(interpreter, f"trap 'kill -TERM $PID{ends}' TERM; trap 'kill -USR1 $PID{ends}' USR1\n{{python}} {{script}} & PID=$!\nwait $PID")
                               for interpreter in ("/bin/bash", "/bin/dash") for ends in ("", "; exit 0")])

    def test_a_program_in_the_foreground_of_a_script_with_a_trap_was_never_asked(self):
        """bash ignores SIGQUIT wherever it runs, as what is started with an ampersand does."""
        self.assert_all_saved([(interpreter, f"trap 'echo asked' TERM USR1; {inner} -c '{{python}} {{script}}; true'; true")
                               for interpreter in ("/bin/bash", "/bin/dash") for inner in ("bash", "dash")])

    def test_behind_a_trap_for_exit_a_program_got_sigterm_in_place_of_the_signal_at_which_it_saves(self):
        """bash catches all signals for it."""
        self.assert_all_saved([("/bin/bash", "trap 'rm -f tmp' EXIT; {python} {script} & wait $!"),
                               ("/bin/bash", "trap 'rm -f tmp' EXIT; trap 'kill -TERM $PID' TERM; trap 'kill -USR1 $PID' USR1; {python} {script} & PID=$!; wait $PID; wait $PID"),
                               ("/bin/bash", "trap '' TERM USR1; trap 'rm -f tmp' EXIT; {python} {script} & wait $!"),
                               ("/bin/bash", "trap 'rm -f tmp' EXIT; bash -c '{python} {script}; true'; true")])

    def test_what_a_trap_left_behind_took_the_whole_grace(self):
        """The script ends by its trap, and what it had started with an ampersand gets SIGTERM as a left-over."""
        # Before it executes sleep it is a fork of the shell, so a helper, which gets SIGTERM without a word.
        job = self.wrapped("--grace 120", wrapper="trap 'exit 0' TERM; sleep 1000 & until read -r name </proc/$!/comm && [ $name = sleep ]; do :; done\n"
                                                  "echo up $RANK 0 $$ >>$FAKE_EVENTS; wait", ranks=2)
        begin = time.monotonic()
        job.process.terminate()
        self.assertEqual(job.wait(30), 143, job.stderr)
        self.assertLess(time.monotonic() - begin, 30 * PATIENCE)  # of the 120 s
        self.assertEqual(sum(map(int, re.findall(r"ending (\d+) left-over", job.stderr))), 2, job.stderr)
        self.assert_nothing_left(job)

    def test_what_ignores_a_signal_in_a_group_of_its_own_was_never_asked_and_took_the_whole_grace(self):
        job = self.wrapped("--grace 120", wrapper="set -m; nohup sleep 1000 >/dev/null 2>&1 &\n{python} {script}", ranks=1)
        begin = time.monotonic()
        job.process.send_signal(signal.SIGHUP)
        self.assertEqual(job.wait(30), 129, job.stderr)
        self.assertLess(time.monotonic() - begin, 30 * PATIENCE)  # of the 120 s
        self.assertIn("ending 1 left-over", job.stderr)
        self.assert_nothing_left(job)

    def test_the_program_behind_timeout_got_a_second_signal_as_another_rank_had_ended(self):
        """150 ms after a rank that left a process."""
        job = self.wrapped("--preempt_signals USR1 --preempt_grace 60", wrapper="""if [ $RANK = 0 ]; then setsid sleep 1000 & fi
[ $RANK = 1 ] || {{ echo up 0 0 $$ >>$FAKE_EVENTS; exec sleep 1000; }}\ntimeout 1000 {python} {script}; true""")
        job.process.send_signal(signal.SIGUSR1)
        self.assertEqual(job.wait(15), 75, job.stderr)
        self.assertEqual([event[0] for event in job.events() if event[1] == "1"], ["up", "got_SIGUSR1", "saved"], job.stderr)
        self.assertIn("left-over", job.stderr)
        self.assert_nothing_left(job)

    def test_the_program_of_an_interactive_shell_was_never_asked(self):
        """It ignores SIGTERM, and gives each program a group of its own where it has job control."""
        self.assert_all_saved([("/bin/bash", "set -m; {python} {script}; true"), ("/bin/bash", "set -m; {python} {script} & wait $!; wait $!")])
        job = self.wrapped("--grace 60", interpreter="/bin/bash -i", wrapper="{python} {script}; exit 0")
        job.process.terminate()
        self.assert_saved(job, 143, "SIGTERM")

    def test_the_program_that_ignored_a_preemption_in_a_group_of_its_own_gets_sigterm_too(self):
        job = self.wrapped("--preempt_signals USR1 --preempt_grace 1s --grace 60", ["hangs"], wrapper='set -m; {python} {script} "$@"; true', ranks=1)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGTERM", 1)
        os.kill(int(job.events("got_SIGTERM")[0][3]), signal.SIGKILL)
        self.assertEqual(job.wait(15), 75)
        self.assertEqual([event[0] for event in job.events()], ["up", "got_SIGUSR1", "got_SIGTERM"])
        self.assert_nothing_left(job)

    def test_a_wrapped_program_that_doesnt_end_has_the_whole_time_then_sigterm_then_sigkill(self):
        job = self.wrapped("--preempt_signals USR1 --preempt_grace 2s --grace 2s", ["hangs"], ranks=1)
        begin = time.monotonic()
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGTERM", 1)
        self.assertGreater(time.monotonic() - begin, 1.9)
        self.assertEqual(job.wait(15), 75)
        self.assertGreater(time.monotonic() - begin, 3.9)
        self.assertEqual([event[0] for event in job.events()], ["up", "got_SIGUSR1", "got_SIGTERM"])
        self.assertIn("rank 0 has ended, but what it started has not, and keeps the time that is left: python", job.stderr)
        self.assert_nothing_left(job)


class Terminal(unittest.TestCase):
    """A real pseudo-terminal with a session, as a shell would give."""

    def start(self, flags, words, folder="/tmp"):
        pid, master = pty.fork()
        if pid == 0:
            os.execv(ACC, [ACC, *flags.split(), "--no_python", *words])
        self.addCleanup(os.close, master)
        self.text = b""
        return pid, master

    def read_until(self, master, word, deadline=10):
        end = time.monotonic() + deadline * PATIENCE
        while word not in self.text:
            ready, _, _ = select.select([master], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no {word!r} in {self.text!r}")
            try:
                self.text += os.read(master, 4096)
            except OSError:
                break
        self.assertIn(word, self.text)

    def exit_code(self, pid, deadline=10):
        result = []
        def ended():
            got, status = os.waitpid(pid, os.WNOHANG)
            if got:
                result.append(os.waitstatus_to_exitcode(status))
            return got
        until(ended, "acc-launch to end", deadline)
        return result[0]

    def test_one_worker_reads_the_terminal_and_is_a_terminal_user(self):
        pid, master = self.start("--num_processes 1", ["sh", "-c", 'test -t 0 && test -t 1 && echo is-a-tty; read x; echo got:$x'])
        self.read_until(master, b"is-a-tty")
        os.write(master, b"hello\n")
        self.read_until(master, b"got:hello")
        self.assertEqual(self.exit_code(pid), 0)

    def test_ctrl_c_in_one_workers_terminal_ends_the_job_with_130(self):
        pid, master = self.start("--num_processes 1 --max_restarts 3", [FAKE, "out=up", "hold"])  # dash would race with the key
        self.read_until(master, b"up")
        until(lambda: is_watched(pid), "the watch for Ctrl-C")
        os.write(master, b"\x03")
        self.assertEqual(self.exit_code(pid), -signal.SIGINT)

    def test_ctrl_c_counts_once_with_several_workers(self):
        pid, master = self.start("--num_processes 2", ["sh", "-c", "trap 'echo int-$RANK; exit 0' INT; echo up-$RANK; sleep 100 & wait"])
        self.read_until(master, b"up-0")
        self.read_until(master, b"up-1")
        os.write(master, b"\x03")
        self.read_until(master, b"int-0")
        self.read_until(master, b"int-1")
        self.assertEqual(self.exit_code(pid), -signal.SIGINT)
        self.assertEqual(self.text.count(b"int-0"), 1)

    def test_ctrl_z_gives_the_terminal_back(self):
        # A small shell of our own: starts acc-launch in a group of its own, waits for it to stop, continues it. The terminal
        # is the group's before its program begins, as with real ones: what reads earlier is stopped.
        shell = r'''
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
try:
    os.setpgid(pid, pid)
except OSError:
    pass
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", flush=True)
os.tcsetpgrp(0, os.getpgrp())
print("shell has it", os.tcgetpgrp(0) == os.getpgrp(), flush=True)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, os.WUNTRACED)
print("code", os.waitstatus_to_exitcode(status), flush=True)
'''
        pid, master = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", shell, ACC, "--num_processes", "1", "--no_python", "sh", "-c",
                                      "echo up; read x; echo got:$x"])
        self.addCleanup(os.close, master)
        self.text = b""
        self.read_until(master, b"up\r\n")
        os.write(master, b"\x1a")
        self.read_until(master, b"stopped")
        self.read_until(master, b"shell has it True")
        os.write(master, b"again\n")
        self.read_until(master, b"got:again")
        self.read_until(master, b"code 0")
        self.exit_code(pid)


if __name__ == "__main__":
    main()
