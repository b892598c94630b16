"""The C interface of the runtime (acc/acc.h, acc/acc_training.h) from Python: as much of it as this example needs, by ctypes and
nothing else."""
import ctypes
import os

F64, DEFAULT = 8, -1
STATUS_OK = 0

try:
    _lib = ctypes.CDLL(os.environ.get("ACC_LIBRARY", "libacc.so.0"))
except OSError as error:
    raise SystemExit(f"{error}\nname its folder by LD_LIBRARY_PATH, or the file itself by ACC_LIBRARY") from None

_i32, _i64, _u64, _size, _f64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_double
_handle, _text = ctypes.c_void_p, ctypes.c_char_p
_place = ctypes.POINTER(ctypes.c_void_p)


def _struct(name, /, **fields):
    """A struct of acc.h: it begins with its size, and the library fills in the defaults."""
    made = type(name, (ctypes.Structure,), {"_fields_": [("size", _size), *fields.items()]})
    init = getattr(_lib, f"{name}_init", None)
    if init is not None:
        init.restype, init.argtypes = None, [ctypes.POINTER(made), _size]

    def fill(**values):
        one = made()
        one.size = ctypes.sizeof(made)
        if init is not None:
            init(one, ctypes.sizeof(made))
        for key, value in values.items():
            setattr(one, key, value)
        return one

    made.fill = staticmethod(fill)
    return made


_Config = _struct("acc_config", backend=_i32, check=_i32, init_timeout_ms=_i64, timeout_ms=_i64, name=_text)
_Sharding = _struct("acc_sharding", batch_size=_u64, drop_last=_i32, split_batches=_i32, even_batches=_i32, shuffle=_i32, seed=_u64)
_Parameter = _struct("acc_parameter", name=_text, values=_handle, gradient=_handle, dtype=_i32, device=_i32,
                     shape=ctypes.POINTER(_i64), dims=_size)
_SgdOptions = _struct("acc_sgd", learning_rate=_f64, momentum=_f64, dampening=_f64, weight_decay=_f64, nesterov=_i32)
_Folder = _struct("acc_checkpointer_config", folder=_text, keep_last=_i32, asynchronous=_i32)

# (result, arguments) of each function. ctypes would take every pointer for an int without it.
_status = _i32
for _name, _result, _arguments in [
        ("acc_status_name", _text, [_status]),
        ("acc_last_error", _text, []),
        ("acc_last_error_ranks", _size, [ctypes.POINTER(_i32), _size]),
        ("acc_init", _status, [ctypes.POINTER(_Config), _place]),
        ("acc_finalize", None, [_handle]),
        ("acc_rank", _i32, [_handle]),
        ("acc_size", _i32, [_handle]),
        ("acc_all_gather_object", _status, [_handle, _text, _size, _place]),
        ("acc_objects_count", _size, [_handle]),
        ("acc_objects_data", _handle, [_handle, _size]),
        ("acc_objects_size", _size, [_handle, _size]),
        ("acc_objects_free", None, [_handle]),
        ("acc_shard", _status, [_handle, _u64, ctypes.POINTER(_Sharding), _u64, _place]),
        ("acc_batches_count", _size, [_handle]),
        ("acc_batches_get", ctypes.POINTER(_u64), [_handle, _size, ctypes.POINTER(_size)]),
        ("acc_batches_free", None, [_handle]),
        ("acc_reducer_create", _status, [_handle, ctypes.POINTER(_Parameter), _size, _handle, _place]),
        ("acc_reducer_gradient", _handle, [_handle, _size]),
        ("acc_reducer_zero", _status, [_handle]),
        ("acc_reducer_ready", _status, [_handle, _size]),
        ("acc_reducer_finish", _status, [_handle]),
        ("acc_reducer_free", None, [_handle]),
        ("acc_sgd_create", _status, [_handle, ctypes.POINTER(_SgdOptions), _place]),
        ("acc_optimizer_step", _status, [_handle]),
        ("acc_optimizer_free", None, [_handle]),
        ("acc_checkpointer_create", _status, [_handle, ctypes.POINTER(_Folder), _place]),
        ("acc_checkpointer_free", None, [_handle]),
        ("acc_state_create", _status, [_place]),
        ("acc_state_add_optimizer", _status, [_handle, _handle, _text]),
        ("acc_state_free", None, [_handle]),
        ("acc_save", _status, [_handle, _u64, _handle]),
        ("acc_load", _status, [_handle, _handle, ctypes.POINTER(_i32), ctypes.POINTER(_u64)]),
        ("acc_agent_heartbeat", None, [_u64])]:
    _function = getattr(_lib, _name)
    _function.restype, _function.argtypes = _result, _arguments


