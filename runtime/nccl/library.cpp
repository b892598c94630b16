#include "runtime/nccl/library.hpp"

#include "runtime/nccl/dynamic_library.hpp"

namespace acc::runtime::nccl {
namespace {

LibrarySearch search() {
  return {.what = "NCCL",
          .names = {"libnccl.so.2"},
          .variable = "ACC_NCCL_LIBRARY",
          .wheels = {"nvidia/nccl/lib"},
          .remedy =
              "install NCCL (Debian and Ubuntu: libnccl2), name the file in ACC_NCCL_LIBRARY, "
              "or use the cpu backend (ACC_BACKEND=cpu)"};
}

template <class Function>
void need(const DynamicLibrary& from, Function*& into, const char* name) {
  from.take(into, name);
  if (into == nullptr) {
    throw Error{ErrorCode::nccl,
                "NCCL: " + from.path() + " has no " + name + ": version 2.14 or later is needed"};
  }
}

Api read_api(const DynamicLibrary& from) {
  Api api{};
  need(from, api.get_version, "ncclGetVersion");
  need(from, api.get_unique_id, "ncclGetUniqueId");
  need(from, api.comm_init_rank_config, "ncclCommInitRankConfig");
  need(from, api.comm_finalize, "ncclCommFinalize");
  need(from, api.comm_destroy, "ncclCommDestroy");
  need(from, api.comm_abort, "ncclCommAbort");
  need(from, api.comm_get_async_error, "ncclCommGetAsyncError");
  need(from, api.get_error_string, "ncclGetErrorString");
  need(from, api.group_start, "ncclGroupStart");
  need(from, api.group_end, "ncclGroupEnd");
  need(from, api.all_reduce, "ncclAllReduce");
  need(from, api.reduce, "ncclReduce");
  need(from, api.broadcast, "ncclBroadcast");
  need(from, api.reduce_scatter, "ncclReduceScatter");
  need(from, api.all_gather, "ncclAllGather");
  need(from, api.send, "ncclSend");
  need(from, api.recv, "ncclRecv");
  from.take(api.get_last_error, "ncclGetLastError");
  from.take(api.mem_alloc, "ncclMemAlloc");
  from.take(api.mem_free, "ncclMemFree");
  from.take(api.comm_register, "ncclCommRegister");
  from.take(api.comm_deregister, "ncclCommDeregister");
  from.take(api.window_register, "ncclCommWindowRegister");
  from.take(api.window_deregister, "ncclCommWindowDeregister");
  return api;
}

LazyLibrary<Api>& loaded() {
  static auto* const kept = new LazyLibrary<Api>{search, read_api};
  return *kept;
}

}  // namespace

const Api& library() { return loaded().api(); }
std::string library_path() { return loaded().path(); }

int version() {
  int number = 0;
  const auto& api = library();
  if (const auto status = api.get_version(&number); status != Status::success) {
    throw Error{ErrorCode::nccl, explain(api, "ncclGetVersion", status)};
  }
  return number;
}

std::string describe_version(int version) {
  // Up to 2.8 a major version counted 1000.
  const int major = version < 10'000 ? version / 1000 : version / 10'000;
  const int rest = version < 10'000 ? version % 1000 : version % 10'000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." +
         std::to_string(rest % 100);
}

std::string explain(const Api& api, const char* call, Status status) {
  std::string text = std::string{call} + ": " + api.get_error_string(status) + " (" +
                     std::to_string(static_cast<int>(status)) + ")";
  if (api.get_last_error != nullptr) {
    const char* more = api.get_last_error(nullptr);
    if (more != nullptr && *more != '\0') text += std::string{": "} + more;
  }
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

ErrorCode code_of(Status status) noexcept {
  return status == Status::invalid_argument || status == Status::invalid_usage
             ? ErrorCode::invalid_argument
             : ErrorCode::nccl;
}

}  // namespace acc::runtime::nccl
