#include "runtime/shm/shm_backend.hpp"

#include "runtime/shm/collectives.hpp"
#include "runtime/shm/messages.hpp"
#include "runtime/shm/peers.hpp"
#include "runtime/shm/regions.hpp"

#include <exception>
#include <utility>

namespace acc::runtime {
namespace {

class ShmBackend final : public Backend {
 public:
  ShmBackend(UniqueFd segment, ShmOptions options)
      : share_memory_{std::move(options.share_memory)},
        require_sharing_{std::move(options.require_sharing)},
        peers_{std::move(segment),
               shm::Layout{options.size},
               {.rank = options.rank,
                .size = options.size,
                .ranks = std::move(options.ranks),
                .group = std::move(options.group),
                .check = options.check,
                .on_break = {},
                .find_late = {}}},
        regions_{peers_.rank(), peers_.size()},
        collectives_{peers_, regions_},
        messages_{peers_} {}

  std::string_view name() const noexcept override { return "cpu"; }

  void run(const Call& call) override {
    shm::ActiveCall active{call};
    peers_.check_healthy(active);
    switch (call.what.operation) {
      case Operation::send:
        return messages_.send(active);
      case Operation::recv:
        return messages_.recv(active);
      default:
        return collectives_.run(active);
    }
  }

  SharedBuffer allocate(std::size_t bytes, const Call& call) override {
    shm::ActiveCall active{call};
    peers_.check_healthy(active);
    require_sharing(active);
    peers_.arrive(active);
    peers_.await_arrivals(active);
    peers_.complete();
    if (bytes == 0) return {};
    const auto deadline =
        call.limit.count() > 0 ? Clock::now() + call.limit : Clock::time_point::max();
    try {
      return regions_.add(share_memory_(regions_.bytes_for(bytes), deadline), bytes);
    } catch (const Error& error) {  // the others rely on it: without it no call could continue
      peers_.fail(active, error);
    }
  }

  void abort(const Error& cause) noexcept override { peers_.break_with(cause, {}); }

  [[nodiscard]] std::optional<Error> cause() const override { return peers_.cause(); }

  void lost(int rank, const std::string& how) noexcept override {
    const int index = peers_.index_of(rank);
    if (index < 0) return;
    try {
      peers_.lost(index, "was lost: " + how);
    } catch (const std::exception&) {  // no memory for the text
      peers_.lost(index, "was lost");
    }
  }

  std::vector<int> waits_for() const override { return peers_.waits_for(); }

 private:
  void require_sharing(const shm::ActiveCall& active) {
    try {
      if (require_sharing_) require_sharing_();
    } catch (const Error& error) {
      peers_.fail(active, error);
    }
  }

  std::function<UniqueFd(std::size_t, Clock::time_point)> share_memory_;
  std::function<void()> require_sharing_;
  shm::Peers peers_;
  shm::Regions regions_;
  shm::Collectives collectives_;
  shm::Messages messages_;
};

void check(int ranks) {
  if (ranks >= 1 && ranks <= shm::kMaxRanks) return;
  throw Error{ErrorCode::invalid_argument, "a group can have 1 to " +
                                               std::to_string(shm::kMaxRanks) +
                                               " ranks on a node, not " + std::to_string(ranks)};
}

}  // namespace

std::size_t segment_bytes(int ranks) {
  check(ranks);
  return shm::Layout{ranks}.bytes;
}

std::unique_ptr<Backend> make_shm_backend(UniqueFd segment, ShmOptions options) {
  check(options.size);
  return std::make_unique<ShmBackend>(std::move(segment), std::move(options));
}

}  // namespace acc::runtime
