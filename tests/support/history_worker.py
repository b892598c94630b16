"""The diary of history_worker.cpp, kept by a Python script: what --preload starts. Same lines, same words on the command line."""
import ctypes, fcntl, os, re, signal, socket, struct, sys, threading, time

WATCHED = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
LIBC = ctypes.CDLL(None, use_errno=True)
CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}[os.uname().machine]


def nanoseconds():
    """By system call: no preloaded library moves it."""
    now = (ctypes.c_long * 2)()
    LIBC.syscall(CLOCK_GETTIME, time.CLOCK_MONOTONIC, now)
    return now[0] * 1_000_000_000 + now[1]


def variable(name):
    return os.environ.get(name, "-")


def whole_file(kind):
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)


def lock_and_look(folder, number):
    """As history_worker.cpp: locks our round for our life time. @return the other rounds of which a process lives"""
    mine, others = f"lock.{number}", []
    held = os.open(os.path.join(folder, mine), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.fcntl(held, fcntl.F_OFD_SETLK, whole_file(fcntl.F_RDLCK))
    for name in os.listdir(folder):
        if name.startswith("lock.") and name != mine:
            other = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC)
            found = fcntl.fcntl(other, fcntl.F_OFD_GETLK, whole_file(fcntl.F_WRLCK))
            if struct.unpack("hhqqi0q", found)[0] != fcntl.F_UNLCK:
                others.append(name[len("lock."):])
            os.close(other)
    return others


class Diary:
    def __init__(self, folder, number):
        name = f"log.{variable('HISTORY_NODE')}.{number}.{variable('RANK')}.{os.getpid()}"
        self.file = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, word, at, rest=""):
        os.write(self.file, f"{word} {at} {rest}".rstrip().encode() + b"\n")


def facts(number):
    return (f"round={number} rank={variable('RANK')} world={variable('WORLD_SIZE')} local={variable('LOCAL_RANK')} "
            f"node_rank={variable('GROUP_RANK')} nodes={variable('GROUP_WORLD_SIZE')} node={variable('HISTORY_NODE')} pid={os.getpid()} "
            f"restarts={variable('TORCHELASTIC_RESTART_COUNT')} master={variable('MASTER_ADDR')} port={variable('MASTER_PORT')}")


def is_current(number, patience_ms=2_000):
    """docs/worker-socket.md, `current`"""
    asked = nanoseconds()
    with socket.socket(socket.AF_UNIX) as agent:
        agent.settimeout(patience_ms / 1000 + 10)
        agent.connect(os.environ["ACC_AGENT_SOCKET"].replace("@", "\0", 1))
        agent.sendall(b"hello 0\ncurrent %s %d\n" % (number.encode(), patience_ms))
        answer = agent.makefile().readline().split()
    return answer[:1] == ["number"] and nanoseconds() < asked + int(answer[1]) * 1_000_000


def keep_writing(diary, every, number):
    while True:
        try:
            diary.write("wrote" if is_current(number) else "refused", nanoseconds())
        except OSError:
            pass
        time.sleep(every)


def words():
    units = {"ms": 0.001, "s": 1.0}
    found = (re.fullmatch(r"(\w+)=([\d.]+)(ms|s)", word) for word in sys.argv[1:])
    return {match[1]: float(match[2]) * units[match[3]] for match in found if match}


def main():
    start = nanoseconds()
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    folder, number = variable("HISTORY_DIR"), variable("ACC_ROUND")
    others = lock_and_look(folder, number)
    diary = Diary(folder, number)
    diary.write("start", start, facts(number))
    if others:
        diary.write("overlap", start, " ".join(others))
    plan = words()
    if "ckpt" in plan and variable("RANK") == "0":
        threading.Thread(target=keep_writing, args=(diary, plan["ckpt"], number), daemon=True).start()
    over = lambda what: what in plan and nanoseconds() - start >= plan[what] * 1e9
    while True:
        came = signal.sigtimedwait(WATCHED, plan.get("every", 0.02))
        if came:
            diary.write("signal", nanoseconds(), str(came.si_signo))
            if came.si_signo in (signal.SIGTERM, signal.SIGINT):
                until = nanoseconds() + plan.get("linger", 0) * 1e9
                while nanoseconds() < until:
                    signal.sigtimedwait(WATCHED, plan.get("every", 0.02))
                    diary.write("alive", nanoseconds())
                diary.write("end", nanoseconds(), "signal")
                os._exit(128 + came.si_signo)
        diary.write("alive", nanoseconds())
        if over("crash"):
            diary.write("end", nanoseconds(), "crash")
            os.kill(os.getpid(), signal.SIGKILL)
        if over("run"):
            diary.write("end", nanoseconds(), "done")
            os._exit(0)


if __name__ == "__main__":
    main()
