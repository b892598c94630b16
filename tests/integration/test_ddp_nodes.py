"""Real PyTorch DDP (gloo) over three hosts survives the loss of a node, of the coordinator's node, and a partition."""
import os, signal, unittest

from cluster import ClusterTest
from harness import SLACK, main, until, write
from hosts import needs_hosts
from test_torch import PYTHON, SCRIPT

# Three interpreters that import torch at once on two cores hold up an agent for longer than the other tests' leases of a second, and than two beside builds.
TIMES = f"--dead_after {6 * SLACK:g}s --lease {12 * SLACK:g}s --join_timeout 60s --last_call 5s --grace 2s --restart_delay 0"


@needs_hosts
@unittest.skipUnless(PYTHON, "no Python here has torch (Debian: python3-torch)")
class DdpNodes(ClusterTest):
    def training(self, names="a b c", steps=40, first_steps=4000, **options):
        """`first_steps`: of the first attempt, which is to go on until the test breaks something, however late."""
        options.setdefault("nnodes", "2:3")
        cluster = self.cluster(names, flags="--max_restarts 5 --preload torch", times=TIMES, **options)
        self.script = os.path.join(cluster.folder, "train.py")
        write(self.script, "import os, runpy\n"
              f"os.environ['DDP_STEPS'] = '{first_steps}' if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else '{steps}'\n"
              f"runpy.run_path({SCRIPT!r}, run_name='__main__')\n")
        for host in cluster.names:
            self.start(cluster, host)
        self.reaches(cluster, "step 3 world=3 attempt=0")
        return cluster

    def start(self, cluster, host):
        cluster.start(host, program=[self.script], env={"PYTHON_EXEC": PYTHON, "DDP_PAUSE": "0.1", "GLOO_SOCKET_IFNAME": "eth0"})

    def output(self, cluster):
        return "".join(node.stdout for node in cluster.nodes.values())

    def reaches(self, cluster, text, deadline=60):
        def there():
            ended = [host for host, node in cluster.nodes.items() if node.process.poll() not in (None, 0, -signal.SIGKILL)]
            self.assertFalse(ended, cluster.tell())
            return text in self.output(cluster)
        try:
            until(there, text, deadline)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output(cluster)}\n{cluster.tell()}") from None

    def trained(self, cluster, world, hosts):
        for host in hosts:
            self.assertEqual(cluster.nodes[host].wait(90), 0, f"{host}\n{self.output(cluster)}\n{cluster.tell()}")
        self.assertRegex(self.output(cluster), rf"trained world={world} attempt=[1-9]")

    def test_all_is_well_without_a_fault(self):
        cluster = self.training(first_steps=40)
        for host in "abc":
            self.assertEqual(cluster.nodes[host].wait(60), 0, cluster.tell())
        self.assertIn("trained world=3 attempt=0", self.output(cluster))

    def test_node_2_is_killed(self):
        cluster = self.training()
        cluster.hosts.end_processes("c")
        self.trained(cluster, 2, "ab")

    def test_node_0_is_killed(self):
        cluster = self.training()
        cluster.hosts.power_off("a")
        self.trained(cluster, 2, "bc")

    def test_node_0_is_killed_and_comes_back(self):
        cluster = self.training(nnodes="3")
        cluster.hosts.power_off("a")
        cluster.hosts.heal("a")
        old = cluster.nodes["a"]
        self.addCleanup(old.close)
        self.start(cluster, "a")
        self.trained(cluster, 3, "abc")

    def test_a_node_is_cut_off(self):
        cluster = self.training(steps=200)  # it is to find the others still at it
        cluster.hosts.partition("b")
        self.reaches(cluster, "world=2 attempt=")
        cluster.hosts.heal("b")
        # It comes too late for this round; the job ends without it, well.
        self.trained(cluster, 2, "ac")
        self.assertEqual(cluster.nodes["b"].wait(30), 0, cluster.tell())


if __name__ == "__main__":
    main()
