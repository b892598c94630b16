"""acc-agent under many jobs, and on a full disk: what each job takes is given back. ACC_TEST_SERIES=1000 is the long run."""
import contextlib, os, shutil, signal, subprocess, time, unittest

from harness import BIN, FAKE, PATIENCE, PROGRAMS, SANITIZED, is_root, main, own_token, processes_with, read, until
from test_agent_daemon import ENDED, DaemonTest

CTL = shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)
JOBS = int(os.environ.get("ACC_TEST_SERIES", "120"))


class ManyTest(DaemonTest):
    def setUp(self):
        super().setUp()
        self.token = own_token("many")

    def begin(self, daemon, words, **more):
        body = {"name": "t", "working_directory": "/", **more,
                "words": ["--cpu", "--num_processes", "1", "--no_python", FAKE, self.token, *words.split()]}
        reply = daemon.ask("POST", "/v1/jobs", body)
        self.assertEqual(reply.status, 201, reply.body)
        return reply.json["id"]

    def facts(self, daemon):
        """Descriptors and KiB of memory, when all is quiet."""
        until(lambda: len(os.listdir(f"/proc/{daemon.pid}/task")) <= 4, "its threads")
        return len(os.listdir(f"/proc/{daemon.pid}/fd")), daemon.status_of("VmRSS")

    def folders(self, daemon):
        return [os.path.join(place, name) for place in ("jobs", "trash")
                if os.path.isdir(path := os.path.join(daemon.state, place)) for name in os.listdir(path)]

    def groups(self, jobs):
        """Control groups that are left of these jobs."""
        found = []
        for base, names, _ in os.walk("/sys/fs/cgroup"):
            found += [os.path.join(base, name) for name in names if name in jobs]
        return found

    def remove_all(self, daemon, jobs):
        for id in jobs:
            self.assertEqual(daemon.ask("DELETE", f"/v1/jobs/{id}").status, 204)
        until(lambda: not self.folders(daemon), f"empty folders: {self.folders(daemon)}")
        until(lambda: not self.groups(jobs), "the end of all groups")  # one is busy while its last process still exits
        until(lambda: not processes_with(self.token), "the end of all processes")


