"""Runs acc-launch with fake workers and watches what it leaves behind. Standard library only.

Every wait has a deadline; nothing sleeps and hopes. A test that can't run here skips and says why.
"""
import contextlib, ctypes, json, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, time, unittest

BIN = os.environ.get("ACC_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
# Copied to where another user may run them, too: a checkout in somebody's home is closed to others.
PROGRAMS = tempfile.TemporaryDirectory(prefix="acc-programs-")
os.chmod(PROGRAMS.name, 0o755)
# Control sockets of this test's jobs: tests that run beside it list those in the common places.
RUNTIME = os.path.join(PROGRAMS.name, "runtime")
os.mkdir(RUNTIME, 0o700)
ACC, FAKE = (shutil.copy(os.path.join(BIN, name), PROGRAMS.name) for name in ("acc-launch", "fake_worker"))
# Sanitizers and slow machines stretch time; bounds that a user was promised are multiplied by this.
SLACK = float(os.environ.get("ACC_TEST_SLACK", "1"))
# How much longer an event is waited for than its deadline says, before a test gives up: a machine that does much else is late, and a
# wait claims nothing. What a user was promised is held by a comparison with the clock, times SLACK.
PATIENCE = 3 * SLACK
SANITIZED = os.environ.get("ACC_TEST_SANITIZED", "") == "1"
NOBODY = 65534


def preloading(library):
    """Environment. A sanitized program wants its own library first, unless it is told that this one is meant."""
    more = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"} if SANITIZED else {}
    return {"LD_PRELOAD": library, **more}


def is_root():
    return os.geteuid() == 0


def until(condition, what, deadline=10.0):
    """`what` is waited for, in words; or a function of how it stands when the time is up.

    Looks every 2 ms at first, later less often: what has taken a second may take 30 ms more, and tests that wait leave the cores to others.
    """
    begin = time.monotonic()
    end = begin + deadline * PATIENCE
    while True:
        looked = time.monotonic()
        is_late = looked > end  # before the look: this process may stand still, too
        value = condition()
        if value:
            return value
        if is_late:
            raise AssertionError(f"waited {deadline * PATIENCE:g} s for {what() if callable(what) else what}")
        now = time.monotonic()
        time.sleep(min(0.03, max(0.002, (now - begin) / 30, 5 * (now - looked))))


RESERVED = []


def free_port():
    """A port that, like the one after it (the job's control port), no program listens at and no other test takes.

    It is outside of the range of which the kernel gives out ports by itself: between the choice and its use any connection of a test
    that runs at the same time could take such a port.
    """
    first = int(read("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    for _ in range(1000):
        port = random.randrange(10_000, max(first, 12_000) - 1, 2)
        reserved = socket.socket(socket.AF_UNIX)  # as long as this process lives; abstract, so nothing is left behind
        with contextlib.suppress(OSError):
            reserved.bind(f"\0acc-test/port/{port}")
            if all(is_free(one) for one in (port, port + 1)):
                RESERVED.append(reserved)
                return port
        reserved.close()
    raise AssertionError("no free port")


def is_free(port):
    with socket.socket() as probe, contextlib.suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("", port))
        return True
    return False


def read(path):
    with open(path, errors="replace") as f:
        return f.read()


def write(path, text, mode=0o644):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)


def state_of(pid):
    """As in /proc/PID/stat: R, S, D, T, Z …; None if there is no such process."""
    try:
        return read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def parent_of(pid):
    return int(read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1])


