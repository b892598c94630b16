"""What a job on several hosts survives: lost nodes, a lost coordinator, partitions, frozen agents, bad lines. Each test's workers
prove P1 (no two rounds overlap) and P3 (ranks are a bijection) by their diaries."""
import os, signal, subprocess, time, unittest

import cluster as clusters
from cluster import BIN, HISTORY, PORT, ClusterTest
from harness import RUNTIME, SLACK, JobTest, free_port, main, own_token, read, state_of, until
from hosts import needs_hosts

RENDEZVOUS = os.path.join(BIN, "acc-rendezvous")
RESTARTS = "--max_restarts 5"
# Twice the times of other tests: here the rest of the nodes must be well while one is lost, however busy the machine is.
DEAD, LEASE = 2 * clusters.DEAD, 2 * clusters.LEASE


def times(dead=DEAD, lease=LEASE, join=20.0):
    """A missing member is given up after six seconds; a node that comes later is a spare: long enough for the last of several to be
    started on a busy machine."""
    return f"--dead_after {dead:g}s --lease {lease:g}s --join_timeout {join:g}s --last_call 6s --grace 2s --restart_delay 0"


QUICK = times()
# Where nobody is to be lost by silence at all: no agent that a busy machine holds up for some seconds.
PATIENT = times(3 * DEAD, 3 * LEASE)
# What a busy machine may add to the end of a lease before a test has seen what follows from it.
LATE = 4.0 * SLACK


