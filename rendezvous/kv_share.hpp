#pragma once

#include "rendezvous/kv_store.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// What the workers of one node have put into the store in this round (pure): the agent's memory,
/// told again to a new coordinator, which begins with an empty store. Only what was answered with
/// ok counts; requests without an answer are asked again by the agent.
///
/// A key that several nodes set is told by each of them, and one of the values stands afterwards; a
/// key that another node removed comes back. Workers that need more keep to one writer a key.
class KvShare {
 public:
  explicit KvShare(KvLimits limits = {}) : limits_{limits} {}

  void note(const KvRequest& asked, const KvReply& answer);
  /// A new round.
  void forget();
  [[nodiscard]] std::vector<KvRestore> tell() const;
  /// False: more was put than is remembered, so that the store can't be told again as a whole.
  [[nodiscard]] bool is_complete() const { return complete_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Share {
    std::optional<std::string> value;  ///< the last that was set
    std::int64_t added = 0;            ///< since then
  };
  using Shares = std::map<std::string, Share, std::less<>>;

  Share* share_of(const std::string& key);
  void drop(const std::string& key);
  void remember(const std::string& key, const std::string& value);

  KvLimits limits_;
  Shares shares_;
  std::size_t bytes_ = 0;  ///< keys and values
  bool complete_ = true;
};

}  // namespace acc::rendezvous
