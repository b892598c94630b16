"""The daemon's jobs without its HTTP API: submitted, stopped, restarted, kept apart by user, and found again after the
daemon was killed at any step. tests/support/daemon_driver.cpp plays the daemon."""
import contextlib, errno, json, os, pwd, random, re, shutil, signal, subprocess, sys, tempfile, threading, time, unittest

from harness import ACC, BIN, FAKE, PROGRAMS, SANITIZED, SLACK, context_switches, is_root, own_token, parent_of, preloading, processes_with, read, state_of, until, write

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVER = shutil.copy(os.path.join(BIN, "daemon_driver"), PROGRAMS.name)
NOT_FOUND, NOT_PERMITTED, BAD_USAGE, EXHAUSTED, UNAVAILABLE = 2, 3, 0, 4, 6
ENDED = ("succeeded", "failed", "stopped")
ANN, BOB = (pwd.getpwnam(name).pw_uid for name in ("nobody", "games"))  # jobs are for users with an account


class Daemon:
    def __init__(self, state, *more, crash=None, command=(), env=None):
        self.replies, self.events, self.number = {}, [], 0
        self.change = threading.Condition()
        env = {"PATH": os.environ["PATH"], "SECRET_OF_THE_DAEMON": "1", **(env or {})}
        if crash:
            env["ACC_DAEMON_CRASH_AT"] = crash
        self.process = subprocess.Popen([*command, DRIVER, state, ACC, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env=env, text=True)
        self.failed = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        until(lambda: self.ready.is_set() or not self.reader.is_alive(), "the daemon's start")

    def read(self):
        for line in self.process.stdout:
            said = json.loads(line)
            with self.change:
                if "ready" in said or "failed" in said:
                    self.failed = said.get("failed")
                    self.ready.set()
                elif "event" in said:
                    self.events.append(said)
                else:
                    self.replies[said["n"]] = said
                self.change.notify_all()

    def send(self, do, **words):
        self.number += 1
        try:
            self.process.stdin.write(json.dumps({"do": do, "n": self.number, **words}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self.number

    def ask(self, do, **words):
        """The whole reply; None if the daemon died."""
        number = self.send(do, **words)
        until(lambda: number in self.replies or (self.process.poll() is not None and not self.reader.is_alive()), f"the reply to {do}", 30)
        return self.replies.get(number)

    def do(self, what, **words):
        reply = self.ask(what, **words)
        assert reply and "ok" in reply, f"{what} {words}: {reply}"
        return reply["ok"]

    def submit(self, words, **more):
        return self.do("submit", words=["--num_processes", "1", "--no_python", FAKE, *words.split()], **more)

    def state(self, job, **who):
        return self.do("find", id=job, **who)["state"]

    def ended(self, job, deadline=30):
        until(lambda: self.state(job) in ENDED, f"the end of {job}", deadline)
        return self.do("find", id=job)

    def kinds(self, job):
        return [event["event"] for event in self.events if event["job"] == job]

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.wait(20)
        self.reader.join(20)
        self.process.stdout.close()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="acc-daemon-")
        os.chmod(self.folder, 0o755)
        self.state = os.path.join(self.folder, "state")
        self.token = own_token(f"daemon{random.randrange(10**9)}")
        self.marks = os.path.join(self.folder, "marks")
        write(self.marks, "", 0o666)
        self.env = {"FAKE_EVENTS": self.marks}
        self.daemons = []

    def tearDown(self):
        for daemon in self.daemons:
            if daemon.process.poll() is None:
                daemon.close()
        def left():
            found = {**processes_with(self.token), **processes_with(self.folder)}
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return found
        until(lambda: not left(), "the last process")
        # Jobs that ended after the last daemon: a control group is busy while its last process, which has nothing in
        # /proc/PID/environ any more, still exits.
        def removed():
            for job in os.listdir(os.path.join(self.state, "jobs")) if os.path.exists(self.state) else ():
                for group in ("/sys/fs/cgroup/jobs", "/sys/fs/cgroup/unified/jobs"):
                    for path, _, _ in os.walk(os.path.join(group, job), topdown=False):
                        try:
                            os.rmdir(path)
                        except OSError as error:
                            if error.errno != errno.EBUSY:
                                raise
                            return False
            return True
        until(removed, "empty control groups")
        shutil.rmtree(self.folder)

    def start(self, *more, crash=None, command=(), env=None):
        self.daemons.append(Daemon(self.state, *more, crash=crash, command=command, env=env))
        return self.daemons[-1]

    def marked(self, word):
        return [line.split() for line in read(self.marks).splitlines() if line.split()[0] == word]

    def wait_marks(self, word, count):
        until(lambda: len(self.marked(word)) >= count, f"{count} x {word}", 30)

    def submit(self, daemon, words, **more):
        return daemon.submit(f"{self.token} {words}", env={**self.env, **more.pop("env", {})}, **more)

    def user_folder(self, job):
        return os.path.join(self.state, "jobs", job, "user")


class Jobs(Case):
    def test_exit_codes_and_output_are_the_jobs(self):
        daemon = self.start()
        jobs = {code: self.submit(daemon, f"out=hello err=oh exit={code}", wait=True) for code in (0, 3, 70)}
        for code, job in jobs.items():
            ended = daemon.ended(job)
            self.assertEqual((ended["exit_code"], ended["state"]), (code, "failed" if code else "succeeded"))
            self.assertIn("hello", daemon.do("log", id=job))
            self.assertIn("oh", daemon.do("log", id=job, stderr=True))
            self.assertEqual(daemon.do("log", id=job, rank=0), "hello\n")
            self.assertEqual(json.loads(daemon.do("report", id=job))["exit_code"], code)
            until(lambda: len(daemon.kinds(job)) >= 3, f"the events of {job}")
            self.assertEqual(daemon.kinds(job), ["submitted", "started", "ended"])
        self.assertEqual(daemon.ask("log", id=job, rank=7)["code"], NOT_FOUND)

    def test_a_job_has_nothing_of_the_daemon(self):
        daemon = self.start()
        script = "env; echo $(umask) $(pwd); cat /proc/self/status; ls -l /proc/self/fd; cat /proc/self/oom_score_adj; ps -o sid= $$"
        job = daemon.do("submit", words=["--num_processes", "1", "--no_python", "/bin/sh", "-c", script], cwd="/usr", env={"OWN": "1"})
        self.assertEqual(daemon.ended(job)["exit_code"], 0)
        text = daemon.do("log", id=job, rank=0)
        self.assertNotIn("SECRET_OF_THE_DAEMON", text)
        self.assertNotIn("ACC_JOB_FOLDER", text)
        self.assertIn("OWN=1", text)
        self.assertIn("0022 /usr\n", text)
        for line in ("SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"):
            self.assertIn(line, text)
        self.assertNotEqual(int(text.splitlines()[-1]), os.getsid(daemon.process.pid))  # 0 where its leader is outside our pid namespace
        self.assertEqual(len([line for line in text.splitlines() if "->" in line]), 4, text)  # 0, 1, 2 and ls's own

    def test_a_job_that_cannot_start_says_why(self):
        daemon = self.start()
        job = self.submit(daemon, "exit=0", cwd="/no/such/folder")
        ended = daemon.ended(job)
        self.assertEqual(ended["state"], "failed")
        self.assertEqual(ended["reason"], "working directory '/no/such/folder': No such file or directory (as user root)"
                         if is_root() else ended["reason"])
        self.assertEqual(ended["exit_code"], 1)

    def test_a_job_whose_script_is_gone_says_so_and_when_it_is_tried_again(self):
        daemon = self.start()
        gone = os.path.join(self.folder, "gone.py")
        job = daemon.do("submit", words=["--num_processes", "1", "--no_python", gone], restart="always")
        def told():
            now = daemon.do("find", id=job)
            return now if "restarts" in now["reason"] else None
        self.assertRegex(until(told, "its restart")["reason"],
                         rf"^cannot start '{gone}': No such file or directory; restarts in \d+\.\d s$")
        daemon.do("stop", id=job)
        self.assertEqual(daemon.ended(job)["state"], "stopped")

    def test_stop_signal_and_restart(self):
        daemon = self.start()
        job = self.submit(daemon, "note=USR1 note=TERM mark=up hold")
        self.wait_marks("up", 1)
        daemon.do("signal", id=job, signo=signal.SIGUSR1)
        self.wait_marks("got_SIGUSR1", 1)
        self.assertEqual(daemon.ask("signal", id=job, signo=signal.SIGKILL)["code"], BAD_USAGE)
        self.assertEqual(daemon.ask("remove", id=job)["code"], BAD_USAGE)
        daemon.do("stop", id=job)
        self.wait_marks("got_SIGTERM", 1)
        # The worker goes on: its guardian's grace is 15 s; a second stop with one of its own ends it.
        self.assertEqual(daemon.state(job), "stopping")
        os.kill(int(self.marked("up")[0][3]), signal.SIGKILL)
        self.assertEqual(daemon.ended(job)["state"], "stopped")
        self.assertEqual(daemon.ask("stop", id=job)["code"], BAD_USAGE)
        daemon.do("restart", id=job)
        self.wait_marks("up", 2)
        daemon.do("stop", id=job)
        os.kill(int(self.marked("up")[1][3]), signal.SIGKILL)
        ended = daemon.ended(job)
        self.assertEqual((ended["state"], ended["starts"]), ("stopped", 2))
        daemon.do("remove", id=job)
        self.assertEqual(daemon.ask("find", id=job)["code"], NOT_FOUND)
        until(lambda: os.listdir(os.path.join(self.state, "trash")) == [], "an empty trash")
        self.assertEqual(os.listdir(os.path.join(self.state, "jobs")), [])

    def test_a_stop_right_after_the_submission_is_not_lost(self):
        daemon = self.start()
        for _ in range(10):
            job = self.submit(daemon, "hold", wait=True)
            daemon.do("stop", id=job)
            self.assertEqual(daemon.ended(job)["state"], "stopped")

    def test_the_stop_of_a_job_whose_guardian_or_agent_was_stopped_never_ended(self):
        daemon = self.start()
        for grace in ({}, {"grace": 1}):
            for whose in ("guardian", "agent"):
                name = f"{whose}{len(grace)}"
                job = self.submit(daemon, f"mark={name} hold")
                self.wait_marks(name, 1)
                pid = daemon.do("find", id=job)["pid"]
                if whose == "agent":
                    pid = parent_of(int(self.marked(name)[0][3]))
                os.kill(pid, signal.SIGSTOP)
                until(lambda: state_of(pid) == "T", f"a stopped {whose}")
                daemon.do("stop", id=job, **grace)
                self.assertEqual(daemon.ended(job)["state"], "stopped", (whose, grace))

    def test_one_nodes_part_of_a_launch_was_started_alone_by_a_restart_while_it_was_stopped(self):
        daemon = self.start()
        job = self.submit(daemon, "note=TERM mark=up hold", launch="train-1")
        self.wait_marks("up", 1)
        daemon.do("stop", id=job)
        self.wait_marks("got_SIGTERM", 1)
        refused = daemon.ask("restart", id=job)
        self.assertIn("is this node's part of a job on several nodes, which is being stopped", refused["error"])
        os.kill(int(self.marked("up")[0][3]), signal.SIGKILL)
        self.assertEqual(daemon.ended(job)["starts"], 1)
        self.assertIn("which has ended", daemon.ask("restart", id=job)["error"])

    def test_restarts_follow_the_rule(self):
        daemon = self.start()
        failing = self.submit(daemon, "mark=failing exit=5", restart="on-failure", max=2)
        fine = self.submit(daemon, "exit=0", restart="on-failure")
        self.assertEqual(daemon.ended(fine)["starts"], 1)
        ended = daemon.ended(failing)
        self.assertEqual((ended["starts"], ended["exit_code"], len(self.marked("failing"))), (3, 5, 3))
        forever = self.submit(daemon, "exit=0", restart="always")
        until(lambda: daemon.do("find", id=forever)["starts"] >= 2, "a second start")
        daemon.do("stop", id=forever)
        self.assertEqual(daemon.ended(forever)["state"], "stopped")

    def test_a_killed_guardian_is_started_again_when_its_workers_are_gone(self):
        daemon = self.start()
        job = self.submit(daemon, "mark=up hold", restart="on-failure")
        self.wait_marks("up", 1)
        os.kill(daemon.do("find", id=job)["pid"], signal.SIGKILL)
        self.wait_marks("up", 2)
        first, second = (int(row[3]) for row in self.marked("up"))
        self.assertIn(state_of(first), (None, "Z", "X"))  # who reaps it, the machine's first process, may be late
        self.assertEqual(daemon.do("find", id=job)["starts"], 2)
        other = self.submit(daemon, "mark=other hold")
        self.wait_marks("other", 1)
        os.kill(daemon.do("find", id=other)["pid"], signal.SIGKILL)
        ended = daemon.ended(other)
        self.assertEqual((ended["state"], ended["exit_code"]), ("failed", 70))
        self.assertIn("killed by SIGKILL", ended["reason"])
        daemon.do("stop", id=job)
        daemon.ended(job)

    def test_slots_and_gpus_are_shared_out(self):
        daemon = self.start()
        show = ["--num_processes", "1", "--no_python", "/bin/sh", "-c", "echo gpus=$CUDA_VISIBLE_DEVICES"]
        first = self.submit(daemon, "mark=first hold", slots=6, gpus=3)
        self.wait_marks("first", 1)
        full = daemon.ask("submit", words=show, slots=4)
        self.assertEqual(full["code"], EXHAUSTED)
        self.assertIn(first, full["error"])
        never = daemon.ask("submit", words=show, slots=99)
        self.assertEqual(never["code"], EXHAUSTED)
        self.assertIn("99 slots", never["error"])
        waits = daemon.do("submit", words=show, slots=4, gpus=2, wait=True)
        until(lambda: daemon.do("find", id=waits)["reason"] == "waits for 4 slots and 2 GPUs", "its reason")
        self.assertEqual(daemon.ask("submit", words=show)["code"], EXHAUSTED)  # it passes none that waits
        self.assertEqual(daemon.do("node")["gpus_free"], [3])
        daemon.do("stop", id=first)
        daemon.ended(waits)
        self.assertEqual(daemon.do("log", id=waits, rank=0), "gpus=0,1\n")
        until(lambda: daemon.do("node")["free"] == 8, "all slots")

    def test_a_drained_node_takes_no_jobs_also_after_a_restart(self):
        daemon = self.start()
        holds = self.submit(daemon, "mark=holds hold", slots=8)
        waits = self.submit(daemon, "mark=waits exit=0", wait=True)
        self.wait_marks("holds", 1)
        daemon.do("drain", reason="new disk")
        daemon.do("stop", id=holds)
        daemon.ended(holds)
        last = daemon.events[-1]["number"]
        daemon.close()
        daemon = self.start()
        self.assertEqual(daemon.do("node")["drained"], "new disk")
        refused = daemon.ask("submit", words=["x"])
        self.assertEqual((refused["code"], refused["error"]), (UNAVAILABLE, "this node is drained: new disk"))
        self.assertEqual(daemon.state(waits), "waiting")  # what waits is not started
        daemon.do("undrain")
        self.assertEqual(daemon.ended(waits)["state"], "succeeded")
        self.assertGreater(daemon.events[-1]["number"], last)  # numbers never go back
        self.assertEqual(daemon.ended(self.submit(daemon, "exit=0"))["exit_code"], 0)

    def test_those_that_waited_lost_their_order_at_the_daemons_restart(self):
        daemon = self.start()
        holds = self.submit(daemon, "mark=holds hold", slots=8)
        waiting = [self.submit(daemon, f"mark={name} hold", name=name, slots=8, wait=True) for name in ("zz", "mm", "aa")]
        self.wait_marks("holds", 1)
        daemon.kill()
        daemon = self.start()
        for job, name in zip((holds, *waiting), ("zz", "mm", "aa")):
            daemon.do("stop", id=job)
            self.wait_marks(name, 1)
        self.assertEqual([line.split()[0] for line in read(self.marks).splitlines()], ["holds", "zz", "mm", "aa"])
        daemon.do("stop", id=waiting[-1])

    def test_old_jobs_are_pruned_and_running_ones_never(self):
        daemon = self.start("", "3")
        runs = self.submit(daemon, "mark=up hold")
        self.wait_marks("up", 1)
        jobs = []
        for _ in range(6):
            jobs.append(self.submit(daemon, "exit=0"))
            daemon.ended(jobs[-1])
        until(lambda: {job["id"] for job in daemon.do("list")} == {runs, *jobs[-3:]}, "pruning")
        until(lambda: set(os.listdir(os.path.join(self.state, "jobs"))) == {runs, *jobs[-3:]}, "their folders")
        until(lambda: "removed" in daemon.kinds(jobs[0]), "the event")
        daemon.do("stop", id=runs)

    def test_many_jobs_one_after_another_leave_nothing(self):
        daemon = self.start("", "5")
        def run(count):
            for _ in range(count):
                self.assertEqual(daemon.ended(self.submit(daemon, "exit=0", wait=True))["exit_code"], 0)
        descriptors = lambda: len(os.listdir(f"/proc/{daemon.process.pid}/fd"))
        memory = lambda: int(re.search(r"RssAnon:\s+(\d+)", read(f"/proc/{daemon.process.pid}/status"))[1])
        run(20)
        fewest, grown = descriptors(), []
        for _ in range(3):  # the allocator may take something once: a leak grows with each batch
            before = memory()
            run(40)
            grown.append(memory() - before)
            if grown[-1] < 1024:
                break
        until(lambda: descriptors() <= fewest, "its descriptors")
        if not SANITIZED:  # which keeps freed memory for a while
            self.assertLess(min(grown), 1024, f"KiB in 40 jobs, and in the next: {grown}")
        until(lambda: len(os.listdir(os.path.join(self.state, "jobs"))) == 5, "pruning")

    def test_no_control_group_is_left(self):
        daemon = self.start()
        jobs = [self.submit(daemon, f"mark=up {words}") for words in ("exit=0", "hold")]
        self.wait_marks("up", 2)
        os.kill(daemon.do("find", id=jobs[1])["pid"], signal.SIGKILL)
        for job in jobs:
            daemon.ended(job)
            # One is busy while its last process still exits, also when the job has ended: it is removed a moment later.
            for group in ("/sys/fs/cgroup/jobs", "/sys/fs/cgroup/unified/jobs"):
                until(lambda: not os.path.exists(os.path.join(group, job)), f"the end of {job}'s group in {group}")

    @unittest.skipIf(SANITIZED, "a sanitizer has a thread of its own, which wakes up often")
    def test_it_sleeps_when_nothing_happens(self):
        daemon = self.start()
        runs = self.submit(daemon, "mark=up hold")
        self.wait_marks("up", 1)
        daemon.ended(self.submit(daemon, "exit=0"))
        def is_quiet():
            before = context_switches(daemon.process.pid)
            time.sleep(2)
            return context_switches(daemon.process.pid) == before
        until(is_quiet, "two seconds without a wake-up", 20)
        daemon.do("stop", id=runs)
        daemon.ended(runs)


def has_keys(keys):
    """False where a container's filter refuses the kernel's keys to everybody."""
    return subprocess.run([*keys, "join", *keys, "read", "of-root"], capture_output=True, text=True).stdout == "secret of root\n"


@unittest.skipUnless(is_root(), "runs jobs of several users: needs root")
class Users(Case):
    def test_a_config_with_slots_0_is_refused_as_its_job_was_lost_at_the_daemons_restart(self):
        daemon = self.start()
        config = os.path.join(self.folder, "zero.yaml")
        write(config, "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_CPU\nuse_cpu: true\nnum_processes: 2\nslots: 0\n", 0o644)
        reply = daemon.ask("submit", uid=ANN, words=["--config_file", config, "--no_python", "sleep", "600"], slots_of_plan=True)
        self.assertEqual(reply.get("code"), BAD_USAGE, reply)
        self.assertIn("slots: at least 1, or a GPU", reply["error"])
        self.assertEqual(daemon.do("list"), [])

    def test_a_user_with_subordinate_uids_counted_as_many_users(self):
        daemon = self.start()
        known = {entry.pw_uid for entry in pwd.getpwall()}
        uid = next(uid for uid in range(100_000, 200_000) if uid not in known)
        refused = daemon.ask("submit", uid=uid, words=["--num_processes", "1", "--no_python", "true"])
        self.assertEqual(refused.get("code"), NOT_PERMITTED, refused)
        self.assertIn(f"uid {uid} has no account on this node", refused["error"])
        self.assertEqual(daemon.do("list"), [])

    def test_a_job_runs_as_its_user(self):
        daemon = self.start()
        job = daemon.do("submit", uid=ANN, words=["--num_processes", "1", "--no_python", "/bin/sh", "-c", "id -u; id -g; id -G; echo $HOME $USER; touch /root/x"])
        ended = daemon.ended(job)
        self.assertEqual(ended["uid"], ANN)
        home, name = pwd.getpwuid(ANN).pw_dir, pwd.getpwuid(ANN).pw_name
        self.assertEqual(daemon.do("log", id=job, rank=0, uid=ANN).split(), [str(ANN)] * 3 + [home, name])
        self.assertIn("Permission denied", daemon.do("log", id=job, rank=0, stderr=True))
        self.assertEqual(os.stat(self.user_folder(job)).st_uid, ANN)
        for name in os.listdir(self.user_folder(job)):
            self.assertEqual(os.lstat(os.path.join(self.user_folder(job), name)).st_uid, ANN, name)

    def test_keys_of_the_daemon_and_of_jobs_are_not_seen_by_other_users_jobs(self):
        # A change of the user keeps the kernel's session keyring.
        python = "/usr/bin/python3"  # sys.executable may lie in a home folder
        if not os.path.exists(python):
            self.skipTest("no python3 that all users may run")
        keys = [python, shutil.copy(os.path.join(HERE, "keys.py"), self.folder)]
        os.chmod(keys[1], 0o644)
        if not has_keys(keys):
            self.skipTest("the kernel gives us no keys here")
        daemon = self.start(command=[*keys, "join"])
        def in_job(uid, *words):
            job = daemon.do("submit", uid=uid, words=["--num_processes", "1", "--no_python", *keys, *words])
            ended = daemon.ended(job)
            self.assertEqual(ended["exit_code"], 0, f"{words}: {ended}")
            return daemon.do("log", id=job).removeprefix("[default0]:")
        in_job(ANN, "add", "of-a-job", "secret of ann")
        for uid, name in ((ANN, "of-root"), (BOB, "of-root"), (BOB, "of-a-job"), (ANN, "of-a-job")):
            self.assertEqual(in_job(uid, "read", name), "no such key\n", f"{uid} {name}")

    def test_another_users_job_does_not_exist(self):
        daemon = self.start()
        job = self.submit(daemon, "out=secret mark=up hold", uid=ANN, env={"TOKEN": "secret"})
        self.wait_marks("up", 1)
        for do, more in (("find", {}), ("stop", {}), ("signal", {"signo": signal.SIGTERM}), ("restart", {}), ("remove", {}),
                         ("log", {}), ("log", {"rank": 0}), ("report", {}), ("control", {"request": "{}"})):
            self.assertEqual(daemon.ask(do, id=job, uid=BOB, **more)["code"], NOT_FOUND, do)
            self.assertEqual(daemon.ask(do, id=job, uid=BOB, **more)["error"], f"no job '{job}' here")
        self.assertEqual(daemon.do("list", uid=BOB), [])
        self.assertEqual(daemon.do("events", uid=BOB), [])
        self.assertEqual([one["id"] for one in daemon.do("list", uid=ANN)], [job])
        self.assertEqual(daemon.ask("drain", uid=BOB)["code"], NOT_PERMITTED)
        self.assertEqual(daemon.ask("submit", uid=BOB, user="root", words=["x"])["code"], NOT_PERMITTED)
        self.assertEqual(daemon.ask("submit", uid=0, user="no-such-user", words=["x"])["code"], BAD_USAGE)
        paths = [os.path.join(self.state, "jobs"), os.path.join(self.state, "jobs", job, "job.json"),
                 self.user_folder(job), os.path.join(self.user_folder(job), "stdout.log"),
                 f"/proc/{daemon.do('find', id=job)['pid']}/environ"]
        for path in paths:
            tried = subprocess.run(["cat" if os.path.isfile(path) else "ls", path], user=BOB, group=BOB, extra_groups=[],
                                   capture_output=True)
            self.assertNotEqual(tried.returncode, 0, path)
        daemon.do("stop", id=job, uid=ANN)
        daemon.ended(job)

    def test_links_that_a_user_plants_are_not_followed(self):
        daemon = self.start()
        secret = os.path.join(self.folder, "secret")
        write(secret, "of root", 0o600)
        job = self.submit(daemon, "mark=up hold", uid=ANN)
        self.wait_marks("up", 1)
        for name in ("stdout.log", "report.json", "stderr.log"):
            path = os.path.join(self.user_folder(job), name)
            if os.path.lexists(path):
                os.unlink(path)
            os.symlink(secret, path)
        os.rename(os.path.join(self.user_folder(job), "logs"), os.path.join(self.folder, "logs"))
        os.symlink(self.folder, os.path.join(self.user_folder(job), "logs"))
        for do, more in (("log", {}), ("log", {"stderr": True}), ("log", {"rank": 0}), ("report", {})):
            reply = daemon.ask(do, id=job, uid=ANN, **more)
            self.assertNotIn("ok", reply, f"{do} {more}")
            self.assertNotIn("of root", str(reply))
        # A second start would append to what the link names.
        daemon.do("stop", id=job)
        daemon.ended(job)
        daemon.do("restart", id=job)
        ended = daemon.ended(job)
        self.assertEqual(ended["state"], "failed")
        self.assertIn("the job's logs", ended["reason"])
        self.assertEqual(read(secret), "of root")
        os.symlink("/etc", os.path.join(self.user_folder(job), "etc"))
        daemon.do("remove", id=job)
        until(lambda: os.listdir(os.path.join(self.state, "trash")) == [], "an empty trash")
        self.assertTrue(os.path.exists("/etc/passwd"))
        self.assertTrue(os.path.exists(secret))


# The folder, under a file system that answers nothing while this program's input is open. Root's part stands for fusermount3, which is setuid root.
HANGING = """
import ctypes, os, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id={sys.argv[2]},group_id={sys.argv[2]},allow_other"
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"ann", sys.argv[1].encode(), b"fuse", 6, options.encode()) != 0:
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
print("mounted", flush=True)
sys.stdin.read()
libc.umount2(sys.argv[1].encode(), 2)
"""


@unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "mounts with FUSE: needs root")
class Mounts(Case):
    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces")

    @contextlib.contextmanager
    def hanging(self, daemon, folder):
        with subprocess.Popen(["nsenter", "--mount", "--target", str(daemon.process.pid), sys.executable, "-c", HANGING, folder, str(ANN)],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as mounter:
            if mounter.stdout.readline() != "mounted\n":
                self.skipTest(f"no FUSE: {mounter.stderr.read()}")
            try:
                yield
            finally:
                mounter.communicate()

    def test_a_file_system_that_answers_nothing_over_a_jobs_folder_froze_the_daemon(self):
        daemon = self.start(command=("unshare", "--mount"))
        job = self.submit(daemon, "mark=up hold", uid=ANN)
        self.wait_marks("up", 1)
        status = {"id": job, "uid": ANN, "request": '{"do": "status"}'}
        until(lambda: "ok" in daemon.ask("control", **status), "the job's agent")
        with self.hanging(daemon, self.user_folder(job)):
            for do in ("control", "log", "report"):
                reply = daemon.ask(do, **status)
                self.assertIn("a file system is mounted over", reply.get("error", ""), f"{do}: {reply}")
            self.assertEqual(daemon.state(job), "running")
        self.assertIn("ok", daemon.ask("control", **status))
        daemon.do("stop", id=job, uid=ANN)
        daemon.ended(job)
        with self.hanging(daemon, os.path.join(self.user_folder(job), "logs")):
            self.assertIn("open 'logs' in the job's folder: a file system is mounted over it", daemon.ask("log", id=job, uid=ANN, rank=0)["error"])
            daemon.do("remove", id=job, uid=ANN)
            self.assertEqual(daemon.do("list"), [])
            self.assertEqual(daemon.ended(self.submit(daemon, "exit=0", uid=BOB))["exit_code"], 0)
            until(lambda: os.listdir(os.path.join(self.state, "trash")) == [], "an empty trash")


class Crashes(Case):
    POINTS = ("submit.made:1", "submit.renamed:1", "record.written:2", "start.forked:1", "start.recorded:1", "start.opened:1",
              "stop.recorded:1", "stop.sent:1", "end.seen:1", "record.written:3", "record.written:4", "prune.renamed:1", "prune.removing:1")

    def check_states(self, daemon, known):
        """Each job that was acknowledged is there; none runs twice; each can be stopped."""
        listed = {job["id"]: job for job in daemon.do("list")}
        for job in known:
            self.assertIn(job, listed)
        for job in listed.values():
            if job["state"] not in ENDED:
                daemon.ask("stop", id=job["id"])
                self.assertIn(daemon.ended(job["id"], 60)["state"], ENDED)
        until(lambda: not processes_with(self.token), "the end of all processes", 60)

    def test_a_daemon_that_dies_at_any_step_loses_and_doubles_nothing(self):
        for point in self.POINTS:
            with self.subTest(point=point):
                write(self.marks, "", 0o666)
                known = []
                daemon = self.start("", "1", crash=point)
                for words, stop in (("mark=a exit=3", False), ("mark=b hold", True), ("mark=c exit=0", False)):
                    reply = daemon.ask("submit", words=["--num_processes", "1", "--no_python", FAKE, self.token, *words.split()], env=self.env, wait=True)
                    if not reply:
                        break
                    known.append(reply["ok"])
                    if stop and daemon.ask("stop", id=known[-1]) is None:
                        break
                    until(lambda: daemon.process.poll() is not None or (daemon.ask("find", id=known[-1]) or {}).get("ok", {}).get("state", "failed") in ENDED or "error" in (daemon.ask("find", id=known[-1]) or {}),
                          "the end of a job or of the daemon", 30)
                # Pruning follows the second end.
                until(lambda: daemon.process.poll() is not None, f"the crash at {point}", 30)
                self.assertEqual(daemon.process.returncode, -signal.SIGKILL)
                daemon.close()
                again = self.start("", "100")
                self.assertIsNone(again.failed)
                if known and not point.startswith("prune"):
                    first = again.ended(known[0])
                    self.assertEqual((first["state"], first["exit_code"]), ("failed", 3))
                if not point.startswith("prune"):
                    self.check_states(again, known)
                for job in again.do("list"):
                    if job["state"] not in ENDED:
                        again.ask("stop", id=job["id"])  # it may have ended meanwhile
                    again.ended(job["id"])
                for word in "abc":
                    self.assertLessEqual(len(self.marked(word)), 1, f"{word} ran twice")
                self.assertEqual([name for name in os.listdir(os.path.join(self.state, "jobs")) if name.startswith(".")], [])
                for job in again.do("list"):
                    again.do("remove", id=job["id"])
                again.close()

    def test_exit_codes_of_jobs_that_ended_meanwhile_are_right(self):
        daemon = self.start()
        jobs = {self.submit(daemon, f"on=USR1:{code} mark=ends hold"): code for code in (0, 3, 9)}
        killed = self.submit(daemon, "mark=up hold")
        lives = self.submit(daemon, "mark=up hold")
        self.wait_marks("ends", 3)
        self.wait_marks("up", 2)
        guardian = daemon.do("find", id=killed)["pid"]
        daemon.kill()
        for row in self.marked("ends"):
            os.kill(int(row[3]), signal.SIGUSR1)
        os.kill(guardian, signal.SIGKILL)
        for job in jobs:
            until(lambda: os.path.exists(os.path.join(self.user_folder(job), "exit.json")), "its exit.json")
        daemon = self.start()
        for job, code in jobs.items():
            ended = daemon.ended(job)
            self.assertEqual((ended["exit_code"], ended["starts"]), (code, 1))
        self.assertEqual(daemon.ended(killed)["exit_code"], 70)
        self.assertEqual(daemon.state(lives), "running")
        daemon.do("stop", id=lives)
        ended = daemon.ended(lives)
        self.assertEqual((ended["state"], ended["exit_code"]), ("stopped", 143))
        self.assertEqual((len(self.marked("ends")), len(self.marked("up"))), (3, 2))

    def test_a_job_is_adopted_and_its_later_end_is_seen(self):
        daemon = self.start()
        job = self.submit(daemon, "on=USR1:6 mark=up hold")
        self.wait_marks("up", 1)
        daemon.kill()
        daemon = self.start()
        daemon.do("signal", id=job, signo=signal.SIGUSR1)
        ended = daemon.ended(job)
        self.assertEqual((ended["exit_code"], ended["starts"]), (6, 1))

    def losing_files(self):
        """A file, which names what can't be read while it is there, and the environment of a daemon that heeds it."""
        lost = os.path.join(self.folder, "lost")
        return lost, {**preloading(os.path.join(BIN, "lost_files.so")), "LOST_FILES": lost}

    def assert_looked_at_again(self, name, finder):
        """A job whose end is found by `finder` while a file of it, `name`, can't be opened."""
        lost, env = self.losing_files()
        write(self.marks, "", 0o666)
        daemon = self.start(env=env)
        job = self.submit(daemon, "on=USR1:6 mark=up hold")
        self.wait_marks("up", 1)
        guardian, worker = daemon.do("find", id=job)["pid"], int(self.marked("up")[0][3])
        if finder != "own daemon":
            daemon.kill()
        if finder == "adopting daemon":
            daemon = self.start(env=env)
        write(lost, name)
        if name == "started":
            os.kill(guardian, signal.SIGKILL)  # which leaves no exit code
        else:
            os.kill(worker, signal.SIGUSR1)
        until(lambda: state_of(guardian) in (None, "Z", "X"), "the end of its acc-launch")
        if finder == "next daemon":
            daemon = self.start(env=env)
        for look in ("a look", "another look"):
            until(lambda: os.path.exists(lost + ".asked"), f"{look} at {name}")
            self.assertEqual((daemon.state(job), len(self.marked("up"))), ("running", 1))
            os.remove(lost + ".asked")
        os.remove(lost)
        ended = daemon.ended(job)
        self.assertEqual((ended["exit_code"], ended["starts"], len(self.marked("up"))), (70 if name == "started" else 6, 1, 1))
        self.assertNotIn("before it began", ended["reason"])
        daemon.close()

    def test_a_job_that_had_ended_ran_again_as_its_folder_could_not_be_opened(self):
        for finder in ("next daemon", "adopting daemon", "own daemon"):
            self.assert_looked_at_again("/user", finder)

    def test_a_job_that_had_ended_counted_as_lost_as_its_exit_code_could_not_be_read(self):
        for finder in ("next daemon", "adopting daemon", "own daemon"):
            self.assert_looked_at_again("exit.json", finder)

    def test_a_job_whose_guardian_was_killed_ran_again_as_nothing_said_that_it_had_begun(self):
        for finder in ("next daemon", "adopting daemon"):
            self.assert_looked_at_again("started", finder)

    def test_a_living_job_was_lost_as_its_process_could_not_be_looked_at_at_the_start(self):
        lost, env = self.losing_files()
        for name in ("pidfd_open", "/stat"):
            write(self.marks, "", 0o666)
            daemon = self.start()
            job = self.submit(daemon, "on=USR1:6 mark=up hold")
            self.wait_marks("up", 1)
            daemon.kill()
            write(lost, name)
            daemon = self.start(env=env)
            for look in ("a look", "another look"):
                until(lambda: os.path.exists(lost + ".asked"), f"{look} at the process")
                self.assertEqual(daemon.state(job), "running")
                os.remove(lost + ".asked")
            os.remove(lost)
            os.kill(int(self.marked("up")[0][3]), signal.SIGUSR1)
            ended = daemon.ended(job)
            self.assertEqual((ended["exit_code"], ended["starts"], len(self.marked("up"))), (6, 1, 1))
            daemon.close()

    def test_a_job_started_though_its_process_could_not_be_known_again(self):
        lost, env = self.losing_files()
        daemon = self.start(env=env)
        write(lost, "/stat")
        job = self.submit(daemon, "exit=0", wait=True)
        until(lambda: "/stat': Input/output error" in daemon.do("find", id=job)["reason"], "the postponed start")
        os.remove(lost)
        ended = daemon.ended(job)
        self.assertEqual((ended["exit_code"], ended["starts"]), (0, 1))
        daemon.close()

    def assert_start_is_refused(self, name, path, change=lambda daemon: None):
        """No daemon starts while `path`, whose name ends with `name`, can't be read; the next one finds the job as it was."""
        lost, env = self.losing_files()
        daemon = self.start()
        job = self.submit(daemon, "on=USR1:6 mark=up hold", restart="always")
        self.wait_marks("up", 1)
        change(daemon)
        daemon.kill()
        write(lost, name)
        refused = self.start(env=env)
        self.assertEqual(refused.failed, f"what runs on this node can't be known now, and no job was touched: read {path.format(job)}: Input/output error")
        refused.close()
        self.assertFalse(os.path.exists(os.path.join(self.state, "damaged")))
        daemon = self.start()
        self.assertEqual((daemon.state(job), daemon.do("find", id=job)["starts"], len(self.marked("up"))), ("running", 1, 1))
        self.assertNotEqual(daemon.do("find", id=job)["pid"], 0)
        return daemon

    def test_jobs_were_forgotten_as_their_folder_could_not_be_read_at_the_start(self):
        self.assert_start_is_refused("/jobs", f"the folder '{self.state}/jobs'").close()

    def test_a_job_was_set_aside_as_damaged_as_its_record_could_not_be_read_at_the_start(self):
        self.assert_start_is_refused("job.json", f"'{self.state}/jobs/{{}}/job.json'").close()

    def test_living_jobs_were_lost_as_the_id_of_the_boot_could_not_be_read_at_the_start(self):
        self.assert_start_is_refused("boot_id", "'/proc/sys/kernel/random/boot_id'").close()

    def test_a_drained_node_took_jobs_again_as_its_note_could_not_be_read_at_the_start(self):
        daemon = self.assert_start_is_refused("drained", f"'{self.state}/drained'", lambda daemon: daemon.do("drain", reason="disk"))
        self.assertEqual(daemon.do("node")["drained"], "disk")
        daemon.close()

    def test_numbers_of_events_began_again_as_their_note_could_not_be_read_at_the_start(self):
        numbers = []
        daemon = self.assert_start_is_refused("events", f"'{self.state}/events'", lambda daemon: numbers.append(daemon.do("events")[-1]["number"]))
        daemon.do("drain", reason="disk")
        self.assertGreater(daemon.do("events")[-1]["number"], numbers[0])
        daemon.close()

    def test_a_state_folder_was_taken_over_as_its_machine_could_not_be_read(self):
        for name, path in (("machine", f"{self.state}/machine"), ("/etc/machine-id", "/etc/machine-id")):
            write(self.marks, "", 0o666)
            self.assert_start_is_refused(name, f"'{path}'").close()

    def test_a_damaged_record_costs_its_job_alone(self):
        daemon = self.start()
        good, bad = (self.submit(daemon, "exit=0") for _ in range(2))
        daemon.ended(good), daemon.ended(bad)
        daemon.close()
        write(os.path.join(self.state, "jobs", bad, "job.json"), "{", 0o600)
        daemon = self.start()
        self.assertEqual([job["id"] for job in daemon.do("list")], [good])
        self.assertIn("is damaged: job.json: not a JSON object", daemon.do("events")[0]["text"])
        self.assertEqual(len(os.listdir(os.path.join(self.state, "damaged"))), 1)

    def test_a_second_daemon_is_refused(self):
        first = self.start()
        self.assertIn("another acc-agent uses the state folder", self.start().failed)
        first.close()


class Kills(Case):
    def test_a_daemon_killed_at_random_loses_doubles_and_forgets_nothing(self):
        seed = int(os.environ.get("ACC_TEST_SEED", random.randrange(10**6)))
        print(f"seed {seed}")
        dice = random.Random(seed)
        known, stopped, count = {}, set(), 0
        for _ in range(int(os.environ.get("ACC_TEST_KILLS", "60"))):
            daemon = self.start("", "100000")
            self.assertIsNone(daemon.failed)
            end = time.monotonic() + dice.uniform(0, 0.15)
            killer = threading.Timer(end - time.monotonic(), daemon.process.kill)
            killer.start()
            pending = {}
            while daemon.process.poll() is None:
                if dice.random() < 0.7 and len(pending) < 4:
                    count += 1
                    code = dice.choice((0, 0, 4, None))
                    words = f"mark=j{count} " + ("hold" if code is None else f"exit={code}")
                    pending[daemon.send("submit", words=["--num_processes", "1", "--no_python", FAKE, self.token, *words.split()],
                                        env=self.env, wait=True)] = (count, code)
                elif known:
                    job = dice.choice(sorted(known))
                    if known[job][1] is None and job not in stopped:
                        pending[daemon.send("stop", id=job)] = job
                time.sleep(dice.uniform(0, 0.03))
            killer.join()
            daemon.close()
            for number, what in pending.items():
                if "ok" not in daemon.replies.get(number, {}):
                    continue
                if isinstance(what, str):
                    stopped.add(what)
                else:
                    known[daemon.replies[number]["ok"]] = what
        daemon = self.start("", "100000")
        listed = {job["id"]: job for job in daemon.do("list")}
        self.assertEqual(set(known) - set(listed), set(), "lost")
        for job in stopped:
            self.assertEqual(daemon.ended(job, 60)["state"], "stopped")
        for job in listed:  # those that hold slots, first
            if known.get(job, (0, None))[1] is None and daemon.state(job) not in ENDED:
                daemon.ask("stop", id=job)
        for job in listed:
            ended = daemon.ended(job, 60)
            number, code = known.get(job, (0, None))
            if code is not None:
                self.assertEqual((ended["exit_code"], ended["starts"]), (code, 1), job)
        runs = {}
        for line in read(self.marks).splitlines():
            runs[line.split()[0]] = runs.get(line.split()[0], 0) + 1
        self.assertEqual({word: times for word, times in runs.items() if times != 1}, {}, "doubled")
        for number, code in known.values():
            if code is not None:
                self.assertEqual(runs.get(f"j{number}"), 1)
        until(lambda: not processes_with(self.token), "the end of all processes", 60)
        print(f"{len(known)} jobs, {len(stopped)} stops")


class JobFiles(Case):
    def setUp(self):
        super().setUp()
        self.files = os.path.join(self.folder, "jobs.d")
        os.mkdir(self.files)

    def put(self, name, words, mode=0o644, more=""):
        arguments = "".join(f"\n  - '{word}'" for word in [self.token, *words.split()])
        write(os.path.join(self.files, name), f"compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nnum_processes: 1\nno_python: true\nscript: {FAKE}\nscript_args:{arguments}\n{more}", mode)

    def of(self, daemon, name):
        return [job for job in daemon.do("list") if job["name"] == name and job["state"] not in ENDED]

    def test_files_are_jobs_that_are_kept_running(self):
        events = f"export FAKE_EVENTS={self.marks}"
        script = os.path.join(self.folder, "run")
        write(script, f"#!/bin/sh\n{events}\nexec {FAKE} \"$@\"\n", 0o755)
        def put(name, words, **more):
            self.put(name, words, **more)
            path = os.path.join(self.files, name)
            write(path, read(path).replace(f"script: {FAKE}", f"script: {script}"), more.get("mode", 0o644))
        put("one.yaml", "mark=one hold")
        put("open.yaml", "mark=open hold", mode=0o666)
        put("wrong.yaml", "exit=0")
        with open(os.path.join(self.files, "wrong.yaml"), "a") as wrong:
            wrong.write("no_such_key: 1\n")
        put("other.yml", "exit=0", more="no_such_key: 1\n")
        daemon = self.start(self.files)
        self.wait_marks("one", 1)
        refused = [event["text"] for event in daemon.events if event["event"] == "refused"]
        self.assertEqual(len(refused), 3, refused)
        self.assertTrue(any("job file other.yml is refused" in text for text in refused), refused)  # it was called other.yaml
        self.assertTrue(any("open.yaml" in text and "others than its owner may write it" in text for text in refused), refused)
        self.assertTrue(any("wrong.yaml" in text and "no_such_key" in text for text in refused), refused)
        job = self.of(daemon, "one")[0]["id"]
        daemon.do("reload")
        self.assertEqual(self.of(daemon, "one")[0]["starts"], 1)  # unchanged: untouched
        # Kept running.
        os.kill(int(self.marked("one")[0][3]), signal.SIGKILL)
        self.wait_marks("one", 2)
        # An invalid change leaves the old one.
        path = os.path.join(self.files, "one.yaml")
        good = read(path)
        write(path, good + "no_such_key: 1\n")
        daemon.do("reload")
        self.assertTrue(any("its job stays as it was" in event["text"] for event in daemon.events), daemon.events)
        self.assertEqual(len(self.of(daemon, "one")), 1)
        # A valid one starts anew, as the same job.
        write(path, good.replace("mark=one", "mark=two"))
        daemon.do("reload")
        self.wait_marks("two", 1)
        self.assertEqual(self.of(daemon, "one")[0]["id"], job)
        # The daemon's restart starts nothing twice; without its file the job ends.
        daemon.kill()
        daemon = self.start(self.files)
        self.assertEqual(daemon.state(job), "running")
        # Nor does a folder that is gone, as a mount may be, end anything.
        os.rename(self.files, self.files + ".gone")
        daemon.do("reload")
        self.assertEqual(daemon.state(job), "running")
        until(lambda: any("the jobs of its files go on" in event["text"] for event in daemon.events), "the event")
        os.rename(self.files + ".gone", self.files)
        os.unlink(path)
        daemon.do("reload")
        self.assertEqual(daemon.ended(job)["state"], "stopped")
        self.assertEqual(len(self.marked("two")), 1)

    def test_a_job_file_in_json_was_ignored_without_a_word(self):
        write(os.path.join(self.files, "one.json"), json.dumps({
            "compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_processes": 1, "no_python": True,
            "script": FAKE, "script_args": [self.token, "hold"]}, indent="\t"))
        daemon = self.start(self.files)
        until(lambda: self.of(daemon, "one"), "the job")
        until(lambda: processes_with(self.token), "its worker")
        os.remove(os.path.join(self.files, "one.json"))

    def test_a_job_file_in_json_was_read_as_yaml_which_has_no_surrogates(self):
        path = os.path.join(self.files, "one.json")
        def put(word):
            write(path, json.dumps({"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_processes": 1, "no_python": True,
                                    "script": FAKE, "script_args": [self.token, f"mark={word}", "hold"]}), 0o644)
        put("\U0001f600")
        self.assertIn(r"\ud83d\ude00", read(path))
        daemon = self.start(self.files)
        until(lambda: daemon.events, "the job, or why it is refused")
        self.assertTrue(self.of(daemon, "one"), daemon.events)
        until(lambda: "mark=\U0001f600" in str(processes_with(self.token)), "its worker")
        job = self.of(daemon, "one")[0]["id"]
        os.remove(path)
        self.put("one.yml", "mark=yaml hold")  # the same job in the other language
        daemon.do("reload")
        until(lambda: "mark=yaml" in str(processes_with(self.token)), "its worker")
        self.assertEqual(self.of(daemon, "one")[0]["id"], job)
        os.remove(os.path.join(self.files, "one.yml"))

    def test_a_job_files_name_that_was_too_long_was_refused_in_words_about_letters(self):
        self.put("x" * 200 + ".yaml", "hold")
        daemon = self.start(self.files)
        until(lambda: [event for event in daemon.events if event["event"] == "refused"], "the refusal")
        self.assertIn("its name has 200 bytes before its ending, and at most 64 are one of a job", str(daemon.events))

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to own a file as another user")
    def test_a_job_file_of_a_uid_without_an_account_ran(self):
        known = {entry.pw_uid for entry in pwd.getpwall()}
        uid = next(uid for uid in range(100_000, 200_000) if uid not in known)
        self.put("stranger.yaml", "mark=stranger hold")
        os.chown(os.path.join(self.files, "stranger.yaml"), uid, uid)
        daemon = self.start(self.files)
        until(lambda: any(event["event"] == "refused" or event.get("job") for event in daemon.events), "the file's fate")
        refused = [event["text"] for event in daemon.events if event["event"] == "refused"]
        self.assertEqual(len(refused), 1, daemon.events)
        self.assertIn(f"job file stranger.yaml is refused: it belongs to uid {uid}, which has no account on this node: chown it", refused[0])
        self.assertEqual(daemon.do("list"), [])

    def test_a_stopped_job_of_a_file_started_by_itself_when_its_record_had_been_pruned(self):
        self.put("one.yaml", "hold")
        daemon = self.start(self.files, "0")
        until(lambda: self.of(daemon, "one"), "the job")
        job = self.of(daemon, "one")[0]["id"]
        daemon.do("stop", id=job)
        daemon.ended(job)
        other = self.submit(daemon, "exit=0")
        until(lambda: "removed" in daemon.kinds(other), "pruning")
        daemon.do("reload")
        self.assertEqual([(one["id"], one["state"]) for one in daemon.do("list")], [(job, "stopped")])
        daemon.kill()
        daemon = self.start(self.files, "0")
        self.assertEqual([(one["id"], one["state"]) for one in daemon.do("list")], [(job, "stopped")])
        os.unlink(os.path.join(self.files, "one.yaml"))
        daemon.do("reload")
        until(lambda: daemon.do("list") == [], "pruning without the file")

    def test_a_stopped_job_came_back_beside_the_newer_one_of_its_file(self):
        """Its file was removed and put back; after the daemon's restart both were jobs of it."""
        self.put("one.yaml", "mark=old hold")
        daemon = self.start(self.files)
        runs = lambda word: until(lambda: f"mark={word}" in str(processes_with(self.token)), f"the worker {word}")
        runs("old")
        old = self.of(daemon, "one")[0]["id"]
        daemon.do("stop", id=old)
        daemon.ended(old)
        os.unlink(os.path.join(self.files, "one.yaml"))
        daemon.do("reload")
        self.put("one.yaml", "mark=new hold")
        daemon.do("reload")
        runs("new")
        new = self.of(daemon, "one")[0]["id"]
        daemon.kill()
        record = os.path.join(self.state, "jobs", old, "job.json")
        stored = json.loads(read(record))
        self.assertEqual(stored["job_file"], "")
        write(record, json.dumps({**stored, "job_file": "one"}), 0o600)  # as an earlier version left it
        daemon = self.start(self.files)
        self.put("one.yaml", "mark=changed hold")
        daemon.do("reload")
        runs("changed")
        self.assertEqual((daemon.state(old), [job["id"] for job in self.of(daemon, "one")]), ("stopped", [new]))

    def test_a_stop_hung_while_the_user_data_base_gave_no_answer(self):
        daemon = self.start()
        holds = self.submit(daemon, "mark=holds hold", slots=8)
        waits = self.submit(daemon, "mark=waits exit=0", wait=True)
        self.wait_marks("holds", 1)
        daemon.kill()
        hangs = os.path.join(self.folder, "hangs")
        daemon = self.start(env={**preloading(os.path.join(BIN, "hanging_accounts.so")), "HANGING_ACCOUNTS": hangs})
        write(hangs, "")  # a directory server is away
        daemon.do("stop", id=holds)
        until(lambda: daemon.state(waits) == "running", "its start")
        self.assertIn("the user data base gave no answer within 10 s", daemon.ask("submit", words=["x"])["error"])
        daemon.do("stop", id=waits)
        self.assertEqual((daemon.ended(waits)["state"], self.marked("waits")), ("stopped", []))
        daemon.send("submit", words=["x"])
        daemon.close()  # nor does the daemon's end wait for an answer

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to own a file as another user")
    def test_a_job_that_waited_started_as_nobody_when_its_user_was_not_known_any_more(self):
        daemon = self.start()
        holds = self.submit(daemon, "mark=holds hold", slots=8)
        waits = self.submit(daemon, "mark=waits exit=0", wait=True)
        self.wait_marks("holds", 1)
        daemon.kill()
        record = os.path.join(self.state, "jobs", waits, "job.json")
        stored, known = json.loads(read(record)), {entry.pw_uid for entry in pwd.getpwall()}
        uid = next(uid for uid in range(100_000, 200_000) if uid not in known)
        write(record, json.dumps({**stored, "uid": uid}), 0o600)
        daemon = self.start()
        daemon.do("stop", id=holds)
        until(lambda: f"the user data base doesn't know uid {uid} now" in daemon.do("find", id=waits)["reason"], "the reason")
        self.assertEqual((daemon.do("find", id=waits)["state"], self.marked("waits")), ("waiting", []))
        daemon.do("stop", id=waits)
        self.assertEqual(daemon.ended(waits)["reason"], "stopped before its first start")

    def test_the_daemon_was_not_ready_for_minutes_while_the_user_data_base_gave_no_answer_for_its_job_files(self):
        for name in "one", "two":
            self.put(f"{name}.yaml", f"mark={name} hold")
        daemon = self.start(self.files)
        def running(*names):
            until(lambda: all(job["state"] == "running" for name in names for job in self.of(daemon, name) or [{"state": ""}]), names)
            return [self.of(daemon, name)[0]["id"] for name in names]
        jobs = running("one", "two")
        for name in "one", "two":
            # Without its worker the guardian may not have begun, and starts anew.
            until(lambda: f"mark={name}" in str(processes_with(self.token)), "its worker")
        daemon.kill()
        for name in "three", "four":
            self.put(f"{name}.yaml", f"mark={name} hold")
        hangs = os.path.join(self.folder, "hangs")
        write(hangs, "")  # a directory server is away
        daemon = self.start(self.files, env={**preloading(os.path.join(BIN, "hanging_accounts.so")), "HANGING_ACCOUNTS": hangs})
        def refused():
            return [event["text"] for event in daemon.events if event["event"] == "refused"]
        until(lambda: len(refused()) == 2, refused, 30)
        for name, text in zip(("four", "three"), refused()):
            self.assertRegex(text, rf"^job file {name}.yaml is refused: the user data base gave no answer within 10 s")
        self.assertEqual(read(hangs), ".")  # for unchanged files it isn't asked, and for a user once
        self.assertEqual(running("one", "two"), jobs)
        os.remove(hangs)
        daemon.do("reload")
        running("three", "four")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to own a file as another user")
    def test_an_unchanged_job_file_whose_uid_has_lost_its_account_started_at_boot(self):
        known = {entry.pw_uid for entry in pwd.getpwall()}
        uid = next(uid for uid in range(100_000, 200_000) if uid not in known)
        self.put("stranger.yaml", "hold")
        daemon = self.start(self.files)
        until(lambda: self.of(daemon, "stranger"), "the job")
        job = self.of(daemon, "stranger")[0]["id"]
        daemon.do("stop", id=job)
        daemon.ended(job)
        daemon.kill()
        # As before the next boot, of a user that was removed meanwhile.
        record = os.path.join(self.state, "jobs", job, "job.json")
        stored = json.loads(read(record))
        stored["uid"], stored["file_boot_id"] = uid, "another"
        write(record, json.dumps(stored), 0o600)
        os.chown(os.path.join(self.files, "stranger.yaml"), uid, uid)
        daemon = self.start(self.files)
        until(lambda: any(event["event"] == "refused" and "which has no account on this node" in event["text"] for event in daemon.events),
              "the refusal")
        self.assertEqual(daemon.state(job), "stopped")

    def test_a_job_file_asks_for_gpus_gets_them_alone_and_is_refused_where_there_are_none(self):
        script = os.path.join(self.folder, "run")
        write(script, f'#!/bin/sh\nexport FAKE_EVENTS={self.marks}\nexec {FAKE} "$@"\n', 0o755)

        def put(name, words, more):
            self.put(name, words, more=more)
            path = os.path.join(self.files, name)
            write(path, read(path).replace(f"script: {FAKE}", f"script: {script}"))
        put("two.yaml", "mark=two hold", "gpus: 2\nslots: 3\n")
        put("five.yaml", "mark=five hold", "gpus: 5\n")
        daemon = self.start(self.files)
        self.wait_marks("two", 1)
        job = self.of(daemon, "two")[0]
        self.assertEqual(job["gpus"], [0, 1])
        self.assertEqual((daemon.do("node")["gpus_free"], daemon.do("node")["free"]), ([2, 3], daemon.do("node")["slots"] - 3))
        self.assertIn("CUDA_VISIBLE_DEVICES=0,1", read(f"/proc/{self.marked('two')[0][3]}/environ").split("\0"))
        refused = [event["text"] for event in daemon.events if event["event"] == "refused"]
        self.assertEqual(len(refused), 1, refused)
        self.assertIn("five.yaml is refused: gpus: it asks for 5 GPUs, and this node has 4", refused[0])
        # A change asks anew, and waits for what another job has.
        other = self.submit(daemon, "mark=other hold", slots=1, gpus=2)
        self.wait_marks("other", 1)
        none = self.submit(daemon, "mark=none hold")  # it saw those of the others
        self.wait_marks("none", 1)
        self.assertIn("CUDA_VISIBLE_DEVICES=", read(f"/proc/{self.marked('none')[0][3]}/environ").split("\0"))
        daemon.do("stop", id=none)
        put("two.yaml", "mark=three hold", "gpus: 3\n")
        daemon.do("reload")
        until(lambda: daemon.state(job["id"]) == "waiting", "the wait for a third GPU", 20)
        daemon.do("stop", id=other)
        self.wait_marks("three", 1)
        self.assertEqual(self.of(daemon, "two")[0]["gpus"], [0, 1, 2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