def listens(port):
    """Is somebody at localhost:port? A connection would be a stranger's."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in read(f"/proc/net/{name}").splitlines()]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def seconds(nanoseconds, since):
    return nanoseconds / 1e9 - since


class Faults(ClusterTest):
    def running(self, names, workers, **options):
        options.setdefault("flags", RESTARTS)
        options.setdefault("times", QUICK)
        cluster = self.cluster(names, **options)
        cluster.start_all()
        return cluster, cluster.wait_round(0, workers)

    def assert_untouched(self, cluster, before):
        """The same processes live, in the same round."""
        self.assertEqual({life.pid for life in cluster.living()}, {life.pid for life in before}, cluster.tell())


@needs_hosts
class LostNode(Faults):
    def test_a_node_that_dies_is_left_behind_once_its_lease_is_over(self):
        cluster, _ = self.running("a b c d", 8, slots=2, nnodes="2:4", times=times(lease=2 * LEASE))
        begun = time.monotonic()
        cluster.hosts.power_off("c")
        lives = cluster.wait_round(1, 6, 20)
        self.assertEqual({life.node for life in lives}, {"a", "b", "d"})
        self.assertEqual({life.world for life in lives}, {6})
        # Nobody heard of its end: its workers might have lived until then. Its last heartbeat may have been some seconds ago.
        self.assertGreater(seconds(min(life.start for life in lives), begun), 1.25 * LEASE)
        cluster.nodes["a"].wait_text(r"node c\b.* lost")
        self.stop(cluster)

    def test_a_node_that_waited_for_a_lost_one_showed_the_reason_of_an_earlier_restart(self):
        cluster, _ = self.running("a b", 2)
        cluster.kill_worker(1)
        cluster.wait_round(1, 2)
        cluster.hosts.end_processes("b")
        cluster.nodes["a"].wait_text(r"node b\b.* lost")
        job = f"{os.path.basename(HISTORY)}.{cluster.nodes['a'].pid}"

        def shown():
            done = subprocess.run([os.path.join(BIN, "acc-ctl"), "status", job], capture_output=True, text=True, env={**os.environ, "XDG_RUNTIME_DIR": RUNTIME})
            return done.stdout + done.stderr
        until(lambda: "last restart: node b " in shown(), shown(), 10)
        self.stop(cluster)

    def test_a_node_whose_processes_are_killed_is_noticed_at_once(self):
        cluster, _ = self.running("a b c", 3, nnodes="2:3", times=times(15 * SLACK, 31 * SLACK))
        cluster.hosts.end_processes("b")
        begun = time.monotonic()
        cluster.nodes["a"].wait_text(r"node b\b.* lost")
        self.assertLess(time.monotonic() - begun, 10 * SLACK)  # and not by its silence of 15 s

    def test_with_a_fixed_number_the_job_waits_for_the_return(self):
        for backend in ("tcp", "static"):
            cluster, _ = self.running("a b c", 3, backend=backend)
            cluster.hosts.power_off("c")
            cluster.nodes["a"].wait_text(r"node c\b.* lost" if backend == "tcp" else "lost")
            self.assertEqual(cluster.wait(lambda: not cluster.living() or None, "the end of the round"), True)
            cluster.hosts.heal("c")
            cluster.start("c")
            lives = cluster.wait_round(1, 3)
            self.assertEqual(sorted((life.node, life.rank) for life in lives), [("a", 0), ("b", 1), ("c", 2)])
            self.stop(cluster)

    def test_a_node_that_does_not_come_back_ends_the_job_at_the_deadline(self):
        cluster, _ = self.running("a b c", 3, times=times(join=10 * SLACK))  # in which a and c are back
        cluster.hosts.power_off("b")
        self.all_end(cluster, 69, hosts="ac")
        for host in "ac":
            cluster.nodes[host].wait_text("2 of 3 nodes")

    def test_a_spare_takes_the_place(self):
        cluster = self.cluster("a b c", nnodes="2", flags=RESTARTS, times=QUICK)
        cluster.start("a")
        cluster.start("b")
        cluster.wait_round(0, 2)
        cluster.start("c").wait_text("spare")
        cluster.hosts.power_off("b")
        lives = cluster.wait_round(1, 2)
        self.assertEqual({life.node for life in lives}, {"a", "c"})
        self.stop(cluster)

    def test_an_agent_that_was_started_again_is_taken_in(self):
        cluster, _ = self.running("a b c", 3)
        cluster.hosts.end_processes("b")
        cluster.start("b")
        lives = cluster.wait_round(1, 3)
        self.assertEqual({life.node for life in lives}, {"a", "b", "c"})
        self.stop(cluster)


@needs_hosts
class LostCoordinator(Faults):
    def test_a_reset_harms_nobody(self):
        cluster, before = self.running("a b c", 3, times=PATIENT)
        contacts = lambda host: cluster.nodes[host].stderr.count("in contact with the coordinator")
        for host in "bcb":
            known = contacts(host)
            cluster.hosts.reset_connections(host)
            # One that is reset while it connects again looks for another coordinator, and rightly so.
            until(lambda: contacts(host) > known, "a new connection", 5)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 3.5 * LEASE, "more than a lease", 10 * LEASE)
        self.assert_untouched(cluster, before)
        self.stop(cluster)

    def test_node_0_is_killed_and_the_rest_goes_on_under_another(self):
        for backend, nodes in (("tcp", "2:3"), ("tcp", "3")):
            cluster, _ = self.running("a b c", 6, slots=2, nnodes=nodes, backend=backend)
            begun = time.monotonic()
            cluster.hosts.power_off("a")
            until(lambda: any("takes over as coordinator" in cluster.nodes[host].stderr for host in "bc"), "a successor", 10)
            print(f"\n  coordinator killed to a new one: {time.monotonic() - begun:.2f} s (dead {DEAD:g} s, lease {LEASE:g} s)", flush=True)
            self.assertLess(time.monotonic() - begun, LEASE + LATE)
            if nodes == "3":
                cluster.hosts.heal("a")
                cluster.start("a")
            lives = cluster.wait_round(1, 4 if nodes == "2:3" else 6)
            self.assertEqual({life.node for life in lives}, {"b", "c"} if nodes == "2:3" else {"a", "b", "c"})
            self.stop(cluster)

    def test_the_rank_that_failed_was_forgotten_when_the_coordinator_died_while_others_saved(self):
        """The job ended with 69, as of a lost node."""
        cluster, _ = self.running("a b c", 3, nnodes="2:3", flags="--max_restarts 0", words=f"linger={3 * LEASE:g}s", times=f"{QUICK} --grace {5 * LEASE:g}s")
        cluster.kill_worker(1)
        cluster.nodes["c"].wait_text("stopping the workers here: rank 1 on b was killed by SIGKILL")
        cluster.hosts.power_off("a")
        self.all_end(cluster, 128 + signal.SIGKILL, 10 * LEASE, hosts="bc")
        for host in "bc":
            cluster.nodes[host].wait_text("job failed: rank 1 .*was killed by SIGKILL")

    def test_static_jobs_too(self):
        cluster, _ = self.running("a b c", 3, backend="static")
        cluster.hosts.end_processes("a")
        until(lambda: any("takes over as coordinator" in cluster.nodes[host].stderr for host in "bc"), "a successor", 10)
        cluster.start("a")
        cluster.wait_round(1, 3)
        self.stop(cluster)

    def test_a_coordinator_that_is_cut_off_is_replaced_and_its_workers_end_first(self):
        cluster, _ = self.running("a b c d e", 5, nnodes="3:5")
        cluster.hosts.partition("a")
        lives = cluster.wait_round(1, 4)
        self.assertEqual({life.node for life in lives}, {"b", "c", "d", "e"})
        self.assertLess(max(life.last for life in cluster.lives(0) if life.node == "a"), min(life.start for life in lives))
        cluster.hosts.heal("a")
        # It learns that it is not coordinator any more, and comes back as a member.
        cluster.nodes["a"].wait_text("spare")
        cluster.kill_worker(1)
        cluster.wait_after(1, 5)
        self.stop(cluster)

    def test_each_successor_is_lost_and_the_next_one_is_as_quick(self):
        """Of eight, with the default times, the second one took 46 s in two of four runs."""
        cluster = self.cluster("a b c d e f g h", nnodes="5:8", flags=RESTARTS, times=times(join=30))
        cluster.start_all()
        cluster.wait_round(0, 8)
        lost = "a"
        for _ in range(3):
            cluster.hosts.end_processes(lost)
            begun = time.monotonic()
            said = lambda: [host for host, node in cluster.nodes.items() if host != lost and node.process.poll() is None and "takes over as coordinator" in node.stderr]
            [lost] = cluster.wait(said, "a successor", 20)
            took = time.monotonic() - begun
            print(f"\n  coordinator killed to a new one: {took:.2f} s (dead {DEAD:g} s, lease {LEASE:g} s)", flush=True)
            self.assertLess(took, LEASE + LATE)
        self.stop(cluster)

    def test_two_losses_one_after_the_other(self):
        cluster, _ = self.running("a b c d e", 5, nnodes="3:5")
        cluster.hosts.power_off("a")
        cluster.wait_round(1, 4)
        cluster.hosts.power_off("b")
        lives = cluster.wait_after(1, 3)
        self.assertEqual({life.node for life in lives}, {"c", "d", "e"})
        self.stop(cluster)

    def test_a_spare_at_the_first_address_learns_of_the_second_successor(self):
        """Found by chaos, seed 7: it and a node that was started again asked each other for ever."""
        cluster, _ = self.running("a b c d", 4, nnodes="2:4")
        cluster.hosts.end_processes("a")
        cluster.wait_round(1, 3)
        cluster.start("a").wait_text("spare")
        cluster.hosts.end_processes("b")
        cluster.start("b")
        # c and d are a majority of three; what a and b wait for is a place in the next round.
        cluster.wait_after(1, 4, 20)
        self.stop(cluster)

    @unittest.skipUnless(os.access(RENDEZVOUS, os.X_OK), "no acc-rendezvous in this build")
    def test_a_coordinator_without_workers_is_lost_and_no_worker_notices(self):
        cluster = self.cluster("r a b c", nnodes="3", flags=f"{RESTARTS} --rdzv_conf is_host=false", times=PATIENT)
        alone = cluster.hosts.run("r", [RENDEZVOUS, "--listen", cluster.endpoint, "--secret_file", cluster.secret], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        for host in "abc":
            cluster.start(host)
        before = cluster.wait_round(0, 3)
        cluster.hosts.power_off("r")
        until(lambda: any("takes over as coordinator" in cluster.nodes[host].stderr for host in "abc"), "a successor", 15)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 3.5 * LEASE, "more than a lease", 10 * LEASE)
        self.assert_untouched(cluster, before)
        cluster.kill_worker(1)
        cluster.wait_round(1, 3)
        self.stop(cluster)


class OneMachine(JobTest):
    """Three agents that meet at `localhost`, as in torchrun's manual: a name, where standbys listen at an address."""

    def start(self, endpoint, token, more=""):
        return self.job(f"--cpu --num_cpu_threads_per_process 1 --nnodes 2:3 --nproc_per_node 1 --rdzv_backend c10d --rdzv_endpoint {endpoint} --rdzv_id one --max_restarts 3 {QUICK} {more}",
                        "mark=up hold", token=token)

    @unittest.skipUnless(os.access(RENDEZVOUS, os.X_OK), "no acc-rendezvous in this build")
    def test_options_of_an_agent_that_was_killed_before_the_first_round_held_for_all_later_ones(self):
        port, token = free_port(), own_token("anew")
        alone = subprocess.Popen([RENDEZVOUS, "--listen", f"127.0.0.1:{port}", "--insecure"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(alone.stderr.close)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        until(lambda: listens(port), "acc-rendezvous", 10)
        start = lambda nodes: self.job(f"--cpu --num_cpu_threads_per_process 1 --nnodes {nodes} --nproc_per_node 1 --rdzv_backend c10d "
                                       f"--rdzv_endpoint 127.0.0.1:{port} --rdzv_id anew --rdzv_conf is_host=false {QUICK}", "mark=up hold", token=token)
        first = start("3")
        first.wait_stderr("1 of 3", 20)
        for pid in (first.agent, first.pid):
            os.kill(pid, signal.SIGKILL)
        first.process.wait(20)
        jobs = [start("2") for _ in range(2)]
        for job in jobs:
            job.wait_events("up", 1, 20)
        jobs[0].process.send_signal(signal.SIGTERM)
        for job in jobs:
            self.assertEqual(job.wait(20), 143, job.stderr)

    def test_the_survivors_crashed_when_the_coordinator_at_localhost_was_killed(self):
        port, token = free_port(), own_token("localhost")
        first = self.start(f"localhost:{port}", token, "--rdzv_conf is_host=true")
        until(lambda: listens(port), "the first coordinator", 10)
        others = [self.start(f"localhost:{port}", token, "--rdzv_conf is_host=false") for _ in range(2)]
        for job in (first, *others):
            job.wait_events("up", 1)
            self.assertNotIn("warning", job.stderr, "each can take over")
        os.kill(first.agent, signal.SIGKILL)
        until(lambda: any("takes over as coordinator" in job.stderr for job in others), "a successor", 10)
        for job in others:
            job.wait_events("up", 2, 15)
        others[0].process.send_signal(signal.SIGTERM)
        for job in others:
            self.assertEqual(job.wait(), 143, job.stderr)
            self.assert_nothing_left(job)


@needs_hosts
class Minority(Faults):
    def test_the_minority_ends_its_workers_before_the_majority_starts_anew(self):
        for way in ("both", "in", "out"):
            cluster, _ = self.running("a b c d", 8, slots=2, nnodes="2:4")
            cluster.hosts.partition("d", way)
            begun = time.monotonic()  # no lease is renewed any more
            lives = cluster.wait_round(1, 6)
            self.assertEqual({life.node for life in lives}, {"a", "b", "c"})
            gone = max(life.last for life in cluster.lives(0) if life.node == "d")
            self.assertLess(gone, min(life.start for life in lives))
            self.assertLess(seconds(gone, begun), LEASE + LATE)
            cluster.nodes["a"].wait_text(r"node d\b.* lost")
            cluster.nodes["d"].wait_text("lease")
            cluster.hosts.heal("d")
            self.stop(cluster)


@needs_hosts
class Partition(Faults):
    def test_a_node_that_comes_back_joins_the_next_round(self):
        cluster, _ = self.running("a b c d", 4, nnodes="2:4", times=times(join=20 * SLACK))  # d asks until the others have a round
        cluster.hosts.partition("d")
        cluster.wait_round(1, 3)
        cluster.hosts.heal("d")
        cluster.nodes["d"].wait_text("spare", deadline=10)
        cluster.kill_worker(0)
        lives = cluster.wait_round(2, 4)
        self.assertEqual({life.node for life in lives}, {"a", "b", "c", "d"})
        self.stop(cluster)

    def test_a_short_partition_is_no_matter(self):
        cluster, before = self.running("a b c", 3, times="--dead_after 6s --lease 12s --grace 1s")
        cluster.hosts.partition("b")
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1.0, "a second", 5)
        cluster.hosts.heal("b")
        until(lambda: time.monotonic() - begun > 13.0, "more than a lease", 15)
        self.assert_untouched(cluster, before)
        self.stop(cluster)

    def test_of_two_nodes_the_survivor_ends_by_its_lease_and_says_why(self):
        for lost, left in (("a", "b"), ("b", "a")):
            cluster, _ = self.running("a b", 2, nnodes="2", times=times(join=12 * SLACK))
            cluster.hosts.power_off(lost)
            begun = time.monotonic()
            cluster.wait(lambda: not cluster.living(left), f"the end of {left}'s workers", LEASE + 1)
            self.assertLess(time.monotonic() - begun, LEASE + LATE)  # and not after --join_timeout
            self.assertEqual(cluster.nodes[left].wait(10), 69, cluster.tell())
            cluster.nodes[left].wait_text("no majority" if left == "b" else "1 of 2 nodes")

    def test_half_open_connections_are_noticed_by_silence(self):
        cluster, _ = self.running("a b c", 3)
        self.assertGreaterEqual(cluster.hosts.drop_established("b"), 1)
        cluster.nodes["b"].wait_text("no traffic|acknowledged nothing", deadline=5)  # ours or the kernel's limit: they are the same
        # A new connection works, so b is in again, in this round or, if the coordinator gave it up in the same moment, the next.
        cluster.nodes["b"].wait_text("again", deadline=5)
        cluster.wait(lambda: len(lives := cluster.living()) == 3 and len({life.round for life in lives}) == 1 and lives[0].round < 2, "all three workers in one round")
        self.stop(cluster)


@needs_hosts
class Frozen(Faults):
    def freeze(self, cluster, host):
        _, agent = cluster.nodes[host].guardian_and_agent()
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: state_of(agent) == "T" and os.kill(agent, signal.SIGCONT))
        return agent

    def test_a_frozen_agents_workers_are_killed_by_its_guardian_and_it_comes_back(self):
        cluster, _ = self.running("a b c d", 8, slots=2, nnodes="2:4")
        agent = self.freeze(cluster, "c")
        begun = time.monotonic()
        cluster.wait(lambda: not cluster.living("c"), "the end of c's workers", LEASE + 1)
        self.assertLess(time.monotonic() - begun, LEASE + LATE)
        self.assertEqual(state_of(agent), "T", "the guardian did it, not the agent")
        cluster.nodes["c"].wait_text("lease over")
        lives = cluster.wait_round(1, 6)
        self.assertEqual({life.node for life in lives}, {"a", "b", "d"})
        os.kill(agent, signal.SIGCONT)
        cluster.nodes["c"].wait_text("spare", deadline=10)
        cluster.kill_worker(0)
        self.assertEqual({life.node for life in cluster.wait_round(2, 8)}, {"a", "b", "c", "d"})
        self.stop(cluster)

    def test_a_frozen_coordinator_is_replaced_and_is_a_member_when_it_thaws(self):
        cluster, _ = self.running("a b c", 3, nnodes="2:3")
        agent = self.freeze(cluster, "a")
        lives = cluster.wait_round(1, 2)
        self.assertEqual({life.node for life in lives}, {"b", "c"})
        os.kill(agent, signal.SIGCONT)
        cluster.wait(lambda: cluster.nodes["a"].process.poll() is not None or "no longer the coordinator" in cluster.nodes["a"].stderr, "what a says", 10)
        cluster.kill_worker(0)
        self.assertEqual({life.node for life in cluster.wait_after(1, 3)}, {"a", "b", "c"})
        self.stop(cluster)

    def test_a_short_freeze_is_no_matter(self):
        cluster, before = self.running("a b c", 3, times="--dead_after 6s --lease 12s --grace 1s")
        for host in "ab":
            agent = self.freeze(cluster, host)
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > 1.0, "a second", 5)
            os.kill(agent, signal.SIGCONT)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 12.5, "more than a lease", 15)
        self.assert_untouched(cluster, before)
        self.stop(cluster)


