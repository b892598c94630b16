"""A launch over a thousand hosts, played by as many small processes: what it costs the launching node, and that one bad host is named."""
import os, resource, shutil, subprocess, time, unittest

from harness import ACC, BIN, PROGRAMS, SANITIZED, SLACK, main, own_token, processes_with, until, write

FAKE_HOST = shutil.copy(os.path.join(BIN, "fake_host"), PROGRAMS.name)
FEW, MANY = (50, 200) if SANITIZED else (250, 1000)
DESCRIPTORS = 4 * MANY + 200


@unittest.skipIf(resource.getrlimit(resource.RLIMIT_NOFILE)[1] < DESCRIPTORS, f"needs {DESCRIPTORS} descriptors")
class ManyHosts(unittest.TestCase):
    def setUp(self):
        self.version = subprocess.run([ACC, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
        self.token = own_token("hosts")

    def launch(self, hosts, agent=None):
        """(exit code, stderr, seconds of processor time of all, seconds)"""
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run([ACC, "--hosts", f"n[1-{hosts}]:1", "--launch_agent", agent or f"{FAKE_HOST} {self.version}", "--cpu", "--no_python", "true", self.token],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120 * SLACK)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        until(lambda: not processes_with(self.token), "the end of all processes")
        return done.returncode, done.stderr, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.monotonic() - began

    def test_the_cost_of_a_host_does_not_grow_with_their_number(self):
        costs = {FEW: [], MANY: []}
        for turn in range(6):  # what else the machine does costs processor time, too: the least of some
            for hosts, found in costs.items():
                code, said, processor, seconds = self.launch(hosts)
                self.assertEqual((code, said), (0, ""))
                found.append((processor / hosts, seconds))
            few, many = min(costs[FEW]), min(costs[MANY])
            if turn >= 2 and many[0] < 1.5 * few[0]:
                break
        print(f"{FEW} hosts: {few[0] * 1e3:.2f} ms of processor time each, {few[1]:.2f} s; {MANY} hosts: {many[0] * 1e3:.2f} ms each, {many[1]:.2f} s")
        self.assertLess(many[0], 1.5 * few[0])

    def test_one_bad_host_of_many_is_named_and_nothing_was_started(self):
        agent = os.path.join(PROGRAMS.name, f"agent{os.getpid()}.sh")
        bad = MANY // 2 + 7
        write(agent, f'#!/bin/sh\n[ "$1" != n{bad} ] || {{ echo "no such disk" >&2; exit 4; }}\nexec {FAKE_HOST} {self.version} "$@"\n', 0o755)
        code, said, _, _ = self.launch(MANY, agent)
        self.assertEqual(code, 1, said)
        self.assertRegex(said, rf"^acc-launch: \d+ of {MANY} hosts can't take part, so nothing was started:\n  n{bad}: .*no such disk")
        for line in said.splitlines()[2:]:  # of hosts that a busy machine hasn't come to by then
            self.assertIn(": no answer yet: ", line)


if __name__ == "__main__":
    main()
