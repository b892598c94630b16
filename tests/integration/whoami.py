"""Writes as JSON what a process can know about itself: run cold and warm, the difference is a documented list."""
import ctypes, json, os, random, resource, signal, sys


def status():
    words = {}
    with open("/proc/self/status") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            words[name] = value.strip()
    return words


def kind(fd):
    target = os.readlink(f"/proc/self/fd/{fd}")
    return "pseudo-terminal" if target.startswith("/dev/pts/") else target.split(":")[0] if ":" in target else target


def c_environment():
    environ = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    names = []
    while environ[len(names)] is not None:
        names.append(environ[len(names)].decode())
    return names


def parent_death_signal():
    number = ctypes.c_int()
    ctypes.CDLL(None).prctl(2, ctypes.byref(number))  # PR_GET_PDEATHSIG
    return number.value


def main_module():
    module = sys.modules["__main__"]
    return {name: str(getattr(module, name, "absent")) for name in ("__name__", "__file__", "__spec__", "__cached__", "__package__", "__doc__")} | {
        "loader": type(getattr(module, "__loader__", None)).__name__, "names": sorted(n for n in vars(module) if n.startswith("__"))}


def stream(one):
    return [one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.write_through, one.newlines, one.closed, one.fileno(), one.isatty()]


def facts():
    import multiprocessing, threading  # after the rest: a preloaded module may have them already
    words = status()
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": str(sys.flags), "xoptions": sys._xoptions,
        "warnoptions": sys.warnoptions, "executable": sys.executable, "prefix": [sys.prefix, sys.exec_prefix, sys.base_prefix],
        "main": main_module(), "environ": dict(os.environ), "c_environ": c_environment(), "order": list(os.environ),
        "proc_cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(), "cwd": os.getcwd(),
        "umask": words["Umask"], "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "nice": os.nice(0), "signals": {name: words[name] for name in ("SigBlk", "SigIgn", "SigCgt", "SigPnd")},
        "handlers": {number: str(signal.getsignal(number)).split(" at ")[0] for number in range(1, 32)},
        "own_group": os.getpgid(0) == os.getpid(), "session": os.getsid(0) == os.getsid(os.getppid()), "parent": open(f"/proc/{os.getppid()}/comm").read(),
        "parent_death_signal": parent_death_signal(), "fds": {fd: kind(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")},
        "streams": [stream(sys.stdin), stream(sys.stdout), stream(sys.stderr)], "threads": words["Threads"],
        "cgroup": open("/proc/self/cgroup").read(), "oom": open("/proc/self/oom_score_adj").read(), "affinity": sorted(os.sched_getaffinity(0)),
        "uid": words["Uid"], "gid": words["Gid"], "groups": words["Groups"], "capabilities": words["CapEff"], "new_privileges": words["NoNewPrivs"],
        "parent_process": str(multiprocessing.parent_process()), "process": multiprocessing.current_process().name,
        "main_thread": [threading.main_thread().name, threading.main_thread().ident == threading.get_ident(), threading.main_thread().native_id == os.getpid()],
        "trace": [sys.gettrace(), sys.getprofile()], "meta_path": [getattr(one, "__name__", type(one).__name__) for one in sys.meta_path],
        "stdout_bytes": None, "recursion": sys.getrecursionlimit(), "excepthook": sys.excepthook is sys.__excepthook__,
    }


def own():
    """What each rank has otherwise than the others, cold and warm."""
    import multiprocessing
    numbers = {"random": random.random(), "authkey": multiprocessing.current_process().authkey.hex(), "urandom": os.urandom(8).hex()}
    if "numpy" in sys.modules:
        numbers["numpy"] = float(sys.modules["numpy"].random.random())
    if "torch" in sys.modules:
        numbers["torch_seed"] = sys.modules["torch"].initial_seed()
    return numbers


if __name__ == "__main__":
    with open(f"{os.environ['WHOAMI']}.{os.environ['RANK']}", "w") as file:
        json.dump({"facts": facts(), "own": own(), "hash": hash("acc"), "modules": sorted(sys.modules)}, file)
    print("hello from", os.environ["RANK"])
