"""Readers and disks that are slower than the workers, stand still or go away; each test is named for what the user saw."""
import os, select, shutil, signal, subprocess, tempfile, threading, time, unittest

from harness import PATIENCE, JobTest, is_root, main, state_of, until
from stuck_folder import StuckFolder, mount_answering


class Reader(threading.Thread):
    """Reads a pipe, `piece` bytes at a time, with a pause of `seconds` after each `every` bytes; counts lines."""

    def __init__(self, fd, every=None, seconds=0.0, pauses=2):
        super().__init__(daemon=True)
        self.fd, self.every, self.seconds, self.pauses = fd, every, seconds, pauses
        self.lines = 0
        self.start()

    def run(self):
        since = 0
        while data := os.read(self.fd, 65536):
            self.lines += data.count(b"\n")
            since += len(data)
            if self.every and since >= self.every and self.pauses:
                since, self.pauses = 0, self.pauses - 1
                time.sleep(self.seconds)
        os.close(self.fd)


class Slow(JobTest):
    LINES = 400_000

    def reader(self, **options):
        read_end, write_end = os.pipe()
        return Reader(read_end, **options), write_end

    def test_a_reader_that_paused_for_a_second_lost_two_thirds_of_the_lines(self):
        reader, write_end = self.reader(every=1 << 20, seconds=1.5)
        job = self.job("--num_processes 2 --report report.json", f"lines={self.LINES}", stdout=write_end)
        os.close(write_end)
        self.assertEqual(job.wait(60), 0, job.stderr)
        reader.join(10 * PATIENCE)
        self.assertEqual(reader.lines, 2 * self.LINES)
        self.assertEqual(self.report(job)["losses"], [])

    def test_a_pipeline_that_began_late_lost_the_rest(self):
        job = self.job("--num_processes 1", "", wrap=["sh", "-c", '"$@" | (sleep 2; wc -l)', "sh"],
                       program=["--no_python", "sh", "-c", "seq 2000000"])
        self.assertEqual(job.wait(60), 0)
        self.assertEqual(job.stdout.strip(), "2000000")

    @unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "needs a file system of our own")
    def test_a_server_of_files_that_was_away_held_up_the_restarts(self):
        folder = tempfile.mkdtemp(prefix="acc-away-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        stuck = StuckFolder(folder + "/stuck")
        self.addCleanup(stuck.give_up)
        job = self.job(f"--num_processes 1 --max_restarts 2 --max_no_progress 5 --progress_file {folder}/step", "mark=up after=500ms exit=3")
        job.wait_events("up", 1)
        os.symlink(stuck.place + "/step", folder + "/step")  # now it is there that the loop would look
        until(lambda: "job failed: rank 0 exited with code 3" in job.stderr, "the report of the third failure", 20)
        self.assertNotIn("can't be read", job.stderr)  # it is another file system
        self.assertEqual(len(job.events("up")), 3)
        stuck.give_up()  # until then no process ends that has a thread there
        self.assertEqual(job.wait(20), 3, job.stderr)
        self.assertTrue(stuck.asked.is_set())

    @unittest.skipUnless(is_root() and os.path.exists("/dev/fuse"), "needs a file system of our own")
    def test_a_server_of_files_that_was_away_held_up_the_end_of_a_job_with_logs(self):
        folder = tempfile.mkdtemp(prefix="acc-away-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.addCleanup(mount_answering(folder + "/served"))
        job = self.job(f"--num_processes 1 --redirects 3 --log_dir {folder}/served --report report.json", "on=USR1:3 mark=up hold")
        (_, _, _, worker), = job.wait_events("up", 1)
        stuck = StuckFolder(folder + "/served")
        self.addCleanup(stuck.give_up)
        os.kill(int(worker), signal.SIGUSR1)
        until(lambda: "job failed: rank 0 exited with code 3" in job.stderr, "the report", 20)
        until(lambda: os.path.exists(job.folder + "/report.json") and self.report(job)["verdict"] == "failed", "the file of the report", 20)
        self.assertEqual(os.path.dirname(self.report(job)["log_folder"]), folder + "/served")
        stuck.give_up()  # until then no process ends that has a thread there
        self.assertEqual(job.wait(20), 3, job.stderr)
        self.assertTrue(stuck.asked.is_set())

    def test_a_disk_that_froze_for_a_second_left_a_hole_in_the_log(self):
        if not is_root():
            self.skipTest("needs root: fsfreeze")
        folder = tempfile.mkdtemp(prefix="acc-freeze-")
        image = folder + ".img"
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", folder], check=False), os.rmdir(folder), os.unlink(image)))
        with open(image, "wb") as f:
            f.truncate(400 << 20)
        made = subprocess.run(f"mkfs.ext4 -q {image} && mount -o loop {image} {folder}", shell=True, check=False, capture_output=True)
        if made.returncode != 0:
            self.skipTest(f"can't mount an ext4: {made.stderr}")
        job = self.job(f"--num_processes 2 --redirects 3 --log_dir {folder} --report report.json", "mark=up lines=600000")
        job.wait_events("up", 2)
        frozen = subprocess.run(["fsfreeze", "-f", folder], check=False, capture_output=True)
        if frozen.returncode != 0:
            self.skipTest(f"can't freeze: {frozen.stderr}")
        time.sleep(1.5)  # so long the disk stands still
        subprocess.run(["fsfreeze", "-u", folder], check=True)
        self.assertEqual(job.wait(60), 0, job.stderr)
        self.assertEqual(self.report(job)["losses"], [])
        for rank in "01":
            with open(f"{folder}/latest/attempt_0/{rank}/stdout.log", "rb") as f:
                self.assertEqual(f.read(), b"".join(b"line %s %d\n" % (rank.encode(), i) for i in range(600_000)))


class Stuck(JobTest):
    LINES = 400_000

    def test_a_reader_that_took_nothing_was_told_of_in_the_report_only(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2 --output_patience 1s", "lines=30000 mark=wrote hold", stdout=write_end)
        os.close(write_end)
        job.wait_events("wrote", 2)
        job.wait_stderr("warning: stdout: it took nothing for 1 s; output waits in memory")
        job.process.terminate()
        self.assertEqual(job.wait(), 143)

    def test_a_stuck_reader_holds_workers_for_the_patience_only_and_the_cure_is_told(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2 --output_patience 1s --report report.json", f"lines={self.LINES} mark=wrote", stdout=write_end)
        os.close(write_end)
        job.wait_events("wrote", 2, 20)
        self.assertEqual(job.wait(20), 0)
        self.assertIn("stdout: it took nothing for 1 s; output is being dropped, the workers go on (a longer --output_patience", job.stderr)
        losses = self.report(job)["losses"]
        self.assertEqual([l["where"] for l in losses], ["stdout"])

    def test_without_patience_left_a_stuck_reader_held_the_stop(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2", f"mark=up lines={self.LINES} mark=wrote hold", stdout=write_end)
        os.close(write_end)
        job.wait_events("up", 2)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(10), 143, job.stderr)  # 2 s for the end of the output, not 60

    def test_a_stuck_reader_at_the_end_is_named_and_ctrl_c_ends_the_wait(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 1", "lines=100000", stdout=write_end)
        os.close(write_end)
        until(lambda: "waiting for stdout to take the last" in job.stderr, "the name of what is waited for", 15)
        self.assertIsNone(job.process.poll())
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait(5), 0)
        self.assertIn("it had not taken all when the job ended", job.stderr)

    def test_after_the_launcher_was_killed_its_agent_waited_for_a_stuck_reader(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2", f"mark=up lines={self.LINES} hold", stdout=write_end)
        os.close(write_end)
        job.wait_events("up", 2)
        agent = job.agent
        job.process.send_signal(signal.SIGKILL)
        job.wait(5)
        until(lambda: state_of(agent) in (None, "Z", "X"), "the agent's end", 4)  # who reaps it may be late

    def test_a_stuck_reader_at_the_end_is_given_up_after_the_patience(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 1 --output_patience 1s", "lines=100000", stdout=write_end)
        os.close(write_end)
        self.assertEqual(job.wait(10), 0)
        self.assertIn("it took nothing for 1 s", job.stderr)


class Gone(JobTest):
    def test_head_took_two_lines_and_the_rest_was_lost_without_a_word(self):
        read_end, write_end = os.pipe()
        job = self.job("--num_processes 2 --report report.json", "lines=1000 after=300ms lines=10000 mark=wrote exit=0", stdout=write_end)
        os.close(write_end)
        os.read(read_end, 10)  # what follows is more than the pipe holds
        os.close(read_end)
        self.assertEqual(job.wait(10), 0, job.stderr)
        self.assertEqual(len(job.events("wrote")), 2)
        said = [l for l in job.stderr.splitlines() if "went away" in l]
        self.assertEqual(len(said), 1, job.stderr)
        self.assertIn("stdout: its reader went away", said[0])
        self.assertNotIn("=====", job.stderr)
        losses = self.report(job)["losses"]
        self.assertEqual([(l["where"], l["why"]) for l in losses], [("stdout", "its reader went away")])
        self.assertGreater(losses[0]["lines"], 1000)


class Programs(JobTest):
    """Programs that buffer what they write into a pipe."""
    BUFFERS = 'import os,sys; print("step 1"); print("step 2"); '

    def run_python(self, code, flags="--num_processes 2", exit_code=0, **options):
        job = self.job(flags, "", program=["--no_python", "python3", "-c", code], **options)
        self.assertEqual(job.wait(), exit_code, job.stderr)
        return job

    def test_a_crash_took_all_that_a_program_had_printed(self):
        job = self.run_python(self.BUFFERS + "os.abort()", exit_code=134)
        self.assertIn("step 2\n", job.stdout)
        self.assertIn("| step 2", job.stderr)
        self.assertNotIn("none was kept", job.stderr)

    def test_a_program_showed_nothing_until_its_end(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2", "", program=["--no_python", "python3", "-c", self.BUFFERS + "import time; time.sleep(100)"],
                       stdout=write_end)
        os.close(write_end)
        seen = b""
        while seen.count(b"step 2\n") < 2:
            self.assertTrue(select.select([read_end], [], [], 10 * PATIENCE)[0], seen)
            seen += os.read(read_end, 4096)
        job.process.terminate()
        job.wait()

    def test_bytes_of_a_log_file_are_those_that_were_written(self):
        job = self.run_python('import os; os.write(1, bytes(range(256)) + b"a\\tb\\r\\n\\x04end")', "--num_processes 2 --redirects 3 --log_dir logs")
        with open(f"{job.folder}/logs/latest/attempt_0/1/stdout.log", "rb") as f:
            self.assertEqual(f.read(), bytes(range(256)) + b"a\tb\r\n\x04end")

    def test_pty_off_gives_a_pipe_and_on_gives_python_a_terminal_too(self):
        tty = "import os,sys; sys.stdout.write(str(os.isatty(1)) + '\\n')"
        self.assertEqual(self.run_python(tty).stdout, "True\nTrue\n")
        self.assertEqual(self.run_python(tty, "--num_processes 2 --pty off").stdout, "False\nFalse\n")
        script = os.path.join(self.job("--num_processes 1", "").folder, "tty.py")
        with open(script, "w") as f:
            f.write(tty)
        self.assertEqual(self.finished_script(script, "--num_processes 2").stdout, "False\nFalse\n")
        self.assertEqual(self.finished_script(script, "--num_processes 2 --pty on").stdout, "True\nTrue\n")

    def finished_script(self, script, flags):
        job = self.job(flags, "", program=[script])
        self.assertEqual(job.wait(), 0, job.stderr)
        return job

    def test_a_pager_or_colours_in_a_file_would_follow_from_a_terminal_that_is_none(self):
        job = self.run_python("import os; print(*(os.environ.get(n) for n in ('PAGER', 'GIT_PAGER', 'NO_COLOR', 'COLUMNS')))",
                              "--num_processes 1", env={"PAGER": "less", "NO_COLOR": ""})
        self.assertEqual(job.stdout.split()[:2], ["cat", "cat"])


if __name__ == "__main__":
    main()
