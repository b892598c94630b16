// A CUDA runtime without a GPU: device memory is host memory, and each stream is a thread that
// works off a queue, so that what is enqueued really runs later, as on a device. It exports the
// real symbols and is loaded through ACC_CUDART_LIBRARY. FAKE_CUDA: devices=N (8), no_driver,
// no_device, query=hang (cudaEventQuery never returns).

#include "runtime/nccl/cuda_api.hpp"
#include "tests/support/fake_nccl/faults.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

using acc::fake::fault;
using acc::runtime::cuda::Status;

constexpr int kPinned = 1;
constexpr int kDevice = 2;

class StreamThread {
 public:
  explicit StreamThread(int device) : device_{device} {
    std::thread{[this] { work(); }}.detach();
  }
  void push(std::function<void()> job) {
    const std::lock_guard lock{mutex_};
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  void drain() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return jobs_.empty(); });
  }
  [[nodiscard]] int device() const { return device_; }
  bool idle() {
    const std::lock_guard lock{mutex_};
    return jobs_.empty();
  }

 private:
  const int device_;
  void work() {
    std::unique_lock lock{mutex_};
    for (;;) {
      changed_.wait(lock, [&] { return !jobs_.empty(); });
      auto job = jobs_.front();  // stays in front until it is done
      lock.unlock();
      job();
      lock.lock();
      jobs_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
};

struct EventState {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t recorded = 0;
  std::uint64_t completed = 0;
  std::chrono::steady_clock::time_point when;
};
struct EventHandle {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

struct Block {
  std::size_t bytes = 0;
  int kind = kDevice;
  int device = 0;
};
struct World {
  std::mutex mutex;
  std::map<int, StreamThread*> legacy;  // of each device
  std::vector<StreamThread*> streams;   // of all, for cudaDeviceSynchronize and cudaFree
  std::map<const char*, Block> memory;
  std::map<EventHandle*, std::unique_ptr<EventHandle>> events;
};
// Never destroyed: streams may be at work when the process ends.
World& world() {
  static auto* const only = new World;
  return *only;
}

thread_local int current_device = 0;
thread_local Status last_error = Status::success;

Status fail(Status status) {
  last_error = status;
  return status;
}

int devices() {
  const auto words = fault("FAKE_CUDA", "devices");
  return words ? std::atoi(words->c_str()) : 8;
}

StreamThread& stream_of(void* stream) {
  if (stream != nullptr) return *static_cast<StreamThread*>(stream);
  auto& all = world();
  const std::lock_guard lock{all.mutex};
  auto& own = all.legacy[current_device];
  if (own == nullptr) {
    own = new StreamThread{current_device};
    all.streams.push_back(own);
  }
  return *own;
}

void drain_device(int device) {
  std::vector<StreamThread*> all;
  {
    const std::lock_guard lock{world().mutex};
    all = world().streams;
  }
  for (auto* stream : all) {
    if (stream->device() == device) stream->drain();
  }
}

Status allocate(void** data, std::size_t bytes, int kind) {
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (*data == nullptr) return fail(Status::no_memory);
  // Not zeroed, as on a device; and never by chance what a test expects.
  std::memset(*data, 0xA5, bytes);
  const std::lock_guard lock{world().mutex};
  world().memory[static_cast<const char*>(*data)] = {bytes, kind, current_device};
  return Status::success;
}

Status release(void* data) {
  if (data == nullptr) return Status::success;
  int device = 0;
  {
    const std::lock_guard lock{world().mutex};
    const auto found = world().memory.find(static_cast<const char*>(data));
    if (found == world().memory.end()) return fail(Status{1});
    device = found->second.device;
    world().memory.erase(found);
  }
  drain_device(device);  // as cudaFree does
  std::free(data);
  return Status::success;
}

}  // namespace

extern "C" {

Status cudaGetDeviceCount(int* count) {
  *count = 0;
  if (fault("FAKE_CUDA", "no_driver")) return fail(Status::insufficient_driver);
  if (fault("FAKE_CUDA", "no_device")) return fail(Status::no_device);
  *count = devices();
  return Status::success;
}
Status cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return fail(Status::invalid_device);
  current_device = device;
  return Status::success;
}
Status cudaGetDevice(int* device) {
  *device = current_device;
  return Status::success;
}
Status cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return Status::success;
}
Status cudaDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == acc::runtime::cuda::kAttributeMajor ? 9 : 0;
  return Status::success;
}
Status cudaGetDeviceProperties(void* properties, int device) {
  std::snprintf(static_cast<char*>(properties), 256, "Fake device %d", device);
  return Status::success;
}
Status cudaDriverGetVersion(int* version) {
  *version = fault("FAKE_CUDA", "no_driver") ? 0 : 13000;
  return Status::success;
}
Status cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return Status::success;
}
Status cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = std::size_t{1} << 30;
  *total = std::size_t{1} << 31;
  return Status::success;
}
Status cudaDeviceSynchronize() {
  drain_device(current_device);
  return Status::success;
}
Status cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return Status::success;
}
Status cudaStreamCreateWithPriority(void** stream, unsigned, int) {
  auto* const made = new StreamThread{current_device};
  const std::lock_guard lock{world().mutex};
  world().streams.push_back(made);
  *stream = made;
  return Status::success;
}
// Threads of streams end with the process: what is enqueued is still done.
Status cudaStreamDestroy(void*) { return Status::success; }
Status cudaStreamSynchronize(void* stream) {
  stream_of(stream).drain();
  return Status::success;
}
Status cudaStreamQuery(void* stream) {
  return stream_of(stream).idle() ? Status::success : Status::not_ready;
}
Status cudaStreamIsCapturing(void*, int* status) {
  *status = 0;
  return Status::success;
}
Status cudaThreadExchangeStreamCaptureMode(int* mode) {
  *mode = 0;
  return Status::success;
}
Status cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) {
  stream_of(stream).push([function, data] { function(data); });
  return Status::success;
}

