"""The test tools themselves: hosts in namespaces do what their names say."""
import os, subprocess, sys, unittest

from harness import PATIENCE, main, until
from hosts import Hosts, NETNS, needs_hosts, processes_in

ECHO = """
import socket, threading
def serve(c):
    try:
        while data := c.recv(4096): c.sendall(data)
    except OSError: pass
s = socket.create_server(("::", 5000), family=socket.AF_INET6, dualstack_ipv6=True)
print("up", flush=True)
while True: threading.Thread(target=serve, args=(s.accept()[0],), daemon=True).start()
"""
# Says a word, waits for its echo, for each line that it reads: so many seconds; "silence" after that.
TALK = """
import socket, sys
c = socket.create_connection((sys.argv[1], 5000), 5)
print("connected", flush=True)
for line in sys.stdin:
    try:
        c.settimeout(float(line))
        c.sendall(b"word")
        print("echo" if c.recv(4096) else "closed", flush=True)
    except socket.timeout: print("silence", flush=True)
    except OSError as e: print(type(e).__name__, flush=True)
"""

# ping.py ADDRESS COUNT SIZE SECONDS: the milliseconds of each echo that came back within so many seconds.
PING = """
import os, socket, struct, sys, time
family, _, _, _, to = socket.getaddrinfo(sys.argv[1], None, type=socket.SOCK_RAW)[0]
v6 = family == socket.AF_INET6
s = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_ICMPV6 if v6 else socket.IPPROTO_ICMP)
mine = os.getpid() & 0xffff
def checksum(b):
    n = sum(struct.unpack(f"!{len(b) // 2}H", b))
    while n >> 16: n = (n & 0xffff) + (n >> 16)
    return ~n & 0xffff
for i in range(int(sys.argv[2])):
    body = bytes(int(sys.argv[3]))
    packet = struct.pack("!BBHHH", 128 if v6 else 8, 0, 0, mine, i) + body
    if not v6: packet = struct.pack("!BBHHH", 8, 0, checksum(packet), mine, i) + body
    start = time.monotonic()
    try:
        s.sendto(packet, to)
        while True:  # what has come is taken, however late this process gets to it
            s.settimeout(max(start + float(sys.argv[4]) - time.monotonic(), 0.001))
            answer = s.recv(65536)
            answer = answer if v6 else answer[20:]
            if answer[0] == (129 if v6 else 0) and struct.unpack("!HH", answer[4:8]) == (mine, i):
                print(1000 * (time.monotonic() - start), flush=True)
                break
    except OSError:
        pass
"""