class Error(RuntimeError):
    """What a call failed with: kind ("peer_lost", "mismatch", …), words, and the ranks to blame."""

    def __init__(self, status):
        self.kind = _lib.acc_status_name(status).decode()
        blamed = (_i32 * 64)()
        count = _lib.acc_last_error_ranks(blamed, len(blamed))
        self.ranks = list(blamed[:min(count, len(blamed))])
        super().__init__(f"{self.kind}: {_lib.acc_last_error().decode()}")


def _check(status):
    if status != STATUS_OK:
        raise Error(status)


def _made(function, *arguments):
    """The handle that a function makes."""
    handle = ctypes.c_void_p()
    _check(function(*arguments, handle))
    return handle


class Comm:
    """The group of all processes of the job; `with` it, and it is left in order."""

    def __init__(self, timeout_ms=DEFAULT):
        # A blocking call of ctypes lets go of the interpreter's lock, but Ctrl-C is seen only after it: hence a timeout.
        self.handle = _made(_lib.acc_init, _Config.fill(timeout_ms=timeout_ms))
        self.rank, self.size = _lib.acc_rank(self.handle), _lib.acc_size(self.handle)
        self.owned = []  # what is to be freed before the group is left

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for free, handle in reversed(self.owned):
            free(handle)
        _lib.acc_finalize(self.handle)

    def own(self, free, handle):
        self.owned.append((free, handle))
        return handle

    def shard(self, samples, batch, epoch, seed=0):
        """This rank's samples of each batch of an epoch, in another order each epoch; `batch` is of all ranks together."""
        how = _Sharding.fill(batch_size=batch, split_batches=1, shuffle=1, seed=seed)
        batches = _made(_lib.acc_shard, self.handle, samples, how, epoch)
        try:
            count = ctypes.c_size_t()
            for i in range(_lib.acc_batches_count(batches)):
                indices = _lib.acc_batches_get(batches, i, count)
                yield indices[:count.value]
        finally:
            _lib.acc_batches_free(batches)

    def all_gather(self, mine):
        """The bytes of every rank, by rank."""
        objects = _made(_lib.acc_all_gather_object, self.handle, mine, len(mine))
        try:
            return [ctypes.string_at(_lib.acc_objects_data(objects, i), _lib.acc_objects_size(objects, i))
                    for i in range(_lib.acc_objects_count(objects))]
        finally:
            _lib.acc_objects_free(objects)


class Reducer:
    """Averages gradients over the ranks. `parameters`: name -> array.array("d"), which stay where they are."""

    def __init__(self, comm, parameters):
        self.comm, self.arrays = comm, list(parameters.values())
        views = []
        for name, values in parameters.items():
            address, count = values.buffer_info()
            views.append(_Parameter.fill(name=name.encode(), values=address, dtype=F64, device=-1, shape=(_i64 * 1)(count), dims=1))
        views = (_Parameter * len(views))(*views)
        self.handle = comm.own(_lib.acc_reducer_free, _made(_lib.acc_reducer_create, comm.handle, views, len(views), None))

    def gradient(self, index):
        """To be added to. It may move in the first finish(): ask for it in each pass."""
        at = _lib.acc_reducer_gradient(self.handle, index)
        return (_f64 * len(self.arrays[index])).from_address(at)

    def zero(self):
        _check(_lib.acc_reducer_zero(self.handle))

    def ready(self, index):
        _check(_lib.acc_reducer_ready(self.handle, index))

    def finish(self):
        _check(_lib.acc_reducer_finish(self.handle))


class Sgd:
    def __init__(self, reducer, **options):
        self.handle = reducer.comm.own(_lib.acc_optimizer_free,
                                       _made(_lib.acc_sgd_create, reducer.handle, _SgdOptions.fill(**options)))

    def step(self):
        _check(_lib.acc_optimizer_step(self.handle))


class Checkpoints:
    """The parameters and the optimizer in a folder that all ranks see; whole or not at all, whatever dies."""

    def __init__(self, comm, folder, optimizer, keep_last=0):
        self.state = comm.own(_lib.acc_state_free, _made(_lib.acc_state_create))
        _check(_lib.acc_state_add_optimizer(self.state, optimizer.handle, None))
        how = _Folder.fill(folder=folder.encode(), keep_last=keep_last)
        self.handle = comm.own(_lib.acc_checkpointer_free, _made(_lib.acc_checkpointer_create, comm.handle, how))

    def load(self):
        """The number of the newest whole one, which is in place again; None: there is none."""
        found, number = _i32(), _u64()
        _check(_lib.acc_load(self.handle, self.state, found, number))
        return number.value if found.value else None

    def save(self, number):
        _check(_lib.acc_save(self.handle, number, self.state))


def heartbeat(step):
    """Tells the agent that this worker is alive; without one it does nothing."""
    _lib.acc_agent_heartbeat(step)
