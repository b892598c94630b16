"""Heartbeats of a Python worker of acc-launch. Copy this file, or put its folder on PYTHONPATH:

    import acc_heartbeat
    for step in range(steps):
        train(step)
        acc_heartbeat.heartbeat(step)
    with acc_heartbeat.section("evaluation", timeout=600): ...     # no heartbeat is due in here for 10 minutes
    acc_heartbeat.checkpoint(step)                                 # a complete checkpoint was written

Without acc-launch all of it does nothing, but it checks its arguments there, too. It also lets the agent read this process's Python stacks: on a real-time
signal faulthandler writes them to memory (docs/worker-socket.md).
"""
import atexit, contextlib, faulthandler, fcntl, math, mmap, operator, os, signal, socket, struct, sys, threading, time

_page = _at = None
_pending = False  # a child of the process that has the page: the rank itself if that one sends no heartbeats
_sections = []
_earlier = None  # what an embedded console had printed by the last heartbeat
_LARGEST = 2**64 - 1
_LONGEST_MS = 100 * 365 * 24 * 60 * 60 * 1000  # of a section, in the page; more than a clock in nanoseconds can be added to


def _open():
    global _page, _at, _pending
    path, _, offset = os.environ.get("ACC_HEARTBEAT_PAGE", "").rpartition(":")
    child = "multiprocessing" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None
    if not path or child:  # a data loader is no rank
        return
    try:
        with open(path, "r+b") as file:
            page = mmap.mmap(file.fileno(), 0)
        if page[:8] != b"ACCBEAT1" or struct.unpack_from("I", page, 8)[0] != 1:
            return
        _page, _at = page, int(offset)
        os.register_at_fork(after_in_child=_wait)
        atexit.register(_mark)
        _pending = _is_of_ancestor(struct.unpack_from("I", page, _at + 48)[0])
        if not _pending:
            _claim()
    except (OSError, ValueError, AttributeError):
        pass


def _claim():
    global _stacks
    if not _is_of_this_process():
        _clear()
    _stacks = os.memfd_create("acc-stacks")
    fcntl.fcntl(_stacks, fcntl.F_SETFL, os.O_APPEND)
    number = signal.SIGRTMIN + 6
    if signal.getsignal(number) == signal.SIG_DFL:
        faulthandler.register(number, file=_stacks, all_threads=True)
        struct.pack_into("I", _page, _at + 144, _stacks)
        struct.pack_into("I", _page, _at + 52, number)
    struct.pack_into("I", _page, _at + 48, os.getpid())
    _say(b"beat 0")  # wakes the agent once; it reads the page from then on


# What torch says (gloo, NCCL) where another rank has ended.
_PEER_LOST = ("Connection closed by peer", "Connection reset by peer", "remote process exited")


def _is_peer_lost(error):
    """The oldest exception of the chain counts: while one of its own unwinds, a rank may have left its groups already."""
    for _ in range(100):
        older = error.__cause__ or error.__context__
        if older is None:
            break
        error = older
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _PEER_LOST)


def _printed():
    """The last exception that ended the program, or was shown by a console in it. The interpreter stores it before sys.excepthook."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


def _mark():
    """Where this rank ends for want of another one the agent waits a moment for that one's failure (docs/decisions/0052-who-failed-first.md)."""
    with contextlib.suppress(Exception):
        error = _printed()
        is_own = not _pending and struct.unpack_from("I", _page, _at + 48)[0] == os.getpid()
        if is_own and error is not None and error is not _earlier and _is_peer_lost(error):
            struct.pack_into("I", _page, _at + 148, 1)


def _is_of_this_process():
    """An import of this file under another name claimed the page. By exec another program has the pid, and in a container any may."""
    pid, descriptor = struct.unpack_from("I", _page, _at + 48)[0], struct.unpack_from("I", _page, _at + 144)[0]
    try:
        return pid == os.getpid() and os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:acc-stacks")
    except OSError:
        return False


def _clear():
    """What another program of this rank wrote, but for its checkpoints, says nothing of this one. The pid follows, last of all."""
    edition = struct.unpack_from("Q", _page, _at + 64)[0] | 1
    struct.pack_into("Q", _page, _at + 64, edition)
    struct.pack_into("QQ56s", _page, _at + 72, 0, 0, b"")
    struct.pack_into("Q", _page, _at + 64, edition + 1)
    struct.pack_into("I", _page, _at + 52, 0)
    struct.pack_into("II", _page, _at + 144, 0, 0)
    struct.pack_into("Q", _page, _at + 40, 0)
    struct.pack_into("QQQ", _page, _at, 0, 0, 0)


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def _wait():
    global _pending
    _pending = True


