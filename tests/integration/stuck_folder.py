"""A file system in user space that says that it is there, and answers nothing else: a server of files that is away."""
import contextlib, ctypes, os, select, struct, threading, unittest

libc = ctypes.CDLL(None, use_errno=True)
MNT_FORCE, MNT_DETACH = 1, 2
KIND_LOOKUP, KIND_FORGET, KIND_GETATTR, KIND_OPEN, KIND_READ, KIND_INIT, KIND_INTERRUPT = 1, 2, 3, 14, 15, 26, 36
INIT = struct.pack("<IIIIHHIIHHIII5I", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0, 0, 0, *[0] * 5)


def mount_answering(place):
    """A file system that isn't one of the local kinds, and answers: as a server's, until a StuckFolder is mounted over it. Files in it can't be written."""
    os.mkdir(place)
    if libc.mount(b"none", place.encode(), b"hugetlbfs", 0, b"") != 0:
        raise unittest.SkipTest("this machine mounts no hugetlbfs")
    return lambda: libc.umount2(place.encode(), MNT_DETACH)


class StuckFolder:
    """Needs root and /dev/fuse. `asked`: a process waits for an answer, which no signal but SIGKILL ends, and that not always."""

    def __init__(self, place):
        self.place = place
        os.makedirs(place, exist_ok=True)
        self.device = os.open("/dev/fuse", os.O_RDWR)
        self.asked = threading.Event()
        if libc.mount(b"stuck", place.encode(), b"fuse", 0, b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % self.device) != 0:
            os.close(self.device)
            raise unittest.SkipTest("this machine mounts no file system in user space")
        threading.Thread(target=self.serve, args=(self.device,), daemon=True).start()

    def serve(self, device):
        """The protocol of linux/fuse.h."""
        with contextlib.suppress(OSError):
            while True:
                request = os.read(device, 1 << 17)
                _, kind, unique, node = struct.unpack_from("<IIQQ", request)
                reply = INIT if kind == KIND_INIT else self.answer(kind, node)
                if reply is None:
                    self.asked.set()
                else:
                    os.write(device, struct.pack("<IiQ", 16 + len(reply), 0, unique) + reply)

    def answer(self, kind, node):
        return None

    def give_up(self):
        """Ends the file system, and with it each wait for it."""
        libc.umount2(self.place.encode(), MNT_FORCE)  # what waits for it fails
        libc.umount2(self.place.encode(), MNT_DETACH)
        if self.device >= 0:
            os.close(self.device)
        self.device = -1


class UnwritableFile(StuckFolder):
    """Each name in it is the same file of one page, which can be read and mapped; what is written to it waits for ever."""
    FILE = 2

    def answer(self, kind, node):
        def attributes(mode):
            return struct.pack("<QQQQQQIIIIIIIIII", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
        if kind == KIND_LOOKUP:
            node = self.FILE
            return struct.pack("<QQQQII", node, 0, 1000, 1000, 0, 0) + attributes(0o100666)
        if kind == KIND_GETATTR:
            return struct.pack("<QII", 1000, 0, 0) + attributes(0o100666 if node == self.FILE else 0o40777)
        keeps_cache = 2
        replies = {KIND_OPEN: struct.pack("<QII", 1, keeps_cache, 0), KIND_READ: bytes(4096)}
        return replies.get(kind)


class UnansweredExec:
    """Whoever executes `program` waits until give_up, or SIGKILL. `asked`: somebody does. Needs root."""

    def __init__(self, program):
        close_on_exec, class_content, mark_add, open_exec_perm, here = 1, 4, 1, 0x40000, -100
        self.fd = libc.fanotify_init(close_on_exec | class_content, os.O_RDONLY)
        if self.fd < 0:
            raise unittest.SkipTest("this kernel lets nobody hold up an exec")
        self.asked = threading.Event()
        if libc.fanotify_mark(self.fd, mark_add, ctypes.c_uint64(open_exec_perm), here, os.fsencode(program)) != 0:
            os.close(self.fd)
            raise unittest.SkipTest("this kernel lets nobody hold up an exec")
        threading.Thread(target=self.wait, daemon=True).start()

    def wait(self):
        with contextlib.suppress(OSError):
            select.select([self.fd], [], [])
            self.asked.set()

    def give_up(self):
        os.close(self.fd)  # what waits goes on
