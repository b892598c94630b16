"""--metrics: what Prometheus sees of a job."""
import os, re, shutil, socket, statistics, struct, subprocess, time, unittest, urllib.error, urllib.request

from harness import BIN, PATIENCE, PROGRAMS, SANITIZED, SLACK, JobTest, free_port, main, read, until

PROMTOOL = os.environ.get("ACC_PROMTOOL") or shutil.which("promtool")
WORKER = shutil.copy(os.path.join(BIN, "heartbeat_worker"), PROGRAMS.name)
CONFIGS = os.path.join(os.path.dirname(__file__), "../../configs")


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10 * PATIENCE) as reply:
        return reply.read().decode()


def value(text, name):
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else None


class Metrics(JobTest):
    def running(self, flags, words, count):
        port = free_port()
        job = self.job(f"{flags} --metrics {port}", words)
        job.wait_events("up", count, 10 + count / 25)
        # The workers write before the agent has seen all of them start.
        until(lambda: value(scrape(port), 'acc_job_state{state="running"}') == 1, "the running job")
        return job, port

    def test_a_running_job_shows_its_workers_output_and_restarts(self):
        job, port = self.running("--num_processes 2 --max_restarts 1 --tee 3",
                                 "rank=1 attempt=0 exit=7 any attempt=0 hold any out=hello mark=up hold", 2)
        text = until(lambda: (t := scrape(port)) and value(t, "acc_output_lines_total") == 2 and t, "the output")
        self.assertEqual(value(text, "acc_job_restarts_total"), 1)
        self.assertEqual(value(text, "acc_job_round"), 1)
        self.assertEqual(value(text, "acc_node_failures_total"), 1)
        self.assertEqual(value(text, 'acc_node_workers{state="running"}'), 2)
        self.assertEqual(value(text, 'acc_node_workers_ended_total{result="failed"}'), 1)
        self.assertEqual(value(text, 'acc_node_workers_ended_total{result="stopped"}'), 1)
        self.assertEqual(value(text, "acc_output_bytes_total"), 12)
        self.assertGreater(value(text, 'acc_worker_resident_memory_bytes{rank="1"}'), 10_000)
        self.assertGreaterEqual(value(text, 'acc_worker_cpu_seconds_total{rank="0"}'), 0)
        job.wait_stderr(f"metrics at http://127.0.0.1:{port}/metrics")
        self.check_format(text)

    def test_of_several_hosts_only_the_first_told_its_free_port(self):
        job = self.job(f"--hosts localhost:1,127.0.0.1:1 --main_process_port {free_port()} --metrics 0 --env FAKE_EVENTS", "mark=up hold")
        urls = lambda: re.findall(r"metrics of node (\S+) at http://127\.0\.0\.1:(\d+)/metrics", job.stderr)
        until(lambda: len(urls()) == 2, "both nodes' ports", 30)
        self.assertEqual(len({name for name, _ in urls()}), 2, job.stderr)
        job.wait_events("up", 2, 30)
        for _, port in urls():
            until(lambda: value(scrape(port), 'acc_job_state{state="running"}') == 1, "the running job")
        job.close()

    def test_a_port_that_is_taken_costs_the_metrics_and_not_the_job(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            job = self.finished(f"--num_processes 1 --metrics {port}", "exit=0")
        self.assertIn(f"--metrics: listen at 127.0.0.1:{port}", job.stderr)

    def test_a_wrong_address_is_refused(self):
        for wrong in ("somewhere", "no.such.host:9400", "70000"):
            job = self.finished(f"--num_processes 1 --metrics {wrong}", "mark=up", code=2)
            self.assertIn("neither a PORT nor ADDRESS:PORT", job.stderr)

    def test_silent_clients_hold_up_neither_scrapes_nor_the_job(self):
        job, port = self.running("--num_processes 1", "mark=up hold", 1)
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(64)]
        self.addCleanup(lambda: [one.close() for one in silent])
        # They are dropped after 5 s, which lets a scrape through.
        def scraped():
            try:
                return scrape(port)
            except OSError:
                return None
        until(scraped, "a scrape beside 64 silent clients", 20)
        job.process.terminate()
        self.assertEqual(job.wait(), 143)

    def check_format(self, text):
        if not PROMTOOL:
            return print("promtool (Debian's prometheus) is missing: the format was not checked by it")
        checked = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))

    def test_ranks_with_heartbeats_have_steps_and_the_job_its_goodput(self):
        port = free_port()
        self.job(f"--num_processes 2 --max_restarts 1 --metrics {port} --no_python", "1000000 20 die=1@40", program=[WORKER])
        def scraped():
            try:
                return scrape(port)
            except OSError:
                return ""
        def all_have_rates(text):
            return all(value(text, f'acc_worker_steps_per_second{{rank="{rank}"}}') and value(text, f'acc_worker_step{{rank="{rank}"}}') > 20 for rank in (0, 1))
        text = until(lambda: (t := scraped()) and value(t, "acc_job_restarts_total") == 1 and all_have_rates(t) and t, "rates after the restart", 30)
        for rank in (0, 1):
            rate = value(text, f'acc_worker_steps_per_second{{rank="{rank}"}}')
            self.assertTrue(0 < rate < 51, rate)
            self.assertGreaterEqual(value(text, f'acc_worker_heartbeat_age_seconds{{rank="{rank}"}}'), 0)
        self.assertTrue(0 < value(text, "acc_job_goodput_ratio") < 1)
        for cause in ("waiting", "restarts", "lost_steps"):
            self.assertGreaterEqual(value(text, f'acc_job_lost_seconds_total{{cause="{cause}"}}'), 0)
        self.check_format(text)

    def beat_for_all(self, job):
        """Writes a heartbeat of each rank into the round's page, as its worker would (docs/worker-socket.md)."""
        env = dict(word.split("=", 1) for word in read(f"/proc/{next(iter(job.alive()))}/environ").split("\0") if "=" in word)
        with socket.socket(socket.AF_UNIX) as agent:  # the first one is a message: from then on the page is read
            agent.connect(env["ACC_AGENT_SOCKET"].replace("@", "\0", 1))
            agent.sendall(f"hello {env['RANK']}\nbeat 1\n".encode())
        with open(env["ACC_HEARTBEAT_PAGE"].rpartition(":")[0], "r+b") as page:
            head = page.read(64)
            slots, slot_bytes, first = struct.unpack_from("<III", head, 12)
            for rank in range(slots):
                page.seek(first + rank * slot_bytes)
                page.write(struct.pack("<QQQ", 1, time.monotonic_ns(), 40 + rank))

    def test_a_scrape_of_many_ranks_is_quick(self):
        workers = 1024
        job, port = self.running(f"--num_processes {workers} --capture no", "mark=up hold", workers)
        self.beat_for_all(job)
        until(lambda: 'acc_worker_step{rank="1"} 41' in scrape(port), "the heartbeats")
        times = []
        while len(times) < 9 or (len(times) < 60 and min(times) >= 0.1 * SLACK):  # most may meet what else the machine does
            begin = time.monotonic()
            text = scrape(port)
            times.append(time.monotonic() - begin)
        for name in ("resident_memory_bytes", "step", "heartbeat_age_seconds"):
            self.assertEqual(text.count(f"acc_worker_{name}{{"), workers)
        print(f"a scrape of {workers} ranks: {1e3 * statistics.median(times):.1f} ms (median of {len(times)}), best {1e3 * min(times):.1f} ms")
        if not SANITIZED:
            self.assertLess(min(times), 0.1 * SLACK)  # 20 ms were promised, on a machine that does nothing else


class Files(unittest.TestCase):
    def test_the_alert_rules_are_rules(self):
        if not PROMTOOL:
            self.skipTest("promtool (Debian's prometheus) is missing")
        checked = subprocess.run([PROMTOOL, "check", "rules", os.path.join(CONFIGS, "prometheus/acc-alerts.yaml")], capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_rules_and_dashboard_use_metrics_that_exist(self):
        with open(os.path.join(CONFIGS, "../docs/metrics.md")) as f:
            known = set(re.findall(r"`(acc_\w+)`", f.read()))
        for name in ("prometheus/acc-alerts.yaml", "grafana/acc-jobs.json"):
            with open(os.path.join(CONFIGS, name)) as f:
                used = set(re.findall(r"\b(acc_\w+)", f.read()))
            self.assertTrue(used)
            self.assertEqual(used - known, set(), name)


if __name__ == "__main__":
    main()