def _take_over():
    """At the first heartbeat of a child: the page, or nothing where its parent is the rank, or another child, and has sent some."""
    global _page, _pending
    _pending = False
    with contextlib.suppress(OSError, ValueError, AttributeError):
        pid = struct.unpack_from("I", _page, _at + 48)[0]
        if struct.unpack_from("Q", _page, _at)[0] and (pid == 0 or _lives(pid)):
            _page = None
            return
        _claim()


def _is_of_ancestor(pid):
    parent = os.getppid()
    try:
        for _ in range(32):
            if parent <= 1 or pid == 0:
                return False
            if parent == pid:
                return True
            with open(f"/proc/{parent}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # of other users' processes nothing may be shown
        pass
    return False


def _say(line):
    if not os.environ.get("ACC_AGENT_SOCKET", "").startswith("@"):  # a path is the daemon's, for acc-ctl
        return
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(os.environ["ACC_AGENT_SOCKET"].replace("@", "\0", 1))
        agent.sendall(b"hello %s %s\n%s\n" % (os.environ.get("RANK", "0").encode(), os.environ["ACC_ROUND"].encode(), line))


def _whole(step):
    """As the page holds it, which is at most 2**64 - 1. Numbers of NumPy and torch are fine, and floats, where they are whole."""
    try:
        number = operator.index(step)
    except TypeError:
        number = _whole_of_float(step)
    if number is None:
        raise TypeError(f"a step is a whole number, not {step!r:.50}")
    if number < 0:
        raise ValueError(f"a step is 0 or above, not {number}")
    return min(number, _LARGEST)


def _whole_of_float(step):
    if isinstance(step, (str, bytes)):  # float() reads them, too
        return None
    try:
        number = float(step)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of torch, for a tensor of several
        return None
    return int(number) if number.is_integer() else None


def heartbeat(step):
    """This process is alive, at this step, a whole number from 0 on: TypeError or ValueError for another. Once a step."""
    global _earlier
    step = _whole(step)
    if _pending and _page is not None:
        _take_over()
    if _page is not None:
        beats = struct.unpack_from("Q", _page, _at)[0]
        struct.pack_into("QQQ", _page, _at, beats + 1, time.monotonic_ns(), step)
        # What failed before this step didn't end the program; a failure that is being handled may, and at the end threads may go on.
        if sys.exc_info()[0] is None and threading.current_thread() is threading.main_thread():
            struct.pack_into("I", _page, _at + 148, 0)
            _earlier = _printed()


def checkpoint(step):
    """A complete checkpoint of this step was written: restarts count as progress from here."""
    step = _whole(step)
    if _page is not None and not _pending:
        struct.pack_into("QQ", _page, _at + 24, struct.unpack_from("Q", _page, _at + 24)[0] + 1, step)
        with contextlib.suppress(OSError, KeyError):
            _say(b"checkpoint %d" % step)


def _milliseconds(timeout):
    """0, no limit: None, or no number above 0."""
    try:
        if isinstance(timeout, (str, bytes)):  # float() reads them, too
            raise TypeError
        limit = 0 if timeout is None else float(timeout) * 1000
    except OverflowError:
        limit = math.inf if timeout > 0 else 0
    except (TypeError, ValueError, RuntimeError):  # the last of torch, for a tensor of several
        raise TypeError(f"timeout is a number of seconds, not {timeout!r:.50}") from None
    return math.ceil(min(limit, _LONGEST_MS)) if limit > 0 else 0


def _name_of(section):
    if not isinstance(section, str):
        raise TypeError(f"a section's name is text, not {section!r:.50}")
    return section.encode(errors="replace")[:55]


@contextlib.contextmanager
def section(name, timeout=None):
    """A part that may take longer than a step; with a timeout in seconds, no longer than that; math.inf: 100 years."""
    name, limit = _name_of(name), _milliseconds(timeout)
    if _page is None:
        yield
        return
    _sections.append((name, time.monotonic_ns(), limit))
    _show(_sections[-1])
    try:
        yield
    finally:
        _sections.pop()
        _show(_sections[-1] if _sections else (b"", 0, 0))


def _show(section):
    if _page is not None and not _pending:
        name, since, limit = section
        edition = struct.unpack_from("Q", _page, _at + 64)[0] | 1
        struct.pack_into("Q", _page, _at + 64, edition)
        struct.pack_into("QQ56s", _page, _at + 72, since, limit, name)
        struct.pack_into("Q", _page, _at + 8, time.monotonic_ns())
        struct.pack_into("Q", _page, _at + 64, edition + 1)


_open()
