"""What users see and type in a terminal; each test is named for what they saw."""
import contextlib, fcntl, os, pty, re, select, shlex, shutil, signal, struct, sys, tempfile, termios, time, unittest

from harness import ACC, BIN, FAKE, PATIENCE, SLACK, children_of, is_pending, main, preloading, read, until, write

BAR = r'''import os, sys, time
for i in range(20):
    sys.stderr.write("\rrank %s %3d%%|%s|" % (os.environ["RANK"], i * 5, ("#" * i).ljust(20)))
    sys.stderr.flush()
    time.sleep(0.1)
'''


def screen(text):
    """The lines of a terminal that was wide enough, after all of the text: CR, LF and "erase to the end of the line"."""
    lines, column = [""], 0
    for part in re.split(r"(\r|\n|\x1b\[K|\x1b\[[0-9;]*m)", text.decode(errors="replace")):
        if part == "\r":
            column = 0
        elif part == "\n":
            lines.append("")  # the pseudo-terminal puts a CR in front
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        elif not part.startswith("\x1b"):
            lines[-1] = lines[-1][:column] + part + lines[-1][column + len(part):]
            column += len(part)
    return lines


def comm(pid):
    try:
        return read(f"/proc/{pid}/comm").strip()
    except OSError:  # it ended meanwhile
        return ""


def state_of(pid):
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


