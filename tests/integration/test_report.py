"""The file of --report: whatever becomes of a job, it never is one of an older job."""
import contextlib, json, os, signal, struct, subprocess, sys, tempfile, unittest

from harness import ACC, BIN, NOBODY, JobTest, is_root, main, read, until, write


class Report(JobTest):
    def stale(self, folder):
        path = os.path.join(folder, "r.json")
        write(path, '{"format": 1, "verdict": "succeeded", "job": "an old one"}')
        return path

    def run_with_a_stale_one(self, *words):
        folder = self.job("--num_processes 1", "exit=0").folder
        path = self.stale(folder)
        ran = subprocess.run([ACC, "--report", path, *words], cwd=folder, capture_output=True, text=True, timeout=30)
        report = json.loads(read(path))
        self.assertEqual(report["exit_code"], ran.returncode)
        self.assertEqual(report["format"], 1)
        return ran, report

    def test_a_wrong_flag(self):
        ran, report = self.run_with_a_stale_one("--num_processes", "many", "x.py")
        self.assertEqual(ran.returncode, 2)
        self.assertEqual(report["verdict"], "not_started")
        self.assertIn("num_processes", report["reason"])

    def test_a_pasted_dash_and_a_link_to_nothing_were_no_such_file_alone(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        os.symlink("nöwhere", os.path.join(folder, "train.py"))
        for word, told in (("—num_processes", "cannot start '—num_processes': No such file or directory (its first character is a dash, as a text"),
                           ("train.py", "cannot start 'train.py': No such file or directory (it is a link to 'nöwhere', which isn't there)")):
            ran = subprocess.run([ACC, "--num_machines", "1", word], cwd=folder, capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 127)
            self.assertIn(told, ran.stderr)

    def test_the_callers_torchelastic_error_file_stayed_empty(self):
        """TorchX and Kubernetes read the first failed worker's error there; torchrun writes it."""
        folder = self.job("--num_processes 1", "exit=0").folder
        script = os.path.join(folder, "fails.sh")
        write(script, "#!/bin/sh\n[ $RANK = 1 ] || exec sleep 60\n"
              "echo '{\"message\": {\"message\": \"ValueError: of rank 1\", \"extraInfo\": {\"py_callstack\": \"T\"}}}' >$TORCHELASTIC_ERROR_FILE\n"
              "exit 7\n", 0o755)
        path = self.stale(folder)
        for words in (["--num_processes", "2"], ["--nproc_per_node", "2"]):
            ran = subprocess.run([ACC, *words, "--no_python", script], cwd=folder, capture_output=True, text=True, timeout=60,
                                 env={**os.environ, "TORCHELASTIC_ERROR_FILE": path})
            self.assertEqual(ran.returncode, 7, ran.stderr)
            self.assertEqual(json.loads(read(path)), {"message": {"message": "ValueError: of rank 1", "extraInfo": {"py_callstack": "T"}, "errorCode": 7}})
        write(path, "as it was")
        self.assertEqual(subprocess.run([ACC, "--num_processes", "2", "--no_python", "true"], cwd=folder, capture_output=True, timeout=60,
                                        env={**os.environ, "TORCHELASTIC_ERROR_FILE": path}).returncode, 0)
        self.assertEqual(read(path), "as it was")

    def failed_script(self, text):
        folder = self.job("--num_processes 1", "exit=0").folder
        write(os.path.join(folder, "train.py"), "import os, sys, time\nrank = os.environ['RANK']\n" + text)
        ran = subprocess.run([ACC, "--nproc_per_node", "2", "--report", "r.json", "train.py"], cwd=folder, capture_output=True, text=True, timeout=60,
                             env={**os.environ, "PYTHON_EXEC": sys.executable, "FOLDER": folder})
        self.assertEqual(ran.returncode, 1, ran.stderr)
        return ran.stderr, json.loads(read(os.path.join(folder, "r.json")))

    def test_a_coloured_traceback_had_escapes_and_no_hint(self):
        told, report = self.failed_script("if rank == '0': time.sleep(1000)\n"
                                          "sys.stderr.write('\\033[1;35mModuleNotFoundError\\033[0m: \\033[35mNo module named \\'torch\\'\\033[0m\\n')\nsys.exit(1)\n")
        block = told.split("job failed: ")[1]
        self.assertIn("    | ModuleNotFoundError: No module named 'torch'\n", block)
        self.assertIn("has no module 'torch': install it there", block)
        self.assertEqual(report["first_failure"]["last_lines"], ["ModuleNotFoundError: No module named 'torch'"])

    def test_of_a_lost_connection_the_rank_that_had_raised_is_named(self):
        told, report = self.failed_script("if rank == '1':\n"
                                          "  print(\"Traceback (most recent call last):\\n  File 'x.py', line 3\\nKeyError: 'label'\", file=sys.stderr, flush=True)\n"
                                          "  open('raised', 'w').close()\n  time.sleep(1000)\n"
                                          "while not os.path.exists('raised'): time.sleep(.01)\n"
                                          "raise RuntimeError('[../gloo/pair.cc:589] Connection closed by peer [127.0.0.1]:4')\n")
        self.assertIn("  others    rank 1 had written: KeyError: 'label'\n", told)
        self.assertEqual(report["first_failure"]["other_errors"], ["rank 1 had written: KeyError: 'label'"])

    def test_of_a_time_out_the_rank_that_had_raised_and_hung_at_its_end_was_not_named(self):
        told, report = self.failed_script("if rank == '1':\n"
                                          "  print(\"Traceback (most recent call last):\\n  File 'x.py', line 3\\nKeyError: 'label'\", file=sys.stderr, flush=True)\n"
                                          "  open('raised', 'w').close()\n  time.sleep(1000)\n"
                                          "while not os.path.exists('raised'): time.sleep(.01)\n"
                                          "raise RuntimeError('[../gloo/unbound_buffer.cc:136] Timed out waiting 5000ms for send operation to complete')\n")
        self.assertEqual(report["first_failure"]["other_errors"], ["rank 1 had written: KeyError: 'label'"])
        self.assertIn("  others    rank 1 had written: KeyError: 'label'\n", told)

    def test_a_script_that_is_not_there(self):
        ran, report = self.run_with_a_stale_one("nope.py")
        self.assertEqual(ran.returncode, 127)
        self.assertEqual(report["verdict"], "not_started")
        self.assertIn("nope.py", report["reason"])

    def test_a_program_that_cannot_be_executed(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        bad = os.path.join(folder, "bad")
        write(bad, "#!/no/such/interpreter\n", 0o755)
        ran, report = self.run_with_a_stale_one("--no_python", bad)
        self.assertEqual(ran.returncode, 127)
        self.assertEqual(report["verdict"], "cannot_start")
        self.assertIn("/no/such/interpreter", report["start_failure"])

    def test_a_killed_agent(self):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        path = self.stale(folder)  # before the start: later it may overwrite the report of the job that runs
        job = self.job("--num_processes 2 --report r.json", "mark=up hold", folder=folder)
        job.wait_events("up", 2)
        until(lambda: json.loads(read(path))["verdict"] == "running", "the report of a job that runs")
        self.assertEqual(json.loads(read(path))["pid"], job.pid)
        os.kill(job.agent, signal.SIGKILL)
        self.assertEqual(job.wait(), 70)
        report = json.loads(read(path))
        self.assertEqual(report["verdict"], "agent_lost")
        self.assertEqual(report["exit_code"], 70)
        self.assertIn("SIGKILL", report["reason"])

    def test_a_killed_acc_launch(self):
        job = self.job("--num_processes 2 --report r.json", "mark=up hold")
        job.wait_events("up", 2)
        job.process.kill()
        job.wait()
        until(lambda: not job.all_alive(), "the agent's end")
        report = json.loads(read(os.path.join(job.folder, "r.json")))
        self.assertEqual(report["verdict"], "guardian_lost")

    def full_disk(self):
        """A small file system, and a function that leaves no block of it free."""
        folder = tempfile.mkdtemp(prefix="acc-disk-")
        if not is_root() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]).returncode:
            os.rmdir(folder)
            self.skipTest("needs the right to mount a small tmpfs")
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", folder]), os.rmdir(folder)))

        def fill():
            with open(folder + "/rest", "wb", buffering=0) as rest, contextlib.suppress(OSError):
                while rest.write(b"x" * 4096) == 4096:
                    pass
        return folder, fill

    def test_a_disk_that_filled_meanwhile_left_it_at_running(self):
        disk, fill = self.full_disk()
        job = self.job(f"--num_processes 2 --report {disk}/r.json", "mark=up hold")
        job.wait_events("up", 2)
        path = disk + "/r.json"
        until(lambda: os.path.exists(path) and json.loads(read(path))["verdict"] == "running", "the report of a job that runs, which reserves its room")
        fill()
        job.process.terminate()
        self.assertEqual(job.wait(), 143, job.stderr)
        report = json.loads(read(disk + "/r.json"))
        self.assertEqual((report["verdict"], report["exit_code"]), ("stopped", 143))
        self.assertEqual(len(report["workers"]), 2)
        self.assertNotIn("lost", job.stderr)

    def test_a_disk_that_was_full_left_an_older_one(self):
        disk, fill = self.full_disk()
        self.stale(disk)
        fill()
        job = self.finished(f"--num_processes 2 --report {disk}/r.json", "exit=3", 3)
        self.assertEqual(json.loads(read(disk + "/r.json"))["exit_code"], 3, job.stderr)
        os.unlink(disk + "/r.json")
        fill()
        job = self.finished(f"--num_processes 2 --report {disk}/r.json", "exit=0", 73)
        self.assertIn(f"the report is lost: write '{disk}/r.json': No space left on device", job.stderr)
        ran = subprocess.run([ACC, "--report", disk + "/r.json", "nope.py"], capture_output=True, text=True, timeout=30)
        self.assertEqual(ran.returncode, 127)
        self.assertIn(f"the report is lost: write '{disk}/r.json': No space left on device", ran.stderr)

    def test_looking_only_writes_none(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        path = self.stale(folder)
        for flag in ("--print_plan", "--print_config"):
            subprocess.run([ACC, flag, "--report", path, "--num_processes", "2", "--no_python", "true"], cwd=folder, capture_output=True, timeout=30)
            self.assertEqual(json.loads(read(path))["job"], "an old one")

    def test_a_dash_is_the_standard_output(self):
        job = self.finished("--num_processes 2 --report -", "out=words exit=0")
        self.assertTrue(job.stdout.startswith("words\nwords\n{"), job.stdout)
        self.assertEqual(json.loads(job.stdout[job.stdout.index("{"):])["verdict"], "succeeded")
        self.assertFalse(os.path.exists(os.path.join(job.folder, "-")))
        job = self.job("--report - --num_processes many", "x")
        self.assertEqual(job.wait(), 2)
        self.assertEqual(json.loads(job.stdout)["verdict"], "not_started")

    def test_a_report_through_a_link_replaced_the_link_if_its_file_was_not_there_yet(self):
        job = self.job("--num_processes 1 --report link.json", "exit=0", folder=self.folder_with_link())
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertTrue(os.path.islink(os.path.join(job.folder, "link.json")))
        self.assertEqual(json.loads(read(os.path.join(job.folder, "there", "report.json")))["verdict"], "succeeded")

    def folder_with_link(self):
        folder = tempfile.mkdtemp(prefix="acc-test-")
        os.mkdir(os.path.join(folder, "there"))
        os.symlink("there/report.json", os.path.join(folder, "link.json"))
        return folder

    @unittest.skipUnless(is_root(), "needs root")
    def test_root_s_report_went_where_another_user_s_link_in_a_shared_folder_pointed_to(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o1777)
            link = os.path.join(folder, "r.json")
            os.symlink("/etc/acc-test-planted", link)
            os.lchown(link, 1001, 1001)
            job = self.job(f"--num_processes 1 --report {link}", "exit=0")
            self.assertEqual(job.wait(), 73, job.stderr)
            self.assertIn(f"--report: can't write to '{link}': Permission denied", job.stderr)
            self.assertFalse(os.path.exists("/etc/acc-test-planted"))

    def test_another_user_s_report_in_a_shared_folder_was_seen_after_the_whole_job(self):
        if not is_root():
            self.skipTest("needs root")
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-shared-"))
        os.chmod(folder, 0o1777)
        path = folder + "/report.json"
        self.finished(f"--num_processes 1 --report {path}", "exit=0")
        theirs = self.finished(f"--num_processes 1 --report {path}", "mark=up exit=0", 73, user=NOBODY)
        self.assertEqual(theirs.events(), [])
        self.assertIn(f"--report: can't write to '{path}': Operation not permitted", theirs.stderr)
        self.assertEqual(os.stat(path).st_uid, 0)
        self.finished(f"--num_processes 1 --report {path}", "exit=0")

    @unittest.skipUnless(is_root(), "needs root")
    def test_another_user_s_pipe_in_a_shared_folder_got_the_report_and_the_events(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-shared-"))
        os.chmod(folder, 0o1777)
        pipe, file = folder + "/pipe", folder + "/file"
        os.mkfifo(pipe)
        write(file, "")
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        for path in (pipe, file):
            os.chown(path, 1001, 1001)
            os.chmod(path, 0o666)
        for flag in (f"--report {pipe}", f"--events {pipe}", f"--events {file}"):
            for user in (None, NOBODY):
                with self.subTest(flag=flag, user=user):
                    job = self.finished(f"--num_processes 1 {flag}", "mark=up exit=0", 73, user=user)
                    self.assertEqual(job.events(), [])
                    self.assertIn(f"{flag.split()[0]}: can't write to '{flag.split()[1]}': Permission denied", job.stderr)
        checked = subprocess.run([os.path.join(BIN, "acc-test"), "--local_only", "--json", pipe], capture_output=True, text=True, timeout=60)
        self.assertEqual((checked.returncode, checked.stderr), (73, f"acc-test: write '{pipe}': Permission denied\n"))
        self.assertEqual(read(file), "")
        with self.assertRaises(BlockingIOError):
            os.read(reader, 1)

    @unittest.skipUnless(is_root(), "needs root")
    def test_a_file_that_our_caller_opened_is_written_to_whoever_owns_it(self):
        """sudo acc-launch --events /dev/stdout > /tmp/e: a link of /proc leads there, and no name."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-shared-"))
        os.chmod(folder, 0o1777)
        for flag in ("--report", "--events"):
            with open(folder + "/out", "w") as out:
                os.chown(out.fileno(), 1001, 1001)
                ran = subprocess.run([ACC, "--num_processes", "1", flag, f"/dev/fd/{out.fileno()}", "--no_python", "true"], stderr=subprocess.PIPE,
                                     text=True, timeout=60, pass_fds=[out.fileno()])
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn('"succeeded"' if flag == "--report" else '"job_end', read(folder + "/out"))
            os.unlink(folder + "/out")

    def test_a_report_through_a_descriptor_that_is_a_pipe_was_lost(self):
        """--report >(jq .)"""
        read_end, write_end = os.pipe()
        with os.fdopen(read_end) as reader:
            ran = subprocess.run([ACC, "--num_processes", "1", "--report", f"/dev/fd/{write_end}", "--no_python", "true"], capture_output=True, text=True,
                                 timeout=60, pass_fds=[write_end])
            os.close(write_end)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn('"succeeded"', reader.read())

    def test_a_report_into_the_file_of_the_standard_output_stayed_at_running(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-out-"))
        for place, code in (("/dev/stdout", 73), ("-", 0)):
            with open(folder + "/out", "w") as out:
                ran = subprocess.run([ACC, "--num_processes", "1", "--report", place, "--no_python", "echo", "hello"], stdout=out, stderr=subprocess.PIPE,
                                     text=True, timeout=60)
            self.assertEqual(ran.returncode, code, ran.stderr)
        self.assertTrue(read(folder + "/out").startswith("hello\n{"))
        for flag in ("--report", "--events"):  # of which the output would be written over those
            refused = subprocess.run(f"{ACC} --num_processes 1 {flag} /dev/stdout --no_python touch {folder}/ran > {folder}/out", shell=True, capture_output=True,
                                     text=True)
            self.assertIn(f"{flag}: '/dev/stdout' is the file that the output goes to", refused.stderr)
            self.assertFalse(os.path.exists(folder + "/ran"))

    def test_a_file_named_as_the_standard_output_is_kept_the_report_from_it(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-dash-"))
        write(folder + "/-", "something else")
        ran = subprocess.run([ACC, "--num_processes", "1", "--report", "-", "--no_python", "true"], cwd=folder, capture_output=True, text=True, timeout=60)
        self.assertEqual((ran.returncode, json.loads(ran.stdout)["verdict"], read(folder + "/-")), (0, "succeeded", "something else"), ran.stderr)

    def test_acc_test_s_results_for_a_pipe_ended_its_reader_at_the_start(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="acc-pipe-"))
        pipe = folder + "/pipe"
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (reader.kill(), reader.communicate()))
        ran = subprocess.run([os.path.join(BIN, "acc-test"), "--cpu", "--local_only", "--json", pipe], capture_output=True, text=True, timeout=60)
        self.assertEqual(json.loads(reader.communicate(timeout=60)[0])["exit_code"], ran.returncode, ran.stderr)

    def test_output_to_a_closed_standard_output_was_lost_without_a_word(self):
        """However short the job: that nobody reads may be found at its very end."""
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run(["sh", "-c", f"exec {ACC} --num_processes 1 --report r.json --no_python sh -c 'echo one; echo two' >&-"],
                                 cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
            self.assertIn("output is being dropped", ran.stderr)
            self.assertEqual(json.loads(read(os.path.join(folder, "r.json")))["losses"][0]["lines"], 2, ran.stderr)

    def test_a_report_for_a_closed_standard_output_was_lost_and_the_exit_code_was_0(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        for flags in ("--num_processes 1", "--hosts localhost:1"):
            with self.subTest(flags=flags):
                ran = subprocess.run(["sh", "-c", f"exec {ACC} {flags} --report - --no_python touch ran >&-"], cwd=folder, capture_output=True, text=True,
                                     timeout=60)
                self.assertEqual(ran.returncode, 73, ran.stderr)
                self.assertIn("--report -: the standard output is closed", ran.stderr)
                self.assertFalse(os.path.exists(folder + "/ran"))

    def test_a_report_in_a_folder_that_was_removed_was_lost_after_the_job(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        for flag in ("--report r.json", "--report ./r.json", "--events e.jsonl"):
            with self.subTest(flag=flag):
                gone = os.path.join(folder, "gone")
                os.mkdir(gone)
                ran = subprocess.run(["sh", "-c", f"rmdir {gone} && exec {ACC} {flag} --num_processes 1 --no_python touch {folder}/ran"], cwd=gone,
                                     capture_output=True, text=True, timeout=60)
                self.assertEqual(ran.returncode, 73, ran.stderr)
                self.assertIn("No such file or directory", ran.stderr)
                self.assertFalse(os.path.exists(folder + "/ran"))

    def test_where_the_report_was_lost_the_last_event_had_exit_code_0(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        os.mkdir(folder + "/gone")
        ran = subprocess.run([ACC, "--num_processes", "1", "--report", folder + "/gone/r.json", "--events", folder + "/e.jsonl", "--no_python", "rm", "-r",
                              folder + "/gone"], cwd=folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 73, ran.stderr)
        self.assertIn("the report is lost", ran.stderr)
        last = json.loads(read(folder + "/e.jsonl").splitlines()[-1])
        self.assertEqual((last["event"], last["verdict"], last["exit_code"]), ("job_ended", "succeeded", 73))

    def test_places_that_cannot_be_written_ended_a_launch_on_hosts_with_1(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        ran = subprocess.run([ACC, "--hosts", "localhost:1", "--events", "/proc/no/events", "--no_python", "true"], cwd=folder, capture_output=True,
                             text=True, timeout=60)
        self.assertEqual(ran.returncode, 73, ran.stderr)

    def test_times_count_from_the_workers_own_start(self):
        job = self.finished("--num_processes 40 --report r.json", "rank=0 after=300ms exit=7 any hold", 7)
        first = self.report(job, "r.json")["first_failure"]
        self.assertGreaterEqual(first["seconds_into_attempt"], 0.3)
        self.assertEqual(first["seconds"], first["seconds_into_attempt"])

    def test_a_rank_that_raised_and_took_a_second_to_end_was_not_named_but_one_that_failed_for_want_of_it(self):
        module = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime/python")
        script = """import os, sys, time
sys.path.insert(0, MODULE)
import acc_heartbeat
if os.environ["RANK"] == "1":
    try: raise ValueError("bad data")
    finally:
        open("left", "w").close()
        time.sleep(1)
while not os.path.exists("left"): time.sleep(0.01)
try: raise RuntimeError("[pair.cc:534] Connection closed by peer [10.0.0.2]:4711")
except RuntimeError as error: raise SystemError("step 7") from error
""".replace("MODULE", repr(os.path.abspath(module)))
        job = self.job("--num_processes 3 --report report.json --no_python", "", program=[sys.executable, "-c", script])
        self.assertEqual(job.wait(30), 1, job.stderr)
        failure = self.report(job)["first_failure"]
        self.assertEqual(failure["rank"], 1, job.stderr)
        self.assertIn("ValueError: bad data", "".join(failure["last_lines"]))
        self.assertIn("SystemError: step 7", job.stderr)

    def mark_after(self, program, end):
        """The mark of a rank's page (docs/decisions/0052-who-failed-first.md) when this program has ended, with this code."""
        with tempfile.TemporaryDirectory() as folder:
            page = os.path.join(folder, "page")
            with open(page, "wb") as file:
                file.write(b"ACCBEAT1" + struct.pack("I", 1) + bytes(4096 - 12))
            module = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime/python")
            lost = "lost = RuntimeError('[pair.cc:534] Connection closed by peer [10.0.0.2]:4711')\n"
            env = dict(os.environ, PYTHONPATH=module, ACC_HEARTBEAT_PAGE=page + ":512", ACC_AGENT_SOCKET="")
            ran = subprocess.run([sys.executable, "-c", "import acc_heartbeat, code, os, sys\n" + lost + program], env=env, capture_output=True, text=True,
                                 timeout=60)
            self.assertEqual(ran.returncode, end, ran.stderr)
            with open(page, "rb") as file:
                return struct.unpack_from("I", file.read(), 512 + 148)[0]

    def test_acc_heartbeat_changed_sys_excepthook_which_libraries_compare(self):
        self.assertEqual(self.mark_after("assert sys.excepthook is sys.__excepthook__", 0), 0)
        self.assertEqual(self.mark_after("sys.excepthook = lambda *what: None\nraise lost", 1), 1)
        self.assertEqual(self.mark_after("raise ValueError('step 7') from lost", 1), 1)
        self.assertEqual(self.mark_after("try: raise ValueError('bad data')\nexcept ValueError: raise lost", 1), 0)

    def test_a_lost_connection_that_a_program_outlived_was_taken_for_its_end(self):
        shown = ("class Console(code.InteractiveConsole):\n  def write(self, data): pass\n"
                 "console = Console({'lost': lost})\nconsole.push('raise lost')\nassert sys.last_value is lost\n")
        self.assertEqual(self.mark_after(shown + "acc_heartbeat.heartbeat(1)\nsys.exit(3)", 3), 0)
        self.assertEqual(self.mark_after("sys.excepthook(RuntimeError, lost, None)\nsys.exit(3)", 3), 0)
        stored = "import struct\nstruct.pack_into('I', acc_heartbeat._page, acc_heartbeat._at + 148, 1)\n"
        self.assertEqual(self.mark_after(stored + "acc_heartbeat.heartbeat(1)\nos._exit(3)", 3), 0)
        self.assertEqual(self.mark_after("if os.fork() == 0: raise lost\nos.wait()\nsys.exit(3)", 3), 0)

    def test_a_heartbeat_on_the_way_out_took_the_mark_of_a_lost_peer_away(self):
        stored = "import struct\nstruct.pack_into('I', acc_heartbeat._page, acc_heartbeat._at + 148, 1)\n"
        self.assertEqual(self.mark_after(stored + "try: raise ValueError\nfinally: acc_heartbeat.heartbeat(1)", 1), 1)
        late = "import atexit, threading, time\ndef beat():\n  while True: acc_heartbeat.heartbeat(1); time.sleep(0.01)\n"
        self.assertEqual(self.mark_after(late + "threading.Thread(target=beat, daemon=True).start()\natexit.register(time.sleep, 0.3)\nraise lost", 1), 1)

    def test_why_a_worker_asked_not_to_be_restarted_was_nowhere_in_the_report(self):
        script = ("import os, socket, time\n"
                  "if os.environ['RANK'] == '0': time.sleep(60)\n"
                  "agent = socket.socket(socket.AF_UNIX)\n"
                  "agent.connect(os.environ['ACC_AGENT_SOCKET'].replace('@', '\\0', 1))\n"
                  "agent.sendall(b'hello 1\\nno_restart the loss is NaN\\n')\n"
                  "os._exit(9)\n")
        job = self.job("--num_processes 2 --max_restarts 3 --report r.json --no_python", "", program=["/usr/bin/python3", "-c", script])
        self.assertEqual(job.wait(30), 9, job.stderr)
        report = self.report(job, "r.json")
        self.assertEqual((report["verdict"], report["first_failure"]["no_restart"]), ("never_retry", "the loss is NaN"))
        self.assertIn("a restart won't help: the loss is NaN", job.stderr)


BOUND = "import os; print(os.environ['LOCAL_RANK'], sorted(os.sched_getaffinity(0)))"


class Binding(JobTest):
    def cores(self, *flags):
        ran = subprocess.run([ACC, "--num_processes", "2", *flags, "--no_python", "/usr/bin/python3", "-c", BOUND], capture_output=True, text=True,
                             timeout=60)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return dict((line[0], line[2:]) for line in ran.stdout.splitlines()), ran.stderr

    def test_workers_of_any_kind_are_bound_for_real(self):
        siblings = {read(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") for cpu in os.sched_getaffinity(0)}
        if len(siblings) < 2:
            self.skipTest("one core only: nothing to share out")
        cores, _ = self.cores("--numa_binding", "exclusive")
        self.assertEqual(set(cores), {"0", "1"})
        mine, others = (set(json.loads(text)) for text in cores.values())
        self.assertFalse(mine & others)
        unbound, _ = self.cores()
        self.assertEqual(set(unbound.values()), {str(sorted(os.sched_getaffinity(0)))})

    def test_nothing_to_bind_to_is_told(self):
        if len([n for n in os.listdir("/sys/devices/system/node") if n[4:].isdigit()]) != 1:
            self.skipTest("a machine with several NUMA nodes")
        for flags in (["--numa_binding", "node"], ["--enable_cpu_affinity"]):
            cores, told = self.cores(*flags)
            self.assertEqual(set(cores.values()), {str(sorted(os.sched_getaffinity(0)))})
            self.assertIn("no worker is bound", told)


if __name__ == "__main__":
    main()
