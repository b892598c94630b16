"""notebook_launcher: a function of a notebook on several processes, as Accelerate's, with acc-launch behind it.

The workers are processes of their own, started by acc-launch, not forks of the notebook. The function travels to them in memory: a memfd of
this process that they read through /proc. So nothing has to be removed afterwards, however the notebook ends. Its path is in a variable, not in the
workers' arguments: those must be the same on all nodes of a job.
"""
from __future__ import annotations

import base64
import codecs
import contextlib
import io
import json
import linecache
import operator
import os
import pathlib
import pickle
import selectors
import subprocess
import sys
import types
from typing import IO, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .programs import PIECE_S, Job

PRECISIONS = ("no", "fp8", "fp16", "bf16")
DEFAULT_PORT = "29500"
PIECE = 65536


class WorkerError(RuntimeError):
    """A job of notebook_launcher failed. Its cause (`__cause__`) is the worker's exception, where that could travel.

    rank: of the first worker that failed; None: no worker did, or none was started. exit_code: of acc-launch, which is the worker's.
    traceback: as that worker would have printed it; "" if it was no exception. report: what acc-launch --report tells.
    """

    def __init__(self, message: str, rank: Optional[int], exit_code: int, traceback: str, report: Dict[str, Any]) -> None:
        super().__init__(message)
        self.rank = rank
        self.exit_code = exit_code
        self.traceback = traceback
        self.report = report


def notebook_launcher(function: Callable[..., object], args: Sequence[Any] = (), num_processes: Optional[int] = None,
                      mixed_precision: str = "no", use_port: Union[str, int] = DEFAULT_PORT, master_addr: str = "127.0.0.1",
                      node_rank: int = 0, num_nodes: int = 1, rdzv_backend: str = "static", rdzv_endpoint: str = "",
                      rdzv_conf: Optional[Mapping[str, Any]] = None, rdzv_id: str = "none", max_restarts: int = 0,
                      monitor_interval: float = 0.1, log_line_prefix_template: Optional[str] = None, *,
                      preload: Union[str, Sequence[str]] = (), launch_args: Sequence[str] = ()) -> None:
    """Runs `function(*args)` in `num_processes` processes on this node, and returns when all have ended.

    The arguments up to `log_line_prefix_template` are those of accelerate.notebook_launcher. `num_processes` counts those of this node; with 1, and one
    node, the function runs in this process. `preload`: modules that are imported once and forked for each worker (--preload), as "torch" or
    ["torch", "numpy"]; "auto": the installed packages that the function's module has imported. `launch_args`: further flags of acc-launch.

    @throws ValueError, RuntimeError  the arguments, or this process, can't be used for it; nothing was started.
    @throws pickle.PicklingError  function or arguments can't travel to another process; the message says what to do.
    @throws WorkerError  a worker failed and no restart was left. @throws KeyboardInterrupt  when all workers have ended.
    """
    precision = str(getattr(mixed_precision, "value", mixed_precision)).lower()
    if precision not in PRECISIONS:
        raise ValueError(f"mixed_precision is '{precision}': expected {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}")
    if _in_colab() and _count_gpus() < 2 and num_nodes == 1:
        num_processes = 1
    if num_processes is None:
        raise ValueError("How many processes? Add num_processes=… to your call: one for each GPU, or any number on the CPU.")
    num_processes, num_nodes, node_rank, max_restarts = (
        _whole(name, value) for name, value in (("num_processes", num_processes), ("num_nodes", num_nodes), ("node_rank", node_rank),
                                                ("max_restarts", max_restarts)))
    if isinstance(args, (str, bytes)) or not hasattr(args, "__iter__"):
        raise TypeError(f"args is {args!r}, but must be a tuple of the function's arguments, as ({args!r},)")
    if num_processes < 1 or num_nodes < 1:
        raise ValueError("num_processes and num_nodes must be at least 1.")
    if not 0 <= node_rank < num_nodes:
        raise ValueError(f"node_rank is {node_rank}, but must be less than num_nodes, {num_nodes}.")
    if num_processes * num_nodes == 1:
        print("acc-launch: one process, so the function runs in this one")
        function(*args)
        return
    _refuse_used_devices()

    if isinstance(launch_args, str):
        raise TypeError("launch_args is a list of words, as ['--log_dir', 'logs']")
    flags = _flags(num_processes, precision, str(use_port), master_addr, node_rank, num_nodes, rdzv_backend, rdzv_endpoint,
                   rdzv_conf or {}, rdzv_id, max_restarts, monitor_interval)
    if modules := _modules_to_preload(function, preload):
        flags += ["--preload", ",".join(modules)]
    with _memory() as order, _memory() as errors, _memory() as report:
        _write(order, _order(function, tuple(args)))
        print(f"acc-launch: {num_processes} workers" + (f" on each of {num_nodes} nodes" if num_nodes > 1 else ""))
        worker = str(pathlib.Path(__file__).with_name("notebook_worker.py"))
        with _variables(log_line_prefix_template):
            code = _run([*flags, *launch_args, "--report", _path(report), worker], {"ACC_NOTEBOOK_ORDER": _path(order), "ACC_NOTEBOOK_ERRORS": _path(errors)})
        if code != 0:
            raise _error(code, _read(report), _read(errors))


