"""A program on a pseudo-terminal, and what its screen shows, by the terminal emulator pyte (Debian: python3-pyte)."""
import fcntl, os, pty, re, select, signal, struct, sys, termios, time

from harness import PATIENCE

DEBIANS = "/usr/lib/python3/dist-packages"  # plain Python, which any interpreter of the machine can take
sys.path.append(DEBIANS)
try:
    import pyte
except ImportError:
    pyte = None
sys.path.remove(DEBIANS)

KEYS = {"up": "\x1bOA", "down": "\x1bOB", "right": "\x1bOC", "left": "\x1bOD", "home": "\x1bOH", "end": "\x1bOF", "pgup": "\x1b[5~",
        "pgdn": "\x1b[6~", "enter": "\r", "esc": "\x1b", "tab": "\t", "backspace": "\x7f", "f1": "\x1bOP", "f3": "\x1bOR", "f4": "\x1bOS",
        "f5": "\x1b[15~", "f6": "\x1b[17~", "f9": "\x1b[20~", "f10": "\x1b[21~"}


if pyte:
    class Screen(pyte.Screen):
        """With the scrolling of a region (SU, SD), which pyte 0.8 lacks and ncurses uses."""

        def scroll_up(self, count=None):
            self.scroll(self.index, self.margins.bottom if self.margins else self.lines - 1, count)

        def scroll_down(self, count=None):
            self.scroll(self.reverse_index, self.margins.top if self.margins else 0, count)

        def scroll(self, step, row, count):
            was, self.cursor.y = self.cursor.y, row
            for _ in range(count or 1):
                step()
            self.cursor.y = was

    class Stream(pyte.ByteStream):
        csi = {**pyte.Stream.csi, "S": "scroll_up", "T": "scroll_down"}
        events = pyte.Stream.events | {"scroll_up", "scroll_down"}


def is_met(condition, text):
    if isinstance(condition, str):
        return condition in text
    return condition.search(text) if isinstance(condition, re.Pattern) else condition(text)


class TtyProgram:
    """Starts it in a session of its own, with the terminal as its controlling one."""

    def __init__(self, words, env, cwd, rows=24, columns=80):
        self.screen = Screen(columns, rows) if pyte else None
        self.stream = Stream(self.screen) if pyte else None
        self.raw = b""
        self.status = None
        # The end that stays here is opened once more by no one: the terminal lives as long as this object.
        self.fd, self.slave = pty.openpty()
        self.size(rows, columns, signals=False)
        self.before = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
                for fd in (0, 1, 2):
                    os.dup2(self.slave, fd)
                os.closerange(3, 256)
                for signo in (signal.SIGINT, signal.SIGPIPE):
                    signal.signal(signo, signal.SIG_DFL)
                os.chdir(cwd)
                os.execvpe(words[0], words, env)
            finally:
                os._exit(127)

    def size(self, rows, columns, signals=True):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if signals:
            self.screen.resize(rows, columns)

    def read(self, wait=0.0):
        """Takes in what there is; True: there was something."""
        ready, _, _ = select.select([self.fd], [], [], wait)
        if not ready:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        if self.stream:
            self.stream.feed(data)
        return bool(data)

    def text(self):
        while self.read():
            pass
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait_for(self, *conditions, what="", deadline=15.0):
        """Until one reading of the screen meets all of them: a text or a pattern that it must have, or a function of its text.

        What is asserted of a screen belongs in here. A program draws piece by piece, so where one line stands already the next
        may not.
        """
        end = time.monotonic() + deadline * PATIENCE
        while missing := [condition for condition in conditions if not is_met(condition, text := self.text())]:
            if time.monotonic() > end:
                raise AssertionError(f"waited for {what or missing}; the screen:\n{text}")
            self.read(0.05)
        return text

    def press(self, *keys):
        for key in keys:
            os.write(self.fd, KEYS.get(key, key).encode())

    def wait(self, deadline=15.0):
        """Its exit code; -N for a signal."""
        end = time.monotonic() + deadline * PATIENCE
        while self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise AssertionError(f"it doesn't end; the screen:\n{self.text()}")
            self.read(0.02)
        return self.status

    def wait_stopped(self, deadline=15.0):
        end = time.monotonic() + deadline * PATIENCE
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                return os.WSTOPSIG(status)
            self.read(0.02)
        raise AssertionError("it doesn't stop")

    def is_restored(self):
        """The terminal has its settings back, and shows what it showed before."""
        self.text()
        now = termios.tcgetattr(self.slave)
        # Echo, signals and lines; the alternate screen is left after it was entered.
        return now[:4] == self.before[:4] and self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)
        os.close(self.slave)
