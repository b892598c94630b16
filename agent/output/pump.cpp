#include "agent/output/pump.hpp"

#include <boost/asio/post.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace acc::agent {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kRead = std::size_t{64}
                              << 10U;  // stays in the processor's cache until it is copied on
constexpr std::size_t kTurn = std::size_t{256} << 10U;  // then the others get their turn
constexpr Millis kBatchDelay{1};
constexpr Millis kBusy{4};  // a stream with new data so soon after its last turn is read in batches
// Then an unfinished line is shown as it is. Among several workers the rest of it may come behind
// another's line: on a busy machine, 50 ms pass between the two writes of Python's print().
constexpr Millis kSilence{50};
constexpr Millis kSilenceAmongSeveral{500};
constexpr std::size_t kStreamsOfOneWorker = 2;
// What the kernel holds of a pseudo-terminal's output, at most.
constexpr std::size_t kTerminalBytes = std::size_t{16} << 10U;

}  // namespace

class Pump::Reader {
 public:
  Reader(asio::io_context& io, UniqueFd pipe, WorkerStream& to)
      : fd{io, pipe.release()}, stream{&to} {
    const int size = ::fcntl(fd.native_handle(), F_GETPIPE_SZ);
    is_pipe = size > 0;
    half_full = is_pipe ? static_cast<std::size_t>(size) / 2 : kTerminalBytes / 4;
  }
  Descriptor fd;
  WorkerStream* stream;
  State state = State::waiting;
  bool is_at_end = false;
  Instant last_turn{};
  bool is_pipe = true;        // else a pseudo-terminal, which gives 4 KiB at a time
  std::size_t half_full = 0;  // of the pipe's size
};

Pump::Pump(asio::io_context& io, std::function<void()> flush)
    : io_{io}, flush_{std::move(flush)}, batch_timer_{io}, hold_timer_{io}, silence_timer_{io} {}

Pump::~Pump() {
  for (const auto& reader : readers_) reader->state = State::closed;
}

std::shared_ptr<Pump::Reader> Pump::add(UniqueFd pipe, WorkerStream& stream) {
  auto reader = std::make_shared<Reader>(io_, std::move(pipe), stream);
  readers_.push_back(reader);
  wait_readable(reader);
  return reader;
}

void Pump::wait_readable(const std::shared_ptr<Reader>& reader) {
  reader->state = State::waiting;
  reader->fd.async_wait(Descriptor::wait_read,
                        alive_.bind([this, reader](boost::system::error_code failed) {
                          if (failed || reader->state != State::waiting) return;
                          turn(reader, clock_now());
                          flush_soon();
                        }));
}

// One turn of a stream: what is there, but not more than kTurn, then the next wait for it.
void Pump::turn(const std::shared_ptr<Reader>& reader, Instant now) {
  std::size_t total = 0;
  bool is_empty = false;
  while (total < kTurn && !is_empty && !reader->is_at_end) {
    if (reader->stream->ask(now) == DropPolicy::Verdict::hold) return hold(reader);
    const std::size_t got = read_some(*reader, kRead, DropPolicy::Origin::worker);
    total += got;
    is_empty = reader->is_pipe ? got < kRead : got == 0;
  }
  const bool is_busy = total != 0 && now - reader->last_turn < kBusy;
  if (total != 0) reader->last_turn = now;
  if (reader->is_at_end) return close(*reader);
  if (reader->stream->holds()) arm_silence(now + silence());
  // A half full pipe must not wait: its writer would.
  if (is_busy) return batch(reader, total >= reader->half_full ? Millis{0} : kBatchDelay);
  wait_readable(reader);
}

// The end of a pseudo-terminal is EIO, after all bytes.
std::size_t Pump::read_some(Reader& reader, std::size_t most, DropPolicy::Origin origin) {
  if (!scratch_) scratch_.reset(new char[kRead]);  // not make_unique: it would touch every page
  ssize_t n = 0;
  do n = ::read(reader.fd.native_handle(), scratch_.get(), std::min(most, kRead));
  while (n < 0 && errno == EINTR);
  reader.is_at_end = n == 0 || (n < 0 && errno != EAGAIN);
  if (n <= 0) return 0;
  reader.stream->take({scratch_.get(), static_cast<std::size_t>(n)}, origin);
  return static_cast<std::size_t>(n);
}

