# How the preloader forks workers: the second file of its archive (preloader.py is the first).
#
# The workers of a round are a set. Its maker, a child of the preloader, forks as many as the agent
# asks for, ahead of the round or at its start; they wait for an order each, from a socket that is the
# set's own. With its order a worker has its environment and descriptors; it waits at the gate, its
# maker ends, and it is a child of the agent.
import os
import sys

GATE_WORD = 8  # bytes: the end of the lease in nanoseconds of CLOCK_BOOTTIME, 0: none
ASK_WORD = 4  # bytes: how many workers the set is to have
AT_ONCE = 1 << 31  # with that number: their orders wait for them
LARGEST_MESSAGE = 1 << 18
MOST_FDS = 8
PMI_FD = 3


class Borrowed:
    """Imports a module of the standard library for our own use: a worker finds sys.modules without it."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.before = set(sys.modules)
        return __import__(self.name)

    def __exit__(self, *_):
        for name in set(sys.modules) - self.before:
            del sys.modules[name]


with Borrowed("_ctypes") as _c:
    _prctl = _c.dlsym(_c.dlopen(None, 2), "prctl")
    _madvise = _c.dlsym(_c.dlopen(None, 2), "madvise")
    _call = _c.call_function

    class _Word(_c._SimpleCData):
        _type_ = "P"  # a number goes as an int otherwise

with Borrowed("time") as _time:
    clock_gettime_ns = _time.clock_gettime_ns
    CLOCK_BOOTTIME = _time.CLOCK_BOOTTIME
with Borrowed("select") as _select:
    _poll, POLLIN = _select.poll, _select.POLLIN


class Channel:
    """A SOCK_SEQPACKET socket. Uses the C module alone, as `socket` would import a dozen others."""

    with Borrowed("_socket") as c:
        pass

    def __init__(self, fd):
        self.fd = fd
        self.socket = self.c.socket(self.c.AF_UNIX, self.c.SOCK_SEQPACKET, 0, fd)
        self.socket.setblocking(True)

    def send(self, *fields):
        data = b"\0".join(f if isinstance(f, bytes) else str(f).encode("utf-8", "surrogateescape") for f in fields)
        try:
            self.socket.send(data[: LARGEST_MESSAGE // 2], self.c.MSG_NOSIGNAL)
        except OSError:
            os._exit(0)  # the agent is gone

    def receive(self):
        """The fields of one message and its descriptors; ends the process when the agent is gone."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                LARGEST_MESSAGE, self.c.CMSG_SPACE(MOST_FDS * 4), self.c.MSG_CMSG_CLOEXEC)
        except OSError:
            os._exit(0)
        if not data:
            os._exit(0)
        fds = []
        for level, kind, body in ancillary:
            if level == self.c.SOL_SOCKET and kind == self.c.SCM_RIGHTS:
                fds += [int.from_bytes(body[i : i + 4], sys.byteorder) for i in range(0, len(body) // 4 * 4, 4)]
        return data.split(b"\0"), fds

    def close(self):
        self.socket.detach()
        os.close(self.fd)


def resident_bytes():
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * 4096


def own_bytes():
    """Memory that this process shares with no other: what one more of its kind costs."""
    total = 0
    with open("/proc/self/smaps_rollup", "rb") as lines:
        for line in lines:
            if line.startswith(b"Private_Dirty:"):
                total += int(line.split()[1]) * 1024
    return total


def end_with_parent(parent):
    """SIGKILL when it ends; 0: no longer."""
    if _call(_prctl, (1, 9 if parent else 0)) != 0:  # PR_SET_PDEATHSIG
        os._exit(127)
    if parent and os.getppid() != parent:
        os._exit(127)


def close_all(fds):
    for fd in fds:
        os.close(fd)


class WrittenPages:
    """The pages that a running worker has copied or read since its fork: its successor, forked from the same process, needs the same
    ones, and copies them while it waits. Whatever is missing here costs time and nothing else."""

    MOST = 16 << 20  # bytes that are copied
    PRESENT, OF_FILE, EXCLUSIVE = 1 << 63, 1 << 61, 1 << 56  # Documentation/admin-guide/mm/pagemap.rst
    READ, WRITE = 22, 23  # MADV_POPULATE_…, Linux 5.14

    def __init__(self, example):
        self.page = os.sysconf("SC_PAGESIZE")
        self.left = self.MOST // self.page
        self.ranges = []  # address, bytes, advice
        try:
            self.learn(example)
        except OSError:
            pass  # it has ended, or may not be looked at

    def learn(self, example):
        with open("/proc/%d/pagemap" % example, "rb", 0) as pagemap, open("/proc/self/maps", "rb") as maps:
            for line in maps.read().splitlines():
                span, rights, _, _, inode, *_ = line.split(None, 5)
                if rights[:1] != b"r" or rights[3:4] != b"p" or line.endswith(b"]") and not line.endswith((b"[heap]", b"[stack]")):
                    continue
                begin, end = (int(word, 16) for word in span.split(b"-"))
                words = os.pread(pagemap.fileno(), (end - begin) // self.page * 8, begin // self.page * 8)
                self.add(begin, memoryview(words[: len(words) // 8 * 8]).cast("Q"), rights[1:2] == b"w", inode != b"0")

    def add(self, begin, words, is_writable, has_file):
        first, last_advice = 0, 0
        for index, word in enumerate(words):
            advice = 0
            if word & self.PRESENT:
                if is_writable and word & self.EXCLUSIVE and not word & self.OF_FILE:
                    advice = self.WRITE if self.left > 0 else 0
                    self.left -= 1
                elif has_file:
                    advice = self.READ
            if advice != last_advice:
                self.close(begin, first, index, last_advice)
                first, last_advice = index, advice
        self.close(begin, first, len(words), last_advice)

    def close(self, begin, first, end, advice):
        if advice:
            self.ranges.append((_Word(begin + first * self.page), _Word((end - first) * self.page), advice))

    def populate(self):
        for address, length, advice in self.ranges:
            _call(_madvise, (address, length, advice))  # that it can't isn't an error


class Worker:
    """One forked worker on its way from the fork to the interpreter's next step."""

    def __init__(self, imports, number, orders):
        self.imports = imports
        self.number = number
        self.orders = orders

    def take_order(self):
        """Everything that can be done before the gate. Returns when the order was carried out; it ends the process that has none."""
        fields, fds = self.orders.receive()
        try:
            self.prepare(fields, fds)
        except Exception as error:  # also what a module's generator raises; the agent starts it cold
            self.imports.control.send("failed", self.number, fields[1], getattr(error, "errno", None) or 0, words(error))
            os._exit(127)
        self.orders.close()
        end_with_parent(0)  # it ends now, and the gate ends us if the agent does
        self.imports.control.send("worker", self.number, fields[1], os.getpid())

    def prepare(self, fields, fds):
        """May raise."""
        self.gate, plan = fds[:2]
        streams = fds[2:5]
        self.extra = fds[5] if len(fds) > 5 else -1
        offset, length = (int(f) for f in fields[2:4])
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        close_all(streams)
        cores = [int(core) for core in fields[4].split(b",") if core]
        if cores:
            try:
                os.sched_setaffinity(0, cores)
            except OSError:
                pass  # as in a cold start: they may have been taken from us meanwhile
        self.lends_terminal = fields[5] == b"1"
        self.set_environment(os.pread(plan, length, offset))
        os.close(plan)
        match_streams()
        renew()

    def set_environment(self, block):
        changes = self.imports.changes
        os.environb.clear()
        for entry in block.split(b"\0"):
            name, equals, value = entry.partition(b"=")
            if equals and name:
                os.environb[name] = value
        for name, value in changes:
            if value is None:
                os.environb.pop(name, None)
            else:
                os.environb[name] = value

    def wait_at_gate(self):
        """Ends the process unless the agent lets it go; then it is the agent's child."""
        word = os.read(self.gate, GATE_WORD)
        if len(word) != GATE_WORD:
            os._exit(127)
        end_with_parent(self.imports.agent)
        lease_ends = int.from_bytes(word, sys.byteorder, signed=True)
        if lease_ends and clock_gettime_ns(CLOCK_BOOTTIME) >= lease_ends:
            os._exit(127)
        os.close(self.gate)
        self.imports.control.close()
        if self.extra >= 0:
            os.dup2(self.extra, PMI_FD)
            if self.extra != PMI_FD:
                os.close(self.extra)
        if self.lends_terminal:
            take_terminal()


def words(error):
    return str(error) if isinstance(error, OSError) else "%s: %s" % (type(error).__name__, error)


def match_streams():
    """At a terminal the interpreter makes its streams line-buffered; the preloader has none. Where they are already, a module did it."""
    for fd, stream in ((0, sys.stdin), (1, sys.stdout)):
        if stream is not None and not stream.write_through and not stream.line_buffering and os.isatty(fd):
            stream.reconfigure(line_buffering=True)


def renew():
    """State that a process has for itself: what a cold start makes anew."""
    modules = sys.modules
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    renew_torch(modules.get("torch"))
    if "multiprocessing.process" in modules:
        modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    if "threading" in modules:
        main = modules["threading"].main_thread()
        if hasattr(main, "_set_native_id"):
            main._set_native_id()
    if "logging" in modules:
        logging = modules["logging"]
        if isinstance(getattr(logging, "_startTime", None), float):
            logging._startTime = logging.time.time()
        elif hasattr(logging, "_startTime"):
            logging._startTime = logging.time.time_ns()


def renew_torch(torch):
    """Its generator of the CPU, which a process seeds with 64 random bits at its start. A smaller number is that of a module
    that called torch.manual_seed at its import, as it would in each worker of a cold start. A GPU's begins with a constant."""
    try:
        if torch.initial_seed() >= 1 << 32:
            torch.default_generator.seed()
    except AttributeError:
        pass  # no torch, or not PyTorch's


def take_terminal():
    with Borrowed("_signal") as signal:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
        try:
            os.tcsetpgrp(0, os.getpid())
        except OSError:
            pass
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTTOU])


class Maker:
    """A process that forks the workers of a set, and whose end makes them children of the agent."""

    def __init__(self, imports, number, example, orders, asks):
        self.imports = imports
        self.example = example  # a worker that runs; 0: there is none
        self.pages = None
        self.number = number
        self.orders = Channel(orders)
        self.asks = asks  # a pipe: at its end the set is used, or not needed
        self.made = 0
        self.pidfds = []  # of its workers
        self.poll = _poll()
        self.poll.register(asks, POLLIN)

    def run(self):
        """Returns in the workers only."""
        self.imports.control.send("maker", self.number, os.getpid())
        while True:
            ready = [fd for fd, _ in self.poll.poll()]
            if self.asks not in ready:
                os._exit(1)  # a worker has ended: a set is whole, or is no more
            word = os.read(self.asks, ASK_WORD)
            if len(word) != ASK_WORD:
                os._exit(0)
            asked = int.from_bytes(word, sys.byteorder)
            while self.made < asked & ~AT_ONCE:
                self.made += 1
                worker = self.fork(asked & AT_ONCE)
                if worker is not None:
                    return worker

    def fork(self, is_at_once):
        maker = os.getpid()
        if self.pages is None and self.example:
            self.pages = WrittenPages(self.example)
        pid = os.fork()
        if pid != 0:
            if hasattr(os, "pidfd_open"):  # Python 3.9
                self.pidfds.append(os.pidfd_open(pid))
                self.poll.register(self.pidfds[-1], POLLIN)
            return None
        end_with_parent(maker)
        close_all(self.pidfds)
        os.close(self.asks)
        os.setpgid(0, 0)
        worker = Worker(self.imports, self.number, self.orders)
        if not is_at_once:
            if self.pages:
                self.pages.populate()
            renew()
            self.imports.control.send("waits", self.number, own_bytes())
        worker.take_order()
        worker.wait_at_gate()
        return worker


def serve(imports):
    """Returns in the workers only."""
    try:
        serve_orders(imports)
    except BaseException as error:  # the interpreter would go on, and run the script
        text = "acc-launch: --preload failed before the script began: %s: %s\n" % (type(error).__name__, error)
        os.write(2, text.encode("utf-8", "replace"))
        os._exit(1)


def serve_orders(imports):
    makers = {}
    preloader = os.getpid()
    while True:
        fields, fds = imports.control.receive()
        number = fields[1]
        if fields[0] == b"round":
            pid = os.fork()
            if pid == 0:
                end_with_parent(preloader)
                Maker(imports, number, int(fields[2]), *fds).run()
                return
            makers[number] = pid
        close_all(fds)
        if fields[0] == b"collect" and number in makers:
            _, status = os.waitpid(makers.pop(number), 0)
            imports.control.send("made", number, status, resident_bytes())
