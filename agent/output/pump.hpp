#pragma once

#include "agent/output/worker_stream.hpp"
#include "common/alive.hpp"
#include "common/unique_fd.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/basic_stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace acc::agent {

/// Reads the workers' pipes, and our ends of their pseudo-terminals, on the loop. A stream that
/// just begins is read immediately; one that keeps writing is read a thousand times a second,
/// together with the others, as each wake-up costs more than the reading.
class Pump {
 public:
  /// @param flush  called at the end of a turn in which something was read
  Pump(boost::asio::io_context& io, std::function<void()> flush);
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  class Reader;
  /// @param pipe    the read end, or the master of a pseudo-terminal; O_NONBLOCK
  /// @param stream  outlives the reader's close()
  std::shared_ptr<Reader> add(UniqueFd pipe, WorkerStream& stream);
  /// Reads what is in the pipe now, without waiting, also while other processes still write.
  void drain(Reader& reader);
  /// Ends the stream, also while other processes still hold the other end.
  void close(Reader& reader);
  /// A queue has room again, or its patience is another.
  void resume();
  /// Of a reader of a pseudo-terminal.
  static void set_window(Reader& reader, WindowSize size);

 private:
  enum class State { waiting, batched, held, closed };
  using Descriptor =
      boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  void wait_readable(const std::shared_ptr<Reader>& reader);
  void turn(const std::shared_ptr<Reader>& reader, Instant now);
  static std::size_t bytes_in(Reader& reader);
  std::size_t read_some(Reader& reader, std::size_t most, DropPolicy::Origin origin);
  void batch(const std::shared_ptr<Reader>& reader, Millis delay);
  void hold(const std::shared_ptr<Reader>& reader);
  void turn_batched();
  [[nodiscard]] Millis silence() const;
  void arm_silence(Instant due);
  void on_silence();
  void flush_soon();

  boost::asio::io_context& io_;
  std::function<void()> flush_;
  std::vector<std::shared_ptr<Reader>> readers_;
  std::vector<std::shared_ptr<Reader>> batched_;
  std::vector<std::shared_ptr<Reader>> held_;
  boost::asio::steady_timer batch_timer_;
  boost::asio::steady_timer hold_timer_;
  boost::asio::steady_timer silence_timer_;
  std::unique_ptr<char[]> scratch_;  // made at the first read
  bool is_batch_armed_ = false;
  bool is_silence_armed_ = false;
  bool is_flush_posted_ = false;
  Alive alive_;
};

}  // namespace acc::agent