void Pump::batch(const std::shared_ptr<Reader>& reader, Millis delay) {
  reader->state = State::batched;
  batched_.push_back(reader);
  if (is_batch_armed_) return;
  is_batch_armed_ = true;
  if (delay == Millis{0}) return asio::post(io_, alive_.bind([this] { turn_batched(); }));
  batch_timer_.expires_after(delay);
  batch_timer_.async_wait(alive_.bind([this](boost::system::error_code) { turn_batched(); }));
}

void Pump::turn_batched() {
  is_batch_armed_ = false;
  std::vector<std::shared_ptr<Reader>> now_due;
  now_due.swap(batched_);
  const Instant now = clock_now();
  for (const auto& reader : now_due)
    if (reader->state == State::batched) turn(reader, now);
  flush_();
}

void Pump::hold(const std::shared_ptr<Reader>& reader) {
  reader->state = State::held;
  held_.push_back(reader);
  Instant until = reader->stream->hold_until();
  for (const auto& other : held_) until = std::min(until, other->stream->hold_until());
  hold_timer_.expires_at(until);
  hold_timer_.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    if (!cancelled) resume();
  }));
}

void Pump::resume() {
  if (held_.empty()) return;
  std::vector<std::shared_ptr<Reader>> waiting;
  waiting.swap(held_);
  hold_timer_.cancel();
  const Instant now = clock_now();
  for (const auto& reader : waiting)
    if (reader->state == State::held) turn(reader, now);
  flush_();
}

std::size_t Pump::bytes_in(Reader& reader) {
  int there = 0;
  return ::ioctl(reader.fd.native_handle(), FIONREAD, &there) == 0 ? static_cast<std::size_t>(there)
                                                                   : 0;
}

void Pump::drain(Reader& reader) {
  if (reader.state == State::closed) return;
  // Of a pseudo-terminal FIONREAD doesn't count what the kernel has not yet passed on; read() does.
  for (std::size_t left = reader.is_pipe ? bytes_in(reader) : kTerminalBytes; left > 0;) {
    reader.stream->ask(
        clock_now());  // hold or not: what is in the pipe is little, and the last of this worker
    const std::size_t got = read_some(reader, left, DropPolicy::Origin::worker_end);
    if (got == 0) break;
    left -= std::min(left, got);
  }
  reader.last_turn = clock_now();
  if (reader.stream->holds()) arm_silence(reader.last_turn + silence());
  flush_();
}

void Pump::set_window(Reader& reader, WindowSize size) {
  const winsize window{size.lines, size.columns, 0, 0};
  if (!reader.is_pipe && reader.state != State::closed)
    ::ioctl(reader.fd.native_handle(), TIOCSWINSZ, &window);
}

void Pump::close(Reader& reader) {
  if (reader.state == State::closed) return;
  reader.state = State::closed;
  reader.stream->finish();
  boost::system::error_code ignored;
  reader.fd.close(ignored);
  const auto is_this = [&](const auto& other) { return other.get() == &reader; };
  std::erase_if(held_, is_this);
  std::erase_if(batched_, is_this);
  if (held_.empty()) hold_timer_.cancel();
  std::erase_if(readers_, is_this);  // last: it may be the owner
  if (readers_.empty()) silence_timer_.cancel();
}

Millis Pump::silence() const {
  return readers_.size() > kStreamsOfOneWorker ? kSilenceAmongSeveral : kSilence;
}

// The timer runs only while a line is held.
void Pump::arm_silence(Instant due) {
  if (is_silence_armed_) return;
  is_silence_armed_ = true;
  silence_timer_.expires_at(due);
  silence_timer_.async_wait(alive_.bind([this](boost::system::error_code) {
    is_silence_armed_ = false;
    on_silence();
  }));
}

void Pump::on_silence() {
  const Instant now = clock_now();
  Instant due = Instant::max();
  for (const auto& reader : readers_) {
    if (!reader->stream->holds() || reader->state == State::held)
      continue;  // resume() arms it again
    if (now - reader->last_turn >= silence() && bytes_in(*reader) == 0)
      reader->stream->release();
    else
      due = std::min(due, std::max(reader->last_turn + silence(), now + kSilence / 10));
  }
  flush_();
  if (due != Instant::max()) arm_silence(due);
}

void Pump::flush_soon() {
  if (is_flush_posted_) return;
  is_flush_posted_ = true;
  asio::post(io_, alive_.bind([this] {
    is_flush_posted_ = false;
    flush_();
  }));
}

}  // namespace acc::agent