class Many(ManyTest):
    def test_sixty_four_jobs_at_once_run_and_leave_nothing(self):
        daemon = self.started("--slots", "64", "--gpus", "none").wait_ready()
        def marks():
            with contextlib.suppress(FileNotFoundError):
                return len(read(os.path.join(self.folder, "events")).splitlines())
            return 0
        for turn in (1, 2):  # what the first time needs stays
            jobs = [self.begin(daemon, "on=TERM:0 mark=up hold", env={"FAKE_EVENTS": os.path.join(self.folder, "events")}) for _ in range(64)]
            refused = daemon.ask("POST", "/v1/jobs", {"name": "t", "working_directory": "/", "words": ["--num_processes", "1", "--no_python", "true"]})
            self.assertEqual(refused.status, 429, refused.body)
            until(lambda: marks() == 64 * turn and len(processes_with(self.token)) >= 3 * 64, "64 workers", 40)
            states = {job["id"]: job["state"] for job in daemon.ask("GET", "/v1/jobs").json["jobs"]}
            self.assertEqual({id: states[id] for id in jobs}, dict.fromkeys(jobs, "running"))
            for id in jobs:
                self.assertEqual(daemon.ask("POST", f"/v1/jobs/{id}/stop", {}).status, 202)
            for id in jobs:
                self.assertEqual(daemon.wait_ended(id, 40)["state"], "stopped")
            self.remove_all(daemon, jobs)
            before, now = locals().get("now"), self.facts(daemon)
        until(lambda: self.facts(daemon)[0] <= before[0], "the closing of its descriptors")  # that of our last request may be among them
        if not SANITIZED:
            self.assertLess(now[1], before[1] + 1024)
        lines = [line.split()[0] for line in read(os.path.join(self.folder, "events")).splitlines()]
        self.assertEqual(lines.count("up"), 2 * 64)

    def test_sixty_four_jobs_at_once_end_with_their_own_codes(self):
        daemon = self.started("--slots", "64", "--gpus", "none").wait_ready()
        jobs = {self.begin(daemon, f"exit={code}"): code for code in range(64)}
        for id, code in jobs.items():
            job = daemon.wait_ended(id, 60)
            self.assertEqual((job["exit_code"], job["state"], job["starts"]), (code, "failed" if code else "succeeded", 1))
        self.remove_all(daemon, jobs)

    def test_jobs_one_after_another_leave_no_descriptor_memory_group_or_folder(self):
        daemon = self.daemon()
        jobs, began = {}, time.monotonic()
        for n in range(JOBS):
            id = self.begin(daemon, f"out=line exit={n % 5}")
            self.assertEqual(until(lambda: (job := daemon.job(id))["state"] in ENDED and job, f"the end of {id}")["exit_code"], n % 5)
            jobs[id] = n % 5
            if n + 1 in (JOBS // 2, JOBS):
                listed = {job["id"]: job["exit_code"] for job in daemon.ask("GET", "/v1/jobs").json["jobs"]}
                self.assertEqual(listed, jobs)
                self.remove_all(daemon, jobs)
                jobs, before, now = {}, locals().get("now"), self.facts(daemon)
        until(lambda: self.facts(daemon)[0] <= before[0], f"descriptors: {before[0]}, then {now[0]}")  # that of our last request may be among them
        if not SANITIZED:
            self.assertLess(now[1], before[1] + 1024, "KiB of memory")
        print(f"{JOBS} jobs in {time.monotonic() - began:.1f} s; descriptors {before[0]} and {now[0]}, memory {before[1]} and {now[1]} KiB after each half")


@unittest.skipUnless(is_root(), "mounts a small disk: needs root")
class FullDisk(ManyTest):
    def setUp(self):
        super().setUp()
        self.disk = os.path.join(self.folder, "state")
        os.mkdir(self.disk, 0o755)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "acc-test", self.disk], capture_output=True, text=True)
        if mounted.returncode:
            self.skipTest(f"no mounts here: {mounted.stderr}")
        self.addCleanup(subprocess.run, ["umount", "-l", self.disk])
        self.addCleanup(self.end_all)

    def fill(self):
        with open(os.path.join(self.disk, "filler"), "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    pass

    def test_a_node_whose_disk_was_full_could_not_be_drained(self):
        daemon = self.daemon()
        self.fill()
        ctl = lambda *words: subprocess.run([CTL, "--socket", daemon.path, *words], capture_output=True, text=True, timeout=60 * PATIENCE)
        done = ctl("drain", "--reason", "full disk")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"this node takes no more jobs\nacc-ctl: warning: it takes jobs again when its acc-agent is restarted: .*No space left on device.*: drain it once more when its disk has room\n$")
        self.assertIn("drain_not_recorded", daemon.log.replace(" ", "_"))
        refused = daemon.ask("POST", "/v1/jobs", {"name": "t", "working_directory": "/", "words": ["x"], "slots": 1})
        self.assertIn("this node is drained: full disk", refused.json["error"])
        os.remove(os.path.join(self.disk, "filler"))
        done = ctl("drain", "--reason", "full disk")
        self.assertEqual((done.returncode, done.stderr), (0, "acc-ctl: this node takes no more jobs\n"))
        daemon.stop(signal.SIGKILL)
        daemon = self.daemon()
        self.assertEqual(daemon.ask("GET", "/v1/node").json["drained"], "full disk")
        self.assertEqual(ctl("undrain").returncode, 0)

    def test_jobs_that_waited_failed_while_the_disk_was_full_and_one_that_was_stopped_ran(self):
        daemon = self.started("--slots", "1", "--gpus", "none").wait_ready()
        again = self.begin(daemon, "exit=3", restart={"policy": "always"})
        waits, stopped = (self.begin(daemon, "exit=5", wait=True) for _ in range(2))

        def waits_for_room(job):
            self.fill()  # what ends gives something back
            now = daemon.job(job)
            return now["state"] == "waiting" and "No space left on device" in now["reason"]
        until(lambda: waits_for_room(again), "a restart without room for its record", 30)
        for job in (stopped, again):
            done = subprocess.run([CTL, "--socket", daemon.path, "stop", job], capture_output=True, text=True, timeout=60 * PATIENCE)
            self.assertEqual((done.returncode, daemon.job(job)["state"]), (0, "stopped"), done.stderr)
            self.assertRegex(done.stderr, f"^acc-ctl: asked {job} to stop; warning: if acc-agent is restarted before.*No space left on device")
        until(lambda: waits_for_room(waits), "the wait for room")
        self.assertEqual(daemon.ask("POST", "/v1/node/drain", {"reason": "new disk"}).status, 202)
        os.remove(os.path.join(self.disk, "filler"))
        until(lambda: "this node is drained" in (job := daemon.job(waits))["reason"] and job["starts"] == 0, "the wait of one that never ran", 30)
        self.assertEqual(daemon.ask("POST", "/v1/node/undrain").status, 202)
        self.assertEqual(daemon.wait_ended(waits, 60)["exit_code"], 5)
        until(lambda: daemon.log.replace(" ", "_").count("job_recorded_at_last") >= 2, "the records", 30)
        daemon.stop(signal.SIGKILL)
        daemon = self.daemon()
        self.assertEqual([daemon.job(job)["state"] for job in (stopped, again)], ["stopped", "stopped"])

    def test_a_daemon_that_is_started_on_a_full_disk_finds_its_jobs_and_makes_room(self):
        daemon = self.daemon()
        runs, ends = self.begin(daemon, "hold"), self.begin(daemon, "exit=7")
        daemon.wait_ended(ends)
        later = self.begin(daemon, "after=1s exit=5")
        for job in (runs, later):  # what is accepted begins a moment later, and then has its place for the exit code
            until(lambda: os.path.exists(path := f"{daemon.state}/jobs/{job}/user/started") and os.path.getsize(path), "the guardian")
        last_event = daemon.ask("GET", "/v1/events").json["events"][-1]["id"]
        self.fill()
        daemon.stop(signal.SIGKILL)
        daemon = self.daemon()
        self.assertEqual((daemon.job(runs)["state"], daemon.job(ends)["exit_code"]), ("running", 7))
        self.assertEqual(daemon.wait_ended(later)["exit_code"], 5)
        self.assertGreater(daemon.ask("GET", "/v1/events").json["events"][0]["id"], last_event)
        self.assertEqual(daemon.ask("POST", f"/v1/jobs/{runs}/stop", {"grace_s": 0}).status, 202)
        self.assertEqual(daemon.wait_ended(runs)["state"], "stopped")

        def refused_on_a_full_disk():
            self.fill()  # what ended has given something back, and may still do so
            reply = daemon.ask("POST", "/v1/jobs", {"name": "t", "working_directory": "/", "words": ["--num_processes", "1", "--no_python", "true"]})
            return reply if reply.status != 201 else daemon.wait_ended(reply.json["id"]) and None
        refused = until(refused_on_a_full_disk, "a refusal")
        self.assertIn("No space left on device", refused.json["error"])
        self.assertIn(f"make the job's folder in '{daemon.state}/jobs'", refused.json["error"])
        os.remove(os.path.join(self.disk, "filler"))
        self.assertEqual(daemon.wait_ended(self.begin(daemon, "exit=3"))["exit_code"], 3)
        self.remove_all(daemon, [job["id"] for job in daemon.ask("GET", "/v1/jobs").json["jobs"]])


if __name__ == "__main__":
    main()
