"""Five hosts with an acc-agent each, their state on a small disk of its own, and a client that tells what it knows of an answer."""
import contextlib, json, os, re, shutil, socket, subprocess, tempfile

import harness
from harness import ACC, BIN, PROGRAMS, SLACK, read, write
from hosts import Hosts
from test_agent_cluster import PORT, NodeDaemon

CTL = shutil.copy(os.path.join(BIN, "acc-ctl"), PROGRAMS.name)
HISTORY = shutil.copy(os.path.join(BIN, "history_worker"), PROGRAMS.name)
USERS = {"root": 0, "alice": 1001, "bob": 1002}
DISK = 16  # MiB of each host
SLOTS = 20
SENT = "sent, and no answer"  # the request may have been carried out


class Answer:
    def __init__(self, status, body):
        self.status, self.body = status, body

    @property
    def json(self):
        try:
            return json.loads(self.body)
        except ValueError:
            return {}

    @property
    def is_unknown(self):
        """As for a caller of the API: the other node, or the daemon that was to pass it on, may have carried it out."""
        return self.status == 0 or self.status >= 500


def ask(path, method, target, body=None, timeout=12.0):
    """None: it can't have arrived."""
    text = json.dumps(body).encode() if body is not None else b""
    head = f"{method} {target} HTTP/1.1\r\nHost: acc\r\nConnection: close\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n"
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(timeout * SLACK)
        try:
            line.connect(path)
        except OSError:
            return None
        got = b""
        try:
            line.sendall(head.encode() + b"\r\n" + text)
            while more := line.recv(65536):
                got += more
        except OSError:
            pass
    head, mark, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"(?im)^content-length: *(\d+)", head)
    if re.search(rb"(?im)^transfer-encoding: *chunked", head):  # what another node said
        body, is_whole = whole_of(body)
        mark = mark if is_whole else b""
    if not mark or (length and len(body) < int(length[1])):
        return Answer(0, SENT)
    return Answer(int(head.split()[1]), body.decode(errors="replace"))


def whole_of(chunks):
    """(body, whether its last chunk is there)"""
    body = b""
    while True:
        size, mark, rest = chunks.partition(b"\r\n")
        if not mark or len(rest) < int(size, 16) + 2:
            return body, False
        if int(size, 16) == 0:
            return body, True
        body, chunks = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]


class Service:
    def __init__(self, names):
        self.hosts = Hosts(names)
        self.folder = tempfile.mkdtemp(prefix="acc-service-")
        os.chmod(self.folder, 0o755)
        self.diaries = os.path.join(self.folder, "diaries")
        os.mkdir(self.diaries)
        self.disks, self.daemons = {}, {}
        self.logs = []
        addresses = {name: self.hosts.address(name) for name in self.hosts.names}
        users = os.path.join(self.folder, "passwd")
        write(users, "".join(f"{name}:x:{uid}:{uid}::/:/bin/sh\n" for name, uid in USERS.items()))
        self.secret = os.path.join(self.folder, "secret")
        subprocess.run([ACC, "--make_secret", self.secret], check=True, capture_output=True)
        for name in self.hosts.names:
            self.hosts.hosts_entry(name, addresses)
            self.hosts.etc[name]["/etc/passwd"] = users
            disk = os.path.join(self.folder, name)
            os.mkdir(disk, 0o755)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}m,mode=755", "acc-chaos", disk], check=True)
            self.disks[name] = disk

    # ---- daemons ----
    def start(self, host):
        self.daemons[host] = NodeDaemon(self.hosts, host, self.folder, "--slots", str(SLOTS), "--secret-file", self.secret, "--listen", str(PORT))
        self.logs.append((host, self.daemons[host].log_path))

    def path(self, host):
        return os.path.join(self.folder, host, "agent.sock")

    def lives(self, host):
        return host in self.daemons and self.daemons[host].process.poll() is None

    def answers(self, host):
        answer = ask(self.path(host), "GET", "/healthz", timeout=2)
        return answer is not None and answer.status == 200

    def jobs(self, host):
        """All that it knows, or None."""
        answer = ask(self.path(host), "GET", "/v1/jobs")
        return answer.json.get("jobs") if answer is not None and answer.status == 200 else None

    # ---- disks ----
    def fill(self, host):
        with contextlib.suppress(OSError), open(os.path.join(self.disks[host], "filler"), "wb", buffering=0) as file:
            size = 1 << 20
            while size:
                try:
                    file.write(b"x" * size)
                except OSError:
                    size //= 4
        return os.statvfs(self.disks[host]).f_bavail

    def empty(self, host):
        with contextlib.suppress(FileNotFoundError):
            os.remove(os.path.join(self.disks[host], "filler"))

    # ---- processes ----
    def with_token(self, host, token):
        """{pid: words} of the processes of a task on a host. Shells of nsenter and the daemon itself aren't among them."""
        here = set(self.hosts.processes(host))
        return {pid: words for pid, words in harness.processes_with(token).items() if pid in here}

    def run(self, host, command, **options):
        return self.hosts.run(host, command, **options)

    def left(self):
        """Processes on any host, besides the daemons."""
        own = {daemon.pid for daemon in self.daemons.values()}
        found = {}
        for host in self.hosts.names:
            for pid in self.hosts.processes(host):
                if pid not in own and harness.state_of(pid) not in (None, "Z", "X"):
                    with contextlib.suppress(OSError):
                        found[pid] = f"{host}: " + read(f"/proc/{pid}/cmdline").replace("\0", " ")
        return found

    def close(self):
        self.hosts.close()
        for disk in self.disks.values():
            subprocess.run(["umount", "-l", disk], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
