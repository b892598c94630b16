"""--health: a node that is unfit doesn't begin a job, or leaves it; a probe that hangs is told and holds up nothing."""
import json, os, signal, tempfile, time, unittest

from cluster import WALL_CLOCK, ClusterTest
from harness import BIN, SLACK, JobTest, is_root, main, preloading, processes_with, read, until, write
from hosts import needs_hosts

NVML = os.path.join(BIN, "libfake_nvml.so")
# As of the other tests on several hosts, but longer: a node that only stood still for some seconds is not to leave.
TIMES = f"--dead_after {6 * SLACK:.0f}s --lease {12 * SLACK:g}s --join_timeout 20s --last_call 1s --grace 2s --restart_delay 0"


def probers(job):
    """That job's, by its folder in their environment: a test that runs beside this one may have some, too."""
    return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if of_process(pid, "comm") == "acc:health\n" and job.folder in of_process(pid, "environ")]


def of_process(pid, file):
    try:
        return read(f"/proc/{pid}/{file}")
    except OSError:
        return ""


class OneNode(JobTest):
    def gpus(self, facts):
        folder = tempfile.TemporaryDirectory(prefix="acc-gpus-")
        self.addCleanup(folder.cleanup)
        path = os.path.join(folder.name, "gpus")
        write(path, facts)
        write(path + ".checks", "")
        return {"ACC_NVML_LIBRARY": NVML, "FAKE_NVML": path}

    def test_a_fit_node_runs_the_job(self):
        job = self.finished("--num_processes 2 --health", "mark=up exit=0")
        self.assertEqual(len(job.events("up")), 2)
        self.assertNotIn("unfit", job.stderr)

    def test_a_command_of_the_user_that_fails_keeps_the_workers_from_starting(self):
        job = self.job(["--num_processes", "2", "--health_check", "echo checking; echo ib0 has no link; exit 3", "--report", "report.json",
                        "--events", "course"], "mark=up exit=0")
        self.assertEqual(job.wait(), 74, job.stderr)
        self.assertFalse(job.events("up"))
        self.assertIn("this node is unfit: --health_check ended with 3: ib0 has no link", job.stderr)
        report = self.report(job)
        self.assertEqual((report["verdict"], report["exit_code"]), ("unfit", 74))
        self.assertIn("ib0 has no link", report["start_failure"])
        self.assertIn("ib0 has no link", report["reason"])  # it was null

    def test_it_is_checked_again_before_each_round(self):
        command = 'test ! -e flag || { echo "the flag is there"; exit 1; }; touch flag'
        job = self.job(["--num_processes", "1", "--max_restarts", "3", "--health_check", command], "mark=up exit=5")
        self.assertEqual(job.wait(), 74, job.stderr)
        self.assertEqual(len(job.events("up")), 1)
        self.assertIn("the flag is there", job.stderr)

    def test_a_probe_that_hangs_is_told_and_holds_up_the_start_only_for_its_time(self):
        job = self.finished(["--num_processes", "1", "--max_restarts", "2", "--health_timeout", "0.3", "--health_check", "sleep 600"],
                            "mark=up attempt=0 exit=1 any attempt=1 exit=1 any exit=0")
        self.assertEqual(len(job.events("up")), 3)
        # Once: a probe that hung isn't waited for again.
        self.assertEqual(job.stderr.count("probe command did not end within 300 ms"), 1)
        until(lambda: not probers(job), "the end of the probers")

    def test_a_job_can_be_stopped_while_a_probe_hangs(self):
        job = self.job(["--num_processes", "1", "--health_timeout", "20", "--health_check", "sleep 600"], "mark=up exit=0")
        until(lambda: probers(job), "the prober")
        job.process.terminate()
        begun = time.monotonic()
        self.assertEqual(job.wait(), 143, job.stderr)
        self.assertLess(time.monotonic() - begun, 10 * SLACK)
        self.assertFalse(job.events("up"))
        until(lambda: not probers(job), "the end of the probers")

    def test_nothing_of_a_probe_is_left_after_the_death_of_any_process_of_ours(self):
        for which in ("guardian", "agent", "prober"):
            with self.subTest(which=which):
                mark = f"600.{os.getpid()}"
                job = self.job(["--num_processes", "1", "--health_timeout", "20", "--health_check", f"sleep {mark} & wait"], "exit=0")
                until(lambda: processes_with(mark) and [pid for pid in processes_with(mark).values() if pid.startswith("sleep")], "the command's child")
                victim = {"guardian": job.pid, "agent": job.agent, "prober": int(next(iter(probers(job))))}[which]
                os.kill(victim, signal.SIGKILL)
                job.wait()
                until(lambda: not [c for c in processes_with(mark).values() if c.startswith(("sleep", "sh "))], "the end of the command")

    def test_a_link_that_goes_down_and_an_xid_are_told(self):
        root = tempfile.TemporaryDirectory(prefix="acc-root-")
        self.addCleanup(root.cleanup)
        for path, text in (("sys/class/net/eth0/device/x", ""), ("sys/class/net/eth0/carrier", "1\n"), ("dev/kmsg", "")):
            os.makedirs(os.path.dirname(f"{root.name}/{path}"), exist_ok=True)
            write(f"{root.name}/{path}", text)
        job = self.job("--num_processes 1 --health_interval 0.1", "mark=up hold", env={**self.gpus("gpus=1"), "ACC_HEALTH_ROOT": root.name})
        job.wait_events("up", 1)
        write(f"{root.name}/new", "0\n")
        os.replace(f"{root.name}/new", f"{root.name}/sys/class/net/eth0/carrier")
        write(f"{root.name}/new", "6,1,99999999999999,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=7, GPU has fallen off the bus.\n")
        os.replace(f"{root.name}/new", f"{root.name}/dev/kmsg")
        for words in ("network interface eth0 lost its carrier", "GPU at 0000:3b:00 reported Xid 79 (pid=7, GPU has fallen off the bus.)"):
            until(lambda: f"health of this node: {words}\n" in job.stderr, words)
        job.process.terminate()
        self.assertEqual(job.wait(), 143)

    def test_a_gpu_with_a_pending_row_remap_makes_the_node_unfit(self):
        for facts, words in (("gpus=4 pending:2=1", "GPU 2 needs a reset"), ("gpus=4 lost:1=1", "GPU 1 is lost: GPU is lost"),
                             ("gpus=2 failed:0=1", "GPU 0 could not remap")):
            with self.subTest(facts=facts):
                job = self.job("--num_processes 1 --health", "mark=up exit=0", env=self.gpus(facts))
                self.assertEqual(job.wait(), 74, job.stderr)
                self.assertIn(words, job.stderr)

    def test_a_driver_that_hangs_makes_the_node_unfit(self):
        job = self.job("--num_processes 1 --health --health_timeout 0.3", "mark=up exit=0", env=self.gpus("gpus=4 hang=1"))
        self.assertEqual(job.wait(), 74, job.stderr)
        self.assertIn("probe gpu did not end within 300 ms", job.stderr)

    def test_at_an_interval_new_findings_are_told_once_and_the_workers_go_on(self):
        env = self.gpus("gpus=4 links:2=18")
        path = env["FAKE_NVML"]
        job = self.job(["--num_processes", "1", "--health_interval", "0.1", "--health_check", f"echo >> {path}.checks"], "mark=up hold", env=env)
        job.wait_events("up", 1)
        write(path + ".new", "gpus=4 throttle:1=8 ecc:3=1 links:2=17")
        os.replace(path + ".new", path)
        told = ["GPU 1 is throttled: hardware slowdown", "only 17 of 18 NVLinks of GPU 2 are up", "GPU 3 has 1 uncorrected memory error"]
        until(lambda: all(f"health of this node: {words}\n" in job.stderr for words in told), "the findings")
        seen = len(read(path + ".checks"))
        until(lambda: len(read(path + ".checks")) > seen + 3, "several checks more")
        self.assertEqual([job.stderr.count(words) for words in told], [1, 1, 1])
        self.assertIsNone(job.process.poll())
        job.process.terminate()
        self.assertEqual(job.wait(), 143)

    @unittest.skipUnless(is_root(), "needs root for a small file system")
    def test_a_full_disk_of_checkpoints(self):
        mount = ["unshare", "-m", "sh", "-c", 'mkdir small && mount -t tmpfs -o size=1m none small && exec "$@"', "sh"]
        job = self.job("--num_processes 1 --health_folder small", "mark=up exit=0", wrap=mount)
        self.assertEqual(job.wait(), 74, job.stderr)
        self.assertRegex(job.stderr, r"only \d+ MiB are free in small")

    def test_a_folder_of_checkpoints_that_is_not_there_was_not_told(self):
        job = self.finished("--num_processes 1 --health_folder not/there", "mark=up exit=0")
        self.assertEqual(job.stderr.count("there is no folder not/there: is its file system mounted?"), 1, job.stderr)
        os.makedirs(job.folder + "/there")
        job = self.finished("--num_processes 1 --health_folder there", "mark=up exit=0", folder=job.folder)
        self.assertNotIn("there is no folder", job.stderr)


