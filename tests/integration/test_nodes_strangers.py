"""Who is not let in, and is told why; who talks nonsense to the control port of a running job; clocks that are wrong."""
import os, re, signal, subprocess, sys, time, unittest

import harness
from cluster import BIN, NO_IPV6, PORT, WALL_CLOCK, ClusterTest
from harness import SLACK, main, until
from hosts import needs_hosts

RENDEZVOUS = os.path.join(BIN, "acc-rendezvous")
needs_rendezvous = unittest.skipUnless(os.access(RENDEZVOUS, os.X_OK), "no acc-rendezvous in this build")
# Nobody is to be lost or given up here, however long a busy machine holds it up, and however long those who are refused take.
TIMES = f"--dead_after {10 * SLACK:g}s --lease {21 * SLACK:g}s --join_timeout 150s --last_call 1s --grace 2s --restart_delay 0"


class StrangersTest(ClusterTest):
    def cluster(self, names, **options):
        options.setdefault("times", TIMES)
        return super().cluster(names, **options)


@needs_hosts
class Refused(StrangersTest):
    def running(self, names="a b c", members="ab", **options):
        """A job of `members`; the other hosts are free for strangers."""
        options.setdefault("nnodes", str(len(members)))
        options.setdefault("flags", "--max_restarts 3")
        cluster = self.cluster(names, **options)
        for host in members:
            cluster.start(host)
        return cluster, cluster.wait_round(0, len(members))

    def unharmed(self, cluster, before):
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())

    def refused(self, cluster, before, more="", within=10.0, host="c", code=77, **options):
        begun = time.monotonic()
        stranger = cluster.start(host, more, **options).expect(code, within)
        self.assertLess(time.monotonic() - begun, within * SLACK)
        self.unharmed(cluster, before)
        return stranger.stderr

    def test_a_name_that_is_taken(self):
        cluster, before = self.running(members="abc", names="a b c d", nnodes="3:4")
        said = self.refused(cluster, before, "--node_name b", host="d")
        for word in ("'b'", cluster.hosts.address("b"), "this agent is on d", cluster.hosts.address("d"), "--node_name"):
            self.assertIn(word, said)
        cluster.nodes["a"].wait_text(r"on d\b", "'b'")
        self.stop(cluster)

    def test_a_rank_that_is_taken(self):
        cluster = self.cluster("a b c", backend="static")
        cluster.start("a")
        cluster.start("b")
        cluster.nodes["a"].wait_text("waiting for other nodes", "2 of 3", deadline=15)
        stranger = cluster.start("c", "--machine_rank 1").expect(77, 10)
        self.assertIn("rank 1", stranger.stderr)
        self.assertIn(cluster.hosts.address("b"), stranger.stderr)
        cluster.start("c")
        cluster.wait_round(0, 3)
        self.stop(cluster)

    def test_two_machines_of_rank_0_waited_apart(self):
        cluster = self.cluster("a b", backend="static")
        first = lambda: cluster.start("a")
        second = lambda: cluster.start("b", "--machine_rank 0")
        for start, then in ((first, second), (second, first)):
            start()
            cluster.nodes["a" if start is first else "b"].wait_text("waiting for other nodes", deadline=8)
            then()
            said = cluster.nodes["b"].expect(77, 10).stderr
            for word in ("node rank 0 is taken", cluster.hosts.address("a"), cluster.hosts.address("b"), "--node_rank"):
                self.assertIn(word, said)
            cluster.nodes["a"].process.terminate()
            cluster.nodes["a"].expect(143, 10)

    def test_behind_an_address_that_is_not_its_own_a_c10d_node_of_rank_0_reads_how_to_serve_it(self):
        cluster = self.cluster("a b", endpoint="10.99.0.1:29400", backend="c10d")
        cluster.start("a", "--node_rank 0").wait_text("waiting for the coordinator at .*; if that is the address of a service or a NAT.*is_host=true here", deadline=8)
        cluster.start("b", "--node_rank 1").wait_text("waiting for the coordinator at", deadline=8)
        self.assertNotIn("is_host", cluster.nodes["b"].stderr)
        for node in cluster.nodes.values():
            node.process.terminate()
            node.expect(143, 10)

    def test_the_first_machine_behind_an_address_that_is_not_its_own_is_no_rival_of_itself(self):
        cluster = self.cluster("a b", backend="static")
        service, real = "10.99.0.1", cluster.hosts.address("a")  # as of a service: both hosts reach a by it
        rule = f"type nat hook %s priority -100; ip daddr {service} dnat to {real};"
        cluster.hosts.output("a", "nft", "-f", "-", text=f"table ip service {{\nchain here {{ {rule % 'output'}\n}}\nchain there {{ {rule % 'prerouting'}\n}}\n}}")
        cluster.hosts.output("a", "ip", "route", "add", service, "dev", "eth0")
        cluster.hosts.output("b", "ip", "route", "add", service, "via", real)
        flags = cluster.flags_for
        cluster.flags_for = lambda host: flags(host).replace(f"--main_process_ip {real}", f"--main_process_ip {service}")
        cluster.start("a", words="exit=0", program=["--no_python", harness.FAKE])
        cluster.nodes["a"].wait_text("is no address of this machine", "waiting for other nodes", deadline=8)  # it has asked itself by then
        cluster.start("b", words="exit=0", program=["--no_python", harness.FAKE])
        self.all_end(cluster, 0)
        self.assertNotIn("turned away", cluster.nodes["a"].stderr)

    def test_another_precision_or_number_of_machines(self):
        cluster = self.cluster("a b", nnodes="2")
        cluster.start("a")
        for more, both in (("--mixed_precision fp16", ("precision", "fp16", "'no'")), ("--nnodes 3", ("3", "2"))):
            said = cluster.start("b", more).expect(77, 10).stderr
            for word in both:
                self.assertIn(word, said)
            cluster.nodes["a"].wait_text(*both[1:])
        cluster.start("b")
        cluster.wait_round(0, 2)
        self.stop(cluster)

    def test_another_world_size_in_a_static_job(self):
        cluster = self.cluster("a b", backend="static")
        cluster.start("a")
        said = cluster.start("b", "--num_processes 4").expect(77, 10).stderr
        for word in ("world size", "4", "2"):
            self.assertIn(word, said)
        cluster.start("b")
        cluster.wait_round(0, 2)
        self.stop(cluster)

    def test_another_secret(self):
        cluster, before = self.running()
        other = os.path.join(cluster.folder, "other")
        subprocess.run([harness.ACC, "--make_secret", other], check=True, capture_output=True)
        said = self.refused(cluster, before, f"--secret_file {other}")
        self.assertIn("authentication failed", said)
        self.assertIn(other, said)
        cluster.nodes["a"].wait_text("authentication failed", cluster.hosts.address("c"), re.escape(cluster.secret))
        with open(other) as f:
            self.assertNotIn(f.read().strip(), said + cluster.nodes["a"].stderr)
        self.stop(cluster)

    def test_no_secret_at_all(self):
        cluster, before = self.running()
        said = self.refused(cluster, before, code=1, env={"ACC_SECRET_FILE": None})
        self.assertIn("--make_secret", said)
        self.assertIn("--insecure", said)
        self.stop(cluster)

    def test_a_secret_that_others_can_read(self):
        cluster, before = self.running()
        loose = os.path.join(cluster.folder, "loose")
        subprocess.run([harness.ACC, "--make_secret", loose], check=True, capture_output=True)
        os.chmod(loose, 0o644)
        said = self.refused(cluster, before, f"--secret_file {loose}", code=1)
        self.assertIn("chmod 600", said)
        self.stop(cluster)

    def test_insecure_at_a_port_that_has_a_secret_and_the_other_way_round(self):
        cluster, before = self.running()
        said = self.refused(cluster, before, "--insecure")
        self.assertRegex(said, "secret")
        self.stop(cluster)
        open_one = self.cluster("a b", secret=False)
        open_one.start("a")
        secret = os.path.join(open_one.folder, "secret")
        subprocess.run([harness.ACC, "--make_secret", secret], check=True, capture_output=True)
        plain = open_one.flags_for("b").replace("--insecure", f"--secret_file {secret}")
        open_one.flags_for = lambda host: plain
        self.assertRegex(open_one.start("b").expect(77, 10).stderr, "secret|insecure")

    def test_another_job_at_the_same_address(self):
        cluster, before = self.running(flags="--rdzv_id one")
        said = self.refused(cluster, before, "--rdzv_id two")
        self.assertRegex(said, "'two'|authentication failed")
        self.stop(cluster)

    def says_within_ten_seconds(self, cluster, host, *texts):
        cluster.nodes[host].wait_text(*texts, deadline=10)
        cluster.nodes[host].process.send_signal(signal.SIGTERM)
        self.assertEqual(cluster.nodes[host].wait(5), 143)

    def test_a_wrong_address_is_told_within_ten_seconds(self):
        cluster = self.cluster("a b", flags="--rdzv_conf is_host=false")
        for endpoint, words in ((f"10.77.0.99:{PORT}", ("10.77.0.99",)), (f"{cluster.hosts.address('a')}:1", ("nobody listens", f"{cluster.hosts.address('a')}:1")),
                                (f"nowhere.invalid:{PORT}", ("nowhere.invalid",))):
            cluster.hosts.hosts_entry("b", {})
            cluster.endpoint = endpoint
            cluster.start("b")
            self.says_within_ten_seconds(cluster, "b", *words)

    def test_a_firewall_is_told_within_ten_seconds(self):
        for way, word in (("silent", "firewall"), ("reset", "nobody listens|refuses"), ("icmp", "")):
            cluster = self.cluster("a b")
            cluster.start("a")
            cluster.nodes["a"].guardian_and_agent()
            cluster.hosts.reject("a", PORT, way)
            cluster.start("b")
            self.says_within_ten_seconds(cluster, "b", cluster.endpoint, word)
            # Once the wall is gone the node comes in by itself.
            cluster.start("b")
            cluster.hosts.heal("a")
            cluster.wait_round(0, 2)
            self.stop(cluster)