Status cudaEventCreateWithFlags(void** event, unsigned) {
  auto made = std::make_unique<EventHandle>();
  *event = made.get();
  const std::lock_guard lock{world().mutex};
  world().events.emplace(made.get(), std::move(made));
  return Status::success;
}
Status cudaEventDestroy(void* event) {
  const std::lock_guard lock{world().mutex};
  world().events.erase(static_cast<EventHandle*>(event));
  return Status::success;
}
Status cudaEventRecord(void* event, void* stream) {
  auto state = static_cast<EventHandle*>(event)->state;
  std::uint64_t version = 0;
  {
    const std::lock_guard lock{state->mutex};
    version = ++state->recorded;
  }
  stream_of(stream).push([state, version] {
    const std::lock_guard lock{state->mutex};
    state->completed = std::max(state->completed, version);
    state->when = std::chrono::steady_clock::now();
    state->changed.notify_all();
  });
  return Status::success;
}
Status cudaEventQuery(void* event) {
  if (const auto how = fault("FAKE_CUDA", "query"); how == "hang") {
    std::mutex never;
    std::unique_lock lock{never};
    std::condition_variable{}.wait(lock, [] { return false; });
  }
  const auto& state = *static_cast<EventHandle*>(event)->state;
  const std::lock_guard lock{const_cast<std::mutex&>(state.mutex)};
  return state.completed >= state.recorded ? Status::success : Status::not_ready;
}
Status cudaEventElapsedTime(float* milliseconds, void* start, void* end) {
  const auto& from = *static_cast<EventHandle*>(start)->state;
  const auto& to = *static_cast<EventHandle*>(end)->state;
  *milliseconds = std::chrono::duration<float, std::milli>(to.when - from.when).count();
  return Status::success;
}
Status cudaStreamWaitEvent(void* stream, void* event, unsigned) {
  auto state = static_cast<EventHandle*>(event)->state;
  std::uint64_t version = 0;
  {
    const std::lock_guard lock{state->mutex};
    version = state->recorded;
  }
  stream_of(stream).push([state, version] {
    std::unique_lock lock{state->mutex};
    state->changed.wait(lock, [&] { return state->completed >= version; });
  });
  return Status::success;
}

Status cudaMalloc(void** data, std::size_t bytes) { return allocate(data, bytes, kDevice); }
Status cudaFree(void* data) { return release(data); }
Status cudaHostAlloc(void** data, std::size_t bytes, unsigned) {
  return allocate(data, bytes, kPinned);
}
Status cudaFreeHost(void* data) { return release(data); }
Status cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, int, void* stream) {
  stream_of(stream).push([=] {
    if (bytes > 0) std::memmove(to, from, bytes);  // nothing may be copied from nowhere
  });
  return Status::success;
}
Status cudaMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  (void)cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return cudaStreamSynchronize(nullptr);
}
Status cudaMemsetAsync(void* data, int value, std::size_t bytes, void* stream) {
  stream_of(stream).push([=] { std::memset(data, value, bytes); });
  return Status::success;
}
Status cudaPointerGetAttributes(void* attributes, const void* pointer) {
  const auto* at = static_cast<const char*>(pointer);
  const std::lock_guard lock{world().mutex};
  auto found = world().memory.upper_bound(at);
  int type = acc::runtime::cuda::kMemoryUnregistered;
  if (found != world().memory.begin()) {
    --found;
    // The end counts as in: an empty buffer may lie there.
    if (at <= found->first + found->second.bytes) type = found->second.kind;
  }
  std::memcpy(attributes, &type, sizeof type);
  return Status::success;
}
const char* cudaGetErrorString(Status status) {
  return status == Status::success ? "no error" : "a fake error";
}
const char* cudaGetErrorName(Status status) {
  return status == Status::success ? "cudaSuccess" : "cudaErrorFake";
}
Status cudaGetLastError() { return std::exchange(last_error, Status::success); }

}  // extern "C"
