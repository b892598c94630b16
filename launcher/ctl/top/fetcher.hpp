#pragma once

#include "launcher/ctl/top/source.hpp"

#include <memory>
#include <vector>

namespace acc::ctl::top {

/// Asks in a thread of its own, so that the terminal answers keys while a node gives no answer.
class Fetcher {
 public:
  explicit Fetcher(Source source);
  /// Doesn't wait for a question that is on its way: the thread ends with it.
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// Readable when take() has something.
  [[nodiscard]] int fd() const;
  /// A question is on its way, or waits.
  [[nodiscard]] bool is_busy() const;
  void ask(const Wish& wish);
  void carry_out(const Order& order);
  [[nodiscard]] std::vector<Event> take();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace acc::ctl::top
