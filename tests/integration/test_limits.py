"""Resources that run out: descriptors, processes, disks, readers."""
import os, pty, re, resource, subprocess, tempfile

from harness import SANITIZED, SLACK, JobTest, free_port, is_root, main, read


class Limits(JobTest):
    def test_21_too_few_descriptors_is_said_in_words(self):
        taken = []
        while len(taken) < 3 and not any(took < 4 * SLACK for took in taken):  # the quickest of three: a busy machine may hold up one
            job = self.job("--num_processes 64", "exit=0", preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))
            self.assertEqual(job.wait(15), 71, job.stderr)
            self.assertRegex(job.stderr, r"cannot start 64 workers: that takes \d+ descriptors, and the limit is 40: raise it \(ulimit -n")
            self.assert_nothing_left(job)
            taken.append(job.seconds)
        self.assertLess(min(taken), 4 * SLACK, taken)  # and not after the 5 s for which a lack of processes is retried

    def test_far_too_few_descriptors_are_said_in_words_too(self):
        for limit in (8, 16):
            job = self.job("--num_processes 1", "exit=0", preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertEqual(job.wait(5), 71, job.stderr)
            self.assertRegex(job.stderr, rf"cannot start 1 worker: that takes \d+ descriptors, and the limit is {limit}: raise it \(ulimit -n")

    def test_the_limit_that_was_advised_was_too_low_again(self):
        for workers in (1, 8):
            limit = 20
            for code in (71, 0):
                job = self.job(f"--num_processes {workers} --redirects 3 --log_dir logs", "exit=0",
                               preexec=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                self.assertEqual(job.wait(15), code, job.stderr)
                if code:
                    limit = int(re.search(r"that takes (\d+) descriptors", job.stderr)[1])

    def test_a_count_that_fits_is_not_refused(self):
        # 8 + 3 * 20 descriptors and what the agent has for itself.
        job = self.finished("--num_processes 20", "exit=0", preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (110, 110)))
        self.assertEqual(job.stderr.count("cannot start"), 0)

    def test_a_limit_of_descriptors_that_sufficed_for_the_start_was_too_low_for_the_restart(self):
        refused = 0
        for limit in range(50, 110, 2):
            job = self.job(f"--num_processes 4 --max_restarts 1 --restart_delay 0 --redirects 3 --log_dir logs --events events --metrics {free_port()}", "exit=3",
                           preexec=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            code = job.wait(20)
            self.assertIn(code, (3, 71), job.stderr)
            if code == 3:
                break
            self.assertNotIn("restarting", job.stderr)
            refused += 1
        self.assertEqual(code, 3, job.stderr)
        self.assertGreater(refused, 0)

    def test_what_cannot_be_executed_was_read_whole_for_the_line_that_names_its_interpreter(self):
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(f"{folder}/pipe", 0o755)
            with open(f"{folder}/data", "wb") as data:
                data.truncate(6 << 30)
            os.chmod(f"{folder}/data", 0o755)
            for name in "pipe", "data":
                job = self.job("--num_processes 1", "", program=["--no_python", f"{folder}/{name}"],
                               preexec=lambda: SANITIZED or resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)))  # its shadow memory is larger
                self.assertIn(job.wait(15), (126, 127), job.stderr)
                self.assertIn(f"cannot start '{folder}/{name}'", job.stderr)

    def test_a_low_soft_limit_is_raised_for_us_and_kept_for_the_workers(self):
        job = self.job("--num_processes 32", "", program=["--no_python", "sh", "-c", "ulimit -Sn"],
                       preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096)))
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assertEqual(set(job.stdout.split()), {"64"})

    def test_a_process_limit_that_leaves_room_for_no_thread_is_told_without_a_wait(self):
        if not is_root():
            self.skipTest("needs root to become another user")
        if SANITIZED:
            self.skipTest("the search for leaks at the end needs a thread")
        user = 64998  # nobody else's, as below
        job = self.job("--num_processes 2", "mark=up hold", wrap=["prlimit", "--nproc=2", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"])
        self.assertEqual(job.wait(15), 71, job.stderr)
        self.assertIn("ulimit -u", job.stderr)

    def test_a_worker_killed_at_its_hard_limit_of_processor_time_is_told_so(self):
        job = self.job("--num_processes 1", "", program=["--no_python", "sh", "-c", "while :; do :; done"],
                       preexec=lambda: resource.setrlimit(resource.RLIMIT_CPU, (4, 4)))  # of 1 s clock ticks miss a sixth on a busy machine
        self.assertEqual(job.wait(60), 137, job.stderr)
        self.assertIn("was killed by SIGKILL (9): its processor time reached the limit of 4 s (ulimit -t)", job.stderr)

    def test_a_file_size_limit_loses_the_report_and_not_the_job(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.job(f"--num_processes 1 --report {folder}/report.json", "exit=0",
                           preexec=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400)))
            self.assertEqual(job.wait(15), 73, job.stderr)
            self.assertRegex(job.stderr, "the report is lost: .*File too large")

    def test_21_too_few_processes_is_retried_and_then_refused(self):
        if not is_root():
            self.skipTest("needs root to become another user")
        user = 64999  # nobody else's: RLIMIT_NPROC counts all processes of a user
        job = self.job("--num_processes 16", "mark=up hold", wrap=["prlimit", "--nproc=8", "setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"])
        self.assertEqual(job.wait(15), 71, job.stderr)
        self.assertIn("Resource temporarily unavailable", job.stderr)
        self.assertIn("ulimit -u", job.stderr)
        self.assertEqual(job.events("up"), [], "a program ran although not all could be made")
        self.assertLess(job.seconds, 20 * SLACK)
        self.assert_nothing_left(job)


class Disks(JobTest):
    LINES = 60_000

    def full_disk(self):
        folder = tempfile.mkdtemp(prefix="acc-disk-")
        if not is_root() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder]).returncode:
            os.rmdir(folder)
            self.skipTest("needs the right to mount a small tmpfs")
        self.addCleanup(lambda: (subprocess.run(["umount", "-l", folder]), os.rmdir(folder)))
        return folder

    def test_20_a_full_disk_stops_no_worker_and_is_told(self):
        disk = self.full_disk()
        job = self.finished(f"--num_processes 2 --redirects 3 --log_dir {disk}", f"lines={self.LINES} mark=wrote", deadline=30)
        self.assertEqual(len(job.events("wrote")), 2)
        self.assertIn("No space left on device", job.stderr)
        self.assertRegex(job.stderr, r"\d+ lines")

    def test_20_a_read_only_disk_stops_no_worker(self):
        disk = self.full_disk()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        job = self.finished(f"--num_processes 2 --main_process_port 0 --redirects 3 --log_dir {disk}/logs", "lines=100 mark=wrote")
        self.assertEqual(len(job.events("wrote")), 2)
        self.assertIn("Read-only file system", job.stderr)
        self.assertEqual(re.findall("warning: .*", job.stderr), [
            f"warning: --log_dir: can't write to '{disk}/logs': Read-only file system: the job starts all the same, without log files and "
            "error files until that is mended"])