# ---- May it be done from here?
def _whole(name: str, value: Any) -> int:
    """Also of other libraries' integers, as numpy's. The original would end in an error of its own where it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, a {type(value).__name__}, but must be a whole number") from None


def _in_colab() -> bool:
    """Google's Colab has one GPU, or none; the original runs the function in place there."""
    return "google.colab" in sys.modules


def _count_gpus() -> int:
    """Without touching them."""
    with contextlib.suppress(OSError):
        return sum(name.startswith("nvidia") and name[6:].isdigit() for name in os.listdir("/dev"))
    return 0


def _refuse_used_devices() -> None:
    """As the original, which can't fork then. Our workers could start, but would share their GPU with what this process keeps there."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise RuntimeError("CUDA was initialized in this notebook before notebook_launcher was called, and holds memory of a GPU that a worker needs. "
                           "Restart the notebook's kernel, and use torch.cuda only in the function that is launched.")
    state = sys.modules.get("accelerate.state")
    if state is not None and getattr(state.AcceleratorState, "_shared_state", None):
        raise ValueError("An `Accelerator` was made in this notebook before notebook_launcher was called. Restart the notebook's kernel, and make it "
                         "only in the function that is launched.")


# ---- The command line
def _flags(num_processes: int, precision: str, port: str, master_addr: str, node_rank: int, num_nodes: int, rdzv_backend: str,
           rdzv_endpoint: str, rdzv_conf: Mapping[str, Any], rdzv_id: str, max_restarts: int, monitor_interval: float) -> List[str]:
    """torchrun's spellings: they count processes per node, as the original's arguments do."""
    flags = ["--nnodes", str(num_nodes), "--nproc-per-node", str(num_processes), "--mixed_precision", precision,
             "--max-restarts", str(max_restarts), "--monitor-interval", str(monitor_interval), "--rdzv-id", rdzv_id]
    conf = {key: value for key, value in rdzv_conf.items() if key != "rank"}  # node_rank says it
    if conf:
        flags += ["--rdzv-conf", ",".join(f"{key}={value}" for key, value in conf.items())]
    if rdzv_backend != "static":
        flags += ["--rdzv-backend", rdzv_backend]
        if rdzv_endpoint or num_nodes > 1:
            flags += ["--rdzv-endpoint", rdzv_endpoint or f"{master_addr}:{port}"]
        return flags
    flags += ["--node-rank", str(node_rank)]
    address, _, endpoint_port = rdzv_endpoint.rpartition(":")
    if rdzv_endpoint:
        master_addr, port = (address, endpoint_port) if address else (rdzv_endpoint, port)
    # The default may be taken by another notebook on this machine: acc-launch then finds a free one.
    if num_nodes > 1 or port != DEFAULT_PORT:
        flags += ["--master-addr", master_addr, "--master-port", port]
    return flags


def _modules_to_preload(function: Callable[..., object], preload: Union[str, Sequence[str]]) -> List[str]:
    modules = [name for name in preload.split(",") if name] if isinstance(preload, str) else list(preload)
    if modules != ["auto"]:
        return modules
    values = getattr(function, "__globals__", {}).values()
    packages = {value.__name__.partition(".")[0] for value in values if isinstance(value, types.ModuleType)}
    return sorted(name for name in packages if name != __package__ and _is_installed(name))


def _is_installed(module: str) -> bool:
    place = getattr(sys.modules.get(module), "__file__", None) or ""
    return "/site-packages/" in place or "/dist-packages/" in place


@contextlib.contextmanager
def _variables(log_line_prefix_template: Optional[str]) -> Iterator[None]:
    name = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
    before = os.environ.get(name)
    if log_line_prefix_template is not None:
        os.environ[name] = log_line_prefix_template
    try:
        yield
    finally:
        if log_line_prefix_template is not None:
            del os.environ[name]
            if before is not None:
                os.environ[name] = before


# ---- What the workers get
def _pickler() -> Any:
    """cloudpickle, which takes along functions and classes of the notebook itself, or pickle, which only names them."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


CURE = ("install cloudpickle (pip install cloudpickle), which carries functions of a notebook, or put the function into a file beside the "
        "notebook and import it from there")