class Talker:
    def __init__(self, test, hosts, host, address):
        self.process = hosts.run(host, [sys.executable, "-c", TALK, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        test.addCleanup(self.process.communicate)
        test.addCleanup(self.process.kill)
        self.first = self.process.stdout.readline().strip() or self.process.stderr.read().strip().splitlines()[-1]

    def say(self, patience=10 * PATIENCE):
        """What comes back; a machine that stands still for a moment is no silence."""
        self.process.stdin.write(f"{patience}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@needs_hosts
class HostsTest(unittest.TestCase):
    def setUp(self):
        self.hosts = Hosts("a b c")
        self.addCleanup(self.hosts.close)

    def ping(self, host, to, count=1, size=0, seconds=2.0):
        """How many come back, and the shortest round trip in milliseconds."""
        times = [float(line) for line in self.hosts.output(host, sys.executable, "-c", PING, to, str(count), str(size), str(seconds)).split()]
        return len(times), min(times, default=None)

    def echo_on(self, host):
        server = self.hosts.run(host, [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertEqual(server.stdout.readline(), "up\n")

    def talk(self, host, to):
        return Talker(self, self.hosts, host, to)

    def test_hosts_reach_each_other_and_have_their_own_names_and_loopback(self):
        for to in (self.hosts.address("b"), self.hosts.address6("c")):
            self.assertEqual(self.ping("a", to)[0], 1)
        self.assertEqual(self.hosts.output("b", "hostname"), "b\n")
        self.echo_on("a")
        self.assertEqual(self.talk("a", "127.0.0.1").first, "connected")
        self.assertIn("refused", self.talk("b", "127.0.0.1").first.lower())

    def test_a_partition_cuts_all_or_one_pair_or_one_direction_and_heals(self):
        a, b = self.hosts.address("a"), self.hosts.address("b")
        self.hosts.partition("b")
        self.assertEqual(self.ping("a", b)[0], 0)
        self.assertEqual(self.ping("b", "127.0.0.1")[0], 1)
        self.assertEqual(self.ping("a", self.hosts.address("c"))[0], 1)
        self.hosts.heal("b")
        self.assertEqual(self.ping("a", b)[0], 1)
        self.hosts.partition_between("a", "b")
        self.assertEqual((self.ping("b", a)[0], self.ping("b", self.hosts.address("c"))[0]), (0, 1))
        self.assertEqual(self.ping("b", self.hosts.address6("a"))[0], 0)
        self.hosts.heal()
        for way in ("in", "out"):
            self.echo_on("b") if way == "in" else None
            talker = self.talk("a", b)
            self.assertEqual(talker.say(), "echo")
            self.hosts.partition("b", way)
            self.assertEqual(talker.say(3), "silence")
            self.hosts.heal("b")

    def test_a_frozen_connection_is_silent_while_new_ones_work(self):
        self.echo_on("a")
        for address in (self.hosts.address("a"), self.hosts.address6("a")):
            old = self.talk("b", address)
            self.assertEqual(old.say(), "echo")
            self.assertGreaterEqual(self.hosts.drop_established("b"), 1)
            self.assertEqual(old.say(3), "silence")
            self.assertEqual(self.talk("b", address).say(), "echo")
            self.hosts.heal("b")

    def test_connections_are_reset_and_refused(self):
        self.echo_on("a")
        talker = self.talk("b", self.hosts.address("a"))
        self.assertEqual(talker.say(), "echo")
        self.hosts.reset_connections("b", "a")
        self.assertIn(talker.say(), ("ConnectionAbortedError", "ConnectionResetError", "BrokenPipeError"))
        self.hosts.reject("a", 5000)
        self.assertIn("refused", self.talk("b", self.hosts.address("a")).first.lower())
        self.hosts.reject("a", 5000, "silent")
        self.assertIn("timed out", self.talk("b", self.hosts.address("a")).first.lower())

    def test_packets_are_lost(self):
        self.hosts.loss("b", 50)
        came, _ = self.ping("a", self.hosts.address("b"), 40, seconds=0.3)
        self.assertTrue(1 <= came <= 27, came)  # a quarter of them: 10

    def test_a_line_is_slow_and_fast_again_while_connections_live(self):
        self.echo_on("a")
        talker = self.talk("b", self.hosts.address("a"))
        self.assertEqual(talker.say(), "echo")
        self.hosts.slow("b", 50, jitter_ms=2)
        # The relay is a process, and ping.py is another: the quickest of some, each with the time that a busy machine takes.
        came, fastest = self.ping("b", self.hosts.address("a"), 12, seconds=10 * PATIENCE)
        self.assertEqual(came, 12)
        self.assertGreaterEqual(fastest, 100)
        self.assertLess(fastest, 200)
        self.assertEqual(talker.say(), "echo")
        self.hosts.fast("b")
        self.assertLess(self.ping("b", self.hosts.address("a"), 50)[1], 20)
        self.assertEqual(talker.say(), "echo")

    def test_a_line_is_thin(self):
        self.hosts.slow("b", 0, mbit=1)
        came, fastest = self.ping("b", self.hosts.address("a"), size=8000, seconds=10 * PATIENCE)
        self.assertEqual(came, 1)
        self.assertGreater(fastest, 125)  # 16,000 bytes at a megabit

    def test_a_link_goes_down_and_comes_up(self):
        self.hosts.link("b", False)
        self.assertEqual(self.ping("a", self.hosts.address("b"))[0], 0)
        self.hosts.link("b", True)
        until(lambda: self.ping("a", self.hosts.address("b"))[0] == 1, "the link")
        until(lambda: self.ping("a", self.hosts.address6("b"))[0] == 1, "the link, v6")

    def test_a_host_knows_names(self):
        self.hosts.hosts_entry("a", {"nodeb": self.hosts.address("b")})
        self.assertEqual(self.ping("a", "nodeb")[0], 1)
        with open("/etc/hosts") as f:
            self.assertNotIn("nodeb", f.read())

    def test_a_host_dies_in_silence(self):
        self.echo_on("b")
        talker = self.talk("a", self.hosts.address("b"))
        self.assertEqual(talker.say(), "echo")
        self.hosts.power_off("b")
        self.assertEqual(self.hosts.processes("b"), [])
        self.assertEqual(talker.say(3), "silence")


@needs_hosts
class Housekeeping(unittest.TestCase):
    def test_five_hosts_come_and_go(self):
        hosts = Hosts("a b c d e")
        namespaces = [hosts.namespace(name) for name in "abcde"]
        self.assertEqual([name for name in namespaces if not os.path.exists(f"{NETNS}/{name}")], [])
        hosts.close()
        self.assertEqual([name for name in namespaces if os.path.exists(f"{NETNS}/{name}")], [])

    def test_what_a_killed_test_left_is_removed_by_the_next(self):
        child = subprocess.run([sys.executable, "-c", "import os, signal; from hosts import Hosts; h = Hosts('a b'); h.run('a', ['sleep', '1000'], stdout=-3, stderr=-3); "
                                "print(h.namespace('a'), flush=True); os.kill(os.getpid(), signal.SIGKILL)"],
                               capture_output=True, text=True, timeout=60, cwd=os.path.dirname(os.path.abspath(__file__)))
        left = child.stdout.strip()
        # A test that begins beside this one removes it as well.
        until(lambda: processes_in(left) or not os.path.exists(f"{NETNS}/{left}"), "the sleeper")
        Hosts("x").close()
        self.assertFalse(os.path.exists(f"{NETNS}/{left}"))


if __name__ == "__main__":
    main()
