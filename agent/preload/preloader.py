# The preloader: a Python interpreter that has imported the modules of --preload and forks the
# workers of each round (docs/decisions/0043-warm-start.md).
#
# It is started with the command line of a worker, and runs as `sitecustomize`, before the
# interpreter turns to the script. In the preloader this module never returns. In a forked worker it
# does, and the interpreter goes on as in any other start: so __main__, sys.argv and all that
# follows from the command line are the interpreter's own work.
#
# Descriptor 3 is a SOCK_SEQPACKET socket to the agent. A message is a list of fields with a zero
# byte between them, the first of which names it.
#
# This file has the imports and the look at what they did; forked_workers.py beside it has the workers.
import os
import sys

CONTROL_FD = 3
HOOK_VARIABLE = "ACC_PRELOAD_HOOK"


class WatchedEnvironment(dict):
    """The data of os.environ during the imports: notes which of a rank's own variables were asked for."""

    def __init__(self, data, own):
        super().__init__(data)
        self.own = own
        self.asked = set()

    def note(self, name):
        if name in self.own:
            self.asked.add(name)

    def __getitem__(self, name):
        self.note(name)
        return super().__getitem__(name)

    def __contains__(self, name):
        self.note(name)
        return super().__contains__(name)

    def get(self, name, default=None):
        self.note(name)
        return super().get(name, default)

    def __setitem__(self, name, value):
        self.note(name)
        super().__setitem__(name, value)

    def __delitem__(self, name):
        self.note(name)
        super().__delitem__(name)


LIBC_SIGNALS = 0b11 << 31  # 32 and 33: libc's own, handled from the first thread on


def signal_sets(names):
    """Bits of the signals, by the names of /proc/self/status."""
    words = {}
    with open("/proc/self/status", "rb") as status:
        for line in status:
            name, _, value = line.partition(b":")
            if name in names:
                words[name] = int(value, 16) & ~LIBC_SIGNALS
    return words


def open_descriptors():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            found[int(fd)] = os.readlink("/proc/self/fd/" + fd)
        except OSError:
            pass  # that of the listing itself
    return found


def shared_mappings():
    found = set()
    with open("/proc/self/maps", "rb") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if fields[1][3:4] == b"s" and fields[1][1:2] == b"w" or len(fields) > 5 and fields[5].startswith(b"/dev/") and not fields[5].startswith((b"/dev/shm/", b"/dev/zero")):
                found.add(fields[5].strip().decode("utf-8", "replace") if len(fields) > 5 else "memory without a name")
    return found


def has_living_child():
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/" + task + "/children", "rb") as children:
            if children.read().strip():
                return True
    return False