@needs_hosts
class BadLine(Faults):
    def test_a_slow_thin_lossy_line_starts_restarts_and_kills_nobody(self):
        # A machine that does much else adds seconds of silence to those of the line; before the first round a loss only costs its number.
        cluster = self.cluster("a b c", flags=RESTARTS, times="--dead_after 10s --grace 1s --join_timeout 60s")
        for host in "bc":
            cluster.hosts.slow(host, 100, jitter_ms=5, loss=10, mbit=1)
        cluster.start_all()
        before = cluster.wait_after(-1, 3, deadline=40)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 12, "more than the time after which a silent node is lost", 20)
        self.assert_untouched(cluster, before)
        cluster.kill_worker(1)
        cluster.wait_after(next(iter(before)).round, 3, deadline=40)
        self.stop(cluster)

    def test_a_round_trip_of_two_seconds_starts_and_restarts(self):
        cluster = self.cluster("a b c", backend="static", flags=RESTARTS, times="--dead_after 5s --lease 10s --join_timeout 60s --grace 2s --restart_delay 0")
        for host in "abc":
            cluster.hosts.slow(host, delay_ms=450)
        cluster.start_all()
        cluster.wait_round(0, 3, 45)
        cluster.kill_worker(1)
        cluster.wait_round(1, 3, 30)
        self.stop(cluster)

    def test_a_link_that_flaps_is_no_matter(self):
        cluster, before = self.running("a b c", 3, times="--dead_after 6s --lease 13s --grace 1s")
        for _ in range(3):
            cluster.hosts.link("b", False)
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun > 0.4, "the link to be down", 5)
            cluster.hosts.link("b", True)
            until(lambda: time.monotonic() - begun > 1.0, "the link to be up", 5)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 7, "a lost node's deadline", 10)
        self.assert_untouched(cluster, before)
        self.stop(cluster)