class Terminal(unittest.TestCase):
    """A real pseudo-terminal with a session, as a shell would give."""

    def start(self, flags, words=(), script=None, env=None, size=(30, 100)):
        folder = tempfile.mkdtemp(prefix="acc-terminal-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        if script is not None:
            with open(folder + "/script.py", "w") as f:
                f.write(script)
            words = [folder + "/script.py"]
        else:
            words = ["--no_python", *words]
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            drop = ("COLUMNS", "LINES", "NO_COLOR")
            environment = {k: v for k, v in os.environ.items() if k not in drop}
            os.execve(ACC, [ACC, *flags.split(), *words], {"HOME": folder, **environment, "TERM": "xterm", **(env or {})})
        self.addCleanup(self.end, self.pid, self.master)
        self.text = b""

    @staticmethod
    def end(pid, master):
        with contextlib.suppress(OSError):  # mostly it has ended and was waited for
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        os.close(master)

    def read_until(self, word, deadline=15, count=1):
        end = time.monotonic() + deadline * PATIENCE
        while self.text.count(word) < count:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no {count} x {word!r} in {self.text!r}")
            try:
                self.text += os.read(self.master, 4096)
            except OSError:
                break
        self.assertGreaterEqual(self.text.count(word), count, self.text)

    def watches(self, among=None):
        """Processes that tell of a Ctrl-C in the worker's terminal, once they are in the group that has it: what is typed earlier they don't
        see. One of an attempt before is in another group for a moment."""
        with contextlib.suppress(OSError):  # one that ended meanwhile
            foreground = os.tcgetpgrp(self.master)
            return [p for p in among or children_of(self.pid) if comm(p) == "acc:ctrl-c" and os.getpgid(p) == foreground]
        return []

    def wait_until_watched(self):
        return until(lambda: len(found := self.watches()) == 1 and found, "the watch for Ctrl-C")[0]

    def type(self, keys):
        os.write(self.master, keys)

    def take(self, wait):
        """Reads 4 KiB at most, as much as a terminal gives at once; False: there was nothing, or will be nothing any more."""
        if not select.select([self.master], [], [], wait)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the last process that had the terminal open has ended
            return False
        self.text += data
        return bool(data)

    def exit_code(self, deadline=15):
        """Reads on meanwhile, or a full terminal would hold the end; then all that is left."""
        end = time.monotonic() + deadline * PATIENCE
        while True:
            got, status = os.waitpid(self.pid, os.WNOHANG)
            while self.take(0 if got else 0.01) and got:
                pass
            if got:
                return os.waitstatus_to_exitcode(status)
            self.assertLess(time.monotonic(), end, f"acc-launch to end; {self.text!r}")

    # ---- bars, width, colours ----

    def test_bars_of_two_ranks_stood_side_by_side_and_flooded_the_terminal(self):
        self.start("--num_processes 2", script=BAR)
        self.assertEqual(self.exit_code(), 0)
        self.assertIn(b"\rrank 0", self.text)
        self.assertIn(b"\rrank 1", self.text)
        self.assertNotIn(b"|rank", self.text)
        self.assertNotIn(b"\r\rrank", self.text)

    def test_workers_learn_how_wide_the_terminal_is(self):
        script = "import os, shutil; print('width', *shutil.get_terminal_size(), flush=True)"
        self.start("--num_processes 2", script=script)
        self.read_until(b"width 100 30", count=2)
        self.assertEqual(self.exit_code(), 0)
        self.start("--num_processes 2 --tee 3", script=script)
        self.read_until(b"width 89 30", count=2)
        self.assertEqual(self.exit_code(), 0)
        self.start("--num_processes 2", script=script, env={"COLUMNS": "66"})
        self.read_until(b"width 66 30", count=2)
        self.assertEqual(self.exit_code(), 0)

    def test_a_program_learns_of_another_size(self):
        script = ("import os, signal, time\n"
                  "signal.signal(signal.SIGWINCH, lambda *_: print('now', *os.get_terminal_size(1)))\n"
                  "print('first', *os.get_terminal_size(1))\n"
                  "while True: time.sleep(1)\n")
        self.start("--num_processes 2", ["python3", "-c", script])
        self.read_until(b"first 100 30", count=2)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 72, 0, 0))
        self.read_until(b"now 72 40", count=2)
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)

    def test_a_dumb_terminal_got_colours(self):
        self.start("--num_processes 2 --tee 3", ["sh", "-c", "echo here; exit 3"], env={"TERM": "dumb"})
        self.assertEqual(self.exit_code(), 3)
        self.assertNotIn(b"\x1b", self.text)
        self.start("--num_processes 2 --tee 3", ["sh", "-c", "echo here; exit 3"])
        self.assertEqual(self.exit_code(), 3)
        self.assertIn(b"\x1b[", self.text)

    # ---- the status line ----

    RESTARTS = "--num_processes 2 --max_restarts 2 --restart_delay 2"
    FAILING = ["sh", "-c", "echo line of $RANK; exit 3"]

    def test_a_status_line_counts_down_to_the_next_attempt_and_leaves_nothing(self):
        # A busy machine may draw no line for seconds.
        self.start(self.RESTARTS.replace("--restart_delay 2", "--restart_delay 8"), self.FAILING)
        self.read_until(b" s (restart 2 of 2), after: rank ")
        self.assertEqual(self.exit_code(30), 3)
        counted = [int(number) for number in re.findall(rb"acc-launch: next attempt in (\d+) s \(restart 2 of 2\), after: rank ", self.text)]
        self.assertGreater(len(set(counted)), 1, self.text)
        self.assertEqual(counted, sorted(counted, reverse=True))
        shown = screen(self.text)
        self.assertFalse([line for line in shown if "next attempt" in line or "stopping," in line], shown)
        # A rank may have been stopped before it came to its line.
        self.assertTrue([line for line in shown if line.startswith("line of ")])
        course = shown[:shown.index("=" * 72)]
        self.assertFalse([line for line in course if "line of " in line and not re.fullmatch("line of [01]", line)], shown)

    def test_a_status_line_is_never_mixed_into_workers_lines(self):
        go = self.mark()
        loop = f'trap "" TERM; i=0; while [ $i -lt 100 ]; do echo rank $RANK line $i; i=$((i+1)); sleep 0.05; done; until [ -e {go} ]; do sleep 0.05; done'
        self.start("--num_processes 2 --grace 100", ["sh", "-c", loop])
        self.read_until(b"line 2")
        os.kill(self.pid, signal.SIGTERM)
        self.read_until(b"acc-launch: stopping, 2 of 2 workers left, killed in ")
        write(go, "")  # no worker has ended before that line, however late it was
        self.assertEqual(self.exit_code(30), 143)
        shown = screen(self.text)
        for rank in "01":
            lines = [line for line in shown if f"rank {rank} line" in line]
            self.assertEqual(lines, [f"rank {rank} line {i}" for i in range(100)])
        self.assertFalse([line for line in shown if "workers left" in line], shown)

    def mark(self):
        """The name of a file that workers wait for, and that isn't there yet."""
        folder = tempfile.TemporaryDirectory(prefix="acc-terminal-")
        self.addCleanup(folder.cleanup)
        return os.path.join(folder.name, "go")

    HEARTBEATS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime/python")
    STEPS = '''import os, sys, time
sys.path.insert(0, os.environ["ACC_HEARTBEAT_FOLDER"])
import acc_heartbeat
step = 0
while step < 120 or not os.path.exists(os.environ["GO"]):
    acc_heartbeat.heartbeat(step)
    time.sleep(0.05 + 0.05 * int(os.environ["RANK"]))
    if step in (39, 79, 119): print("line", step, "of", os.environ["RANK"], flush=True)
    step += 1
'''

    def test_a_status_line_shows_steps_and_the_slowest_rank_between_their_lines(self):
        go = self.mark()
        self.start("--num_processes 2", script=self.STEPS, env={"ACC_HEARTBEAT_FOLDER": self.HEARTBEATS, "GO": go})
        self.assert_progress(rb"acc-launch: step \d+, [\d.]+ steps/s, slowest: rank 1", go)

    def test_a_status_line_of_several_hosts_shows_the_slowest_of_all(self):
        go = self.mark()
        self.start("--hosts localhost:2 --env ACC_HEARTBEAT_FOLDER --env GO", script=self.STEPS, env={"ACC_HEARTBEAT_FOLDER": self.HEARTBEATS, "GO": go})
        self.assert_progress(rb"acc-launch: step \d+, [\d.]+ steps/s, slowest: rank 1 on localhost", go)

    def test_the_status_line_of_hosts_went_on_as_if_nothing_had_been_typed_after_ctrl_c(self):
        deaf = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)\n"
        self.start("--hosts localhost:2 --grace 2s", script=deaf)
        self.read_until(b"up", 30, count=2)
        descendants, agents = children_of(self.pid), []
        while descendants:
            agents += [pid for pid in descendants if comm(pid) == "acc:agent"]
            descendants = [child for pid in descendants for child in children_of(pid)]
        self.assertEqual(len(agents), 2)
        os.kill(agents[1], signal.SIGSTOP)  # the host's, which would report the stop
        self.addCleanup(lambda: os.path.exists(f"/proc/{agents[1]}") and os.kill(agents[1], signal.SIGCONT))
        self.type(b"\x03")
        self.read_until(b"acc-launch: stopping, 2 of 2 workers left")
        os.kill(agents[1], signal.SIGCONT)
        self.assertEqual(self.exit_code(30), -signal.SIGINT)
        self.assertEqual([line for line in screen(self.text) if "left" in line and "acc-launch: stopping, " in line], [])

    def assert_progress(self, line, go):
        """Both ranks go on until the line was drawn."""
        self.read_until(b" steps/s, slowest: rank 1", 30)
        write(go, "")
        self.assertEqual(self.exit_code(60), 0)
        self.assertRegex(self.text, line)
        shown = screen(self.text)
        self.assertEqual([line for line in shown if "slowest" in line], [])
        self.assertEqual(sorted(line for line in shown if line.startswith("line ")), sorted(f"line {i} of {r}" for i in (39, 79, 119) for r in (0, 1)))

    def test_no_status_line_where_none_is_wanted(self):
        for flags, env in (("--quiet", {}), ("", {"NO_COLOR": "1"}), ("", {"TERM": "dumb"}), ("--color never", {})):
            with self.subTest(flags=flags, env=env):
                self.start(f"{self.RESTARTS} {flags}", self.FAILING, env=env)
                self.assertEqual(self.exit_code(), 3)
                self.assertNotIn(b"next attempt in", self.text)
                self.assertNotIn(b"\x1b[K", self.text)

    def test_a_single_worker_that_has_the_terminal_finds_it_clean(self):
        self.start("--num_processes 1 --max_restarts 2 --restart_delay 2", ["sh", "-c", "echo line of it; exit 3"])
        self.read_until(b"next attempt in")
        self.assertEqual(self.exit_code(), 3)
        self.assertEqual(screen(self.text).count("line of it"), 3)

    def test_an_agent_that_gave_up_left_a_terminal_without_echo(self):
        self.assert_echo_after_giving_up("give-up")

    def test_a_guardian_that_ran_after_its_workers_took_their_modes_for_the_terminals(self):
        self.assert_echo_after_giving_up("late-guardian")

    def assert_echo_after_giving_up(self, preloaded):
        self.start("--num_processes 1", ["sh", "-c", "stty -echo; echo quiet; exec sleep 100"],
                   env={**preloading(os.path.join(BIN, "preloaded.so")), "PRELOADED": preloaded})
        self.read_until(b"quiet")
        shows = lambda: bool(termios.tcgetattr(self.master)[3] & termios.ECHO)
        self.assertFalse(shows())
        os.kill(children_of(self.pid)[0], signal.SIGRTMIN + 9)
        self.assertEqual(self.exit_code(), 70)
        self.assertTrue(shows())

    # ---- Ctrl-C ----

    TRIES = 3  # a third one has 2 s after the second, and a busy machine may take longer to bring it

    def test_one_worker_that_does_not_heed_ctrl_c_could_not_be_stopped(self):
        for _ in range(self.TRIES):
            self.start("--num_processes 1", [FAKE, "ignore=INT", "ignore=TERM", "out=up", "hold"])
            self.read_until(b"up")
            self.wait_until_watched()
            self.type(b"\x03")
            self.read_until(b"Ctrl-C went to the worker")
            started = time.monotonic()
            self.type(b"\x03")
            self.read_until(b"got Ctrl-C again: stopping: SIGTERM sent, 2 s left (Ctrl-C again to kill)")
            self.type(b"\x03")
            self.assertEqual(self.exit_code(), -signal.SIGINT)
            self.assertNotIn(b"to hurry", self.text)
            self.assertLess(time.monotonic() - started, 8 * SLACK)
            if b"killing at once" in self.text:
                return
        self.fail(self.text)

    def test_a_third_ctrl_c_was_lost_behind_a_signal_of_ours(self):
        """A signal that is pending is not queued again: a worker that has the terminal gets SIGINT by its keys alone."""
        script = ("import signal, time\n"
                  "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
                  "signal.signal(signal.SIGTERM, lambda *_: print('asked', flush=True))\n"
                  "print('up', flush=True)\n"
                  "while True: time.sleep(1)\n")

        def answered():
            self.take(0.05)
            return b"asked" in self.text or b"did not end within 2 s" in self.text
        for _ in range(self.TRIES):
            self.start("--num_processes 1", ["python3", "-c", script])
            self.read_until(b"up")
            self.wait_until_watched()
            self.type(b"\x03")
            self.read_until(b"Ctrl-C went to the worker")
            self.read_until(b"interrupted")  # or the next SIGINT would be the same one to it
            self.type(b"\x03")
            until(answered, "the worker's answer to SIGTERM, or its end")
            if b"asked" in self.text:
                self.assertEqual(self.text.count(b"interrupted"), 2, self.text)
            self.type(b"\x03")
            self.assertEqual(self.exit_code(), -signal.SIGINT)
            if b"killing at once" in self.text:
                return
        self.fail(self.text)

    def test_a_second_ctrl_c_within_seconds_ends_a_worker_that_is_busy(self):
        self.start("--num_processes 1", [FAKE, "ignore=INT", "out=up", "hold"])
        self.read_until(b"up")
        self.wait_until_watched()
        self.type(b"\x03")
        self.read_until(b"Ctrl-C went to the worker")
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        self.assertIn(b"SIGTERM sent", self.text)

    def test_the_debugger_keeps_ctrl_c_as_often_as_it_is_pressed(self):
        self.start("--num_processes 1", script="import pdb\nx = 7\npdb.set_trace()\nprint('after', x, flush=True)\n")
        self.read_until(b"(Pdb)")
        self.wait_until_watched()
        for i in range(5):
            # Between the prompt and its wait for a key Python notices a SIGINT only with the next key.
            until(lambda: state_of(os.tcgetpgrp(self.master)) == "S", "the debugger's wait for a key")
            self.type(b"\x03")
            self.read_until(b"(Pdb)", count=2 + i)
        self.type(b"p x * 6\n")
        self.read_until(b"42")
        self.type(b"c\n")
        self.read_until(b"after 7")
        self.assertEqual(self.exit_code(), 0)
        self.assertNotIn(b"acc-launch: got", self.text)

    def test_a_script_that_uses_ctrl_c_now_and_then_goes_on(self):
        self.start("--num_processes 1", script="import time\nfor i in range(2):\n  try:\n    print('up', flush=True)\n    while True: time.sleep(0.1)\n"
                   "  except KeyboardInterrupt: print('skip', i, flush=True)\nprint('done', flush=True)\n")
        self.read_until(b"up")
        self.wait_until_watched()
        self.type(b"\x03")
        self.read_until(b"skip 0")
        self.read_until(b"Ctrl-C went to the worker")
        time.sleep(10.5)  # so long apart they are no second press
        self.type(b"\x03")
        self.read_until(b"done")
        self.assertEqual(self.exit_code(), 0)

    # It looks for a signal between short pauses: Python sleeps through one that comes just before a pause.
    ANSWERS = '''import sys, time
try:
    print("up", flush=True)
    while True: time.sleep(0.1)
except KeyboardInterrupt:
    print("saving", flush=True)
    sys.exit(1)
'''

    def test_a_script_that_answers_ctrl_c_by_exit_code_1_was_started_again(self):
        for flags in ("--num_processes 1", "--num_processes 2 --stdin 0"):
            with self.subTest(flags):
                self.start(f"{flags} --max_restarts 2 --restart_delay 0", script=self.ANSWERS)
                self.read_until(b"up", count=int(flags.split()[1]))
                self.wait_until_watched()
                self.type(b"\x03")
                self.assertEqual(self.exit_code(), -signal.SIGINT)
                self.assertIn(b"job stopped by SIGINT", self.text)
                self.assertNotIn(b"restarting", self.text)

    def test_a_script_that_asks_before_it_ends_by_ctrl_c_was_started_again(self):
        script = self.ANSWERS.replace("sys.exit", "input('quit? '), sys.exit")
        self.start("--num_processes 1 --max_restarts 2 --restart_delay 0", script=script)
        self.read_until(b"up")
        self.wait_until_watched()
        self.type(b"\x03")
        self.read_until(b"quit? ")
        # Outlasts TerminalInterrupts::kHeeds (300 ms, terminal_interrupts.hpp), after which the agent looks whether the worker reads. Nothing shows a look
        # that finds it reading, and the answer must come behind it.
        time.sleep(1)
        self.type(b"y\n")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        self.assertNotIn(b"restarting", self.text)

    def test_a_worker_that_ended_by_ctrl_c_at_once_was_started_again(self):
        self.start("--num_processes 1 --max_restarts 2 --restart_delay 0", ["sh", "-c", 'trap "exit 1" INT; echo up; read x'])
        self.read_until(b"up")
        self.wait_until_watched()
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        self.assertNotIn(b"restarting", self.text)

    def test_the_second_ctrl_c_did_not_hurry_the_others_where_the_first_had_ended_the_worker_with_the_terminal(self):
        deaf = 'if [ $RANK = 0 ]; then trap "exit 1" INT; echo up; read x; else trap "" INT; trap "echo asked" TERM; echo up; while :; do sleep 0.1; done; fi'
        self.start("--num_processes 2 --stdin 0 --grace 100", ["sh", "-c", deaf])
        self.read_until(b"up", count=2)
        self.wait_until_watched()
        self.type(b"\x03")
        self.read_until(b"asked")
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        self.assertIn(b"hurrying: SIGTERM sent", self.text)

    def test_nothing_is_left_of_the_watch_for_ctrl_c(self):
        self.start("--num_processes 1 --max_restarts 2 --restart_delay 0", [FAKE, "out=up", "attempt=2", "hold", "any", "exit=1"])
        self.read_until(b"up", count=3)
        watch = self.wait_until_watched()
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        until(lambda: not os.path.exists(f"/proc/{watch}"), "its end")

    # ---- Ctrl-C and what started acc-launch ----

    def start_shell(self, script):
        """A shell script in the terminal; acc-launch is in its process group."""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execvp("bash", ["bash", "-c", script])
        self.addCleanup(self.end, self.pid, self.master)
        self.text = b""

    # One line, for a recipe of make; short pauses, as in ANSWERS.
    TRIAL = "import sys, time; print('trial', sys.argv[1], flush=True); [time.sleep(0.1) for _ in iter(int, 1)]"

    def launch(self, workers, trial, program=TRIAL):
        words = [ACC, "--quiet", "--num_processes", str(workers), "--no_python", sys.executable, "-c", program]
        return " ".join(map(shlex.quote, words)) + f" {trial}"

    def launcher(self):
        """The process of acc-launch that what started it waits for."""
        return until(lambda: next((p for p in self.below(self.pid) if comm(p) == "acc-launch"), 0), "acc-launch")

    @classmethod
    def below(cls, pid):
        return [pid, *(one for child in children_of(pid) for one in cls.below(child))]

    def press_in_trial(self, workers, trial=b"trial 1"):
        self.read_until(trial, count=workers)
        if workers == 1:
            shell, self.pid = self.pid, self.launcher()
            self.wait_until_watched()
            self.pid = shell
        self.type(b"\x03")

    def test_ctrl_c_in_a_sweep_ended_one_trial_and_the_shell_began_the_next(self):
        for workers in (1, 2):
            for script in (f"for i in 1 2; do {self.launch(workers, '$i')}; done; echo rest",
                           f"{self.launch(workers, 1)}; echo rest; {self.launch(workers, 2)}"):
                with self.subTest(workers=workers, script=script):
                    self.start_shell(script)
                    self.press_in_trial(workers)
                    self.assertEqual(self.exit_code(), -signal.SIGINT, self.text)
                    self.assertNotIn(b"trial 2", self.text)
                    self.assertNotIn(b"rest", self.text)

    # Runs recipes, some at once, as make does: it goes on with the next whatever the last one's end was, but dies of a Ctrl-C itself.
    # Not make: where that is starved for so long that a recipe ends first, make 4.3 ends with 2 ("wait: No child processes").
    MAKE = ("import os, signal, subprocess, sys\n"
            "at_once, recipes, pressed = int(sys.argv[1]), sys.argv[2:], []\n"
            "signal.signal(signal.SIGINT, lambda *_: pressed.append(True))\n"
            "while recipes and not pressed:\n"
            "    for child in [subprocess.Popen(recipe, shell=True) for recipe in recipes[:at_once]]: child.wait()\n"
            "    recipes = recipes[at_once:]\n"
            "if pressed:\n"
            "    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
            "    os.kill(os.getpid(), signal.SIGINT)\n")

    def start_make(self, recipes, at_once):
        words = [sys.executable, "-c", self.MAKE, str(at_once), *recipes]
        self.start_shell(" ".join(map(shlex.quote, words)) + "; echo after")

    def test_ctrl_c_in_a_recipe_of_make_k_went_on_with_the_next_target(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):  # two commands: the shell stays between make and acc-launch
                self.start_make([self.launch(workers, i) + "; echo rest" for i in (1, 2)], at_once=1)
                self.press_in_trial(workers)
                self.assertEqual(self.exit_code(), -signal.SIGINT, self.text)
                self.assertNotIn(b"trial 2", self.text)
                self.assertNotIn(b"after", self.text)

    def test_a_sweep_behind_tee_went_on_after_ctrl_c_now_and_then(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.start_shell(f"for i in 1 2; do {self.launch(workers, '$i')} 2>&1 | tee /dev/null; done; echo rest")
                self.read_until(b"trial 1", count=workers)
                self.type(b"\x03")
                self.assertEqual(self.exit_code(), -signal.SIGINT, self.text)
                self.assertNotIn(b"trial 2", self.text)
                self.assertNotIn(b"rest", self.text)

    SAVES = ("SAVE = 20\n"  # of 0.1 s: SIGTERM follows after 3 s in the first 5 s of an attempt
             "import sys, time\n"
             "print('trial', sys.argv[1], flush=True)\n"
             "try:\n    while True: time.sleep(0.1)\n"
             "except KeyboardInterrupt:\n    print('saving', flush=True); [time.sleep(0.1) for _ in range(SAVE)]; print('saved', flush=True)\n")

    def test_ctrl_c_in_a_script_that_runs_acc_launch_tore_the_checkpoint(self):
        """subprocess.run kills what it runs 0.25 s after its own KeyboardInterrupt; other scripts pass on the Ctrl-C that acc-launch had, too."""
        # As subprocess.run does it, with more patience on a busy machine.
        run = ("import subprocess, sys\n"
               "child = subprocess.Popen(sys.argv[1:])\n"
               f"child._sigint_wait_secs = {min(1, 0.25 * PATIENCE)}\n"
               "try: child.wait()\n"
               "except KeyboardInterrupt: child.kill(); print('interrupted', flush=True)\n")
        passes_on = ("import signal, subprocess, sys\n"
                     "child = subprocess.Popen(sys.argv[1:])\n"
                     "try: child.wait()\n"
                     "except KeyboardInterrupt: child.send_signal(signal.SIGINT); child.wait(); print('interrupted', flush=True)\n")
        for script in (run, passes_on):
            with self.subTest(script=script):
                self.start_shell(f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)} {self.launch(2, 1, self.SAVES)}")
                self.press_in_trial(2)
                self.read_until(b"saved", count=2)
                self.read_until(b"interrupted")
                self.exit_code()

    def test_of_several_trials_of_one_worker_ctrl_c_ended_one_and_the_others_went_on(self):
        """The first one has the terminal for its worker, so that the key reaches no other."""
        for workers in (1, 2):
            with self.subTest(workers=workers):
                folder = tempfile.mkdtemp(prefix="acc-terminal-")
                self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
                # What two print at once is mixed.
                trial = f"import sys; open({folder!r} + '/up-' + sys.argv[1], 'w').close(); " + self.TRIAL
                self.start_make([self.launch(workers, i, trial) for i in (1, 2)], at_once=2)
                until(lambda: {"up-1", "up-2"} <= set(os.listdir(folder)), "both trials")
                if workers == 1:
                    # Started at once both may give their worker the terminal: the second one's has it.
                    until(lambda: self.watches(self.below(self.pid)), "the watch for Ctrl-C")
                self.type(b"\x03")
                self.assertEqual(self.exit_code(), -signal.SIGINT, self.text)
                self.assertNotIn(b"after", self.text)

    def test_a_worker_whose_output_goes_to_a_pipe_gets_the_terminal_when_it_reads_it(self):
        for first in ("", "import tty; tty.setcbreak(0); "):  # SIGTTIN, SIGTTOU
            for shell in ("{} | cat; echo code ${{PIPESTATUS[0]}}", "set -m; sh -c '{} | cat; exit'; echo code"):
                with self.subTest(first=first, shell=shell):
                    folder = tempfile.mkdtemp(prefix="acc-terminal-")
                    self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
                    write(folder + "/ask.py", f"import os\n{first}print('ask', flush=True)\nprint('got', os.read(0, 9), flush=True)\n"
                          "try:\n    while True: os.read(0, 9)\nexcept KeyboardInterrupt: print('kept', flush=True)\n")
                    job = f"{ACC} --num_processes 1 --no_python --quiet {shlex.quote(sys.executable)} {folder}/ask.py"
                    self.start_shell(shell.format(job))
                    self.read_until(b"ask")
                    self.type(b"x\n")
                    self.read_until(b"got b'x")
                    self.type(b"\x03")  # the worker's own: it has the terminal
                    self.read_until(b"kept")
                    self.read_until(b"code 0" if "PIPE" in shell else b"code")
                    self.assertEqual(self.exit_code(), 0)

    def test_a_pager_behind_a_launch_of_one_worker_was_stopped_at_its_first_key(self):
        """It reads the terminal that the worker has."""
        pager = ("import os, sys\n"
                 "terminal = os.open('/dev/tty', os.O_RDWR)\n"
                 "print('page:', sys.stdin.readline().strip(), flush=True)\n"
                 "print('key', os.read(terminal, 9).decode().strip(), flush=True)\n"
                 "print('page:', sys.stdin.readline().strip(), flush=True)\n"
                 "print('key', os.read(terminal, 9).decode().strip(), flush=True)\n")
        program = "import sys\nfor i in range(100): print('line', i, flush=True)\n"
        for command in ("{} | {}", "sh -c '{} | {}; exit'"):
            with self.subTest(command=command):
                folder = tempfile.mkdtemp(prefix="acc-terminal-")
                self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
                write(folder + "/pager.py", pager)
                write(folder + "/train.py", program + "import time; time.sleep(1000)\n")
                python = shlex.quote(sys.executable)
                job = f"{ACC} --num_processes 1 --no_python --quiet {python} {folder}/train.py"
                self.start_shell("set -m; " + command.format(job, f"{python} {folder}/pager.py") + "; true")
                self.read_until(b"page: line 0")
                self.type(b"a\n")
                self.read_until(b"key a")
                self.read_until(b"page: line 1")
                self.type(b"b\n")
                self.read_until(b"key b")
                self.type(b"\x03")
                self.exit_code()

    def test_a_shell_shows_130_after_ctrl_c_and_a_trap_of_a_script_runs_once(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.start_shell(f"trap 'echo trapped' INT; {self.launch(workers, 1)}; echo code $?")
                self.press_in_trial(workers)
                self.assertEqual(self.exit_code(), 0)
                self.assertIn(b"code 130", self.text)
                self.assertEqual(self.text.count(b"trapped"), 1, self.text)

    def test_python_that_runs_acc_launch_gets_keyboard_interrupt_once(self):
        script = ("import subprocess, sys\n"
                  "child = subprocess.Popen(sys.argv[1:])\n"
                  "interrupts = 0\n"
                  "while True:\n"
                  "    try: code = child.wait(); break\n"
                  "    except KeyboardInterrupt: interrupts += 1\n"
                  "print('interrupts', interrupts, 'code', code)\n")
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.start_shell(f"exec {shlex.quote(sys.executable)} -c {shlex.quote(script)} {self.launch(workers, 1)}")
                self.press_in_trial(workers)
                self.assertEqual(self.exit_code(), 0)
                self.assertIn(b"interrupts 1 code -2", self.text)

    def test_a_job_that_uses_ctrl_c_and_ends_well_lets_the_script_go_on(self):
        program = ("import sys, time\n"
                   "try:\n    print('trial', sys.argv[1], flush=True)\n    while True: time.sleep(0.1)\n"
                   "except KeyboardInterrupt: print('saved', flush=True)\n")
        self.start_shell(f"for i in 1 2; do {self.launch(1, '$i', program)}; echo code $?; done; echo rest")
        self.press_in_trial(1)
        self.read_until(b"trial 2")
        self.read_until(b"code 0")
        self.press_in_trial(1, b"trial 2")
        self.read_until(b"rest")
        self.assertEqual(self.exit_code(), 0)
        self.assertEqual(self.text.count(b"code 0"), 2, self.text)

    def test_sigint_by_kill_ends_with_130_and_the_script_goes_on(self):
        for workers in (1, 2):
            with self.subTest(workers=workers):
                self.start_shell(f"{self.launch(workers, 1)}; echo code $?")
                self.read_until(b"trial 1", count=workers)
                os.kill(self.launcher(), signal.SIGINT)
                self.read_until(b"code 130")
                self.assertEqual(self.exit_code(), 0)

    USES_INTERRUPT = ("import signal, sys, time\n"
                      "def used(*_):\n    signal.signal(signal.SIGINT, signal.SIG_DFL); print('used', flush=True)\n"
                      "signal.signal(signal.SIGINT, used)\n"
                      "print('trial', sys.argv[1], flush=True)\n"
                      "while True: time.sleep(0.1)\n")

    def test_sigint_by_kill_after_a_ctrl_c_that_the_worker_used_ends_with_130(self):
        self.start_shell(f"{self.launch(1, 1, self.USES_INTERRUPT)}; echo code $?")
        self.press_in_trial(1)
        self.read_until(b"used")
        os.kill(self.launcher(), signal.SIGINT)
        self.read_until(b"code 130")
        self.assertEqual(self.exit_code(), 0)

    def test_sigint_by_kill_just_behind_a_ctrl_c_was_lost_on_a_busy_machine(self):
        self.start_shell(f"{self.launch(1, 1, self.USES_INTERRUPT)}; echo code $?")
        self.read_until(b"trial 1")
        shell, self.pid = self.pid, self.launcher()
        self.wait_until_watched()
        launcher, agent, self.pid = self.pid, next(p for p in children_of(self.pid) if comm(p) == "acc:agent"), shell
        os.kill(agent, signal.SIGSTOP)  # it has no processor
        self.addCleanup(lambda: os.path.exists(f"/proc/{agent}") and os.kill(agent, signal.SIGCONT))
        self.type(b"\x03")
        until(lambda: is_pending(agent, signal.SIGINT) or is_pending(agent, signal.SIGRTMIN), "the key")
        os.kill(launcher, signal.SIGINT)
        until(lambda: is_pending(agent, signal.SIGINT) and not is_pending(launcher, signal.SIGINT), "the signal")
        os.kill(agent, signal.SIGCONT)
        self.read_until(b"code 130")
        self.assertEqual(self.exit_code(), 0)

    def test_a_second_ctrl_c_that_ends_a_busy_worker_stops_the_sweep(self):
        program = ("import signal, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                   "print('trial', sys.argv[1], flush=True)\nwhile True: time.sleep(0.1)\n")
        self.start_shell(f"for i in 1 2; do {self.launch(1, '$i', program)}; done; echo rest")
        self.press_in_trial(1)
        self.read_until(b"Ctrl-C went to the worker")
        self.type(b"\x03")
        self.assertEqual(self.exit_code(), -signal.SIGINT)
        self.assertNotIn(b"trial 2", self.text)

    # ---- the terminal afterwards ----

    def test_a_worker_that_died_in_raw_mode_left_the_terminal_raw(self):
        before = None
        self.start("--num_processes 1", script="import os, signal, sys, tty\nprint('before', flush=True)\nsys.stdin.readline()\n"
                   "tty.setraw(0)\nprint('raw', flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n")
        self.read_until(b"before")
        before = termios.tcgetattr(self.master)
        self.type(b"\n")
        self.read_until(b"raw")
        self.assertEqual(self.exit_code(), 137)
        self.assertEqual(termios.tcgetattr(self.master)[:4], before[:4])

    def test_ctrl_z_shows_148_as_any_program(self):
        shell = r"""
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
try: os.setpgid(pid, pid)
except OSError: pass
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped by", os.WSTOPSIG(status), flush=True)
os.killpg(pid, signal.SIGCONT)
os.killpg(pid, signal.SIGTERM)
_, status = os.waitpid(pid, os.WUNTRACED)
print("code", os.waitstatus_to_exitcode(status), flush=True)
"""
        for workers in "12":
            self.pid, self.master = pty.fork()
            if self.pid == 0:
                os.execv(sys.executable, [sys.executable, "-c", shell, ACC, "--num_processes", workers, "--no_python", FAKE, "out=up", "hold"])
            self.addCleanup(self.end, self.pid, self.master)
            self.text = b""
            self.read_until(b"up", count=int(workers))
            self.type(b"\x1a")
            self.read_until(b"stopped by %d" % signal.SIGTSTP)
            self.read_until(b"code 143")
            self.exit_code()

    def test_pdb_in_one_rank_of_two_ends_with_a_hint_at_stdin(self):
        self.start("--num_processes 2", script="import os\nif os.environ['RANK'] == '0': breakpoint()\nelse:\n  import time; time.sleep(100)\n")
        self.assertEqual(self.exit_code(), 1)
        self.assertIn(b"--stdin 0 gives it ours", self.text)


if __name__ == "__main__":
    main()