class Readers(JobTest):
    LINES = 200_000

    def test_a_terminal_that_nobody_reads_holds_no_worker_beyond_the_patience(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        job = self.job("--num_processes 2 --tee 3 --output_patience 1s", f"lines={self.LINES} mark=wrote exit=0", stdout=slave, stderr=slave)
        os.close(slave)
        job.wait_events("wrote", 2, 20)
        self.assertEqual(job.wait(10), 0)

    def test_a_pipe_that_nobody_reads_holds_no_worker_beyond_the_patience(self):
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        job = self.job("--num_processes 2 --output_patience 1s", f"lines={self.LINES} mark=wrote exit=0", stdout=write_end)
        os.close(write_end)
        job.wait_events("wrote", 2, 20)
        self.assertEqual(job.wait(10), 0)
        self.assertIn("lines", job.stderr)

    def test_a_reader_that_goes_away_ends_nothing(self):
        read_end, write_end = os.pipe()
        job = self.job("--num_processes 2", "lines=1000 after=200ms lines=1000 mark=wrote exit=0", stdout=write_end)
        os.close(write_end)
        os.read(read_end, 10)
        os.close(read_end)
        self.assertEqual(job.wait(10), 0, job.stderr)
        self.assertEqual(len(job.events("wrote")), 2)


class Output(JobTest):
    def test_files_hold_exactly_what_the_workers_wrote(self):
        job = self.finished("--num_processes 2 --redirects 3 --log_dir logs", "lines=5000 raw=no-newline err=oops")
        folder = os.path.join(job.folder, "logs", "latest", "attempt_0")
        for rank in "01":
            want = "".join(f"line {rank} {i}\n" for i in range(5000)) + "no-newline"
            self.assertEqual(read(f"{folder}/{rank}/stdout.log"), want)
            self.assertEqual(read(f"{folder}/{rank}/stderr.log"), "oops\n")
        self.assertNotIn("line 0", job.stdout)

    def test_tee_prefixes_whole_lines_and_keeps_each_ranks_order(self):
        job = self.finished("--num_processes 4 --tee 3 --role train", "lines=3000")
        lines = job.stdout.splitlines()
        self.assertEqual(len(lines), 4 * 3000)
        for rank in range(4):
            mine = [l for l in lines if l.startswith(f"[train{rank}]:")]
            self.assertEqual(mine, [f"[train{rank}]:line {rank} {i}" for i in range(3000)])

    def test_without_tee_lines_pass_unchanged_and_whole(self):
        job = self.finished("--num_processes 4", "lines=3000")
        lines = job.stdout.splitlines()
        self.assertEqual(sorted(lines), sorted(f"line {r} {i}" for r in range(4) for i in range(3000)))

    def test_ranks_can_be_filtered_from_the_console(self):
        job = self.finished("--num_processes 3 --local_ranks_filter 0,2", "out=here")
        self.assertEqual(job.stdout, "here\nhere\n")

    def test_a_child_that_keeps_the_pipe_delays_neither_restart_nor_end(self):
        job = self.job("--num_processes 1 --max_restarts 1 --grace 100ms --restart_delay 0", "hold_pipe=60s mark=up err=words exit=1")
        self.assertEqual(job.wait(10), 1)
        self.assertLess(job.seconds, 20 * SLACK)  # the child keeps it for 60 s
        self.assertEqual(len(job.events("up")), 2)
        self.assertIn("words", job.stderr)
        self.assert_nothing_left(job)

    def test_log_files_rotate_and_lose_nothing(self):
        job = self.finished("--num_processes 1 --redirects 1 --log_dir logs --log_rotate_size 20K --log_rotate_keep 100", "lines=10000")
        folder = os.path.join(job.folder, "logs", "latest", "attempt_0", "0")
        numbers = sorted((int(n.rsplit(".", 1)[1]) for n in os.listdir(folder) if re.fullmatch(r"stdout\.log\.\d+", n)), reverse=True)
        self.assertGreater(len(numbers), 3)
        text = "".join(read(f"{folder}/stdout.log.{n}") for n in numbers) + read(f"{folder}/stdout.log")
        self.assertEqual(text, "".join(f"line {os.environ.get('RANK', '-')} {i}\n" for i in range(10000)))


if __name__ == "__main__":
    main()