@needs_hosts
class AskedToEnd(Faults):
    """Found by a first user: a signal while the others can't be told, or are known to be lost."""

    def test_ctrl_c_on_a_node_that_was_cut_off_took_the_grace_and_ten_seconds(self):
        for signo, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            cluster, _ = self.running("a b", 2, backend="static", times=times(lease=5 * LEASE))
            cluster.hosts.partition("b")
            cluster.nodes["b"].wait_text("lost the coordinator")
            begun = time.monotonic()
            cluster.nodes["b"].process.send_signal(signo)
            self.assertEqual(cluster.nodes["b"].wait(10), code, cluster.tell())
            self.assertLess(time.monotonic() - begun, 10 * SLACK)
            cluster.nodes["b"].wait_text("could not be told")

    def test_ctrl_c_while_a_lost_nodes_lease_was_waited_for(self):
        cluster, _ = self.running("a b", 2, times="--dead_after 8s --lease 20s --grace 1s")
        cluster.hosts.end_processes("b")
        cluster.nodes["a"].wait_text(r"node b\b.* lost")
        begun = time.monotonic()
        cluster.nodes["a"].process.send_signal(signal.SIGINT)
        self.assertEqual(cluster.nodes["a"].wait(8), 130, cluster.tell())
        self.assertLess(time.monotonic() - begun, 10 * SLACK)

    def test_the_port_was_held_for_two_seconds_after_the_coordinators_launcher_was_killed(self):
        taken = []
        while len(taken) < 3 and not any(took < 1 * SLACK for took in taken):  # the quickest of three: this machine may stand still for as long
            cluster, _ = self.running("a b", 2, backend="static")
            guardian, agent = cluster.nodes["a"].guardian_and_agent()
            begun = time.monotonic()
            os.kill(guardian, signal.SIGKILL)
            until(lambda: state_of(agent) in (None, "Z", "X"), "the agent's end", 5)
            taken.append(time.monotonic() - begun)
        self.assertLess(min(taken), 1 * SLACK, taken)


if __name__ == "__main__":
    main()
