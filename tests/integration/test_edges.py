"""Surroundings that once made acc-launch do the wrong thing; each test is named for what the user saw."""
import os, pty, re, select, shutil, signal, socket, subprocess, sys, tempfile, time

from harness import ACC, FAKE, NOBODY, PATIENCE, SANITIZED, JobTest, free_port, is_root, main, read, until, write


class Surroundings(JobTest):
    def test_a_parent_that_ignores_sigchld_made_the_job_hang_for_ever(self):
        self.finished("--num_processes 2", "exit=3", 3, preexec=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))

    def test_the_report_was_lost_because_tee_was_killed(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        log = os.path.join(folder, "log")
        script = f'exec > >(cat > {log}; echo end >> {log}) 2>&1; exec {ACC} --num_processes 2 --no_python {FAKE} out=hello exit=4'
        self.assertEqual(subprocess.run(["bash", "-c", script], timeout=60, check=False).returncode, 4)
        until(lambda: os.path.exists(log) and "end\n" in read(log), "the reader's own end")
        self.assertIn("hello", read(log))
        self.assertIn("job failed", read(log))

    def test_a_helper_started_before_exec_was_killed(self):
        script = f'sleep 1000 & echo $! > pid; exec {ACC} --num_processes 1 --no_python {FAKE} exit=0'
        folder = self.job("--num_processes 1", "exit=0").folder
        self.assertEqual(subprocess.run(["bash", "-c", script], cwd=folder, timeout=60, check=False,
                                        stderr=subprocess.DEVNULL).returncode, 0)
        helper = int(read(os.path.join(folder, "pid")))
        os.kill(helper, signal.SIGKILL)  # fails if it is gone

    def test_a_job_in_another_pid_namespace_killed_ours(self):
        if not is_root():
            self.skipTest("needs root")
        job = self.job("--num_processes 1", "mark=up hold")
        job.wait_events("up", 1)
        self.finished("--num_processes 1", "exit=0", wrap=["unshare", "-pf", "--mount-proc", "--kill-child"])
        self.assertIsNone(job.process.poll(), job.stderr)

    def test_a_forgotten_file_name_replaced_the_script_by_a_report(self):
        """`--report train.py`, and no script is left; or the config file, or the script itself is named."""
        folder = tempfile.mkdtemp(prefix="acc-edges-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        script, config = folder + "/train.py", folder + "/cfg.yaml"
        for words in (["--report", script], ["--report", script, script], ["--events", script, script], ["--report", config, "--config_file", config, script],
                      ["--report", script, "--nonsense", script]):
            write(script, "print('mine')\n")
            write(config, "num_processes: 1\n")
            done = subprocess.run([ACC, "--num_processes", "1", *words], capture_output=True, text=True, cwd=folder)
            self.assertIn(done.returncode, (2, 73), (words, done.stderr))
            self.assertEqual((read(script), read(config)), ("print('mine')\n", "num_processes: 1\n"), (words, done.stderr))
            self.assertIn("left as it is", done.stderr, words)
        report = folder + "/r.json"
        for _ in range(2):  # an older report is replaced
            self.assertEqual(subprocess.run([ACC, "--num_processes", "1", "--report", report, script], capture_output=True).returncode, 0)

    def test_the_report_replaced_dev_null_by_a_file(self):
        folder = self.job("--num_processes 1", "exit=0").folder
        fifo = os.path.join(folder, "fifo")
        os.mkfifo(fifo)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.finished(f"--num_processes 1 --report {fifo}", "exit=0")
        self.assertIn(b'"verdict": "succeeded"', os.read(reader, 1 << 16))

    def test_two_jobs_at_once_took_the_same_port(self):
        go = os.path.join(self.job("--num_processes 1", "exit=0").folder, "go")
        script = f"echo port $MASTER_PORT; until [ -e {go} ]; do sleep 0.02; done"
        jobs = [self.job("--num_processes 2", "", program=["--no_python", "sh", "-c", script]) for _ in range(4)]
        for job in jobs:  # at once: none ends before the last one has its port
            until(lambda: job.stdout.count("port ") == 2, "both workers of each")
        write(go, "")
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.stderr)
        ports = [set(job.stdout.split("\n")) - {""} for job in jobs]
        self.assertTrue(all(len(p) == 1 for p in ports))
        self.assertEqual(len(set.union(*ports)), 4)

    def test_the_first_failure_during_the_start_was_blamed_on_rank_0(self):
        job = self.job("--num_processes 48 --report report.json",
                       "rank=3 exit=5 any rank=0 after=20s exit=9 any hold")
        self.assertEqual(job.wait(), 5, job.stderr)
        self.assertEqual(self.report(job)["first_failure"]["rank"], 3)

    def test_usr1_then_sigterm_never_reached_the_workers(self):
        job = self.job("--num_processes 2 --preempt_signals USR1 --preempt_grace 60s --grace 60s", "note=USR1 on=TERM:0 mark=up hold hold")
        job.wait_events("up", 2)
        job.process.send_signal(signal.SIGUSR1)
        job.wait_events("got_SIGUSR1", 2)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(5), 75, job.stderr)

    def test_a_failure_was_hidden_by_the_signal_that_came_after_it(self):
        job = self.job("--num_processes 2 --preempt_signals TERM --grace 1s", "rank=0 mark=fails exit=7 any ignore=TERM hold")
        job.wait_events("fails", 1)
        until(lambda: "rank 0" in job.stderr, "the failure to be told")
        job.process.terminate()
        self.assertEqual(job.wait(8), 7, job.stderr)

    def test_without_proc_and_cgroup_a_stubborn_worker_is_still_killed(self):
        if not is_root() or SANITIZED:
            self.skipTest("needs root, and no sanitizer, which reads /proc itself")
        # /proc is what tells us of orphans; the worker itself must not need it.
        hide = ["unshare", "-m", "sh", "-c", 'umount -l /sys/fs/cgroup 2>/dev/null; mount -t tmpfs tmpfs /proc && exec "$@"', "sh"]
        job = self.job("--num_processes 1 --grace 200ms", "ignore=TERM mark=up hold", wrap=hide)
        job.wait_events("up", 1)
        job.process.terminate()
        self.assertEqual(job.wait(10), 143, job.stderr)

    def test_a_script_that_could_not_be_read_was_started_in_each_worker(self):
        user = NOBODY if is_root() else None
        job = self.job("--num_processes 1", "exit=0")
        self.assertEqual(job.wait(), 0, job.stderr)
        write(job.folder + "/closed.py", "print('ran')", 0)
        os.mkdir(job.folder + "/empty")
        os.mkdir(job.folder + "/package")
        write(job.folder + "/package/__main__.py", "print('ran')")
        for script, code, said in (("closed.py", 126, "cannot start 'closed.py': Permission denied (it can't be read: chmod +r it?)"),
                                   ("empty", 126, "cannot start 'empty': it is a folder without __main__.py"),
                                   ("package", 0, "")):
            with self.subTest(script):
                done = self.finished("--cpu --num_processes 2 --max_restarts 2", "", code, user=user, program=[script], folder=job.folder)
                self.assertIn(said, done.stderr)
                self.assertEqual("ran" in done.stdout, code == 0)
                self.assertNotIn("Traceback", done.stderr)
        done = self.finished("--cpu --num_processes 2", "", 126, user=user, program=["--no_python", "./package"], folder=job.folder)
        self.assertIn("cannot start './package': it is a folder", done.stderr)

    def test_a_tmpdir_that_is_not_there_was_made_and_left(self):
        place = f"/tmp/acc-no-tmpdir-{os.getpid()}"
        for flags, what in (("--num_processes 2", "error files"), ("--num_processes 2 --tee 3", "log files"),
                            ("--num_processes 1 --cpu --tee 3", "log files")):
            job = self.finished(flags, "out=hello", env={"TMPDIR": place + "/deep"})
            self.assertFalse(os.path.exists(place))
            self.assertEqual(job.stderr.count("warning: TMPDIR is"), 1, job.stderr)
            self.assertIn(f"'{place}/deep', which can't be used (No such file or directory): {what} go to /", job.stderr)
            self.assertIn("hello", job.stdout)
            for kept in re.findall("log files are in (/tmp/acc_[^ ]*)", job.stderr):
                shutil.rmtree(kept)
        self.assertNotIn("TMPDIR", self.finished("--num_processes 2", "", env={"TMPDIR": "/tmp"}).stderr)
        self.assertNotIn("TMPDIR", self.finished("--num_processes 1 --cpu", "", env={"TMPDIR": place}).stderr)

    def test_help_into_a_closed_pipe_told_that_the_agent_was_killed(self):
        for flag in ("--help", "--print_plan"):
            read_end, write_end = os.pipe()
            os.close(read_end)
            with os.fdopen(write_end) as closed:
                ran = subprocess.run([ACC, flag, "--num_processes", "2", "--no_python", "true"], stdout=closed, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertIn(ran.returncode, (141, -signal.SIGPIPE), ran.stderr)  # 141 in a shell
            self.assertNotIn("killed", ran.stderr)

    def test_log_files_of_one_worker_in_tmp_could_be_read_by_everybody(self):
        for flags in ("--num_processes 1", "--num_processes 2"):
            job = self.job(flags + " --tee 3 --cpu", "out=one mark=up hold", env={"TMPDIR": None}, wrap=["sh", "-c", 'umask 022; exec "$@"', "sh"])
            job.wait_events("up", 1)
            folder = until(lambda: re.search("log files are in (/tmp/acc_[^ ]*)", job.stderr), "the place of the log files")[1]
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700, flags)
            job.process.terminate()
            job.wait(10)

    def test_log_files_were_told_to_be_in_a_folder_that_is_not_there(self):
        if not is_root():
            self.skipTest("needs root: mount")
        closed = 'mount --bind /tmp /tmp && mount -o remount,bind,ro /tmp && exec "$@"'
        job = self.finished("--num_processes 2 --tee 3", "out=hello", env={"TMPDIR": None}, wrap=["unshare", "-m", "sh", "-c", closed, "sh"])
        self.assertIn("hello", job.stdout)
        self.assertIn("log folder failed", job.stderr)
        self.assertNotIn("log files are in", job.stderr)
        job = self.finished("--num_processes 2 --tee 3", "exit=4", 4, env={"TMPDIR": None}, wrap=["unshare", "-m", "sh", "-c", closed, "sh"])
        self.assertNotRegex(job.stderr, r"\n *logs ")

    def test_a_port_that_another_user_had_reserved_was_somebodys(self):
        if not is_root():
            self.skipTest("needs root")
        take = ("import socket, sys, os; os.setuid(65534); s = socket.socket(%s); s.bind(%s); s.listen(64); "
                "print(s.getsockname()[1] if s.family == socket.AF_INET else '', flush=True); sys.stdin.read()")
        free = free_port()
        name = f"'\\0acc-launch/port/{free}'"
        for family, where in (("socket.AF_UNIX", name), ("socket.AF_INET", f"('', {free})")):
            squatter = subprocess.Popen([sys.executable, "-c", take % (family, where)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(lambda: (squatter.communicate(), squatter.wait()))
            squatter.stdout.readline()
            job = self.finished(f"--num_processes 2 --cpu --main_process_port {free}", "exit=0")
            self.assertRegex(job.stderr, f"warning: port {free} is already in use by user 65534 \\(nobody\\): port [0-9]+ is used instead")
            two = self.finished(f"--num_processes 2 --num_machines 2 --machine_rank 0 --insecure --main_process_ip 10.0.0.1 --main_process_port {free}", "", 1)
            self.assertIn(f"port {free} is already in use by user 65534 (nobody) on this machine: choose another", two.stderr)
            squatter.communicate()

    def test_two_jobs_that_named_one_port_at_the_same_moment_shared_a_store(self):
        port = free_port()
        held = socket.socket(socket.AF_UNIX)  # as another job, in the moment in which a look doesn't see it yet: bound, not listening
        self.addCleanup(held.close)
        held.bind(f"\0acc-launch/port/{port}")
        script = 'echo "port $MASTER_PORT"; [ $TORCHELASTIC_RESTART_COUNT = 1 ]'
        done = subprocess.run([ACC, "--num_processes", "2", "--cpu", "--max_restarts", "1", "--restart_delay", "0", "--main_process_port", str(port),
                               "--no_python", "sh", "-c", script], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, f"warning: port {port} is already in use: port [0-9]+ is used instead, for this job alone")
        self.assertNotIn(f"port {port}", done.stdout)
        self.assertIn("port ", done.stdout)

    def test_two_jobs_of_one_port_at_once_keep_their_sums_apart(self):
        script = os.path.join(self.enterContext(tempfile.TemporaryDirectory(prefix="acc-ports-")), "ports.py")
        write(script, "import os, socket, sys, time\n"
                      "port = int(os.environ['MASTER_PORT'])\n"
                      "if os.environ['RANK'] == '0':\n"
                      "    store = socket.create_server(('', port))\n"
                      "    peer = store.accept()[0]\n"
                      "    assert peer.recv(64).decode() == sys.argv[1], 'mixed'\n"
                      "    peer.sendall(b'x')\n"
                      "    sys.exit()\n"
                      "while True:\n"
                      "    try: peer = socket.create_connection(('127.0.0.1', port)); break\n"
                      "    except OSError: time.sleep(0.01)\n"
                      "peer.sendall(sys.argv[1].encode())\n"
                      "assert peer.recv(1), 'refused'\n")
        for _ in range(20):
            flags = ["--num_processes", "2", "--cpu", "--main_process_port", str(free_port()), script]
            jobs = [subprocess.Popen([ACC, *flags, str(value)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for value in (1, 10)]
            for job in jobs:
                out = job.communicate(timeout=60)[0]
                self.assertEqual(job.returncode, 0, out)

    def test_a_job_of_several_machines_whose_port_another_job_took_at_the_same_moment_is_refused(self):
        port = free_port()
        held = socket.socket(socket.AF_UNIX)
        self.addCleanup(held.close)
        held.bind(f"\0acc-launch/port/{port}")
        flags = f"--cpu --num_machines 2 --num_processes 2 --main_process_ip 127.0.0.1 --main_process_port {port}"
        jobs = [self.job(f"{flags} --machine_rank {rank} --node_name n{rank}", "mark=up hold") for rank in (0, 1)]
        for job in jobs:
            self.assertEqual(job.wait(20), 1, job.stderr)
            self.assertIn(f"port {port} is already in use on this machine: choose another with --main_process_port, the same on all machines", job.stderr)

    def test_another_user_at_a_job_of_roots_read_of_a_closed_connection(self):
        if not is_root():
            self.skipTest("needs root")
        port = free_port()
        flags = f"--cpu --nnodes 2 --nproc_per_node 1 --rdzv_backend tcp --rdzv_endpoint 127.0.0.1:{port} --join_timeout 60s"
        roots = self.job(flags, "exit=0")
        until(lambda: f":{port:04X} 00000000:0000 0A" in read("/proc/net/tcp"), "the coordinator's listener")
        theirs = self.finished(flags, "exit=0", 77, user=NOBODY)
        self.assertIn(f"127.0.0.1:{port} turned this side away: it belongs to user 0, this side to user {NOBODY}: on loopback", theirs.stderr)
        until(lambda: f"it belongs to user {NOBODY}, this side to user 0" in roots.stderr, "root's warning")
        roots.process.terminate()
        self.assertEqual(roots.wait(), 143, roots.stderr)

    def test_in_a_user_namespace_of_an_unmapped_user_every_other_user_could_speak_for_a_worker(self):
        """As a container with `USER nobody`: all that it doesn't map has the job's own number."""
        ann, bob, python = 23001, 23002, shutil.which("python3", path="/usr/bin")
        if not is_root() or not python or subprocess.run(["unshare", "-U", "true"], user=ann, group=ann, extra_groups=[], capture_output=True).returncode != 0:
            self.skipTest("needs root, and user namespaces")
        speak = ("import os, socket, sys\nagent = socket.socket(socket.AF_UNIX)\nagent.connect(sys.argv[-1].replace('@', chr(0), 1))\n"
                 "agent.sendall(b'hello 0\\nset key 1\\nx\\n')\nprint('answer', agent.recv(9))\n")
        worker = f"{speak}print('at', sys.argv[-1], flush=True)\nsys.stdin = open('go')\nsys.stdin.read()\n"
        job = self.job("--num_processes 1", "", user=ann, wrap=["unshare", "-U"], program=["--no_python", "sh", "-c", 'mkfifo go && exec "$@" "$ACC_AGENT_SOCKET"', "sh", python, "-c", worker])
        until(lambda: "at @" in job.stdout, lambda: f"the worker; {job.stdout} {job.stderr}")
        self.assertIn("answer b'ok", job.stdout)
        address = re.search(r"at (@\S+)", job.stdout)[1]
        foreign = subprocess.run([python, "-c", speak, address], user=bob, group=bob, extra_groups=[], capture_output=True, text=True)
        self.assertNotIn("answer b'ok", foreign.stdout, foreign.stderr)
        write(job.folder + "/go", "")
        self.assertEqual(job.wait(), 0, job.stderr)

    def test_old_attempts_filled_the_memory_disk(self):
        name = f"attempts{os.getpid()}"
        job = self.job(f"--num_processes 2 --max_restarts 20 --restart_delay 0 --rdzv_id {name}", "attempt=20 mark=last hold any exit=1",
                       env={"TMPDIR": ""})
        job.wait_events("last", 2)
        folder = next(f"/dev/shm/{d}" for d in os.listdir("/dev/shm") if name in d)
        until(lambda: os.listdir(folder) == ["attempt_20"], lambda: f"the last attempt's folder alone; there are {os.listdir(folder)}")
        os.kill(job.agent, signal.SIGKILL)
        job.wait(5)
        until(lambda: not os.path.exists(folder), "the guardian to remove the folder")

    def test_three_hundred_left_overs_made_one_endless_line(self):
        job = self.job("--num_processes 1 --max_restarts 60 --restart_delay 0", "escape after=2ms exit=1")
        self.assertEqual(job.wait(120), 1)
        block = job.stderr.split("job failed")[1]
        self.assertLess(max(map(len, block.splitlines())), 2000)
        self.assertIn("60 earlier failures", block)

    def test_a_background_job_hung_after_fg(self):
        shell = r'''
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
try: os.setpgid(pid, pid)
except OSError: pass
_, status = os.waitpid(pid, os.WUNTRACED)
print("stopped" if os.WIFSTOPPED(status) else "ended", flush=True)
os.tcsetpgrp(0, pid)
os.killpg(pid, signal.SIGCONT)
_, status = os.waitpid(pid, os.WUNTRACED)
print("code", os.waitstatus_to_exitcode(status), flush=True)
'''
        pid, master = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", shell, ACC, "--num_processes", "1", "--no_python", "sh", "-c", "read x; echo got:$x"])
        self.addCleanup(os.close, master)
        text = b""
        end = time.monotonic() + 10 * PATIENCE
        sent = False
        while b"code 0" not in text and time.monotonic() < end:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    text += os.read(master, 4096)
                except OSError:
                    break
            if b"stopped" in text and not sent:
                os.write(master, b"bob\n")
                sent = True
        self.assertIn(b"got:bob", text)
        self.assertIn(b"code 0", text)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
