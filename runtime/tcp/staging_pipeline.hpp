#pragma once

#include "runtime/tcp/node_segment.hpp"
#include "runtime/tcp/socket_mux.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace acc::runtime::tcp {

/// Passes of an inter-node collective: stage locally, exchange between nodes, copy out. The first
/// pass of a call exchanges the call itself, so that all ranks have arrived and the calls are
/// compared before anything is copied out.
class StagingPipeline {
 public:
  /// @param mux  nullptr: this rank is no proxy.
  StagingPipeline(NodeSegment& node, const RankPlacement& placement, SocketMux* mux,
                  std::string group, bool check)
      : node_{node},
        peers_{node.peers()},
        placement_{placement},
        mux_{mux},
        group_{std::move(group)},
        check_{check} {}

  /// Begins a collective; all its passes run between `begin` and `end`.
  void begin(ActiveCall& active);
  void end() noexcept { peers_.complete(); }

  /// `stage` writes to the staging buffer, `exchange` moves between hosts (proxies only),
  /// `copy_out` reads. Any of them may be empty.
  struct Step {
    std::function<void(std::byte* staging)> stage;
    std::function<void(SocketMux& mux, std::byte* staging)> exchange;
    std::function<void(const std::byte* staging)> copy_out;
  };
  void run(ActiveCall& active, const Step& step);

  /// Bytes of each piece that a pass moves, of at most as many pieces as there are ranks.
  [[nodiscard]] static constexpr std::size_t slot_bytes(std::size_t pieces,
                                                        std::size_t ranks) noexcept {
    return NodeSegment::staging_bytes(ranks) / std::max<std::size_t>(pieces, 1) /
           NodeSegment::kAlign * NodeSegment::kAlign;
  }
  /// A piece of memory of one rank, for all ranks or one.
  struct Piece {
    int owner = 0;
    std::size_t bytes = 0;
    int reader = -1;  ///< -1: all
  };
  /// @param from  where the bytes of a piece that this rank owns are
  /// @param to  where the bytes of a piece go; called on its readers, including the owner
  using From = std::function<const std::byte*(std::size_t piece)>;
  using To = std::function<std::byte*(std::size_t piece)>;
  void distribute(ActiveCall& active, const std::vector<Piece>& pieces, const From& from,
                  const To& to);
  /// All pieces are for all ranks. @param reduce  called once per pass with all pieces' bytes of it
  using Reduce = std::function<void(std::size_t offset, std::size_t bytes, const void* const* at)>;
  void gather(ActiveCall& active, const std::vector<Piece>& pieces, const From& from,
              const Reduce& reduce);

 private:
  [[nodiscard]] bool calls_agree_here(ActiveCall& active);
  void exchange_calls(ActiveCall& active);
  void compare(ActiveCall& active);
  void distribute_directly(ActiveCall& active, const std::vector<Piece>& pieces, const From& from,
                           const To& to);
  void stage_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                    const From& from, std::byte* staging) const;
  void exchange_pieces(const std::vector<Piece>& pieces, std::size_t slot, std::size_t offset,
                       SocketMux& mux, std::byte* staging) const;

  NodeSegment& node_;
  shm::Peers& peers_;
  const RankPlacement& placement_;
  SocketMux* mux_;
  std::string group_;
  bool check_;
  std::uint32_t pass_ = 0;
  bool is_first_ = true;                        ///< pass of this collective
  std::vector<std::vector<Descriptor>> calls_;  ///< of the ranks, by host
};

}  // namespace acc::runtime::tcp