def processor_ticks(pid):
    """Time that it has computed, in 1/100 s."""
    fields = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def context_switches(pid):
    """Of all threads: {task: [voluntary, involuntary]}. Equal twice: nothing woke up in between. A thread may end meanwhile."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found[task] = [int(count) for count in re.findall(r"ctxt_switches:\s+(\d+)", read(f"/proc/{pid}/task/{task}/status"))]
    return found


def processes_with(token):
    """Living processes that have `token` in their command line: workers and what they forked."""
    found, word = {}, token.encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb", buffering=0) as f:
                command = f.read()
        except OSError:
            continue
        if word in command and state_of(pid) not in (None, "Z", "X"):
            found[int(pid)] = command.replace(b"\0", b" ").decode(errors="replace")
    return found


# Of a job, as a manager does.
SIGNALS_ALL_PROCESSES = """import os, sys
open("/proc/self/comm", "w").write("slurmstepd")
try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # between two of its signals no other process has its core
except PermissionError: pass
def below(pid):
    yield pid
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in open(f"/proc/{pid}/task/{task}/children").read().split(): yield from below(child)
pids = list(below(sys.argv[1]))
pids.append(pids.pop(0))  # the launcher last: what it passes on must not overtake a sender that waits for a core
for pid in pids[::int(sys.argv[3])]: os.kill(int(pid), int(sys.argv[2]))
sys.stdin.read()  # it outlives the job, as a manager does
"""


def own_token(name):
    """A word for a job's command lines that no process of another test has in its own: such processes are killed when a job is closed."""
    return f"any={name}x{os.getpid()}x"


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def is_pending(pid, signo):
    masks = [int(line.split()[1], 16) for line in read(f"/proc/{pid}/status").splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
    return any(mask >> (signo - 1) & 1 for mask in masks)


class Job:
    """One acc-launch with fake workers: Job("--num_processes 2", "mark=up hold")."""
    counter = 0

    def __init__(self, flags, words, *, env=None, wrap=(), user=None, program=None, folder=None, stdin=subprocess.DEVNULL, stdout=None,
                 stderr=None, preexec=None, token=None):
        Job.counter += 1
        self.token = token or own_token(f"job{Job.counter}")
        assert f"{os.getpid()}x" in self.token, f"{self.token}: close() would kill the processes of tests that run beside this one; use own_token()"
        self.folder = folder or tempfile.mkdtemp(prefix="acc-test-")
        os.chmod(self.folder, 0o777)
        self.events_file = os.path.join(self.folder, "events")
        words = words.split() if isinstance(words, str) else list(words)
        flags = flags.split() if isinstance(flags, str) else list(flags)
        command = [*wrap, ACC, *flags, *(program or ["--no_python", FAKE]), self.token, *words]
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
        environment.update({"FAKE_EVENTS": self.events_file, "HOME": self.folder, "XDG_RUNTIME_DIR": RUNTIME, **(env or {})})
        environment = {k: v for k, v in environment.items() if v is not None}
        self.out_path, self.err_path = os.path.join(self.folder, "stdout"), os.path.join(self.folder, "stderr")
        self.started = time.monotonic()
        with contextlib.ExitStack() as files:
            out = stdout if stdout is not None else files.enter_context(open(self.out_path, "wb"))
            err = stderr if stderr is not None else files.enter_context(open(self.err_path, "wb"))
            self.process = subprocess.Popen(command, env=environment, cwd=self.folder, stdin=stdin, stdout=out, stderr=err,
                                            start_new_session=True, user=user, group=user, extra_groups=[] if user else None,
                                            preexec_fn=preexec)
        self.pid = self.process.pid

    # ---- what happened ----
    def events(self, word=None):
        """[(word, rank, attempt, pid)] as the workers marked them."""
        try:
            with open(self.events_file) as f:
                rows = [line.split() for line in f if line.endswith("\n")]
        except OSError:
            return []
        return [(w, r, a, int(p)) for w, r, a, p in rows if word in (None, w)]

    def wait_events(self, word, count, deadline=10.0):
        def enough():
            if self.process.poll() is not None and len(self.events(word)) < count:
                raise AssertionError(f"acc-launch ended with {self.process.returncode} before {count} x '{word}':\n{self.stderr}")
            return len(self.events(word)) >= count
        until(enough, lambda: f"{count} x '{word}' (have {self.events()}); stderr:\n{self.stderr}", deadline)
        return self.events(word)

    def wait(self, deadline=20.0):
        try:
            self.process.wait(deadline * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"acc-launch still runs after {deadline * PATIENCE:g} s; stderr:\n{self.stderr}\nits processes:\n{self.waits()}") from None
        self.seconds = time.monotonic() - self.started
        return self.process.returncode

    @property
    def stderr(self):
        return read(self.err_path) if os.path.exists(self.err_path) else ""

    @property
    def stdout(self):
        return read(self.out_path) if os.path.exists(self.out_path) else ""

    def wait_stderr(self, text, deadline=10.0):
        """For what a running job says: messages are written by a thread, after what they tell of."""
        until(lambda: text in self.stderr, f"{text!r} in stderr", deadline)

    @property
    def agent(self):
        """The agent's pid: the guardian's child that is acc-launch itself. Works through wrappers that exec."""
        kids = children_of(self.pid)
        return kids[0] if kids else None

    # ---- what is left ----
    def alive(self):
        """Workers and their descendants (the launcher has the token in its command line, too)."""
        return {p: c for p, c in processes_with(self.token).items() if "acc-launch" not in c.split()[0] and "acc-launch" not in c.split(self.token)[0].split(FAKE)[0]}

    def all_alive(self):
        return processes_with(self.token)

    def waits(self):
        """Each process of the job: its state, where it waits in the kernel, what it has computed, its command line."""
        pids, rows = sorted({self.pid, *self.all_alive()}), []
        for pid in pids:
            with contextlib.suppress(OSError):
                command = read(f"/proc/{pid}/cmdline").replace("\0", " ")
                rows.append(f"  {pid} {state_of(pid)} in {read(f'/proc/{pid}/wchan')}, {processor_ticks(pid) / 100:g} s: {command[:300]}")
        return "\n".join(rows)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for pid in self.all_alive():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class JobTest(unittest.TestCase):
    """Gives tests `self.job(...)`, and checks after each that no process is left."""

    def job(self, flags, words, **options):
        job = Job(flags, words, **options)
        self.addCleanup(job.close)
        return job

    def finished(self, flags, words, code=0, deadline=20.0, **options):
        """Runs a job to its end, checks its exit code and that nothing is left."""
        job = self.job(flags, words, **options)
        self.assertEqual(job.wait(deadline), code, job.stderr)
        self.assert_nothing_left(job)
        return job

    def assert_nothing_left(self, job, within=5.0):
        until(lambda: not job.alive(), f"the end of {job.alive()}", within)

    def signal_all_processes(self, job, signo, order="1"):
        """By one that is named as Slurm's is; order -1: the agent after what it has started."""
        manager = subprocess.Popen([sys.executable, "-c", SIGNALS_ALL_PROCESSES, str(job.pid), str(int(signo)), order], stdin=subprocess.PIPE)
        self.addCleanup(manager.communicate)

    def report(self, job, name="report.json"):
        with open(os.path.join(job.folder, name)) as f:
            return json.load(f)


def cgroup2_root():
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.exists(root + "/cgroup.procs") and os.path.exists(root + "/cgroup.controllers"):
            return root
    return None


def without_cgroup():
    """A command prefix under which no cgroup is writable (root only)."""
    root = cgroup2_root()
    if not root:
        return []
    return ["unshare", "-m", "sh", "-c", f'mount -o remount,bind,ro {root} && exec "$@"', "sh"]


def hide_other_jobs():
    """For tests of programs that list all jobs of a user: in a mount namespace of its own, this process and its children don't see the
    sockets of the machine's other jobs, of tests that run beside it say. Only root may; others see their own jobs as well."""
    if not is_root():
        return
    libc, CLONE_NEWNS, MS_REC, MS_PRIVATE = ctypes.CDLL(None, use_errno=True), 0x20000, 0x4000, 1 << 18
    def check(result):
        if result != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    for folder in ("/run/user/0", "/tmp/acc-0"):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        check(libc.mount(b"tmpfs", folder.encode(), b"tmpfs", 0, b"mode=0700"))


def main():
    unittest.main(verbosity=2)
