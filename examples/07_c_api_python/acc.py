"""The C interface of the runtime (acc/acc.h) from Python: as much of it as this example needs, by ctypes and nothing else."""
import ctypes
import os

F64, SUM, AVG, DEFAULT = 8, 0, 4, -1
STATUS_OK = 0

try:
    _lib = ctypes.CDLL(os.environ.get("ACC_LIBRARY", "libacc.so.0"))
except OSError as error:
    raise SystemExit(f"{error}\nname its folder by LD_LIBRARY_PATH, or the file itself by ACC_LIBRARY") from None


class _Config(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("backend", ctypes.c_int32), ("check", ctypes.c_int32),
                ("init_timeout_ms", ctypes.c_int64), ("timeout_ms", ctypes.c_int64), ("name", ctypes.c_char_p)]


# (result, arguments) of each function. ctypes would take every pointer for an int without it.
_status, _handle, _place = ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)
for _name, _result, _arguments in [
        ("acc_config_init", None, [ctypes.POINTER(_Config), ctypes.c_size_t]),
        ("acc_status_name", ctypes.c_char_p, [_status]),
        ("acc_last_error", ctypes.c_char_p, []),
        ("acc_last_error_ranks", ctypes.c_size_t, [ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t]),
        ("acc_init", _status, [ctypes.POINTER(_Config), _place]),
        ("acc_finalize", None, [_handle]),
        ("acc_rank", ctypes.c_int32, [_handle]),
        ("acc_size", ctypes.c_int32, [_handle]),
        ("acc_all_reduce", _status, [_handle, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32,
                                     ctypes.c_int32, ctypes.c_void_p]),
        ("acc_all_gather_object", _status, [_handle, ctypes.c_char_p, ctypes.c_size_t, _place]),
        ("acc_objects_count", ctypes.c_size_t, [_handle]),
        ("acc_objects_data", ctypes.c_void_p, [_handle, ctypes.c_size_t]),
        ("acc_objects_size", ctypes.c_size_t, [_handle, ctypes.c_size_t]),
        ("acc_objects_free", None, [_handle]),
        ("acc_agent_heartbeat", None, [ctypes.c_uint64])]:
    _function = getattr(_lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


class Error(RuntimeError):
    """What a call failed with: kind ("peer_lost", "mismatch", …), words, and the ranks to blame."""

    def __init__(self, status):
        self.kind = _lib.acc_status_name(status).decode()
        blamed = (ctypes.c_int32 * 64)()
        count = _lib.acc_last_error_ranks(blamed, len(blamed))
        self.ranks = list(blamed[:min(count, len(blamed))])
        super().__init__(f"{self.kind}: {_lib.acc_last_error().decode()}")


def _check(status):
    if status != STATUS_OK:
        raise Error(status)


class Comm:
    """The group of all processes of the job; `with` it, and it is left in order."""

    def __init__(self, timeout_ms=DEFAULT):
        config = _Config()
        _lib.acc_config_init(config, ctypes.sizeof(config))
        config.timeout_ms = timeout_ms
        self._comm = ctypes.c_void_p()
        _check(_lib.acc_init(config, self._comm))
        self.rank, self.size = _lib.acc_rank(self._comm), _lib.acc_size(self._comm)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        _lib.acc_finalize(self._comm)
        self._comm = None

    def all_reduce(self, values, op=SUM):
        """`values`: an array.array("d"), in place. ctypes lets go of the interpreter's lock while it waits."""
        if values.typecode != "d":
            raise TypeError(f"an array of '{values.typecode}': this example reduces 'd' (double) alone")
        address, count = values.buffer_info()
        _check(_lib.acc_all_reduce(self._comm, address, address, count, F64, op, None))

    def all_gather(self, mine):
        """The bytes of every rank, by rank."""
        objects = ctypes.c_void_p()
        _check(_lib.acc_all_gather_object(self._comm, mine, len(mine), objects))
        try:
            return [ctypes.string_at(_lib.acc_objects_data(objects, i), _lib.acc_objects_size(objects, i))
                    for i in range(_lib.acc_objects_count(objects))]
        finally:
            _lib.acc_objects_free(objects)


def heartbeat(step):
    """Tells the agent that this worker is alive; without one it does nothing."""
    _lib.acc_agent_heartbeat(step)
