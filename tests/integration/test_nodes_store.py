"""The workers' key-value store when the coordinator that holds it is lost: the agents replay what their workers wrote."""
import os, subprocess, time, unittest

from cluster import BIN, DEAD, LEASE, ClusterTest
from harness import main, read, until
from hosts import needs_hosts

RENDEZVOUS = os.path.join(BIN, "acc-rendezvous")
LARGE, SMALL = 120, 12_000
# Rank 1 writes more than may be queued for a peer, rank 2 more keys than a peer may send in the time after which it is lost. Then each
# looks whether the successor has them.
WORKER = f"""
import os, socket, sys, time
folder, rank = sys.argv[2], os.environ["RANK"]
agent = socket.socket(socket.AF_UNIX)
agent.connect(os.environ["ACC_AGENT_SOCKET"].replace("@", "\\0", 1))
stream = agent.makefile("rwb")
def ask(line, value=None):
    stream.write(line.encode() + b"\\n" + (value + b"\\n" if value is not None else b""))
    stream.flush()
    word, *rest = stream.readline().decode().split()
    if word != "value":
        return " ".join([word, *rest])
    value = stream.read(int(rest[0]))
    stream.read(1)
    return value
def mark(name, text=""):
    with open(os.path.join(folder, name + "." + rank + ".new"), "w") as f:
        f.write(text)
    os.rename(f.name, f.name[:-4])
def large(i):
    return b"%8d" % i * 32768
stream.write(f"hello {{rank}}\\n".encode())
if rank == "1":
    assert all(ask(f"set large/{{i}} 262144", large(i)) == "ok" for i in range({LARGE}))
if rank == "2":
    assert all(ask(f"add small/{{i}} 7") == "number 7" for i in range({SMALL}))
mark("written", os.environ["ACC_ROUND"])
while not os.path.exists(os.path.join(folder, "look")):
    time.sleep(0.05)
wrong = [i for i in range({LARGE}) if ask(f"get large/{{i}}") != large(i)] + [i for i in range(0, {SMALL}, 10) if ask(f"get small/{{i}}") != b"7"]
mark("found", str(wrong))
time.sleep(600)
"""


@needs_hosts
class LargeStore(ClusterTest):
    @unittest.skipUnless(os.access(RENDEZVOUS, os.X_OK), "no acc-rendezvous in this build")
    def test_nodes_with_much_in_the_store_were_lost_after_the_coordinator_or_it_lacked_their_keys(self):
        times = f"--dead_after {2 * DEAD:g}s --lease {6 * LEASE:g}s --join_timeout 20s --last_call 6s --grace 2s --restart_delay 0"
        cluster = self.cluster("r a b c", nnodes="3", flags="--max_restarts 5 --rdzv_conf is_host=false", times=times)
        alone = cluster.hosts.run("r", [RENDEZVOUS, "--listen", cluster.endpoint, "--secret_file", cluster.secret], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        script = os.path.join(cluster.folder, "worker.py")
        with open(script, "w") as f:
            f.write(WORKER)
        for rank, host in enumerate("abc"):  # a, which writes nothing, is the successor
            cluster.start(host, f"--node_rank {rank}", words=cluster.folder, program=[script])

        def marked(name):
            paths = [os.path.join(cluster.folder, f"{name}.{rank}") for rank in range(3)]
            return [read(path) for path in paths] if all(map(os.path.exists, paths)) else None
        cluster.wait(lambda: marked("written"), "all that the workers write", 60)
        cluster.hosts.power_off("r")
        until(lambda: any("takes over as coordinator" in cluster.nodes[host].stderr for host in "abc"), "a successor", 20)
        with open(os.path.join(cluster.folder, "look"), "w"):
            pass
        found = cluster.wait(lambda: marked("found"), "what the workers find", 60)
        self.assertEqual(found, ["[]"] * 3, cluster.tell())
        # Long enough that a node whose heartbeats wait behind its replay would be lost.
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 3 * DEAD, "the time after which a node is lost", 20)
        for host in "abc":
            self.assertNotIn(" lost: ", cluster.nodes[host].stderr, cluster.tell())
        self.stop(cluster)


if __name__ == "__main__":
    main()