@needs_hosts
class SeveralNodes(ClusterTest):
    def test_an_unfit_node_leaves_and_a_spare_takes_its_place(self):
        cluster = self.cluster("a b c", nnodes="2:2", words="run=300s", flags="--max_restarts 3", times=TIMES)
        flag = os.path.join(cluster.folder, "bad")
        for host in "ab":
            cluster.start(host, f"--events {cluster.folder}/events-{host} --report {cluster.folder}/report-{host} --health_interval 0.2 --health_check test${{IFS}}!${{IFS}}-e${{IFS}}{flag}-{host}")
        cluster.wait_round(0, 2)
        cluster.start("c")
        cluster.nodes["c"].wait_text("spare")
        write(flag + "-b", "")
        lives = cluster.wait_round(1, 2)
        self.assertEqual({life.node for life in lives}, {"a", "c"})
        cluster.nodes["b"].expect(74)
        self.assertIn("this node is unfit: --health_check ended with 1; it leaves the job", cluster.nodes["b"].stderr)
        report = json.loads(read(f"{cluster.folder}/report-b"))
        self.assertEqual((report["verdict"], report["reason"]), ("unfit", "this node is unfit: --health_check ended with 1"))
        cluster.nodes["a"].wait_text("this node is unfit")
        course = lambda host: [json.loads(line) for line in read(f"{cluster.folder}/events-{host}").splitlines(True) if line.endswith("\n")]
        lost = lambda: [event["name"] for event in course("a") if event["event"] == "node_lost"]
        until(lost, "the event of the lost node")
        self.assertEqual(lost(), ["b"])
        joined = [event["name"] for event in course("a") if event["event"] == "node_joined"]
        self.assertEqual((set(joined[:2]), joined[2:]), ({"a", "b"}, ["c"]))  # the first two in the order in which they came
        self.assertEqual([event["restarts"] for event in course("a") if event["event"] == "restart"], [1])
        finding = next(event for event in course("b") if event["event"] == "health" and event["probe"] == "command")
        self.assertEqual((finding["severity"], finding["text"]), ("unfit", "--health_check ended with 1"))
        self.assertEqual((course("b")[-1]["event"], course("b")[-1]["verdict"]), ("job_ended", "unfit"))
        self.stop(cluster)

    def unfit_coordinator(self, nodes, nnodes):
        """The first host, which has the coordinator, becomes unfit while the nodes run."""
        cluster = self.cluster(nodes, nnodes=nnodes, words="run=300s", flags="--max_restarts 3", times=TIMES)
        flag = os.path.join(cluster.folder, "bad")
        cluster.start("a", f"--health_interval 0.2 --health_check test${{IFS}}!${{IFS}}-e${{IFS}}{flag}")
        cluster.start("b")
        cluster.wait_round(0, 2)
        return cluster, lambda: write(flag, "")

    def test_of_two_nodes_the_one_with_the_coordinator_left_and_a_spare_waited_on(self):
        cluster, becomes_bad = self.unfit_coordinator("a b c", "2:2")
        cluster.start("c")
        cluster.nodes["c"].wait_text("spare")
        becomes_bad()
        lives = cluster.wait_round(1, 2)
        self.assertEqual({life.node for life in lives}, {"b", "c"})
        cluster.nodes["a"].expect(74)
        self.assertIn("this node goes on as the job's coordinator until the others can do without it", cluster.nodes["a"].stderr)
        # A successor is elected, and the workers live on.
        until(lambda: any("this node takes over as coordinator" in cluster.nodes[host].stderr for host in "bc"), "a successor")
        self.assertEqual({life.node for life in cluster.wait_round(1, 2)}, {"b", "c"})
        self.stop(cluster)

    def test_an_unfit_coordinator_of_two_waits_for_a_node_that_takes_its_place_until_a_signal(self):
        cluster, becomes_bad = self.unfit_coordinator("a b", "2:2")
        becomes_bad()
        cluster.nodes["a"].wait_text("this node goes on as the job's coordinator")
        cluster.nodes["b"].wait_text("waits for 1 of 2 nodes|1 of 2 nodes")
        self.assertIsNone(cluster.nodes["a"].process.poll())
        os.kill(cluster.nodes["a"].process.pid, signal.SIGTERM)
        cluster.nodes["a"].expect(74)
        cluster.nodes["b"].expect(69)

    def test_a_clock_that_differs_from_the_coordinators_is_told_once(self):
        cluster = self.cluster("a b c", words="run=300s", times=TIMES)
        for host, offset, more in (("a", "+0", ""), ("b", "-7200", f"--events {cluster.folder}/events-b"), ("c", "+90", "--clock_skew 0")):
            clock = os.path.join(cluster.folder, f"clock.{host}")
            write(clock, offset)
            cluster.start(host, more, env={**preloading(WALL_CLOCK), "WALL_CLOCK_FILE": clock})
        cluster.wait_round(0, 3)
        cluster.nodes["b"].wait_text(r"health of this node: its clock is \d h \d+ min behind the coordinator's")
        def told():
            lines = [line for line in read(f"{cluster.folder}/events-b").splitlines(True) if line.endswith("\n")]
            return [(event["probe"], event["severity"]) for event in map(json.loads, lines) if event["event"] == "health"]
        until(told, "the event")  # the line on the console may come first
        self.assertEqual(told(), [("clock", "warning")])
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1, "ten more heartbeats", 5)
        self.assertEqual(cluster.nodes["b"].stderr.count("its clock"), 1)
        for other in "ac":
            self.assertNotIn("its clock", cluster.nodes[other].stderr)
        self.stop(cluster)

    def test_a_node_that_is_unfit_at_the_start_never_joins(self):
        cluster = self.cluster("a b c", nnodes="2:2", words="run=1s", times=TIMES)
        cluster.start("b", "--health_check false")
        cluster.nodes["b"].expect(74)
        cluster.start("a")
        cluster.start("c")
        self.all_end(cluster, 0, hosts="ac")
        self.assertEqual({life.node for life in cluster.lives()}, {"a", "c"})


if __name__ == "__main__":
    main()
