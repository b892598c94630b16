// A libnccl.so.2 without a GPU: it exports the real symbols, is loaded through ACC_NCCL_LIBRARY,
// and moves real data between threads and processes, on the streams of the fake CUDA runtime. It is
// as strict as NCCL (what doesn't match hangs) and stricter where a mistake of ours would go
// unnoticed: a communicator that is used after its abort ends the process.
//
// FAKE_NCCL, each for all ranks or as NAME=VALUE@RANK: version=CODE, id=fail, init=never,
// init=fail, never=K (the K-th operation never ends), error=K (an asynchronous error after K
// operations), invalid=K (the K-th call is refused), abort=hang, finalize=hang.

#include "runtime/nccl/nccl_api.hpp"
#include "tests/support/fake_nccl/faults.hpp"
#include "tests/support/fake_nccl/network.hpp"
#include "tests/support/fake_nccl/wire.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

extern "C" int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data);
extern "C" int cudaMalloc(void** data, std::size_t bytes);
extern "C" int cudaFree(void* data);

namespace {

using acc::fake::fault;
using acc::fake::Item;
using acc::fake::Kind;
using acc::runtime::nccl::Config;
using acc::runtime::nccl::Status;
using acc::runtime::nccl::UniqueId;
using Stream = void*;

thread_local std::string last_error;

Status fail(Status status, const char* why) {
  last_error = why;
  return status;
}

void hang() {
  std::mutex never;
  std::unique_lock lock{never};
  std::condition_variable{}.wait(lock, [] { return false; });
}

struct Communicator {
  static constexpr std::uint64_t kAlive = 0x4e43434c;
  std::atomic<std::uint64_t> magic{kAlive};
  int rank = 0;
  int size = 0;
  int fd = -1;
  bool blocking = true;
  std::atomic<Status> state{Status::in_progress};
  std::atomic<bool> aborted{false};
  std::atomic<int> launched{0};
  std::atomic<int> calls{0};
  std::mutex mutex;
  std::condition_variable changed;
  int in_flight = 0;  ///< under mutex
};

/// One operation as it was called, with its buffers.
struct Job {
  Item item;
  const void* send = nullptr;
  void* recv = nullptr;
};
struct Launch {
  std::shared_ptr<std::vector<Job>> jobs = std::make_shared<std::vector<Job>>();
  Communicator* comm = nullptr;
  Stream stream = nullptr;
  int number = 0;
};

/// Kept for ever, so that a late use is seen.
Communicator* keep() {
  static auto* const all = new std::vector<std::unique_ptr<Communicator>>;
  static std::mutex mutex;
  const std::lock_guard lock{mutex};
  all->push_back(std::make_unique<Communicator>());
  return all->back().get();
}

thread_local int group_depth = 0;
thread_local Status group_status = Status::success;
thread_local std::map<std::pair<Communicator*, Stream>, Launch> group_launches;

Communicator& alive(void* comm) {
  auto* const found = static_cast<Communicator*>(comm);
  if (found == nullptr || found->magic != Communicator::kAlive) {
    std::fputs("fake nccl: a communicator was used after its end\n", stderr);
    std::abort();
  }
  return *found;
}

/// false: the connection is gone, by an abort or a dead rank 0.
bool converse(Communicator& comm, const std::vector<Job>& jobs) {
  const std::uint64_t count = jobs.size();
  std::vector<char> request(sizeof count);
  std::memcpy(request.data(), &count, sizeof count);
  for (auto job : jobs) {
    job.item.bytes = acc::fake::sent_bytes(job.item, comm.rank, comm.size);
    const auto* head = reinterpret_cast<const char*>(&job.item);
    request.insert(request.end(), head, head + sizeof job.item);
    const auto* data = static_cast<const char*>(job.send);
    if (job.item.bytes > 0) request.insert(request.end(), data, data + job.item.bytes);
  }
  if (!acc::fake::write_all(comm.fd, request.data(), request.size())) return false;
  for (const auto& job : jobs) {
    const auto bytes = acc::fake::received_bytes(job.item, comm.rank, comm.size);
    if (bytes > 0 && !acc::fake::read_all(comm.fd, job.recv, bytes)) return false;
  }
  char done = 0;
  return acc::fake::read_all(comm.fd, &done, 1);
}

void await_abort(Communicator& comm) {
  std::unique_lock lock{comm.mutex};
  comm.changed.wait(lock, [&] { return comm.aborted.load(); });
}

void run_on_stream(void* data) {
  const std::unique_ptr<Launch> launch{static_cast<Launch*>(data)};
  auto& comm = *launch->comm;
  const auto never = fault("FAKE_NCCL", "never", comm.rank);
  // A rank that died is silence to the others, as where memory is shared between devices.
  if ((never && launch->number == std::atoi(never->c_str())) || !converse(comm, *launch->jobs)) {
    await_abort(comm);
  }
  if (const auto error = fault("FAKE_NCCL", "error", comm.rank);
      error && launch->number >= std::atoi(error->c_str())) {
    comm.state = Status::remote;
  }
  const std::lock_guard lock{comm.mutex};
  --comm.in_flight;
  comm.changed.notify_all();
}

Status start(Launch launch) {
  auto& comm = *launch.comm;
  {
    const std::lock_guard lock{comm.mutex};
    ++comm.in_flight;
  }
  launch.number = ++comm.launched;
  auto* const kept = new Launch{std::move(launch)};
  if (kept->number > 1 || comm.blocking) {
    cudaLaunchHostFunc(kept->stream, run_on_stream, kept);
    return Status::success;
  }
  // As NCCL connects with the first use: the call is back before anything is on the stream.
  comm.state = Status::in_progress;
  std::thread{[kept] {
    auto& later = *kept->comm;
    std::this_thread::sleep_for(std::chrono::milliseconds{2});
    cudaLaunchHostFunc(kept->stream, run_on_stream, kept);
    auto expected = Status::in_progress;
    later.state.compare_exchange_strong(expected, Status::success);
  }}.detach();
  return Status::in_progress;
}

Status enqueue(void* handle, Stream stream, Item item, const void* send, void* recv) {
  auto& comm = alive(handle);
  const auto state = comm.state.load();
  if (state == Status::in_progress) return fail(Status::invalid_usage, "fake: still in progress");
  if (state != Status::success) return state;
  const int number = ++comm.calls;
  if (const auto bad = fault("FAKE_NCCL", "invalid", comm.rank);
      bad && number == std::atoi(bad->c_str())) {
    if (group_depth > 0) group_status = Status::invalid_argument;
    return fail(Status::invalid_argument, "fake: told to refuse this call");
  }
  Launch launch;
  launch.comm = &comm;
  launch.stream = stream;
  if (group_depth > 0) {
    auto& grouped = group_launches.try_emplace({&comm, stream}, launch).first->second;
    grouped.jobs->push_back({item, send, recv});
    return Status::success;
  }
  launch.jobs->push_back({item, send, recv});
  return start(std::move(launch));
}

Item item_of(Kind kind, std::size_t count, int type, int op, int peer) {
  Item item;
  item.kind = kind;
  item.type = type;
  item.op = op;
  item.peer = peer;
  item.count = count;
  return item;
}

Status join(Communicator& comm, const std::string& name) {
  if (fault("FAKE_NCCL", "init", comm.rank) == "fail") return Status::internal;
  if (fault("FAKE_NCCL", "init", comm.rank) == "never") {
    await_abort(comm);
    return Status::in_progress;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const acc::fake::Hello hello{comm.rank, comm.size};
  char go = 0;
  if (::connect(comm.fd, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      !acc::fake::write_all(comm.fd, &hello, sizeof hello) ||
      !acc::fake::read_all(comm.fd, &go, 1)) {
    return Status::system;
  }
  return Status::success;
}

}  // namespace

extern "C" {

Status ncclGetVersion(int* version) {
  const auto told = fault("FAKE_NCCL", "version");
  *version = told ? std::atoi(told->c_str()) : 22809;
  return Status::success;
}
Status ncclGetUniqueId(UniqueId* id) {
  if (fault("FAKE_NCCL", "id")) return fail(Status::system, "fake: no id today");
  const auto name = acc::fake::start_network();
  if (name.empty()) return fail(Status::system, "fake: no socket");
  *id = {};
  std::memcpy(id->bytes, name.data(), name.size());
  return Status::success;
}
Status ncclCommInitRankConfig(void** handle, int ranks, UniqueId id, int rank, Config* config) {
  if (config != nullptr && (config->magic != 0xcafebeef || config->size != sizeof(Config))) {
    return fail(Status::invalid_argument, "fake: not a config");
  }
  auto* const comm = keep();
  comm->rank = rank;
  comm->size = ranks;
  comm->blocking = config == nullptr || config->blocking != 0;
  comm->fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  *handle = comm;
  const std::string name{id.bytes};
  if (comm->blocking) {
    comm->state = join(*comm, name);
    return comm->state;
  }
  std::thread{[comm, name] {
    const auto joined = join(*comm, name);
    if (joined != Status::in_progress) comm->state = joined;
  }}.detach();
  return Status::in_progress;
}
Status ncclCommFinalize(void* handle) {
  auto& comm = alive(handle);
  if (fault("FAKE_NCCL", "finalize", comm.rank) == "hang") {
    comm.state = Status::in_progress;
    return Status::in_progress;
  }
  std::unique_lock lock{comm.mutex};
  comm.changed.wait(lock, [&] { return comm.in_flight == 0; });
  return Status::success;
}
Status ncclCommDestroy(void* handle) {
  auto& comm = alive(handle);
  comm.magic = 0;
  ::close(comm.fd);
  return Status::success;
}
Status ncclCommAbort(void* handle) {
  auto& comm = alive(handle);
  if (fault("FAKE_NCCL", "abort", comm.rank) == "hang") hang();
  {
    const std::lock_guard lock{comm.mutex};
    comm.aborted = true;
    comm.changed.notify_all();
  }
  ::shutdown(comm.fd, SHUT_RDWR);
  std::unique_lock lock{comm.mutex};
  comm.changed.wait(lock, [&] { return comm.in_flight == 0; });
  comm.magic = 0;
  return Status::success;
}
Status ncclCommGetAsyncError(void* handle, Status* error) {
  *error = alive(handle).state;
  if (*error == Status::remote) last_error = "fake: a peer's network card is gone";
  return Status::success;
}
const char* ncclGetErrorString(Status status) {
  constexpr const char* kWords[] = {"no error",
                                    "unhandled cuda error",
                                    "unhandled system error",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "remote process exited or there was a network error",
                                    "NCCL operation in progress"};
  return kWords[static_cast<int>(status)];
}
const char* ncclGetLastError(void*) { return last_error.c_str(); }

Status ncclGroupStart() {
  ++group_depth;
  return Status::success;
}
Status ncclGroupEnd() {
  if (--group_depth > 0) return Status::success;
  auto launches = std::exchange(group_launches, {});
  auto status = std::exchange(group_status, Status::success);
  if (status != Status::success) return status;
  for (auto& [key, launch] : launches) {
    if (const auto started = start(std::move(launch)); started != Status::success) status = started;
  }
  return status;
}

Status ncclAllReduce(const void* send, void* recv, std::size_t count, int type, int op, void* comm,
                     Stream stream) {
  return enqueue(comm, stream, item_of(Kind::all_reduce, count, type, op, -1), send, recv);
}
Status ncclReduce(const void* send, void* recv, std::size_t count, int type, int op, int root,
                  void* comm, Stream stream) {
  return enqueue(comm, stream, item_of(Kind::reduce, count, type, op, root), send, recv);
}
Status ncclBroadcast(const void* send, void* recv, std::size_t count, int type, int root,
                     void* comm, Stream stream) {
  return enqueue(comm, stream, item_of(Kind::broadcast, count, type, 0, root), send, recv);
}
Status ncclReduceScatter(const void* send, void* recv, std::size_t count, int type, int op,
                         void* comm, Stream stream) {
  return enqueue(comm, stream, item_of(Kind::reduce_scatter, count, type, op, -1), send, recv);
}
Status ncclAllGather(const void* send, void* recv, std::size_t count, int type, void* comm,
                     Stream stream) {
  return enqueue(comm, stream, item_of(Kind::all_gather, count, type, 0, -1), send, recv);
}
Status ncclSend(const void* data, std::size_t count, int type, int peer, void* comm,
                Stream stream) {
  return enqueue(comm, stream, item_of(Kind::send, count, type, 0, peer), data, nullptr);
}
Status ncclRecv(void* data, std::size_t count, int type, int peer, void* comm, Stream stream) {
  return enqueue(comm, stream, item_of(Kind::recv, count, type, 0, peer), nullptr, data);
}

Status ncclMemAlloc(void** data, std::size_t bytes) {
  return cudaMalloc(data, bytes) == 0 ? Status::success : Status::cuda;
}
Status ncclMemFree(void* data) { return cudaFree(data) == 0 ? Status::success : Status::cuda; }
Status ncclCommRegister(void* comm, void*, std::size_t, void** handle) {
  *handle = &alive(comm);
  return Status::success;
}
Status ncclCommDeregister(void* comm, void*) {
  (void)alive(comm);
  return Status::success;
}
Status ncclCommWindowRegister(void* comm, void* data, std::size_t bytes, void** window, int) {
  if (reinterpret_cast<std::uintptr_t>(data) % 4096 != 0 || bytes % 4096 != 0) {
    return fail(Status::invalid_argument, "fake: a window is made of whole pages");
  }
  *window = &alive(comm);
  return Status::success;
}
Status ncclCommWindowDeregister(void* comm, void*) {
  (void)alive(comm);
  return Status::success;
}

}  // extern "C"
