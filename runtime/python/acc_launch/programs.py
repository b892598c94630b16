"""Where the programs of this installation are, and how one is run from Python."""
from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

PR_SET_PDEATHSIG = 1
PIECE_S = 0.25


def _folders() -> Iterator[str]:
    """Where pip puts a wheel's programs: of this environment, of a user, beside the package (--target, --prefix)."""
    yield sysconfig.get_path("scripts")
    with contextlib.suppress(KeyError):
        yield sysconfig.get_path("scripts", "posix_user")
    package = pathlib.Path(__file__).resolve().parent
    yield str(package.parent / "bin")
    for prefix in list(package.parents)[3:4]:  # PREFIX/lib/pythonX.Y/site-packages/acc_launch
        yield str(prefix / "bin")


def find_program(name: str = "acc-launch") -> str:
    """Full path of one of our programs: this installation's, else the one on PATH.

    @throws FileNotFoundError  it is nowhere.
    """
    for folder in _folders():
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    found = shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"'{name}' was found neither in {sysconfig.get_path('scripts')} nor on PATH: is acc-launch installed here?")
    return found


def environment_of_programs(base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    """The environment for acc-launch: workers get this interpreter, unless PYTHON_EXEC names another."""
    environment = dict(os.environ if base is None else base)
    if sys.executable:
        environment.setdefault("PYTHON_EXEC", sys.executable)
    return environment


def _end_with_parent() -> Callable[[], None]:
    """For the child between fork and exec: SIGTERM, with which acc-launch stops its workers, when this process ends."""
    prctl = ctypes.CDLL(None).prctl
    parent = os.getpid()

    def in_child() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))
        if os.getppid() != parent:
            os._exit(127)

    return in_child


class _Interrupts:
    """Ctrl-C while a job runs: SIGINT is passed to it, and raised when it has ended. An exception between fork and wait() would lose the job.

    Only the main thread gets them, and only where SIGINT isn't ignored.
    """

    def __init__(self, told: Callable[[], None]) -> None:
        self.came = False
        self._told = told
        self._before: Any = None
        if threading.current_thread() is threading.main_thread() and callable(signal.getsignal(signal.SIGINT)):
            self._before = signal.signal(signal.SIGINT, self._take)

    def _take(self, *_: Any) -> None:
        self.came = True
        self._told()

    def release(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None


class Job:
    """An acc-launch that this process has started; its end, however it comes, is awaited by wait(), which must follow.

    It is in a session of its own: a notebook's interrupt goes to a whole process group or to one process, and so reaches it once either way, from
    interrupt(). `on_terminal`: it stays in ours, as it may lend the terminal to a worker, and the terminal signals it. `variables`: of its workers.
    """

    def __init__(self, arguments: Sequence[str], on_terminal: bool = False, variables: Optional[Mapping[str, str]] = None, **streams: Any) -> None:
        self.on_terminal = on_terminal
        self._process: Optional[subprocess.Popen[bytes]] = None
        command: List[str] = [find_program("acc-launch"), *map(str, arguments)]
        self._interrupts = _Interrupts(self.interrupt)
        try:
            self._process = subprocess.Popen(command, env={**environment_of_programs(), **(variables or {})}, start_new_session=not on_terminal,
                                             preexec_fn=_end_with_parent(), **streams)
        except BaseException:
            self._interrupts.release()
            raise
        if self._interrupts.came:  # before there was a process to pass it to
            self.interrupt()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def interrupt(self) -> None:
        """As Ctrl-C: the first stops the workers with their grace period, the second shortens that, the third kills."""
        if self._process is not None and not self.on_terminal and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)

    def _await_end(self) -> int:
        """In pieces: Python's handler of a signal that arrives just before a system call runs when that returns."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self.process.wait(PIECE_S)

    def wait(self, step: Callable[[], bool]) -> int:
        """Calls step(), which must return at least every PIECE_S, until that is false. @return the exit code: 128 + N of a program that a signal ended.

        @throws KeyboardInterrupt  the job was interrupted from here, and has ended.
        """
        try:
            while step():
                pass
            code = self._await_end()
        except BaseException:
            self.process.terminate()
            self.process.wait()
            raise
        finally:
            self._interrupts.release()
        if self._interrupts.came:
            raise KeyboardInterrupt
        return code if code >= 0 else 128 - code


def run(arguments: Sequence[str], check: bool = False) -> int:
    """Runs acc-launch with these arguments, as a shell would, and waits for it.

    @return its exit code. @throws subprocess.CalledProcessError  with `check`, if that isn't 0. @throws KeyboardInterrupt  on Ctrl-C, when
    the job has ended.
    """
    if isinstance(arguments, str):
        raise TypeError("run() takes a list of words, as run(['--num_processes', '2', 'train.py'])")
    words: Tuple[str, ...] = tuple(map(str, arguments))
    code = Job(words, on_terminal=os.isatty(0)).wait(lambda: False)
    if check and code != 0:
        raise subprocess.CalledProcessError(code, ["acc-launch", *words])
    return code
