#pragma once

#include "runtime/net/store.hpp"

#include <string>
#include <vector>

namespace acc::runtime {

/// Messages of many ranks to one reader, in order of arrival: waiting for the slowest rank does not
/// delay the report of one that failed.
class Mailbox {
 public:
  /// @param store  outlives the mailbox.
  Mailbox(Store& store, std::string key) : store_{store}, key_{std::move(key)} {}

  void put(const std::string& message) {
    const auto place = store_.add(key_ + "/count", 1);
    store_.set(message_key(place - 1), message);
  }

  /// @param look  as in Store::get_looking; empty: none
  /// @throws Error timed_out
  [[nodiscard]] std::string next(Store::Deadline deadline, const Store::Look& look = {}) {
    auto message = look ? store_.get_looking(message_key(read_), deadline, look)
                        : store_.get(message_key(read_), deadline);
    ++read_;
    return message;
  }

  /// All messages so far, also those already read; for ranks other than the reader.
  [[nodiscard]] std::vector<std::string> all_present() {
    std::vector<std::string> found;
    const auto count = store_.add(key_ + "/count", 0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (auto message = store_.peek(message_key(i))) found.push_back(*std::move(message));
    }
    return found;
  }

 private:
  [[nodiscard]] std::string message_key(std::int64_t number) const {
    return key_ + "/" + std::to_string(number);
  }

  Store& store_;
  std::string key_;
  std::int64_t read_ = 0;
};

}  // namespace acc::runtime
