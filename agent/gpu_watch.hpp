#pragma once

#include "agent/gpu_sampler.hpp"
#include "common/alive.hpp"
#include "common/duration.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <string>
#include <vector>

namespace acc::agent {

/// What the GPUs of this node do, for those who ask again and again: a sampler runs while it is
/// asked for, and some seconds longer. Without a GPU nothing is ever started.
///
/// Used on the loop's thread only. The io_context outlives it.
class GpuWatch {
 public:
  explicit GpuWatch(boost::asio::io_context& io);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  /// What was sampled last; empty: nothing yet, or not for 5 s. Never waits.
  [[nodiscard]] const std::vector<gpu::Sample>& ask();
  /// Ends the sampler.
  void stop();

 private:
  void start();
  void read_on();
  void take(std::size_t bytes);
  void stop_when_idle();

  boost::asio::posix::stream_descriptor out_;
  boost::asio::steady_timer idle_;
  UniqueFd sampler_;  ///< pidfd of the last one, which may have ended
  std::array<char, 4096> bytes_{};
  std::string text_;
  std::vector<gpu::Sample> samples_;
  Instant sampled_{};
  Instant asked_{};
  Instant not_before_{};  ///< one that failed isn't started again at once
  bool has_gpus_;
  Alive alive_;
};

}  // namespace acc::agent
