#pragma once

#include "agent/worker_calls.hpp"
#include "common/unique_fd.hpp"
#include "common/worker_socket.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace acc::agent {

/// What all connections of a server share.
struct WorkerServerFacts {
  WorkerCalls calls;
  std::optional<Round> round;  ///< none: no round has begun
  RankRange ranks{Rank{0}, 0};
  std::vector<worker_socket::LostRank> lost;  ///< of this round
  std::function<void(std::uint64_t connection)> forget;
};

/// One worker's connection. It handles one request at a time and reads no further while an answer
/// is pending, so its memory is bounded and a worker that sends too much blocks.
class WorkerConnection : public std::enable_shared_from_this<WorkerConnection> {
 public:
  /// `facts` must stay until close() was called or the connection has ended by itself.
  WorkerConnection(boost::asio::io_context& io, UniqueFd fd, std::uint64_t number,
                   const WorkerServerFacts& facts);

  /// Handles what was written, reading at most `budget` bytes; continues by itself when more
  /// arrives.
  void take_in(std::size_t budget = kBytesATurn);
  /// Answers a `lost` that waits.
  void tell_lost();
  /// Reports the error to the worker and closes the connection.
  void fail(const std::string& why);
  void refuse(worker_socket::Verb verb);
  void close();

  static constexpr std::size_t kBytesATurn = 64 * 1024;

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;

  [[nodiscard]] bool is_idle() const { return facts_ != nullptr && !asked_ && output_.empty(); }
  std::size_t read_more();
  void carry_out(worker_socket::Request&& request);
  void greet(const worker_socket::Request& request);
  void ask_store(worker_socket::Request&& request);
  void ask_table();
  void ask_lost(Millis timeout);
  void ask_current(worker_socket::Request&& request);
  bool is_due(std::uint64_t question) const;
  void answer(std::uint64_t question, const worker_socket::Answer& answer);
  void send(const std::string& text);
  void flush();
  void wait_for_next();
  void watch_hang_up();

  Descriptor descriptor_;
  boost::asio::steady_timer patience_;  ///< of a `lost` or `current` that waits
  std::uint64_t number_;
  const WorkerServerFacts* facts_;  ///< null: closed
  worker_socket::RequestReader reader_;
  std::optional<LocalRank> who_;  ///< none: no hello yet
  std::string output_;            ///< not written yet
  std::uint64_t question_ = 0;    ///< the latest
  bool asked_ = false;            ///< its answer is due
  bool awaits_loss_ = false;      ///< … by tell_lost or by the timer
  bool ended_ = false;            ///< the worker writes no more
  bool last_words_ = false;       ///< closed when all is written
  bool taking_in_ = false;
  bool reading_ = false;   ///< a wait for bytes is under way
  bool writing_ = false;   ///< … for room
  bool watching_ = false;  ///< … for the other end's close
};

}  // namespace acc::agent