class SelfCheck:
    """What the imports did to this process that a fork wouldn't carry over, or would share."""

    SIGNALS = {b"SigBlk": "blocked signals", b"SigIgn": "ignores signals", b"SigCgt": "changed a signal handler"}
    STREAMS = ("stdin", "stdout", "stderr")

    def __init__(self):
        self.pid = os.getpid()
        self.forked = False
        self.descriptors = open_descriptors()
        self.mappings = shared_mappings()
        self.signals = signal_sets(self.SIGNALS)
        self.threads = len(os.listdir("/proc/self/task"))
        self.objects = self.own_objects()
        self.quick = self.quick_facts()
        os.register_at_fork(before=self.note_fork)

    def note_fork(self):
        self.forked = True

    @classmethod
    def own_objects(cls):
        """The interpreter's own that a forked worker gives another state, by name."""
        found = {"sys." + name: getattr(sys, name, None) for name in cls.STREAMS}
        found["os.environ"] = os.environ
        return found

    @classmethod
    def foreign_stream(cls):
        """The name of a standard stream that isn't what the interpreter makes: a site replaces it in each process."""
        for name in cls.STREAMS:
            stream = getattr(sys, name, None)
            is_own = stream is getattr(sys, "__%s__" % name, None) and type(stream) is sys.modules["io"].TextIOWrapper
            if stream is not None and not is_own:
                return "sys." + name
        return ""

    def quick_facts(self):
        """Threads, by the links of the folder that lists them, the lowest descriptor that is free, and what was replaced."""
        lowest = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        os.close(lowest)
        return os.stat("/proc/self/task").st_nlink, lowest, self.replaced()

    def replaced(self):
        for name, now in self.own_objects().items():
            if now is not self.objects[name]:
                return name
        return ""

    def has_changed(self):
        return self.forked or self.quick_facts() != self.quick

    def reason(self):
        """Why a worker can't be forked from here; empty: it can."""
        threads = self.new_threads()
        if threads > 0 and not self.forked:
            self.try_fork()
            threads = self.new_threads()
        if threads > 0:
            return "started %d thread%s" % (threads, "" if threads == 1 else "s")
        if self.forked:
            return "called os.fork"
        if has_living_child():
            return "started a process"
        now = open_descriptors()
        for fd, what in now.items():
            if self.descriptors.get(fd) != what and self.is_real(fd):
                return "opened " + ("a socket" if what.startswith("socket:") else "a pipe" if what.startswith("pipe:") else what)
        if any(fd not in now for fd in self.descriptors if fd <= CONTROL_FD):
            return "closed a standard descriptor"
        new = shared_mappings() - self.mappings
        if new:
            return "mapped " + sorted(new)[0] + " shared with its children"
        for name, value in signal_sets(self.SIGNALS).items():
            if value != self.signals[name]:
                return self.SIGNALS[name]
        if self.replaced():
            return "replaced " + self.replaced()
        for name in self.STREAMS:
            if self.is_closed(getattr(sys, name, None)):
                return "closed or detached sys." + name
        for name in ("gettrace", "getprofile"):
            if getattr(sys, name)() is not None:
                return "installed a tracer (sys.%s)" % name.replace("get", "set")
        return self.output()

    def new_threads(self):
        return len(os.listdir("/proc/self/task")) - self.threads

    def try_fork(self):
        """A library may stop its threads before a fork, and start them again when they are needed
        (pthread_atfork; OpenBLAS does)."""
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        self.forked = False
        with Borrowed("time") as time:
            # A thread that was joined may still be listed. By the processor's time: a busy machine may hold up this process.
            until = time.process_time() + 0.1
            while self.new_threads() > 0 and time.process_time() < until:
                os.sched_yield()

    @staticmethod
    def is_real(fd):
        try:
            os.fstat(fd)
            return True
        except OSError:
            return False

    @staticmethod
    def is_closed(stream):
        try:
            return stream is not None and stream.fileno() < 0
        except ValueError:
            return True

    @staticmethod
    def output():
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        for fd in (1, 2):
            size = os.fstat(fd).st_size
            if size:
                words = os.pread(fd, 200, 0).decode("utf-8", "replace").strip().splitlines()
                return "printed '%s'" % (words[0] if words else "")
        return ""


class ImportWatch:
    """Sees after the code of which module the process had changed: at the begin and the end of each import it looks, at a cost of
    some microseconds. Replaces importlib's function that executes a module, and puts it back."""

    def __init__(self, check):
        self.check = check
        self.running = []
        self.culprit = ""
        self.importlib = sys.modules["_frozen_importlib"]

    def __enter__(self):
        self.real = self.importlib._load_unlocked
        self.importlib._load_unlocked = self.load
        return self

    def __exit__(self, *_):
        self.importlib._load_unlocked = self.real

    def load(self, spec):
        self.look()
        self.running.append(spec.name)
        try:
            return self.real(spec)
        finally:
            self.look()
            self.running.pop()

    def look(self):
        if not self.check.has_changed():
            self.culprit = ""  # what had changed was put back
        elif not self.culprit and self.running:
            self.culprit = self.running[-1]


def statements(nodes):
    for node in nodes:
        yield node
        if type(node).__name__ == "Try":
            for inner in statements(node.body):
                yield inner


