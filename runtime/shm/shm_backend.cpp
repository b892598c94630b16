#include "runtime/shm/shm_backend.hpp"

#include "runtime/shm/collectives.hpp"
#include "runtime/shm/messages.hpp"
#include "runtime/shm/peers.hpp"
#include "runtime/shm/regions.hpp"

#include <utility>

namespace acc::runtime {
namespace {

class ShmBackend final : public Backend {
 public:
  ShmBackend(UniqueFd segment, ShmOptions options)
      : share_memory_{std::move(options.share_memory)},
        peers_{std::move(segment),
               {options.rank, options.size, std::move(options.ranks), std::move(options.group),
                options.check}},
        regions_{peers_.rank(), peers_.size()},
        collectives_{peers_, regions_},
        messages_{peers_} {}

  std::string_view name() const noexcept override { return "cpu"; }

  void run(const Call& call) override {
    shm::Turn turn{call};
    peers_.check_well(turn);
    switch (call.what.operation) {
      case Operation::send:
        return messages_.send(turn);
      case Operation::recv:
        return messages_.recv(turn);
      default:
        return collectives_.run(turn);
    }
  }

  SharedBuffer allocate(std::size_t bytes, const Call& call) override {
    shm::Turn turn{call};
    peers_.check_well(turn);
    peers_.arrive(turn);
    peers_.await_arrivals(turn);
    peers_.complete();
    if (bytes == 0) return {};
    const auto deadline =
        call.limit.count() > 0 ? Clock::now() + call.limit : Clock::time_point::max();
    try {
      return regions_.add(share_memory_(regions_.bytes_for(bytes), deadline), bytes);
    } catch (const Error& error) {  // the others count on it: without it no call could go on
      peers_.fail(turn, error);
    }
  }

  void abort(const Error& cause) noexcept override { peers_.break_with(cause, {}); }

  void lost(int rank, const std::string& how) noexcept override {
    if (const int index = peers_.index_of(rank); index >= 0) peers_.lost(index, how);
  }

  std::vector<int> waits_for() const override { return peers_.waits_for(); }

 private:
  std::function<UniqueFd(std::size_t, Clock::time_point)> share_memory_;
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
