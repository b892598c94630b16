"""The output of a launch through daemons: four workers' lines on another node reach a pipe and a terminal here, whole."""
import json, os, pty, re, subprocess, threading, time

from harness import PATIENCE, SANITIZED, main, processes_with, read, until
from hosts import needs_hosts
from test_cluster_launch import OnDaemons

LINES = 20_000 if SANITIZED else 200_000
# Of each process, all in all: its queues among it; socket buffers are the kernel's.
MOST_KIB = 20 << 10


class Gathered(threading.Thread):
    """Reads a descriptor to its end, but for the times when it pauses."""

    def __init__(self, fd):
        super().__init__(daemon=True)
        self.fd, self.pieces, self.may_read = fd, [], threading.Event()

    def run(self):
        while True:
            self.may_read.wait()
            try:
                piece = os.read(self.fd, 1 << 18)
            except OSError:  # a terminal whose last user is gone
                piece = b""
            if not piece:
                return
            self.pieces.append(piece)

    def text(self):
        return b"".join(self.pieces).decode()


def rss_kib(pid):
    try:
        found = re.search(r"VmRSS:\s+(\d+)", read(f"/proc/{pid}/status"))
    except OSError:
        return 0
    return int(found[1]) if found else 0


@needs_hosts
class Output(OnDaemons):
    def assert_whole(self, text, lines=LINES):
        by_rank = {rank: [] for rank in range(4)}
        for line in text.splitlines():
            found = re.fullmatch(r"\[default(\d)\]:line (\d) (\d+)", line)
            self.assertTrue(found and found[1] == found[2], f"a torn line: {line!r}")
            by_rank[int(found[1])].append(int(found[3]))
        for rank, numbers in by_rank.items():
            self.assertTrue(numbers == list(range(lines)), f"rank {rank}: {len(numbers)} lines, the last {numbers[-1:]}")

    def into(self, fd, taken, words=f"lines={LINES}"):
        """A job of four workers on b whose command, on a, writes to `taken`; read from `fd`."""
        self.begin("a b")
        gathered = Gathered(fd)
        job = self.launch(words, "b:4", stdout=taken)
        os.close(taken)
        gathered.start()
        return job, gathered

    def test_four_workers_lines_reach_a_pipe_on_another_node_whole(self):
        job, gathered = self.into(*os.pipe())
        gathered.may_read.set()
        self.ends(job, 0, 120)
        gathered.join(20 * PATIENCE)
        self.assert_whole(gathered.text())
        self.assertEqual(job.stderr, "")
        print(f"{4 * LINES} lines in {job.seconds:.2f} s with start and end: {4 * LINES / job.seconds:,.0f} a second")

    def test_four_workers_lines_reach_a_terminal_on_another_node_whole(self):
        job, gathered = self.into(*pty.openpty())
        gathered.may_read.set()
        self.ends(job, 0, 120)
        gathered.join(20 * PATIENCE)
        self.assert_whole(re.sub("\x1b\\[[0-9;]*m", "", gathered.text()).replace("\r\n", "\n"))
        print(f"{4 * LINES} lines in {job.seconds:.2f} s with start and end: {4 * LINES / job.seconds:,.0f} a second")

    def test_a_reader_that_stops_costs_bounded_memory_on_each_hop_and_gets_all(self):
        job, gathered = self.into(*os.pipe(), words=f"mark=up lines={LINES}")
        job.wait_events("up", 4, 20)
        daemons = {f"the daemon on {host}": daemon.pid for host, daemon in self.nodes.items()}

        def all_pids():
            return {**daemons, **{f"{pid} {words[-60:]}": pid for pid, words in processes_with(job.token).items()}}

        def written():
            total = 0
            for pid in all_pids().values():
                try:
                    total += int(re.search(r"wchar: (\d+)", read(f"/proc/{pid}/io"))[1])
                except (OSError, TypeError):
                    pass
            return total

        def stands_still():
            before = written()
            time.sleep(0.3)
            return written() - before < 4000  # heartbeats go on
        until(stands_still, "the end of all movement", 60)
        sizes = {name: rss_kib(pid) for name, pid in all_pids().items()}
        if not SANITIZED:
            self.assertEqual({name: size for name, size in sizes.items() if size > MOST_KIB}, {}, sizes)
        self.assertIsNone(job.process.poll())
        gathered.may_read.set()
        self.ends(job, 0, 120)
        gathered.join(20 * PATIENCE)
        self.assert_whole(gathered.text())
        print("; ".join(f"{name}: {size} KiB" for name, size in sizes.items()))


@needs_hosts
class FullDisk(OnDaemons):
    """The daemon of one node has its files on a disk that becomes full."""
    def test_lines_that_a_node_lost_were_missing_without_a_word(self):
        state = os.path.join(self.folder, "b")
        os.mkdir(state, 0o755)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "acc-full", state], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", state], check=True)
        self.begin("a b")
        file = os.path.join(self.folder, "report.json")
        job = self.launch("lines=200000", "a:1,b:1", f"--report {file}")
        self.assertEqual(job.wait(60), 0, job.stderr)
        told = re.search(r"^acc-launch: warning: (\d+) lines of stdout were lost on b \(No space left on device\)$", job.stderr, re.M)
        self.assertTrue(told, job.stderr)
        losses = {one["where"]: one for one in json.loads(read(file))["losses"]}
        self.assertEqual(losses["b: stdout"]["lines"], int(told[1]), losses)
        self.assertEqual(losses["b: stdout"]["why"], "No space left on device")


if __name__ == "__main__":
    main()