def _order(function: Callable[..., object], args: Tuple[Any, ...]) -> bytes:
    """What notebook_worker.py reads.

    @throws pickle.PicklingError
    """
    pickler = _pickler()
    name = getattr(function, "__qualname__", repr(function))
    if pickler is pickle and getattr(function, "__module__", None) == "__main__":
        raise pickle.PicklingError(f"'{name}' is defined in this notebook or script, where its workers can't import it: {CURE}")
    try:
        call = pickler.dumps((function, args))
    except Exception as error:  # any class may raise what it likes from __reduce__
        raise pickle.PicklingError(f"'{name}' or its arguments can't be sent to another process ({type(error).__name__}: {error})"
                                   + (f": {CURE}" if pickler is pickle else "")) from error
    return pickle.dumps({"path": sys.path, "argv": sys.argv, "sources": _sources(function), "cure": CURE if pickler is pickle else "", "call": call})


def _sources(function: Callable[..., object]) -> Dict[str, List[str]]:
    """Lines of the notebook's cells, which are in no file: for the workers' tracebacks."""
    code = getattr(function, "__code__", None)
    names = {code.co_filename} if code is not None else set()
    for value in getattr(function, "__globals__", {}).values():
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
            names.add(value.__code__.co_filename)
    lines = {name: linecache.getlines(name) for name in names if not os.path.exists(name)}
    return {name: text for name, text in lines.items() if text}


@contextlib.contextmanager
def _memory() -> Iterator[int]:
    fd = os.memfd_create("acc-notebook")
    try:
        yield fd
    finally:
        os.close(fd)


def _path(fd: int) -> str:
    return f"/proc/{os.getpid()}/fd/{fd}"


def _write(fd: int, content: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(content)


def _read(fd: int) -> bytes:
    with open(_path(fd), "rb") as file:  # opened anew: from the beginning
        return file.read()


# ---- While it runs
def _run(arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """@return acc-launch's exit code. Its output goes to sys.stdout and sys.stderr, whatever those are: a cell, or a file."""
    if _is_descriptor(sys.stdout, 1) and _is_descriptor(sys.stderr, 2):
        return Job(arguments, variables=variables, stdin=subprocess.DEVNULL).wait(lambda: False)
    job = Job(arguments, variables=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with job.process, selectors.DefaultSelector() as streams:
        assert job.process.stdout and job.process.stderr
        for stream, target in ((job.process.stdout, "stdout"), (job.process.stderr, "stderr")):
            streams.register(stream, selectors.EVENT_READ, (target, codecs.getincrementaldecoder("utf-8")("replace")))
        return job.wait(lambda: _copy_some(streams))


def _is_descriptor(stream: Any, fd: int) -> bool:
    if stream is None or stream is not getattr(sys, "__stdout__" if fd == 1 else "__stderr__"):
        return False
    with contextlib.suppress(OSError, ValueError, AttributeError, io.UnsupportedOperation):
        stream.flush()
        return bool(stream.fileno() == fd)
    return False


def _copy_some(streams: selectors.BaseSelector) -> bool:
    """Waits for output, PIECE_S at most, and passes it on. @return false when there is no more."""
    for key, _ in streams.select(PIECE_S):
        source: Any = key.fileobj
        name, decoder = key.data
        piece = os.read(source.fileno(), PIECE)
        target: Optional[IO[str]] = getattr(sys, name)
        if target is not None and (text := decoder.decode(piece, final=not piece)):
            target.write(text)
            target.flush()
        if not piece:
            streams.unregister(source)
    return bool(streams.get_map())


# ---- When it failed
def _error(code: int, report_text: bytes, errors: bytes) -> WorkerError:
    try:
        report: Dict[str, Any] = json.loads(report_text)
    except ValueError:
        report = {}
    first: Dict[str, Any] = report.get("first_failure") or {}
    if not first:
        reason = report.get("reason") or "its messages say why"
        return WorkerError(f"acc-launch ended with exit code {code}: {reason}", None, code, "", report)
    record = _record_of(first, errors)
    traceback = record.get("traceback") or (first.get("error") or {}).get("traceback") or ""
    message = f"rank {first['rank']} {first['cause']}"
    if traceback:
        message += f"\n\n{traceback.rstrip()}"
    elif first.get("last_lines"):
        error_lines = first.get("error_lines") or []
        lines = (error_lines + ["…"] if error_lines else []) + first["last_lines"]
        message += "; its last lines:\n" + "\n".join(f"  {line}" for line in lines)
    error = WorkerError(message, first["rank"], code, traceback, report)
    error.__cause__ = _exception_in(record)
    return error


def _record_of(failure: Mapping[str, Any], errors: bytes) -> Dict[str, Any]:
    """What that worker wrote: a line of JSON. Others, of other attempts and of peers that failed because of it, wrote some, too."""
    for line in errors.splitlines():
        record: Dict[str, Any] = json.loads(line)
        if (record["rank"], record["pid"], record["host"]) == (failure["rank"], failure["pid"], os.uname().nodename):
            return record
    return {}


def _exception_in(record: Mapping[str, Any]) -> Optional[BaseException]:
    try:
        exception = pickle.loads(base64.b64decode(record["exception"]))
    except Exception:  # of a class that can't be made from what it was pickled as; its text is in the traceback
        return None
    return exception if isinstance(exception, BaseException) else None
