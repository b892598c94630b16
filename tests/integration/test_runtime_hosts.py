"""Ranks of the runtime on several hosts: collectives are right, and what goes wrong is told on every host."""
import contextlib, os, random, re, shutil, signal, subprocess, time, unittest

from cluster import Cluster, ClusterTest
from harness import BIN, PATIENCE, PROGRAMS, SLACK, main, until
from hosts import Hosts, needs_hosts

WORKER = shutil.copy(os.path.join(BIN, "collectives_worker"), PROGRAMS.name)


class Ranks:
    """One process for each letter of `layout`, on the host of that name; started by hand as torchrun would."""
    port = 29700

    def __init__(self, hosts, layout, mode, **variables):
        Ranks.port += 20
        self.layout, self.processes = layout, []
        for rank, host in enumerate(layout):
            env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(layout)), "MASTER_ADDR": hosts.address(layout[0]), "MASTER_PORT": str(Ranks.port),
                   "ACC_INIT_TIMEOUT": f"{20 * SLACK}", **variables}
            self.processes.append(hosts.run(host, [WORKER, mode], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        self.first = {}

    def first_lines(self):
        """Until all are in their loop; rank: pid."""
        for rank, process in enumerate(self.processes):
            line = process.stdout.readline()
            found = re.search(r"loops, pid (\d+)", line)
            assert found, f"rank {rank}: {line}{process.stdout.read()}"
            self.first[rank] = int(found[1])
        return self.first

    def rest(self, rank, deadline=20):
        return self.processes[rank].communicate(timeout=deadline * PATIENCE)[0]

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


class HostsTest(unittest.TestCase):
    def setUp(self):
        self.hosts = None

    def on(self, names):
        self.hosts = Hosts(names)
        self.addCleanup(self.hosts.close)

    def ranks(self, layout, mode, **variables):
        if self.hosts is None:
            self.on(sorted(set(layout)))
        ranks = Ranks(self.hosts, layout, mode, **variables)
        self.addCleanup(ranks.close)
        return ranks

    def all_checked(self, ranks):
        for rank in range(len(ranks.layout)):
            self.assertRegex(ranks.rest(rank, 60), rf"rank {rank}/{len(ranks.layout)} local \d/\d checked")


@needs_hosts
class Launched(ClusterTest):
    def checked(self, names, **options):
        # No agent is lost that a busy machine, with ranks that compute, holds up.
        cluster = self.cluster(names, times=f"--dead_after {10 * SLACK:g}s --lease {21 * SLACK:g}s --join_timeout 60s", **options)
        for host in cluster.names:
            cluster.start(host, program=["--no_python", WORKER], words="check")
        self.all_end(cluster, 0, 60)
        lines = [line for node in cluster.nodes.values() for line in node.stdout.splitlines() if line.endswith("checked")]
        self.assertEqual(len(lines), len(cluster.names) * cluster.slots, cluster.tell())

    def test_two_hosts_through_the_agents_store(self):
        self.checked("a b", slots=2)

    def test_three_hosts(self):
        self.checked("a b c", slots=1)

    def named(self, names, words, code, cause, *, slots=1, flags="", loops=None):
        """Runs a job in which one rank fails in its first round: all nodes end with its code and name it. `loops`: called with the pid of each rank."""
        times = f"--dead_after {10 * SLACK:g}s --lease {21 * SLACK:g}s --join_timeout 60s"
        with contextlib.closing(Cluster(names, slots=slots, flags=flags, times=times)) as cluster:
            for host in cluster.names:
                cluster.start(host, program=["--no_python", WORKER], words=words)
            size = slots * len(cluster.names)

            def started():
                text = "".join(node.stdout for node in cluster.nodes.values())
                return re.findall(r"rank (\d+)/\d+ local \d/\d loops, pid (\d+)", text)
            if loops:
                cluster.wait(lambda: len(started()) == size, "all ranks to loop", 30)
                loops({int(rank): int(pid) for rank, pid in started()})
            self.all_end(cluster, code, 30)
            for node in cluster.nodes.values():
                self.assertRegex(node.stderr, rf"job failed: {cause}", cluster.tell())
            self.assertEqual(len(started()), size, "the job restarted:\n" + cluster.tell())

    def test_a_rank_that_threw_and_exited_slowly_was_not_the_cause_on_other_hosts(self):
        for names, slots, culprit in (("a b c", 1, 1), ("a b", 2, 0), ("a b", 2, 3)):
            with self.subTest(names=names, culprit=culprit):
                self.named(names, f"fail {culprit}", 42, rf"rank {culprit}\b.* exited with code 42", slots=slots,
                           flags="--max_restarts 1 --no_restart_codes 42")

    def test_a_survivor_on_another_host_was_named_in_place_of_the_killed_rank(self):
        dice = random.Random(7)
        for attempt in range(10):
            names, slots = dice.choice((("a b", 2), ("a b c", 1)))
            victim, pause = dice.randrange(slots * len(names.split())), dice.uniform(0, 0.05)
            with self.subTest(attempt=attempt, names=names, victim=victim):
                def kill(pids, victim=victim, pause=pause):
                    time.sleep(pause)  # at any moment of a call
                    os.kill(pids[victim], signal.SIGKILL)
                self.named(names, "loop", 137, rf"rank {victim}\b.* killed by SIGKILL", slots=slots, loops=kill)


@needs_hosts
class Plain(HostsTest):
    def test_two_hosts_with_two_ranks_each(self):
        self.all_checked(self.ranks("aabb", "check"))

    def test_three_hosts_one_of_them_larger(self):
        self.all_checked(self.ranks("abbc", "check"))

    def test_ranks_that_go_round_the_hosts(self):
        self.all_checked(self.ranks("abab", "check"))

    def test_a_named_interface(self):
        self.all_checked(self.ranks("ab", "check", ACC_SOCKET_IFNAME="=eth0"))

    def test_loopback_is_not_told_to_other_hosts(self):
        ranks = self.ranks("ab", "check", ACC_SOCKET_IFNAME="lo")
        for rank in (0, 1):
            self.assertRegex(ranks.rest(rank), r"failed .*: system: .*rank \d \(host [ab], pid \d+\) would tell the other hosts its loopback address")

    def test_an_interface_that_is_not_there(self):
        ranks = self.ranks("ab", "check", NCCL_SOCKET_IFNAME="nosuch")
        for rank in (0, 1):
            self.assertRegex(ranks.rest(rank), r"NCCL_SOCKET_IFNAME=nosuch lets no interface of this host; there are: lo 127.0.0.1, eth0 10.77.0.\d")

    def test_hosts_that_do_not_reach_each_other(self):
        self.on("a b c")
        self.hosts.partition_between("b", "c")
        ranks = self.ranks("abc", "check", ACC_INIT_TIMEOUT="12")  # in which all have come
        for rank in range(3):
            self.assertRegex(ranks.rest(rank), r"rank (1 \(host b, .* can't connect to rank 2 \(host c|2 \(host c, .* isn't connected to by rank 1 \(host b), .*; the addresses: rank 0 host a eth0 10.77.0.1:\d+, rank 1 host b ")

    def test_a_rank_that_does_not_come(self):
        self.on("a b")
        ranks = self.ranks("ab", "check", WORLD_SIZE="3", ACC_INIT_TIMEOUT="10")  # in which the other two have come
        for rank in (0, 1):
            self.assertRegex(ranks.rest(rank), r"timed_out: rank 2 of 3 has not joined after 10 s; joined: 0 \(host a, pid \d+\), 1 \(host b, pid \d+\)")


@needs_hosts
class Faults(HostsTest):
    def fails(self, ranks, victims, *patterns, deadline=20):
        """All but the victims say this; a call may take half an hour, where no limit was set."""
        for rank in range(len(ranks.layout)):
            if rank in victims:
                continue
            text = ranks.rest(rank, deadline)
            for pattern in patterns:
                self.assertRegex(text, pattern)

    def test_killed(self):
        self.on("a b c")
        for layout in ("ab", "aabb", "abc"):
            for victim in (0, len(layout) - 1):
                with self.subTest(layout=layout, victim=victim):
                    ranks = self.ranks(layout, "loop")
                    pid = ranks.first_lines()[victim]
                    os.kill(pid, signal.SIGKILL)
                    self.fails(ranks, [victim], rf"peer_lost: all_reduce f32 x50000 sum #\d+.*rank {victim} \(host {layout[victim]}, pid {pid}\)")
                    ranks.close()

    def test_stopped(self):
        ranks = self.ranks("aab", "loop", ACC_COLLECTIVE_TIMEOUT="4")  # longer than a busy machine holds up the others
        pid = ranks.first_lines()[1]
        os.kill(pid, signal.SIGSTOP)
        self.fails(ranks, [1], rf"timed_out: all_reduce f32 x50000 sum #\d+.*: timed out after 4 s: rank 1 \(host a, pid {pid}\) .*it (last completed|has completed nothing).*stopped \(process state T\)")

    def test_cut_off(self):
        ranks = self.ranks("ab", "loop", ACC_COLLECTIVE_TIMEOUT="4")
        ranks.first_lines()
        self.hosts.partition("b")
        self.fails(ranks, [], r"timed_out: all_reduce .*timed out after 4 s: rank [01] \(host [ab], pid \d+\) doesn't answer: it is stopped, or its host is cut off", deadline=10)

    def test_connections_are_reset(self):
        ranks = self.ranks("ab", "loop")
        ranks.first_lines()
        self.hosts.reset_connections("b")
        self.fails(ranks, [], r"peer_lost: all_reduce .*rank [01] \(host [ab]", deadline=10)


if __name__ == "__main__":
    main()
