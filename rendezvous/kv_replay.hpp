#pragma once

#include "rendezvous/kv_store.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace acc::rendezvous {

/// Log of this node's writes to the store in this round (pure), replayed to a new coordinator,
/// which begins with an empty store. Only writes answered with ok count; the agent repeats requests
/// without an answer.
///
/// A key that several nodes set is replayed by each of them, and one of the values remains; a key
/// that another node removed reappears. Workers that need more keep to one writer per key.
class KvReplay {
 public:
  explicit KvReplay(KvLimits limits = {}) : limits_{limits} {}

  void note(const KvRequest& asked, const KvReply& answer);
  /// A new round.
  void forget();
  [[nodiscard]] std::vector<KvRestore> tell() const;
  /// False: more was written than is remembered, so the store can't be replayed completely.
  [[nodiscard]] bool is_complete() const { return complete_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  struct Share {
    std::optional<std::string> value;  ///< the last one set
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