TALK = """
import os, socket, sys, time
host, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def connect(): return socket.create_connection((host, port), 5)
def answer(c):
    c.settimeout(15)
    try:
        while c.recv(65536): pass
        return "closed"
    except socket.timeout: return "open"
    except OSError: return "reset"
if what == "slow":
    many = []
    for _ in range(300):
        try: many.append(connect())
        except OSError: pass
    start = time.monotonic()
    while time.monotonic() - start < 2:
        for c in many:
            try: c.send(b"\\x16")
            except OSError: pass
        time.sleep(0.3)
    print(len(many), answer(many[0]), flush=True)
else:
    c = connect()
    data = {"random": os.urandom(4096), "http": b"GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", "huge": b"\\xff" * 65536, "zero": bytes(4096),
            "long": (2**31).to_bytes(4, "little") + bytes(64), "tls": bytes.fromhex("16030100050100000100") + bytes(600)}[what]
    start = time.monotonic()
    try: c.sendall(data)
    except OSError: pass
    print(answer(c), time.monotonic() - start, flush=True)
"""


@needs_hosts
class Strangers(StrangersTest):
    def running(self, **options):
        cluster = self.cluster("a b x", nnodes="2", flags="--max_restarts 3", **options)
        for host in "ab":
            cluster.start(host)
        return cluster, cluster.wait_round(0, 2)

    def talk(self, cluster, what):
        return cluster.hosts.output("x", sys.executable, "-c", TALK, cluster.hosts.address("a"), str(PORT), what).split()

    def test_nonsense_at_the_control_port_is_dropped_within_a_second_and_harms_nobody(self):
        for secret in (True, False):
            cluster, before = self.running(secret=secret)
            for what in ("random", "http", "huge", "zero", "long", "tls"):
                # A second, or the 5 s that a handshake may take; and what a busy machine adds, in one of three tries at least.
                within, taken = (3.0 if what in ("random", "http", "huge", "long") else 9.0) * SLACK, []
                while len(taken) < 3 and not any(took < within for took in taken):
                    end, after = self.talk(cluster, what)
                    self.assertIn(end, ("closed", "reset"), what)
                    taken.append(float(after))
                self.assertLess(min(taken), within, f"{what}, secret {secret}: {taken}")
            cluster.nodes["a"].wait_text(re.escape(cluster.hosts.address("x")))
            self.assertLess(cluster.nodes["a"].stderr.count("\n"), 40, "the log is rate-limited")
            self.still_works(cluster, before)

    def test_a_slow_loris_is_dropped_and_harms_nobody(self):
        cluster, before = self.running()
        many, end = self.talk(cluster, "slow")
        self.assertIn(end, ("closed", "reset"))
        self.still_works(cluster, before)

    def test_a_member_gets_through_a_crowd_of_idle_strangers(self):
        cluster = self.cluster("a b x", nnodes="2")
        cluster.start("a")
        cluster.nodes["a"].guardian_and_agent()
        crowd = cluster.hosts.run("x", [sys.executable, "-c", "import socket, sys, time\nmany = []\n"
                                        f"while len(many) < 1000:\n try: many.append(socket.create_connection(('{cluster.hosts.address('a')}', {PORT}), 2))\n"
                                        " except OSError:\n  if many: break\nprint(len(many), flush=True)\ntime.sleep(60)\n"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(crowd.communicate)
        self.addCleanup(crowd.kill)
        crowd.stdout.readline()
        begun = time.monotonic()
        cluster.start("b")
        cluster.wait_round(0, 2, 10)
        self.assertLess(time.monotonic() - begun, 10.0 * SLACK)
        self.stop(cluster)

    def still_works(self, cluster, before):
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())
        cluster.kill_worker(1)
        cluster.wait_round(1, 2)
        self.stop(cluster)


FLOOD = """
import socket, sys, time
host, port, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
print("on", flush=True)
begun, made, many = time.monotonic(), 0, []
while time.monotonic() - begun < 150:
    while made < (time.monotonic() - begun) * rate:
        made += 1
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((host, port))
        many.append(s)
    for s in many[:-100]:
        try: s.send(bytes.fromhex("1603010010") + b"nonsense")
        except OSError: pass
        s.close()
    del many[:-100]
    time.sleep(0.005)
"""


@needs_hosts
class Flooded(StrangersTest):
    def test_a_member_is_let_in_again_while_its_own_address_floods_the_coordinator(self):
        lease = 15 * SLACK  # the flood takes what a busy machine has left
        cluster = self.cluster("a b", flags="--max_restarts 0", times=f"--dead_after {lease / 2:g}s --lease {lease:g}s --join_timeout 60s --grace 2s")
        for host in "ab":
            cluster.start(host)
        before = cluster.wait_round(0, 2)
        flood = cluster.hosts.run("b", [sys.executable, "-c", FLOOD, cluster.hosts.address("a"), str(PORT), "1000"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(flood.communicate)
        self.addCleanup(flood.kill)
        flood.stdout.readline()
        until(lambda: "turned away" in cluster.nodes["a"].stderr, "the flood", 10)
        contacts = lambda: cluster.nodes["b"].stderr.count("in contact with the coordinator")
        for _ in range(3):
            known = contacts()
            cluster.hosts.reset_connections("b")
            until(lambda: contacts() > known, "a new connection", lease)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1.2 * lease, "more than a lease", 2 * lease)
        self.assertIsNone(flood.poll())
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())
        self.stop(cluster)


@needs_hosts
class Names(StrangersTest):
    def test_a_host_whose_own_name_is_127_0_1_1_in_its_etc_hosts_is_met_by_the_others(self):
        cluster = self.cluster("a b", endpoint=f"nodea:{PORT}")
        cluster.hosts.hosts_entry("a", {"nodea": "127.0.1.1"})
        cluster.hosts.hosts_entry("b", {"nodea": cluster.hosts.address("a")})
        cluster.start_all()
        cluster.wait_round(0, 2)
        cluster.nodes["a"].wait_text(r"nodea is 127\.0\.1\.1 on this machine .*listening on all its addresses")
        self.stop(cluster)


    @needs_rendezvous
    def test_acc_rendezvous_at_a_name_that_is_127_0_1_1_in_its_etc_hosts_was_out_of_reach_for_the_nodes(self):
        cluster = self.cluster("r a b", nnodes="2", endpoint=f"noder:{PORT}", flags="--rdzv_conf is_host=false")
        cluster.hosts.hosts_entry("r", {"noder": "127.0.1.1"})
        for host in "ab":
            cluster.hosts.hosts_entry(host, {"noder": cluster.hosts.address("r")})
        alone = cluster.hosts.run("r", [RENDEZVOUS, "--listen", cluster.endpoint, "--secret_file", cluster.secret], stderr=subprocess.PIPE, text=True)
        self.addCleanup(alone.stderr.close)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        for host in "ab":
            cluster.start(host)
        cluster.wait_round(0, 2)
        self.stop(cluster)
        alone.terminate()
        self.assertIn("noder is 127.0.1.1 on this machine", alone.communicate()[1])


@needs_hosts
class WithoutIpv6(StrangersTest):
    """Kernels that were started with ipv6.disable=1."""

    def test_two_machines_of_rank_0_without_ipv6_waited_apart(self):
        cluster = self.cluster("a b", backend="static")
        cluster.start("a", env=harness.preloading(NO_IPV6)).wait_text("waiting for other nodes")
        said = cluster.start("b", "--machine_rank 0", env=harness.preloading(NO_IPV6)).expect(77, 10).stderr
        for word in ("node rank 0 is taken", cluster.hosts.address("a"), cluster.hosts.address("b")):
            self.assertIn(word, said)
        cluster.start("b", env=harness.preloading(NO_IPV6))
        cluster.wait_round(0, 2)
        self.stop(cluster)

    @needs_rendezvous
    def test_acc_rendezvous_without_ipv6_did_not_start(self):
        alone = subprocess.Popen([RENDEZVOUS, "--port", "0", "--insecure"], env={**os.environ, **harness.preloading(NO_IPV6)}, stderr=subprocess.PIPE, text=True)
        self.addCleanup(alone.communicate)
        self.addCleanup(alone.kill)
        self.assertRegex(alone.stderr.readline(), r"listening at 0\.0\.0\.0:\d+, insecure")


class Clones(StrangersTest):
    """Machines that were cloned: one host name, and nothing tells that the others exist."""

    def clones(self, names, node_name=False, **options):
        cluster = self.cluster(names, **options)
        network = cluster.hosts.namespace
        cluster.hosts.wrap = lambda host: ["nsenter", f"--net=/run/netns/{network(host)}", "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
                                           "sh", "-c", 'hostname vm && exec "$@"', host]
        flags = cluster.flags_for
        cluster.flags_for = lambda host: flags(host).replace(f"--node_name {host}", "")
        return cluster

    def start(self, cluster, host, more=""):
        return cluster.start(host, more, words="mark=up after=1s", program=["--no_python", harness.FAKE])

    def test_three_machines_with_one_host_name_are_told_apart_by_their_rank(self):
        cluster = self.clones("a b c", backend="static")
        for host in "abc":
            self.start(cluster, host)
        self.all_end(cluster, 0)
        for rank, host in enumerate("abc"):
            self.assertEqual([int(row[1]) for row in cluster.nodes[host].events("up")], [rank], cluster.tell())
        self.assertIn("goes by vm-2", cluster.nodes["c"].stderr)
        self.assertNotIn("refused an agent", cluster.nodes["a"].stderr)

    def test_without_ranks_by_their_boot_and_network(self):
        cluster = self.clones("a b c", nnodes="3")
        for host in "abc":
            self.start(cluster, host)
        self.all_end(cluster, 0)
        self.assertEqual(sorted(int(row[1]) for host in "abc" for row in cluster.nodes[host].events("up")), [0, 1, 2], cluster.tell())

    def test_two_of_one_rank_are_refused_with_both_addresses_and_the_cure(self):
        cluster = self.clones("a b c", backend="static")
        self.start(cluster, "a")
        self.start(cluster, "b")
        cluster.nodes["a"].wait_text("waiting for other nodes", "2 of 3", deadline=15)
        said = self.start(cluster, "c", "--machine_rank 1").expect(77, 10).stderr
        for word in ("node rank 1", cluster.hosts.address("b"), cluster.hosts.address("c"), "--machine_rank"):
            self.assertIn(word, said)
        self.start(cluster, "c")
        self.all_end(cluster, 0)


@needs_hosts
class WallClocks(StrangersTest):
    def test_clocks_that_are_an_hour_apart_and_jump_change_nothing(self):
        lease = 10 * SLACK  # no agent that a busy machine holds up is lost
        cluster = self.cluster("a b c", flags="--max_restarts 3", times=f"--dead_after {lease / 2:g}s --lease {lease:g}s --join_timeout 60s --grace 2s --restart_delay 0")
        clocks = {}
        for host, offset in (("a", "+3600"), ("b", "-3600"), ("c", "+0")):
            clocks[host] = os.path.join(cluster.folder, f"clock.{host}")
            with open(clocks[host], "w") as f:
                f.write(offset)
            cluster.start(host, env={**harness.preloading(WALL_CLOCK), "WALL_CLOCK_FILE": clocks[host]})
        before = cluster.wait_round(0, 3)
        cluster.nodes["b"].wait_text(r"its clock is \d h \d+ min behind")  # the skew is noted, and that is all
        for offset in ("-3600", "+7200", "+0"):
            for path in clocks.values():
                with open(path, "w") as f:
                    f.write(offset)
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > 1.2 * lease, "more than a lease", 2 * lease)
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())
        cluster.kill_worker(1)
        cluster.wait_round(1, 3)
        self.stop(cluster)


if __name__ == "__main__":
    main()