def path_finder():
    return sys.modules["_frozen_importlib_external"].PathFinder


def program_words():
    words = sys.argv[:1] if sys.argv[:1] != ["-m"] else original_arguments()
    return [w for w in words if w != "-u"]


def first_places(words):
    """What the interpreter will put before sys.path: the folder of the script, or for -m the working directory. -P and -I: nothing."""
    if not words or sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return []
    if words[0] == "-m":
        return [os.getcwd()]
    path = os.path.realpath(words[0])
    return [path if os.path.isdir(path) else os.path.dirname(path)]


def script_path(words, places):
    """The source of the program that the command line names; None: it can't be found without running code."""
    if words[:1] != ["-m"]:
        path = words[0]
        return os.path.join(path, "__main__.py") if os.path.isdir(path) else path
    parts = words[1].split(".")
    for base in places + sys.path:
        whole = os.path.join(base, *parts)
        for path in (whole + ".py", os.path.join(whole, "__main__.py")):
            if os.path.isfile(path):
                return path
    return None


def imports_of(path, places):
    """Modules of installed packages that the source imports at its top level, in its order."""
    only_ast = 0x400  # ast.PyCF_ONLY_AST
    with open(path, "rb") as file:
        tree = compile(file.read(), path, "exec", only_ast, True)
    folder = os.path.dirname(os.path.realpath(path))
    found = []
    for node in statements(tree.body):
        kind = type(node).__name__
        if kind == "Import":
            names = [alias.name for alias in node.names]
        elif kind == "ImportFrom" and node.level == 0 and node.module:
            names = [node.module]
        else:
            continue
        for name in names:
            spec = path_finder().find_spec(name.partition(".")[0], places + sys.path)
            files = [spec.origin] if spec and spec.origin else list(spec.submodule_search_locations or []) if spec else []
            installed = [p for p in files if p and ("site-packages" in p or "dist-packages" in p)]
            if installed and not os.path.realpath(installed[0]).startswith(folder + os.sep) and name not in found:
                found.append(name)
    return found


def hidden_modules(names, places):
    """(name, file) of the loaded modules in whose place the program would import another one, which lies beside it."""
    frozen = sys.modules["_frozen_importlib"]
    for name in sorted(names):
        is_built_in = frozen.BuiltinImporter.find_spec(name) or frozen.FrozenImporter.find_spec(name)
        if is_built_in or not path_finder().find_spec(name, places):
            continue
        cold = path_finder().find_spec(name, places + sys.path)
        warm = getattr(sys.modules.get(name), "__spec__", None)
        files = [spec.origin or list(spec.submodule_search_locations or []) if spec else None for spec in (cold, warm)]
        if files[0] != files[1] and not is_same_file(*files):
            yield name, cold.origin or os.path.join(places[0], name)


def is_same_file(one, other):
    try:
        return os.path.samefile(one, other)
    except (OSError, TypeError):
        return False


