"""acc-config as its users meet it: at a terminal, in a pipe, with files that can't be written or read."""
import contextlib, fcntl, itertools, json, os, re, resource, select, shlex, shutil, signal, struct, subprocess, tempfile, termios, time, unittest, unittest.mock

from harness import ACC, BIN, NOBODY, PATIENCE, PROGRAMS, SLACK, is_root, main, read, until, write

CONFIG = shutil.copy(os.path.join(BIN, "acc-config"), PROGRAMS.name)
UP, DOWN, ENTER, BACK, CTRL_C, CTRL_D, CTRL_Z = b"\x1b[A", b"\x1b[B", b"\r", b"\x02", b"\x03", b"\x04", b"\x1a"


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="acc-config-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.env = {**os.environ, "HOME": self.folder, "TERM": "xterm"}
        for name in ("HF_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "ACC_SECRET_FILE"):
            self.env.pop(name, None)

    def at(self, name):
        return os.path.join(self.folder, name)

    def run_config(self, *words, stdin="", **options):
        return subprocess.run([CONFIG, *words], input=stdin, capture_output=True, text=True, timeout=30 * SLACK, env=self.env,
                              cwd=self.folder, **options)

    def answer(self, *answers, name="out.yaml", **options):
        write(self.at("answers.json"), json.dumps(answers))
        return self.run_config("--config_file", self.at(name), "--answers", self.at("answers.json"), **options)


class Terminal(Folder):
    def start(self, *words, rows=40, program=None):
        self.master, self.slave = os.openpty()
        self.addCleanup(os.close, self.master)
        self.addCleanup(os.close, self.slave)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, 120, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.child = subprocess.Popen(program or [CONFIG, *words], stdin=self.slave, stdout=self.slave, stderr=self.slave, env=self.env, cwd=self.folder,
                                      start_new_session=True, preexec_fn=take)
        self.addCleanup(self.end)
        self.text = b""

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.child.kill()
        self.child.wait()

    def read_until(self, word, deadline=10):
        """What was read before is forgotten: a question may be asked twice."""
        end = time.monotonic() + deadline * PATIENCE
        while word not in self.text:
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f"no {word!r} in {self.text!r}")
            self.text += os.read(self.master, 4096)
        seen, _, self.text = self.text.partition(word)
        return seen + word

    def type(self, *keys):
        os.write(self.master, b"".join(keys))

    def exit_code(self):
        """Reads on meanwhile, or a full terminal would hold the end."""
        until(lambda: self.drain() or self.child.poll() is not None, "the end of acc-config")
        self.drain()
        return self.child.wait()

    def drain(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 4096)
        return False

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def assert_terminal_as_before(self):
        self.assertEqual(termios.tcgetattr(self.slave), self.before)

    def to_the_counts(self):
        self.read_until(b"Where the job runs")
        self.type(ENTER)
        self.read_until(b"Devices to train on")
        self.type(DOWN * 5, UP, ENTER)
        self.read_until(b"Number of machines")

    def to_the_preview(self):
        """On the CPU alone, with defaults."""
        self.read_until(b"Where the job runs")
        self.type(ENTER)
        self.read_until(b"Devices to train on")
        self.type(ENTER)
        self.read_until(b"Train on the CPU")
        self.type(b"yes\r")
        self.read_until(b"Compile with torch dynamo")
        self.type(ENTER)
        self.read_until(b"DeepSpeed")
        self.type(ENTER)
        self.read_until(b"Mixed precision")
        self.type(b"bf\r")
        self.read_until(b"write it")

    def test_arrow_keys_choose_and_the_file_is_shown_before_it_is_written(self):
        self.start("--config_file", "a.yaml")
        self.to_the_preview()
        self.assertFalse(os.path.exists(self.at("a.yaml")))
        self.type(ENTER)
        self.assertEqual(self.exit_code(), 0, self.text)
        self.assertIn("mixed_precision: bf16\n", read(self.at("a.yaml")))
        self.assertIn("use_cpu: true\n", read(self.at("a.yaml")))
        self.assert_terminal_as_before()

    def test_keys_that_are_typed_ahead_are_not_lost(self):
        self.start("--config_file", "a.yaml")
        self.read_until(b"Where the job runs")
        self.type(ENTER, ENTER, b"yes\r", ENTER, ENTER, DOWN * 2, ENTER, ENTER)
        self.assertEqual(self.exit_code(), 0, self.text)
        self.assertIn("mixed_precision: bf16\n", read(self.at("a.yaml")))

    def test_ctrl_c_ends_without_writing_and_restores_the_terminal(self):
        for in_menu in (True, False):
            with self.subTest(in_menu=in_menu):
                self.start("--config_file", "a.yaml")
                if in_menu:
                    self.read_until(b"SageMaker")
                else:
                    self.to_the_counts()
                until(self.is_raw, "raw mode")
                self.type(CTRL_C)
                self.assertEqual(self.exit_code(), 130)
                self.assertIn(b"nothing was written", self.text)
                self.assert_terminal_as_before()
                self.assertEqual(os.listdir(self.folder), [])

    def test_a_signal_that_ends_it_restores_the_terminal(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            with self.subTest(number=number):
                self.start("--config_file", "a.yaml")
                self.read_until(b"SageMaker")
                until(self.is_raw, "raw mode")
                self.child.send_signal(number)
                self.assertEqual(self.exit_code(), -number)
                self.assert_terminal_as_before()
                self.assertTrue(self.text.endswith(b"\x1b[?25h\r\n"), self.text)  # the cursor is shown again
                self.assertEqual([name for name in os.listdir(self.folder) if not name.startswith("core")], [])

    def test_ctrl_z_gives_the_terminal_back_and_fg_goes_on(self):
        shell = f"{shlex.quote(CONFIG)} --config_file a.yaml; echo stopped; read -r word; fg >/dev/null; echo ended $?"
        self.start(program=["bash", "-m", "-c", shell])
        self.read_until(b"SageMaker")
        until(self.is_raw, "raw mode")
        self.type(CTRL_Z)
        self.assertIn(b"\x1b[?25h", self.read_until(b"stopped"))  # the cursor, which the menu hides
        self.assert_terminal_as_before()
        self.type(b"\n")
        self.read_until(b"SageMaker")
        until(self.is_raw, "raw mode again")
        self.type(DOWN, UP, ENTER)
        self.read_until(b"Devices to train on")
        self.type(CTRL_C)
        self.read_until(b"ended 130")
        self.assertEqual(self.exit_code(), 0)
        self.assert_terminal_as_before()

    def test_back_explain_and_a_wrong_answer(self):
        self.start("--config_file", "a.yaml")
        self.to_the_counts()
        self.type(b"two\r")
        self.read_until(b"expected a whole number")
        self.read_until(b"Number of machines")
        self.type(b"?\r")
        self.read_until(b"Key of the file: num_machines")
        self.read_until(b"Number of machines")
        self.type(BACK)
        self.read_until(b"Devices to train on")
        self.type(b"<")
        self.read_until(b"Where the job runs")
        self.type(BACK)
        self.read_until(b"this is the first question")
        self.type(CTRL_D)
        self.assertEqual(self.exit_code(), 2)
        self.assert_terminal_as_before()
        self.assertEqual(os.listdir(self.folder), [])

    def test_what_changes_in_a_file_that_is_there(self):
        write(self.at("a.yaml"), "distributed_type: FSDP\nmixed_precision: bf16\n")
        self.start("--config_file", "a.yaml")
        self.to_the_preview()
        self.type(b"q\r")
        self.assertEqual(self.exit_code(), 130)
        self.assertEqual(read(self.at("a.yaml")), "distributed_type: FSDP\nmixed_precision: bf16\n")

    def test_from_the_preview_back_to_the_last_question(self):
        write(self.at("a.yaml"), "distributed_type: FSDP\n")
        self.start("--config_file", "a.yaml")
        self.to_the_preview()
        self.type(b"go\r")
        self.read_until(b"Mixed precision")
        self.type(b"fp16\r")
        seen = self.read_until(b"write it")
        self.assertIn(b"exists. It will become", seen)
        self.assertIn(b"- distributed_type: FSDP", seen)
        self.type(ENTER)
        self.assertEqual(self.exit_code(), 0)
        self.assertIn("mixed_precision: fp16\n", read(self.at("a.yaml")))

    def test_a_menu_that_is_longer_than_the_window(self):
        self.start("--config_file", "a.yaml", rows=8)
        self.read_until(b"Where the job runs")
        self.type(ENTER)
        self.read_until(b"Devices to train on")
        self.assertNotIn(b"TPU", self.read_until(b"multi-HPU"))
        self.type(b"\x1b[F")
        self.read_until(b"TPU")
        self.type(CTRL_C)
        self.assertEqual(self.exit_code(), 130)

    def test_a_window_that_grows_shows_more_of_a_menu_at_once(self):
        self.start("--config_file", "a.yaml", rows=8)
        self.read_until(b"Where the job runs")
        self.type(ENTER)
        self.read_until(b"Devices to train on")
        self.assertNotIn(b"TPU", self.read_until(b"multi-HPU"))
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.read_until(b"TPU")
        self.type(CTRL_C)
        self.assertEqual(self.exit_code(), 130)

    def test_it_took_a_whole_core_after_its_terminal_went_away_at_a_line_half_typed(self):
        master, slave = os.openpty()
        child = subprocess.Popen([CONFIG, "--config_file", "a.yaml"], stdin=slave, stdout=slave, stderr=slave, env=self.env, cwd=self.folder,
                                 start_new_session=True)  # it isn't its controlling terminal: no SIGHUP
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        os.close(slave)
        self.master, self.text, self.child = master, b"", child
        self.to_the_counts()
        self.type(b"12")
        self.read_until(b"12")
        os.close(master)
        self.assertEqual(child.wait(10 * PATIENCE), 2)


class Pipes(Folder):
    def test_without_a_terminal_each_line_is_an_answer(self):
        done = self.run_config("--config_file", "a.yaml", stdin="\nNO\nyes\n\n\nbf16\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mixed_precision: bf16\n", read(self.at("a.yaml")))

    def test_a_wrong_line_is_explained_and_asked_again(self):
        done = self.run_config("--config_file", "a.yaml", stdin="\n?\nMULTI_GPUS\n<\n0\nNO\nyes\n\n\nbf16\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("'MULTI_GPUS': expected one of", done.stdout)

    def test_an_input_that_ends_names_the_question_and_writes_nothing(self):
        done = self.run_config("--config_file", "a.yaml", stdin="\nmulti-GPU\n2\n0\n")
        self.assertEqual(done.returncode, 2)
        self.assertIn("main_process_ip", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_answers_by_name(self):
        done = self.run_config("--config_file", "a.yaml", "--set", "machine_type=MULTI_CPU", "--set", "num_processes=4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("num_processes: 4\n", read(self.at("a.yaml")))
        done = self.run_config("--config_file", "b.yaml", "--answers", "-", stdin="machine_type: MULTI_GPU\nnum_processes: 2\nuse_fsdp: yes\n"
                               "fsdp_auto_wrap_policy: NO_WRAP\n")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("distributed_type: FSDP\n", read(self.at("b.yaml")))
        done = self.run_config("--config_file", "c.yaml", "--set", "machine_typ=NO", "--set", "use_mpirun=yes")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean machine_type?", done.stderr)
        self.assertIn("use_mpirun was not asked for", done.stderr)
        self.assertFalse(os.path.exists(self.at("c.yaml")))

    def test_hostile_answers(self):
        for text in ("", "[[]]", "{", "5", "[1, 2", "\0\0", "[" * 5000, "- [1]\n- {a: 1}\n"):
            with self.subTest(text=text[:20]):
                write(self.at("answers.yaml"), text)
                done = self.run_config("--config_file", "a.yaml", "--answers", "answers.yaml")
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertFalse(os.path.exists(self.at("a.yaml")))


class Writing(Folder):
    ANSWERS = (0, 0, "yes", "", "", 2)

    def test_the_default_place_is_made_and_acc_launch_finds_it(self):
        write(self.at("answers.json"), json.dumps([0, 1, "", "", "", "", "2", 0]))
        done = self.run_config("--answers", "answers.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Start with: acc-launch train.py", done.stdout)
        self.assertTrue(os.path.exists(self.at(".cache/huggingface/accelerate/default_config.yaml")))
        plan = subprocess.run([ACC, "--print_plan", "--no_python", "true"], capture_output=True, text=True, env=self.env, cwd=self.folder,
                              timeout=30 * SLACK)
        self.assertEqual(json.loads(plan.stdout)["launch"]["nproc_per_node"], 2, plan.stderr)

    def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_else(self):
        write(self.at("a.yaml"), "old\n")
        write(self.at("answers.json"), json.dumps(self.ANSWERS))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        done = self.run_config("--config_file", "a.yaml", "--answers", "answers.json", preexec_fn=limit)
        self.assertEqual(done.returncode, 73, done.stderr)
        self.assertIn("nothing was written", done.stderr)
        self.assertEqual(read(self.at("a.yaml")), "old\n")
        self.assertEqual(sorted(os.listdir(self.folder)), ["a.yaml", "answers.json"])
        self.assertEqual(self.answer(*self.ANSWERS, name="/dev/full").returncode, 73)

    def test_a_folder_that_may_not_be_written(self):
        os.chmod(self.folder, 0o555)
        self.addCleanup(os.chmod, self.folder, 0o755)
        words = ("--config_file", "a.yaml", "--set", "use_cpu=yes")
        done = self.run_config(*words, **({"user": NOBODY, "group": NOBODY} if is_root() else {}))
        self.assertEqual(done.returncode, 73, done.stderr)
        self.assertIn("Permission denied", done.stderr)

    def test_a_file_that_its_owner_closed_stays_as_it_is(self):
        if is_root():
            os.chown(self.folder, NOBODY, NOBODY)
        write(self.at("a.yaml"), "old\n", 0o444)
        done = self.run_config("--config_file", "a.yaml", "--set", "use_cpu=yes", **({"user": NOBODY, "group": NOBODY} if is_root() else {}))
        self.assertEqual(done.returncode, 73, done.stderr)
        self.assertEqual(read(self.at("a.yaml")), "old\n")

    def test_default_never_replaces_a_file_unasked(self):
        write(self.at("a.yaml"), "mine\n")
        self.assertEqual(self.run_config("default", "--config_file", "a.yaml").returncode, 0)
        self.assertEqual(read(self.at("a.yaml")), "mine\n")
        self.assertEqual(self.run_config("default", "--config_file", "a.yaml", "--force", "--mixed_precision", "bf16").returncode, 0)
        self.assertEqual(json.loads(read(self.at("a.yaml")))["mixed_precision"], "bf16")
        self.assertEqual(self.run_config("default", "--mixed_precision", "fp17").returncode, 2)

    def test_update_keeps_a_file_that_it_does_not_understand(self):
        for text in ("distributed_type: 'NO'\nfoo: 1\n", "a: [\n", "", "distributed_type: NO\n"):
            write(self.at("a.yaml"), text)
            done = self.run_config("update", "a.yaml")
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("a.yaml", done.stderr)
            self.assertEqual(read(self.at("a.yaml")), text)

    def test_the_secret_is_for_its_owner_alone_and_is_kept(self):
        self.assertEqual(self.run_config("secret", "s").returncode, 0)
        first = read(self.at("s"))
        self.assertEqual(os.stat(self.at("s")).st_mode & 0o777, 0o600)
        refused = self.run_config("secret", "s")
        self.assertEqual(refused.returncode, 73)
        self.assertIn("--force", refused.stderr)
        self.assertEqual(read(self.at("s")), first)
        self.assertEqual(self.run_config("secret", "--force", "s").returncode, 0)
        self.assertNotEqual(read(self.at("s")), first)
        self.assertEqual(read(self.at("s.old")), first)


class Reading(Folder):
    def test_check_tells_all_complaints_with_their_lines(self):
        write(self.at("a.yaml"), "distributed_type: MULTI_GPUS\nmixed_precison: bf16\nnum_processes: many\nmain_process_port: 99999\n")
        done = self.run_config("check", "a.yaml")
        self.assertEqual(done.returncode, 2)
        lines = [line for line in done.stderr.splitlines() if line.startswith("acc-config: a.yaml:")]
        self.assertEqual([line.split(":")[2] for line in lines], ["1", "2", "3", "4"])
        self.assertIn("4 complaints about a.yaml", done.stderr)

    def test_check_takes_the_flags_into_account(self):
        write(self.at("a.yaml"), "distributed_type: MULTI_GPU\n")
        done = self.run_config("check", "a.yaml")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("num_processes is not set", done.stderr)
        self.assertEqual(self.run_config("check", "a.yaml", "--", "--num_processes", "4").stderr, "")
        self.assertEqual(self.run_config("check", "a.yaml", "--", "--num_processes", "x").returncode, 2)

    def test_hostile_files_are_refused_at_once(self):
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9))
        for text in ("\0\1\2", "{" * 100_000, "- " * 50_000, "a: b\n" * 400_000, bomb, "a: !!python/object:os.system x\n", "5\n", "\xff"):
            with self.subTest(text=text[:20]):
                write(self.at("a.yaml"), text)
                for verb in ("check", "update", "show"):
                    self.assertEqual(self.run_config(verb, "a.yaml").returncode, 2)
        os.unlink(self.at("a.yaml"))
        os.mkfifo(self.at("a.yaml"))
        self.assertEqual(self.run_config("check", "a.yaml").returncode, 2)

    def test_show_says_who_set_each_value(self):
        write(self.at("a.yaml"), "distributed_type: MULTI_CPU\nnum_processes: 2\n")
        done = self.run_config("show", "a.yaml", "--", "--num_processes", "3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^num_processes = 3 +# flag --num_processes$")
        self.assertRegex(done.stdout, r"(?m)^distributed_type = MULTI_CPU +# a.yaml:1$")
        self.assertNotIn("# default", done.stdout)
        self.assertIn("# default", self.run_config("show", "a.yaml", "--all").stdout)

    def convert_and_start(self, *line):
        """What the printed command of a line writes to its standard output."""
        write(self.at("facts.json"), '{"gpus": 0}')
        done = self.run_config("convert", "--host_facts", "facts.json", "--output_file", "a.yaml", "--overwrite", "--", *line)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.run_config("check", "a.yaml").returncode, 0)
        shown = done.stdout.splitlines()[-1].removeprefix("Start with: ")
        env = {**self.env, "PATH": PROGRAMS.name + ":" + os.environ["PATH"]}
        job = subprocess.run(["bash", "-c", shown.replace("acc-launch ", "acc-launch --main_process_port 0 ", 1)], capture_output=True, text=True,
                             env=env, cwd=self.folder, timeout=60 * SLACK)
        self.assertEqual(job.returncode, 0, job.stderr)
        return job.stdout

    def test_a_converted_command_line_is_good_and_starts_what_it_started(self):
        for line in ("torchrun --nproc_per_node 2 --no-python", "mpirun -np 2 --bind-to core"):
            with self.subTest(line=line):
                said = self.convert_and_start(*line.split(), "/bin/sh", "-c", "echo rank $RANK")
                self.assertEqual(sorted(word for word in said.split("\n") if "rank" in word)[-1][-6:], "rank 1")

    def plan_of(self, words, caller):
        """What --print_plan says, by the way to each value, with the caller's variables."""
        done = subprocess.run([ACC, "--print_plan", "--host_facts", "facts.json", *words], capture_output=True, text=True, timeout=30 * SLACK,
                              env={**self.env, **caller}, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        plan["env"] = {**caller, **plan["env"]}
        # A word on devices, and what nodes compare of their command lines.
        plan["warnings"] = [one for one in plan["warnings"] if "no GPU was found" not in one]
        if "cluster" in plan:
            del plan["cluster"]["facts"]["precision"]
            plan["cluster"]["facts"].pop("processes per node", None)  # the file counts all machines' workers together

        def leaves(value, way=()):
            inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
            return {way: value} if not inner else {key: leaf for name, one in inner for key, leaf in leaves(one, (*way, name)).items()}
        return leaves(plan)

    def converted_plan(self, words, caller):
        """The plan of the command that convert prints for a line, and the file."""
        done = self.run_config("convert", "--host_facts", "facts.json", "--output_file", "a.yaml", "--overwrite", "--", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        command = shlex.split(done.stdout.split("Start with: ")[1])
        at = command.index("acc-launch")
        return self.plan_of(command[at + 1:], {**caller, **dict(one.split("=", 1) for one in command[:at])}), read(self.at("a.yaml"))

    # What a file of Accelerate says, where torchrun leaves it open.
    ACCELERATES_DEFAULTS = {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_DYNAMO_MODE": "default",
                            "ACCELERATE_DYNAMO_USE_DYNAMIC": "False", "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
                            "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False"}

    def differences(self, direct, converted, is_any_port):
        found = {way: (direct.get(way), converted.get(way)) for way in {**direct, **converted} if direct.get(way) != converted.get(way)}
        return {way: pair for way, pair in found.items() if not (
            way[0] == "env" and pair in ((None, self.ACCELERATES_DEFAULTS.get(way[1])), ("1", "True")) or
            is_any_port and way in (("master", "port"), ("launch", "rdzv_endpoint"), ("launch", "rdzv_id")))}

    def test_a_converted_torchrun_line_gave_15_s_to_save_and_forgot_settings_of_the_environment(self):
        lines = ("--nproc_per_node 2 t.py", "--nproc_per_node 1 t.py", "--standalone t.py", "--standalone --nproc_per_node 2 t.py a b",
                 "--nproc_per_node 2 --master_port 0 t.py", "--nproc_per_node cpu t.py", "--nproc_per_node auto --max_restarts 3 t.py",
                 "--nproc_per_node 3 --grace 7 --tee 3 --log_dir logs t.py", "--nproc_per_node 2 --no_python ./t.sh", "--nproc_per_node 2 -m t",
                 "--nnodes 2 --nproc_per_node 4 --node_rank 1 --master_addr 127.0.0.1 --master_port 29777 t.py",
                 "--nnodes 2 --node_rank 1 --master_addr 127.0.0.1 t.py",
                 "--nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29400 --rdzv_id j7 t.py",
                 "--nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29400 --master_port 29555 t.py",
                 "--nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost t.py",
                 "--nnodes 1:4 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:29400 --rdzv_conf join_timeout=50 t.py",
                 "--nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0 --redirects 0:1 --role trainer t.py",
                 "--nproc_per_node 2 --gpu_ids 0 t.py", "--nproc_per_node 2 --mixed_precision bf16 t.py", "--nproc_per_node 2 --cpu t.py")
        callers = ({}, {"OMP_NUM_THREADS": "3", "PET_NPROC_PER_NODE": "3"}, {"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true"},
                   {"ACCELERATE_DYNAMO_BACKEND": "INDUCTOR", "ACCELERATE_DYNAMO_USE_DYNAMIC": "1", "ACCELERATE_DYNAMO_MODE": "max-autotune"},
                   {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "90"})
        for gpus, line, caller in itertools.product((0, 2), lines, callers):
            with self.subTest(gpus=gpus, line=line, caller=caller):
                write(self.at("facts.json"), json.dumps({"gpus": gpus, "physical_cores": 8, "ports_in_use": []}))
                direct = self.plan_of(line.split(), caller)
                is_any_port = "--standalone" in line or "--master_port 0" in line
                in_front = self.converted_plan([*(f"{name}={value}" for name, value in caller.items()), "torchrun", *line.split()], {})
                with unittest.mock.patch.dict(self.env, caller):
                    inherited = self.converted_plan(["torchrun", *line.split()], caller)
                self.assertEqual(in_front[1], inherited[1])
                for plan, file in in_front, inherited:
                    self.assertEqual(self.differences(direct, plan, is_any_port), {}, file)

    def test_each_worker_of_a_converted_line_with_deepspeeds_own_file_raised(self):
        write(self.at("facts.json"), json.dumps({"gpus": 2, "deepspeed": "0.15.0"}))
        # What DeepSpeedPlugin of Accelerate refuses beside a deepspeed_config_file.
        refused = {"gradient_accumulation_steps", "gradient_clipping", "zero_stage", "offload_optimizer_device", "offload_param_device",
                   "offload_param_nvme_path", "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision"}
        for line in ("deepspeed --num_gpus 2 t.py --deepspeed_config ds.json",
                     "accelerate launch --num_processes 2 --use_deepspeed --deepspeed_config_file ds.json --zero_stage 2 --mixed_precision bf16 t.py"):
            with self.subTest(line=line):
                plan, file = self.converted_plan(line.split(), {})
                self.assertEqual(plan["env", "ACCELERATE_DEEPSPEED_CONFIG_FILE"], "ds.json")
                self.assertFalse(refused & set(plan["env", "ACCELERATE_CONFIG_DS_FIELDS"].split(",")), file)
                self.assertEqual(plan["env", "ACCELERATE_MIXED_PRECISION"], "bf16" if "bf16" in line else "no")

    def test_each_worker_of_a_converted_line_whose_script_has_a_deepspeed_config_raised(self):
        write(self.at("facts.json"), json.dumps({"gpus": 2, "deepspeed": "0.15.0"}))
        direct = self.plan_of("--num_processes 2 --use_deepspeed t.py".split(), {})
        for line in ("deepspeed --num_gpus 2 t.py", "accelerate launch --num_processes 2 --use_deepspeed t.py"):
            with self.subTest(line=line):
                plan, file = self.converted_plan(line.split(), {})
                for name in ("ACCELERATE_CONFIG_DS_FIELDS", "ACCELERATE_MIXED_PRECISION"):
                    self.assertEqual(plan["env", name], direct["env", name], file)

    def test_a_flag_of_a_converted_line_lost_to_the_same_key_of_its_file_without_a_prefix(self):
        write(self.at("facts.json"), json.dumps({"gpus": 2, "fp8": True}))
        for file, flag in (("mixed_precision: fp8\nfp8_config: {backend: TE, margin: 0}\n", "--fp8_margin 2"),
                           ("mixed_precision: fp8\nfp8_config: {backend: TE, fp8_margin: 0}\n", "--fp8_margin 2"),
                           ("mixed_precision: bf16\ndynamo_config: {mode: max-autotune, backend: INDUCTOR}\n", "--dynamo_mode reduce-overhead")):
            with self.subTest(file=file, flag=flag):
                write(self.at("f.yaml"), "distributed_type: MULTI_GPU\nnum_processes: 2\n" + file)
                words = ["--config_file", "f.yaml", *flag.split(), "t.py"]
                direct = self.plan_of(words, {})
                plan, written = self.converted_plan(["accelerate", "launch", *words], {})
                self.assertEqual({way: pair for way, pair in self.differences(direct, plan, False).items() if way[0] == "env"}, {}, written)

    def test_accelerate_launch_without_a_count_is_converted_and_starts(self):
        write(self.at("t.py"), "print('started')\n")
        for flags in ("--multi_gpu", "--cpu", "--use_fsdp", "--use_megatron_lm", "--multi_gpu --gpu_ids 0"):
            with self.subTest(flags=flags):
                self.assertEqual(self.convert_and_start("accelerate", "launch", *flags.split(), "t.py").strip(), "started")

    def test_a_converted_line_of_mpirun_starts_any_program_with_any_interpreter(self):
        write(self.at("t.py"), "#!/bin/sh\necho by a shell, rank $RANK\n")
        os.chmod(self.at("t.py"), 0o755)
        write(self.at("p.py"), "import os, sys\nprint(sys.executable, sys.flags.optimize, os.environ['RANK'], *sys.argv[1:])\n")
        python = os.path.realpath(shutil.which("python3"))
        for line, said in ((["mpirun", "-np", "1", "echo", "on PATH"], "on PATH"),
                           (["mpirun", "-np", "1", "./t.py"], "by a shell, rank 0"),
                           (["mpirun", "-np", "1", "t.py"], "by a shell, rank 0"),
                           (["mpirun", "-np", "1", "python3", "-c", "print(1)"], "1"),
                           (["mpirun", "-np", "1", python, "-O", "p.py", "--", "x"], f"{python} 1 0 -- x"),
                           (["mpirun", "-np", "1", python, "p.py", "--", "x"], f"{python} 0 0 -- x"),
                           ([python, "-m", "torch.distributed.run", "--nproc_per_node", "1", "p.py", "--", "--", "--x"], f"{python} 0 0 -- --x"),
                           (["mpirun", "-np", "1", "-x", "A=b c", "sh", "-c", "echo $A"], "b c")):
            with self.subTest(line=line):
                self.assertEqual(self.convert_and_start(*line).strip(), said)

    def test_a_line_that_cannot_be_converted_is_refused_and_no_file_is_written(self):
        for line in ("mpirun -np x ./a", "mpirun -np ./a", "torchrun --nproc_per_node two t.py", "torchrun --nnodes x t.py", "mpirun -np 1 ./a : -np 1 ./b",
                     "accelerate launch --tpu t.py", "srun -n 2 python t.py", "mpirun --hostfile missing -np 2 ./a"):
            with self.subTest(line=line):
                done = self.run_config("convert", "--output_file", "a.yaml", "--", *line.split())
                self.assertEqual((done.returncode, done.stdout, os.path.exists(self.at("a.yaml"))), (2, "", False))

    def test_the_file_in_the_default_place_is_a_part_of_the_line(self):
        os.makedirs(self.at(".cache/huggingface/accelerate"))
        write(self.at(".cache/huggingface/accelerate/default_config.yaml"), "distributed_type: MULTI_CPU\nmixed_precision: bf16\nnum_processes: 3\n")
        done = self.run_config("convert", "--", "accelerate", "launch", "t.py")
        self.assertIn("mixed_precision: bf16\n", done.stdout)
        self.assertIn("num_processes: 3\n", done.stdout)
        self.assertIn("default_config.yaml", done.stderr)

    def test_the_default_place_was_the_callers_where_the_line_sets_another(self):
        for folder, count in ((".cache/huggingface", 3), ("hf", 5), ("cache/huggingface", 6), ("home/.cache/huggingface", 7)):
            os.makedirs(self.at(f"{folder}/accelerate"))
            write(self.at(f"{folder}/accelerate/default_config.yaml"), f"distributed_type: MULTI_CPU\nnum_processes: {count}\n")
        for variable, count in (("A=b", 3), ("HF_HOME=hf", 5), ("XDG_CACHE_HOME=cache", 6), ("HOME=home", 7)):
            with self.subTest(variable=variable):
                done = self.run_config("convert", "--", variable, "accelerate", "launch", "t.py")
                self.assertIn(f"num_processes: {count}\n", done.stdout)
        done = self.run_config("convert", "--", "HF_HOME=none", "accelerate", "launch", "--num_processes", "2", "t.py")
        self.assertIn("num_processes: 2\n", done.stdout)
        self.assertNotIn("default_config", done.stderr)

    def test_a_line_whose_file_has_keys_of_old_versions_was_refused(self):
        write(self.at("old.yaml"), "distributed_type: MULTI_GPU\nfp16: true\ndynamo_backend: INDUCTOR\nnum_processes: 2\n")
        done = self.run_config("convert", "--", "accelerate", "launch", "--config_file", "old.yaml", "t.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("mixed_precision: fp16\n", "dynamo_config:\n  dynamo_backend: INDUCTOR\n"):
            self.assertIn(line, done.stdout)

    def test_a_file_for_fsdp_1_is_converted_and_kept_unless_overwritten(self):
        old = "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_use_orig_params: true\n"
        write(self.at("a.yaml"), old)
        self.assertEqual(self.run_config("convert", "--to", "fsdp2", "a.yaml").returncode, 2)
        write(self.at("b.yaml"), "here\n")
        self.assertEqual(self.run_config("convert", "--to", "fsdp2", "a.yaml", "--output_file", "b.yaml").returncode, 2)
        self.assertEqual((read(self.at("a.yaml")), read(self.at("b.yaml"))), (old, "here\n"))
        done = self.run_config("convert", "--to", "fsdp2", "a.yaml", "--overwrite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("fsdp_use_orig_params was removed in FSDP 2: dropped", done.stderr)
        self.assertIn("fsdp_reshard_after_forward: true\n", read(self.at("a.yaml")))


class Documented(Folder):
    def test_every_command_of_the_page_works_when_pasted(self):
        page = read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/acc-config.md"))
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
        self.assertGreater(len(blocks), 4)
        env = {**self.env, "PATH": PROGRAMS.name + ":" + os.environ["PATH"]}
        for block in blocks:
            with self.subTest(block=block):
                done = subprocess.run(["bash", "-euc", block], capture_output=True, text=True, timeout=60 * SLACK, env=env, cwd=self.folder,
                                      stdin=subprocess.DEVNULL)
                self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("job.yaml", "fsdp.yaml", "cpu.json", "here.yaml", "mpi.yaml", "acc.yaml", "fsdp1.yaml", "fsdp2.yaml"):
            self.assertEqual(self.run_config("check", name).returncode, 0, name)


if __name__ == "__main__":
    main()
