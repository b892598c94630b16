#pragma once

#include "agent/fanout/orders.hpp"
#include "agent/output/tail_buffer.hpp"
#include "agent/output/worker_stream.hpp"
#include "common/duration.hpp"

#include <functional>
#include <string>
#include <string_view>

namespace acc::agent {

/// One stream of a host, as its transport brings it, on its way to our own. Until the host is
/// prepared nothing is passed on: standard output is what a login shell says, and is dropped;
/// standard error waits in the tail. Marks are taken out; one that is too long, or has no end, is
/// dropped.
class HostStream final : public WorkerStream {
 public:
  using OnMark = std::function<void(const LaunchMark&)>;

  /// @param on_mark  empty: a stream without marks
  HostStream(Targets targets, std::string token, OnMark on_mark);

  void take(std::string_view bytes, DropPolicy::Origin origin) override;
  /// No more bytes come: what might have become a mark, and doesn't have our token, is output.
  void finish() override;

  /// Of standard error: the host is prepared, so what has been said is passed on, and all that
  /// follows.
  void open();
  [[nodiscard]] std::string tail() const { return tail_.text(); }
  [[nodiscard]] Instant last_heard() const { return heard_; }

 private:
  void pass(std::string_view bytes, DropPolicy::Origin origin);
  void take_mark(DropPolicy::Origin origin);
  /// The rest of a mark that is too long. @return what follows it
  std::string_view skip(std::string_view bytes);

  TailBuffer tail_;
  std::string token_;
  OnMark on_mark_;
  bool is_open_ = false;
  bool is_skipping_ = false;  ///< in a mark that is too long
  Instant heard_{};
  std::string mark_;  ///< what may become one, from kMarkBegin on
};

}  // namespace acc::agent