class Imports:
    def __init__(self, control):
        fields, _ = control.receive()  # begin, the agent's pid, modules, names of a rank's own variables
        self.control = control
        self.agent = int(fields[1])
        self.is_auto = fields[2] == b"auto"
        self.modules = [m.decode() for m in fields[2].split(b",") if m]
        self.own = {name for name in fields[3].split(b",") if name}
        self.changes = []
        self.words = program_words()
        self.places = first_places(self.words)

    def refuse(self, module, reason):
        self.control.send("unsafe", module, reason)
        os._exit(0)

    def run(self):
        try:
            self.import_all()
        except BaseException as error:  # the interpreter would go on, and run the script
            self.refuse("", "the preloader failed: %s: %s" % (type(error).__name__, error))

    def import_all(self):
        self.check = SelfCheck()
        before, importers = set(sys.modules), dict(sys.path_importer_cache)
        if sys.gettrace() is not None or sys.getprofile() is not None:
            self.refuse("", "a tracer is active at the interpreter's start")
        if self.check.threads > 1:
            self.refuse("", "the interpreter has threads at its start")
        if self.check.foreign_stream():
            self.refuse("", self.check.foreign_stream() + " isn't the interpreter's own at its start")
        with Borrowed("time") as time:
            clock = time.monotonic
        began = clock()
        if self.is_auto:
            self.modules = self.read_script()
        real = os.environ._data
        watched = WatchedEnvironment(real, self.own)
        os.environ._data = os.environb._data = watched
        with ImportWatch(self.check) as watch:
            for module in self.modules:
                self.control.send("importing", module)
                self.load(module)
                self.look(watch.culprit or module, watched)
        self.look_beside_program({name.partition(".")[0] for name in set(sys.modules) - before} - before)
        for place in set(self.places) - set(importers):
            sys.path_importer_cache.pop(place, None)  # what it knows of the folder may be out of date in a worker
        os.environ._data = os.environb._data = real
        self.changes = [(n, watched.get(n)) for n in set(real) | set(watched) if real.get(n) != watched.get(n)]
        real.clear()
        real.update(watched)
        with Borrowed("gc") as gc:
            gc.freeze()  # a worker's collector need not touch, and so copy, what all share
        self.control.send("ready", "%.3f" % (clock() - began), resident_bytes(), ",".join(self.modules))

    def read_script(self):
        path = None
        try:
            path = script_path(self.words, self.places)
            return imports_of(path, self.places) if path else []
        except (OSError, SyntaxError, ValueError, IndexError) as error:
            self.refuse("", "the imports of %s can't be read: %s" % (path, error))

    def load(self, module):
        try:
            __import__(module)
        except BaseException as error:  # SystemExit, too: the module meant to end the process
            if os.getpid() != self.check.pid:
                os._exit(0)
            what = "called sys.exit" if isinstance(error, SystemExit) else "can't be imported: %s: %s" % (type(error).__name__, error)
            self.refuse(module, what)
        if os.getpid() != self.check.pid:
            os._exit(0)  # the import forked, and this is the copy: the other one is told by the check

    def look_beside_program(self, names):
        for name, file in hidden_modules(names, self.places):
            self.refuse(name, "is another module for the program, which has %s beside it" % file)

    def look(self, module, watched):
        reason = self.check.reason()
        if reason:
            self.refuse(module, reason)
        if watched.asked:
            names = ", ".join(sorted(n.decode() for n in watched.asked))
            self.refuse(module, "read " + names + ", which differs between ranks, at import")


def original_arguments():
    with open("/proc/self/cmdline", "rb") as file:
        words = [w.decode("utf-8", "surrogateescape") for w in file.read().split(b"\0")[1:-1]]
    return words[words.index("-m") :] if "-m" in words else words


def leave_no_trace():
    """Of the way by which the interpreter found this file."""
    hook = os.environ.pop(HOOK_VARIABLE, "")
    place = "/proc/self/fd/" + hook
    rest = [p for p in os.environ.get("PYTHONPATH", "").split(":") if p != place]
    if rest:
        os.environ["PYTHONPATH"] = ":".join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)
    sys.path[:] = [p for p in sys.path if p != place]
    sys.path_importer_cache.pop(place, None)
    if "zipimport" in sys.modules:
        sys.modules["zipimport"]._zip_directory_cache.pop(place, None)
    os.close(int(hook))


def import_real_sitecustomize():
    """The site's own, which this file stands before. @return the error if there is none"""
    sys.modules.pop("sitecustomize", None)
    try:
        __import__("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        return error
    return None


if HOOK_VARIABLE in os.environ:
    import acc_forked_workers as _workers
    from acc_forked_workers import Borrowed, resident_bytes
    del sys.modules["acc_forked_workers"]
    leave_no_trace()
    _missing = import_real_sitecustomize()
    _control = _workers.Channel(CONTROL_FD)
    _control.send("started")
    _imports = Imports(_control)
    _imports.run()
    _workers.serve(_imports)
    if _missing is not None:
        raise _missing
