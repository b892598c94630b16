#pragma once

#include "runtime/bootstrap/store.hpp"

#include <string>
#include <vector>

namespace acc::runtime {

/// Letters of many ranks to one, read in the order in which they came: a reader that waits for the
/// slowest rank still hears at once of one that failed.
class Mailbox {
 public:
  /// @param store  outlives the mailbox.
  Mailbox(Store& store, std::string key) : store_{store}, key_{std::move(key)} {}

  void put(const std::string& letter) {
    const auto place = store_.add(key_ + "/count", 1);
    store_.set(letter_key(place - 1), letter);
  }

  /// @throws Error timed_out
  [[nodiscard]] std::string next(Store::Deadline deadline) {
    auto letter = store_.get(letter_key(read_), deadline);
    ++read_;
    return letter;
  }

  /// All that are there now, also those that were read; for who isn't the reader.
  [[nodiscard]] std::vector<std::string> look() {
    std::vector<std::string> found;
    const auto count = store_.add(key_ + "/count", 0);
    for (std::int64_t i = 0; i < count; ++i) {
      if (auto letter = store_.peek(letter_key(i))) found.push_back(*std::move(letter));
    }
    return found;
  }

 private:
  [[nodiscard]] std::string letter_key(std::int64_t number) const {
    return key_ + "/" + std::to_string(number);
  }

  Store& store_;
  std::string key_;
  std::int64_t read_ = 0;
};

}  // namespace acc::runtime
