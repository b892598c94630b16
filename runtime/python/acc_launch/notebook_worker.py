"""notebook_worker.py: a worker of notebook_launcher. Reads the function from the file ACC_NOTEBOOK_ORDER, calls it, and appends what it raised to
ACC_NOTEBOOK_ERRORS. (Arguments would have to be the same on all nodes of a job.)

Started by acc-launch as a script, so that it doesn't need the package on sys.path. Standard library only.
"""
import base64
import json
import linecache
import os
import pickle
import sys
import time
import traceback


def load(path):
    """The call, with sys.path, sys.argv and the sources of the notebook as they are there."""
    with open(path, "rb") as file:
        order = pickle.load(file)
    sys.path[:], sys.argv[:] = order["path"], order["argv"]
    for name, lines in order["sources"].items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    try:
        return pickle.loads(order["call"])
    except Exception as error:
        if not order["cure"]:
            raise
        raise pickle.UnpicklingError(f"function or arguments can't be loaded in a worker ({error}): {order['cure']}") from error


def pickled(error):
    """None: it can't travel. Tried here, as a class may pickle and not come back."""
    try:
        import cloudpickle as pickler
    except ImportError:
        pickler = pickle
    try:
        data = pickler.dumps(error)
        pickle.loads(data)
    except Exception:
        return None
    return base64.b64encode(data).decode()


def without_own_frames(error):
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return error.with_traceback(frames)


def _cut(text, most):
    """Begin and end of a text that is longer than `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[:most // 2]}\n… {len(text) - most} characters are left out here …\n{text[len(text) - most // 2:]}"


def tell(error, path):
    """To the notebook, and to the agent for its report, in torchelastic's format."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    rank = int(os.environ.get("RANK", "0"))
    record = {"rank": rank, "pid": os.getpid(), "host": os.uname().nodename, "traceback": text, "exception": pickled(error)}
    line = json.dumps(record).encode() + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        while line:  # one piece, unless memory is short
            line = line[os.write(fd, line):]
    finally:
        os.close(fd)
    # The agent reads at most 1 MiB, and the traceback ends with the message.
    told = {"message": _cut(f"{type(error).__name__}: {error}", 40_000),
            "extraInfo": {"py_callstack": _cut(text, 100_000), "timestamp": str(int(time.time()))}}
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": told}, file)


def may_restart():
    done, most = (int(os.environ.get(f"TORCHELASTIC_{name}", "0")) for name in ("RESTART_COUNT", "MAX_RESTARTS"))
    return done < most


def main():
    order, errors = (os.environ.pop(f"ACC_NOTEBOOK_{file}") for file in ("ORDER", "ERRORS"))  # what the function starts is none of ours
    try:
        function, args = load(order)
        function(*args)
    except Exception as error:
        error = without_own_frames(error)
        tell(error, errors)
        if may_restart():  # after the last attempt the report shows it, and the notebook's exception
            traceback.print_exception(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    main()
