#include "runtime/nccl/nccl_backend.hpp"

#include "common/text.hpp"
#include "runtime/nccl/nccl_backend_impl.hpp"
#include "runtime/nccl/nccl_bootstrap.hpp"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace acc::runtime {
namespace nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kInitTimeout = Millis{300s};  // as containers of one job may start minutes apart

/// The device of this rank. @throws Error cuda: there is none of that number
int choose_device(const cuda::Api& api, const GroupFacts& facts, const NcclOptions& options) {
  int count = 0;
  cuda::check(api, "cudaGetDeviceCount", api.get_device_count(&count));
  int wanted = facts.rank < static_cast<int>(facts.ranks.size())
                   ? facts.ranks[static_cast<std::size_t>(facts.rank)].local_rank
                   : facts.local_rank;
  if (const char* local = std::getenv("LOCAL_RANK")) {
    wanted = parse_number<int>(local).value_or(wanted);
  }
  if (options.device) {
    wanted = *options.device;
  } else if (count == 1) {
    wanted = 0;  // as where a scheduler shows each task only its own
  }
  if (wanted >= 0 && wanted < count) return wanted;
  throw Error{ErrorCode::cuda, "CUDA: local rank " + std::to_string(wanted) +
                                   " has no device: " + std::to_string(count) +
                                   " are visible here; start fewer workers on this node"};
}

int checked_version() {
  const int found = version();
  if (found >= kOldestVersion) return found;
  throw Error{ErrorCode::nccl, "NCCL: " + library_path() + " is version " +
                                   describe_version(found) + ", 2.14 or later is needed"};
}

std::string host_name() {
  std::array<char, 256> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// The setup of this rank, and its device. An error is reported to all ranks, so it isn't thrown
/// here.
std::pair<RankSetup, int> set_up_rank(const GroupFacts& facts, const NcclOptions& options) {
  RankSetup mine{.rank = facts.rank, .machine = machine_id(), .host = host_name()};
  int device = 0;
  try {
    const auto& api = cuda::library();
    if (const auto missing = cuda::explain_missing(api); !missing.empty()) {
      throw Error{ErrorCode::cuda, missing};
    }
    device = choose_device(api, facts, options);
    mine.device = cuda::pci_bus_id(api, device);
    mine.version = checked_version();
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  return {mine, device};
}

UniqueId make_id() {
  UniqueId id{};
  const auto& api = library();
  if (const auto status = api.get_unique_id(&id); status != Status::success) {
    throw Error{ErrorCode::nccl, explain(api, "ncclGetUniqueId", status)};
  }
  return id;
}

}  // namespace
}  // namespace nccl

std::unique_ptr<Backend> make_nccl_backend(std::shared_ptr<Store> store, GroupFacts facts,
                                           NcclOptions options) {
  using namespace nccl;
  if (!store) store = make_memory_store();  // a group of one
  const auto limit = options.init_timeout.value_or(kInitTimeout);
  std::optional<Clock::time_point> deadline;
  if (limit.count() > 0) deadline = Clock::now() + limit;
  const auto [mine, device] = set_up_rank(facts, options);
  const auto id = bootstrap(*store, facts, mine, deadline, limit, make_id, options.check_parties);

  const auto& cuda = cuda::library();
  const cuda::DeviceScope here{cuda, device};
  auto group = std::make_shared<NcclGroup>(library(), cuda, std::move(store), std::move(facts),
                                           device, options.abort_limit);
  try {
    group->comm().init(id, deadline, limit, [&] { return group->diagnosis().verdict(); });
    return std::make_unique<NcclBackend>(group, options.check, options.close_limit);
  } catch (const Error& error) {
    group->comm().fail(error);
    group->diagnosis().tell(error, RankProgress{.rank = group->facts().rank});
    group->diagnosis().acknowledge();
    group->comm().close(options.close_limit);
    group->diagnosis().linger();
    throw;
  }
}

std::string why_no_nccl() {
  try {
    if (auto missing = cuda::explain_missing(cuda::library()); !missing.empty()) return missing;
    (void)nccl::checked_version();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace acc::runtime
