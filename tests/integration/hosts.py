"""Hosts on one machine: network namespaces on a bridge, and the faults that networks have. Standard library only.

    with Hosts("a b c") as hosts:
        hosts.run("a", ["ping", "-c1", hosts.address("b")])
        hosts.partition("b")

Every host has its own network, host name and loopback, 10.77.0.N and fd77::N; its processes are found by their namespace.
Names carry our pid: what a killed test left behind is removed by the next one. Needs root, ip and nft.
"""
import contextlib, os, re, shutil, signal, subprocess, sys, tempfile, time, unittest

from harness import PATIENCE, until

NETNS = "/run/netns"
RELAY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow_link.py")


def why_not():
    """Why hosts can't be made here; empty if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [program for program in ("ip", "nft", "ss", "nsenter", "unshare") if not shutil.which(program)]
    if missing:
        return f"not installed: {' '.join(missing)} (Debian: iproute2 nftables util-linux)"
    trial = f"acc{os.getpid()}x0-trial"
    made = subprocess.run(["ip", "netns", "add", trial], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    try:
        rules = subprocess.run(["ip", "netns", "exec", trial, "nft", "add table inet t"], capture_output=True, text=True)
        return f"no nftables here: {rules.stderr.strip()}" if rules.returncode else ""
    finally:
        subprocess.run(["ip", "netns", "del", trial], check=True)


def check(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=30 * PATIENCE)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}\n{text or ''}")
    return done.stdout


def processes_in(namespace):
    try:
        inode = os.stat(f"{NETNS}/{namespace}").st_ino
    except OSError:
        return []
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}/ns/net").st_ino == inode:
                found.append(int(pid))
    return found


def end_namespace(namespace, deadline=5.0):
    """Kills all that runs in it, again until nothing does, and removes it."""
    end = time.monotonic() + deadline * PATIENCE
    while pids := processes_in(namespace):
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGCONT)
        if time.monotonic() > end:
            raise AssertionError(f"processes {pids} survive SIGKILL")
        time.sleep(0.002)


def sweep():
    """Removes what tests left whose process is gone."""
    if not os.path.isdir(NETNS):
        return
    for name in os.listdir(NETNS):
        owner = re.match(r"acc(\d+)x", name)
        if owner and not os.path.exists(f"/proc/{owner[1]}"):
            end_namespace(name)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Hosts:
    counter = 0

    def __init__(self, names):
        sweep()
        Hosts.counter += 1
        self.names = names.split() if isinstance(names, str) else list(names)
        self.prefix = f"acc{os.getpid()}x{Hosts.counter}-"
        self.hub = self.prefix + "hub"
        self.relays, self.etc, self.tables = {}, {}, {name: set() for name in self.names}
        self.folder = tempfile.mkdtemp(prefix="acc-hosts-")
        os.chmod(self.folder, 0o755)
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def _make(self):
        every = [self.hub] + [self.namespace(name) for name in self.names]
        for namespace in every:
            check("ip", "netns", "add", namespace)
        links = ["link set lo up", "link add br0 type bridge mcast_snooping 0", "link set br0 up"]
        for i, name in enumerate(self.names):
            links += [f"link add v{i} type veth peer name eth0 netns {self.namespace(name)}", f"link set v{i} master br0 up"]
        check("ip", "-n", self.hub, "-batch", "-", text="\n".join(links) + "\n")
        for i, name in enumerate(self.names):
            check("ip", "-n", self.namespace(name), "-batch", "-", text=f"link set lo up\nlink set eth0 up\n"
                  f"addr add 10.77.0.{i + 1}/24 dev eth0\naddr add fd77::{i + 1}/64 dev eth0 nodad\n")
        # The kernel opens a link some time after both ends are up: for seconds, where other tests make theirs, it drops what is sent.
        for namespace in every:
            until(lambda: all("state UP" in link for link in check("ip", "-n", namespace, "-o", "link", "show", "type", "veth").splitlines()),
                  f"open links in {namespace}")

    # ---- who is where ----
    def namespace(self, host):
        return self.prefix + host

    def address(self, host):
        return f"10.77.0.{self.names.index(host) + 1}"

    def address6(self, host):
        return f"fd77::{self.names.index(host) + 1}"

    def wrap(self, host):
        """A command prefix that runs the rest on that host, with its host name and files of /etc. The process stays the same."""
        binds = " && ".join(f"mount --bind {ours} {theirs}" for theirs, ours in self.etc.get(host, {}).items()) or "true"
        return ["nsenter", f"--net={NETNS}/{self.namespace(host)}", "unshare", "--uts", *(["--mount"] if host in self.etc else []),
                "sh", "-c", f'{binds} && hostname "$0" && exec "$@"', host]

    def run(self, host, command, **options):
        return subprocess.Popen([*self.wrap(host), *command], **options)

    def output(self, host, *command, text=None):
        return check(*self.wrap(host), *command, text=text)

    def _on(self, namespace, *command, text=None):
        return check("nsenter", f"--net={NETNS}/{namespace}", *command, text=text)

    def processes(self, host):
        return processes_in(self.namespace(host))

    def hosts_entry(self, host, entries, resolver="127.0.0.1"):
        """What `host` knows of names: {"nodeb": address}. Holds for what is started later. Nobody answers at `resolver`."""
        texts = {"/etc/hosts": "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in entries.items()),
                 "/etc/resolv.conf": f"nameserver {resolver}\noptions timeout:1 attempts:1\n"}
        self.etc[host] = {}
        for theirs, text in texts.items():
            ours = os.path.join(self.folder, f"{host}.{os.path.basename(theirs)}")
            with open(ours, "w") as f:
                f.write(text)
            self.etc[host][os.path.realpath(theirs)] = ours

    # ---- faults: rules of the host's own firewall, each in a table of its own; loopback is never touched ----
    def _rules(self, host, table, incoming=(), outgoing=()):
        text = f"add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n"
        for hook, side, rules in (("input", "iifname", incoming), ("output", "oifname", outgoing)):
            if rules:
                text += f" chain {hook} {{ type filter hook {hook} priority 0;\n" + "".join(f'  {side} != "lo" {rule}\n' for rule in rules) + " }\n"
        self._on(self.namespace(host), "nft", "-f", "-", text=text + "}\n")
        self.tables[host].add(table)

    def partition(self, host, way="both"):
        """No packet comes in, goes out, or both. Nobody gets a reset."""
        self._rules(host, "cut", ["drop"] if way in ("both", "in") else [], ["drop"] if way in ("both", "out") else [])

    def partition_between(self, one, other):
        theirs = self.address(other), self.address6(other)
        self._rules(one, f"cut_{other}", [f"ip saddr {theirs[0]} drop", f"ip6 saddr {theirs[1]} drop"],
                    [f"ip daddr {theirs[0]} drop", f"ip6 daddr {theirs[1]} drop"])

    def slow_between(self, sender, receiver, kbytes=500):
        """What goes from the one to the other, and that alone, is dropped above so many KiB in a second."""
        self._rules(receiver, f"slow_{sender}", [f"{ip} saddr {address} limit rate over {kbytes} kbytes/second drop"
                                                 for ip, address in (("ip", self.address(sender)), ("ip6", self.address6(sender)))])

    def loss(self, host, percent):
        """That share of the packets is lost on the way in, and again on the way out."""
        self._rules(host, "loss", *[[f"numgen random mod 100 < {percent} drop"]] * 2)

    def drop_established(self, host):
        """Connections that live now are silent from now on; new ones work: half-open TCP."""
        quads = []
        for line in self._on(self.namespace(host), "ss", "-tnH", "state", "established").splitlines():
            local, peer = line.split()[2:4]
            (ours, port), (theirs, other) = (end.rsplit(":", 1) for end in (local, peer))
            ours, theirs = ours.strip("[]"), theirs.strip("[]")
            if ours.startswith("::ffff:"):
                ours, theirs = ours[7:], theirs[7:]
            quads.append(("ip6" if ":" in ours else "ip", ours, port, theirs, other))
        self._rules(host, "frozen", [f"{ip} saddr {theirs} {ip} daddr {ours} tcp sport {other} tcp dport {port} drop" for ip, ours, port, theirs, other in quads],
                    [f"{ip} saddr {ours} {ip} daddr {theirs} tcp sport {port} tcp dport {other} drop" for ip, ours, port, theirs, other in quads])
        return len(quads)

    def reject(self, host, port, way="reset"):
        """The host's firewall refuses connections to that port: with a reset, an ICMP message, or in silence."""
        verdict = {"reset": "reject with tcp reset", "icmp": "reject", "silent": "drop"}[way]
        self._rules(host, f"wall_{port}", [f"tcp dport {port} {verdict}"])

    def reset_connections(self, host, peer=None):
        self._on(self.namespace(host), "ss", "-tK", "state", "established", *(["dst", self.address(peer)] if peer else []))

    def link(self, host, up):
        text = f"link set eth0 {'up' if up else 'down'}\n"
        if up:  # the kernel drops a v6 address with the link
            text += f"addr replace {self.address6(host)}/64 dev eth0 nodad\n"
        check("ip", "-n", self.namespace(host), "-batch", "-", text=text)

    def slow(self, host, delay_ms=0, **how):
        """A slow line between the host and all others; living connections go on. how: jitter_ms, loss (percent), mbit, duplicate
        (percent), reorder (percent). All hold in each direction."""
        self.fast(host)
        i = self.names.index(host)
        relay = subprocess.Popen(["nsenter", f"--net={NETNS}/{self.hub}", sys.executable, RELAY, f"near{i}", f"far{i}", f"delay_ms={delay_ms}",
                                  *(f"{key}={value}" for key, value in how.items())], stdout=subprocess.PIPE, text=True)
        self.relays[host] = relay
        if relay.stdout.readline().strip() != "ready":
            raise AssertionError(f"the relay of {host} did not start")
        check("ip", "-n", self.hub, "-batch", "-", text=f"link add slow{i} type bridge mcast_snooping 0\nlink set slow{i} up\n"
              f"link set near{i} master slow{i} up\nlink set far{i} master br0 up\nlink set v{i} master slow{i}\n")

    def fast(self, host):
        relay = self.relays.pop(host, None)
        if relay is None:
            return
        i = self.names.index(host)
        check("ip", "-n", self.hub, "-batch", "-", text=f"link set v{i} master br0\nlink del slow{i}\n")
        relay.kill()
        relay.wait()
        relay.stdout.close()

    def heal(self, host=None):
        """Takes all faults back: rules, slow lines, links."""
        for name in [host] if host else self.names:
            for table in self.tables[name]:
                self._on(self.namespace(name), "nft", f"delete table inet {table}")
            self.tables[name].clear()
            self.fast(name)
            self.link(name, True)

    def power_off(self, host):
        """All of the host's processes die at once, and nobody hears of it: no reset goes out."""
        self.partition(host)
        end_namespace(self.namespace(host))

    def end_processes(self, host):
        end_namespace(self.namespace(host))

    # ---- end ----
    def close(self):
        for relay in self.relays.values():
            relay.kill()
            relay.communicate()
        self.relays.clear()
        for namespace in [self.namespace(name) for name in self.names] + [self.hub]:
            if os.path.exists(f"{NETNS}/{namespace}"):
                end_namespace(namespace)
                check("ip", "netns", "del", namespace)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


WHY_NOT = why_not()
needs_hosts = unittest.skipIf(WHY_NOT, WHY_NOT)
