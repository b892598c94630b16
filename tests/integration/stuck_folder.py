"""A file system in user space that says that it is there, and answers nothing else: a server of files that is away."""
import contextlib, ctypes, os, struct, threading, unittest

libc = ctypes.CDLL(None, use_errno=True)
MNT_FORCE, MNT_DETACH = 1, 2


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
        init = 26
        with contextlib.suppress(OSError):
            while True:
                request = os.read(device, 1 << 17)
                _, kind, unique = struct.unpack_from("<IIQ", request)
                if kind == init:
                    reply = struct.pack("<IIIIHHIIHHIII5I", 7, 31, 0, 0, 12, 9, 4096, 1, 0, 0, 0, 0, 0, *[0] * 5)
                    os.write(device, struct.pack("<IiQ", 16 + len(reply), 0, unique) + reply)
                else:
                    self.asked.set()

    def give_up(self):
        """Ends the file system, and with it each wait for it."""
        libc.umount2(self.place.encode(), MNT_FORCE)  # what waits for it fails
        libc.umount2(self.place.encode(), MNT_DETACH)
        if self.device >= 0:
            os.close(self.device)
        self.device = -1
