#!/usr/bin/env python3
"""test_cluster_walk.py: examples/12_cluster/README.md, typed line by line on two machines in network namespaces.

A line with a prompt (`node1# …`) is typed into that machine's shell; the lines behind it, up to the next prompt, must be among what it
prints (… stands for anything). Each command must succeed, but for one that prints its exit code itself.
"""
import os, pathlib, re, subprocess, sys, tempfile, unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import markdown
from examples_test import missing
from harness import BIN, SLACK, main, until
from hosts import Hosts, needs_hosts

PAGE = markdown.ROOT / "examples/12_cluster/README.md"


class Shell:
    """A root shell on one machine, in which a line is typed when the one before has ended."""

    def __init__(self, hosts, host, folder, env):
        self.host, self.typed, self.path = host, 0, os.path.join(hosts.folder, f"shell-{host}")
        with open(self.path, "wb") as out:
            self.process = hosts.run(host, ["bash"], cwd=folder, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)

    def type(self, line):
        """(exit code, output)"""
        self.typed += 1
        mark = f"@@ {self.typed}"
        self.process.stdin.write(f"{line}\ncode=$?; echo; echo '{mark} '$code\n")
        self.process.stdin.flush()

        def ended():
            assert self.process.poll() is None, f"the shell on {self.host} ended in: {line}\n{self.text()}"
            return re.search(rf"^{mark} (\d+)$", self.text(), re.M)
        found = until(ended, f"the end of {line!r} on {self.host}", 90)
        before = self.text()[:found.start()]
        return int(found[1]), re.split(r"^@@ \d+ \d+\n", before, flags=re.M)[-1]

    def text(self):
        return pathlib.Path(self.path).read_text(errors="replace")


def steps():
    """(line number, host, command, expected lines) of the page."""
    found = []
    for block in markdown.blocks(PAGE.read_text()):
        if block.language != "console":
            continue
        for number, line in enumerate(block.text.splitlines(), block.line):
            if typed := re.fullmatch(r"(node\d)# (.*)", line):
                found.append((number, typed[1], typed[2], []))
            else:
                found[-1][3].append(line)
    return found


@needs_hosts
class Walk(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        os.chmod(folder, 0o755)
        os.symlink(markdown.ROOT / "examples", os.path.join(folder, "examples"))
        self.hosts = self.enterContext(Hosts("node1 node2"))
        for host in self.hosts.names:
            self.hosts.hosts_entry(host, {name: self.hosts.address(name) for name in self.hosts.names})
        env = {name: value for name, value in os.environ.items() if name not in ("XDG_RUNTIME_DIR", "NOTIFY_SOCKET", "ACC_AGENT_SOCKET")}
        env |= {"PATH": f"{os.path.abspath(BIN)}:{env['PATH']}", "HOME": folder, "XDG_CONFIG_HOME": folder, "OMP_NUM_THREADS": "1"}
        self.folder = folder
        self.shells = {host: Shell(self.hosts, host, folder, env) for host in self.hosts.names}
        self.addCleanup(self.end)

    def end(self):
        for host, shell in self.shells.items():
            self.hosts.end_processes(host)
            shell.process.wait(30 * SLACK)
            shell.process.stdin.close()

    def await_daemon(self, command):
        """A reader types slower than a daemon starts."""
        socket = os.path.join(self.folder, re.search(r"--state-dir \$PWD/(\S+)", command)[1], "agent.sock")
        until(lambda: subprocess.run([os.path.join(BIN, "acc-ctl"), "--socket", socket, "ps"], capture_output=True).returncode == 0,
              f"an answer of the daemon at {socket}")

    def test_each_line_of_the_walk_does_what_the_page_shows(self):
        walked = steps()
        self.assertGreater(len(walked), 12)
        for number, host, command, expected in walked:
            code, printed = self.shells[host].type(command)
            where = f"{PAGE.name}:{number}: {host}# {command}\n{printed}"
            self.assertEqual(code, 0, where)
            self.assertEqual(missing(expected, printed.splitlines()), [], f"not printed: {where}")
            if re.match(r"acc-agent .*&$", command):
                self.await_daemon(command)
        for host in self.hosts.names:  # the page ends its daemons; their jobs are over
            until(lambda: self.hosts.processes(host) == [self.shells[host].process.pid], f"the end of all but the shell on {host}: {self.hosts.processes(host)}")


if __name__ == "__main__":
    main()
