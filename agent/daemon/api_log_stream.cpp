#include "agent/daemon/api_log_stream.hpp"

#include "agent/daemon/api_json.hpp"
#include "agent/daemon/api_rank_folders.hpp"
#include "agent/daemon/api_raw_log.hpp"
#include "agent/daemon/sse.hpp"
#include "common/duration.hpp"
#include "common/text.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;
/// A line without its end is sent after this time without growth: a progress bar, a question.
constexpr Millis kPartialLineTime{200};
/// How often a file is looked for that a running job has not made yet, or that can't be watched.
constexpr Millis kLookAgain{500};

struct LogQuery {
  bool has_out = true;
  bool has_err = true;
  bool is_events = false;
  bool follows = false;
  std::optional<std::uint32_t> rank;
  std::optional<std::int64_t> since_ms;
  LogOffsets from;
  bool is_raw = false;
  std::optional<std::uint64_t> raw_from = 0;  ///< nothing: the end
  bool is_from_end = false;
};

/// All complaints about the query and Last-Event-ID.
std::vector<std::string> read_query(const ApiCall& call, LogQuery& into) {
  std::vector<std::string> complaints;
  const auto refuse = [&](std::string_view name, std::string_view value, const char* expected) {
    complaints.push_back(std::string{name} + "=" + printable(value, 60) + ": expected " + expected);
  };
  if (const auto follow = call.query("follow")) {
    into.follows = *follow == "1" || *follow == "true";
    if (!into.follows && *follow != "0" && *follow != "false") refuse("follow", *follow, "0 or 1");
  }
  if (const auto stream = call.query("stream")) {
    into.has_out = *stream == "stdout";
    into.has_err = *stream == "stderr";
    into.is_events = *stream == "events";
    if (into.has_out == into.has_err && !into.is_events)
      refuse("stream", *stream, "stdout, stderr or events");
  } else if (!into.follows) {
    into.has_err = false;  // one text can't tell them apart
  }
  if (const auto rank = call.query("rank")) {
    into.rank = parse_number<std::uint32_t>(*rank);
    if (!into.rank) refuse("rank", *rank, "a local rank: 0, 1, …");
  }
  if (const auto since = call.query("since")) {
    into.since_ms = parse_number<std::int64_t>(*since);
    if (!into.since_ms || *into.since_ms < 0)
      refuse("since", *since, "milliseconds since 1970-01-01T00:00Z");
  }
  if (const auto format = call.query("format")) {
    into.is_raw = *format == "raw";
    if (!into.is_raw) refuse("format", *format, "raw");
    if (into.is_raw && !call.query("stream"))
      complaints.emplace_back(
          "format=raw is about one stream: stream=stdout, stream=stderr or stream=events");
  }
  if (into.is_events && (!into.is_raw || into.rank))
    complaints.emplace_back("stream=events: only with format=raw, and of no rank");
  if (const auto from = call.query("from")) {
    into.is_from_end = *from == "end";
    into.raw_from = parse_number<std::uint64_t>(*from);
    if (!into.is_from_end && (!into.raw_from || *into.raw_from > INT64_MAX))
      refuse("from", *from, "an offset in bytes, or end");
    if (!into.is_raw && !(into.is_from_end && into.follows))
      complaints.emplace_back("from=: only with format=raw; from=end also with follow=1");
  }
  const auto last = call.request.header("last-event-id");
  if (last && !last->empty() && into.follows) {
    const auto offsets = parse_log_offsets(*last);
    if (offsets) into.from = *offsets;
    into.is_from_end = into.is_from_end && !offsets;  // a reader that was cut off goes on
    if (!offsets) refuse("Last-Event-ID", *last, "the id of an event of this stream");
  }
  return complaints;
}

bool was_written_before(const struct stat& file, std::int64_t since_ms) {
  return file.st_mtim.tv_sec * 1000 + file.st_mtim.tv_nsec / 1'000'000 < since_ms;
}

/// As much as there is at `offset`, up to `into.size()`; nothing: it can't be read.
std::optional<std::size_t> read_at(int fd, std::uint64_t offset, std::span<char> into) {
  for (;;) {
    const auto n = ::pread(fd, into.data(), into.size(), static_cast<off_t>(offset));
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno != EINTR) return std::nullopt;
  }
}

// ---- the file so far ----

/// `size`: as it was at the request, so that a file that grows ends.
asio::awaitable<void> write_file(std::shared_ptr<UniqueFd> fd, std::uint64_t size,
                                 std::shared_ptr<BodyWriter> to) {
  std::string piece;
  for (std::uint64_t at = 0; at < size;) {
    piece.resize(std::min<std::uint64_t>(kPieceBytes, size - at));
    const auto n = read_at(fd->get(), at, piece);
    if (!n) co_return to->break_off();
    if (*n == 0) break;  // cut off meanwhile
    at += *n;
    const bool is_written = co_await to->write({piece.data(), *n});
    if (!is_written) co_return;
  }
}

HttpReply whole_file(ApiContext& api, const ApiCall& call, const LogQuery& query) {
  HttpReply reply;
  reply.content_type = "text/plain; charset=utf-8";
  auto opened = api.jobs.open_output(call.who, call.id, {query.has_err, query.rank});
  if (!opened) {
    // Of a whole job nothing may be there yet; a rank that was asked for may not exist.
    const bool is_empty = opened.error().code == Errc::not_found && !query.rank;
    return is_empty ? std::move(reply) : failed(opened.error(), 400);
  }
  struct stat file {};
  const bool is_left_out = ::fstat(opened->get(), &file) != 0 || file.st_size == 0 ||
                           (query.since_ms && was_written_before(file, *query.since_ms));
  if (is_left_out) return reply;
  const auto fd = std::make_shared<UniqueFd>(std::move(*opened));
  reply.stream = [fd,
                  size = static_cast<std::uint64_t>(file.st_size)](std::shared_ptr<BodyWriter> to) {
    return write_file(fd, size, std::move(to));
  };
  return reply;
}

// ---- its growth ----

/// One of the two files.
struct Source {
  bool is_stderr = false;
  std::uint64_t offset = 0;
  std::optional<LogPlace> place{};  ///< of a rank: of this file
  std::optional<LogPlace> ahead{};  ///< of a rank: from where on the next file is looked for
  UniqueFd fd{};
  ino_t inode = 0;
  bool is_replaced = false;   ///< another one has it: this one is read to its end, then that one
  std::uint64_t partial = 0;  ///< bytes behind the last line's end when we last looked
  Instant partial_since{};
  bool is_stuck = false;          ///< it says that it has more, and gives none
  bool is_cut_character = false;  ///< they are the begin of a character: only growth ends the wait
  FileGrowth::Watch watch{};
};

struct Follower {
  ApiContext& api;
  Principal who;
  JobId id;
  LogQuery query;
  std::vector<Source> sources{};
  std::shared_ptr<BodyWriter> to{};
  bool is_first_look = true;
  RankFolders folders{};

  [[nodiscard]] std::string event_id() const {
    LogOffsets offsets = query.from;
    for (const auto& source : sources) {
      (source.is_stderr ? offsets.err : offsets.out) = source.offset;
      (source.is_stderr ? offsets.err_place : offsets.out_place) = source.place;
    }
    return to_text(offsets);
  }
};

/// The file that has the name now; of a rank the first that wasn't read.
Result<UniqueFd> open_next(Follower& f, Source& source) {
  if (!f.query.rank) return f.api.jobs.open_output(f.who, f.id, {source.is_stderr, std::nullopt});
  auto found = f.api.jobs.find_rank_log(
      f.who, f.id, {*f.query.rank, source.is_stderr, source.ahead, source.inode});
  if (found.has_error()) return found.error();
  source.ahead = found->place;
  return std::move(found->fd);
}

/// Opens it for the first time, or again when it was replaced (rotation, a new attempt, a new start
/// of the job) and the old one is read to its end. True: look again, there may be more.
bool open_again(Follower& f, Source& source) {
  const auto before = source.ahead;
  auto opened = open_next(f, source);
  const bool has_moved = !is_same_attempt(before, source.ahead);
  struct stat file {};
  source.is_replaced = false;  // what was found before may be gone
  if (!source.place) source.place = source.ahead;
  if (!opened || ::fstat(opened->get(), &file) != 0) return has_moved;
  const bool is_another = source.fd && source.inode != file.st_ino;
  if (source.fd && !is_another) return has_moved;
  struct stat old {};
  source.is_replaced = is_another && ::fstat(source.fd.get(), &old) == 0 &&
                       static_cast<std::uint64_t>(old.st_size) > source.offset;
  if (source.is_replaced) return true;
  // Also another than the one of Last-Event-ID, which is gone.
  const bool is_same = !is_another && is_same_attempt(source.place, source.ahead);
  if (!is_same) source.offset = 0;
  source.place = source.ahead;
  source.fd = std::move(*opened);
  source.inode = file.st_ino;
  source.partial = 0;
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (source.offset > size) source.offset = 0;  // it was cut off, or replaced
  const bool is_old = f.query.since_ms && was_written_before(file, *f.query.since_ms);
  if (f.is_first_look && (is_old || f.query.is_from_end)) source.offset = size;
  return true;
}

/// Sends one event, if there is something to send. `is_over`: also the last line without its end.
asio::awaitable<bool> send_piece(Follower& f, Source& source, bool is_over) {
  source.is_stuck = false;
  if (!source.fd) co_return false;
  const bool takes_all = is_over || source.is_replaced;
  struct stat file {};
  if (::fstat(source.fd.get(), &file) != 0) co_return false;
  const auto size = static_cast<std::uint64_t>(file.st_size);
  if (size < source.offset) source.offset = 0;  // it was cut off: it begins anew
  if (size == source.offset) co_return false;
  std::string piece(std::min<std::uint64_t>(kPieceBytes, size - source.offset), '\0');
  const auto got = read_at(source.fd.get(), source.offset, piece);
  if (!got) f.to->break_off();
  source.is_stuck = got == 0U;
  if (!got || *got == 0) co_return false;
  piece.resize(*got);
  auto n = whole_part(piece, false);
  if (n == 0) {
    const bool is_new = source.partial != piece.size();
    if (is_new) {
      source.partial = piece.size();
      source.partial_since = clock_now();
      source.is_cut_character = false;
    }
    const bool is_due = takes_all || piece.size() == kPieceBytes ||
                        (!is_new && clock_now() - source.partial_since >= kPartialLineTime);
    if (is_due) n = takes_all ? piece.size() : whole_part(piece, true);
    source.is_cut_character = is_due && n == 0;
  }
  if (n == 0) co_return false;
  source.offset += n;
  source.partial = 0;
  const std::string event = to_text(ServerSentEvent{
      f.event_id(), source.is_stderr ? "stderr" : "stdout", json_string({piece.data(), n})});
  piece = std::string{};
  co_await f.to->write(event);
  co_return true;
}

/// One event of each file in turn; false: there was nothing.
asio::awaitable<bool> send_pieces(Follower& f, bool is_over) {
  bool is_sent = false;
  for (auto& source : f.sources) {
    const bool one = co_await send_piece(f, source, is_over);
    is_sent = is_sent || one;
  }
  co_return is_sent;
}

std::optional<ino_t> inode_of_name(Follower& f, Source& source) {
  const auto opened = open_next(f, source);
  struct stat file {};
  if (!opened || ::fstat(opened->get(), &file) != 0) return std::nullopt;
  return file.st_ino;
}

/// Watches the files, and tells how long to wait at most. Nothing: look again, something grew.
std::optional<Instant> prepare_wait(Follower& f) {
  Instant until = Instant::max();
  if (f.query.rank) {
    f.folders.watch(f.api, f.who, f.id, f.to);
    until = f.folders.look_again_by();
  }
  for (auto& source : f.sources) {
    struct stat file {};
    if (source.fd)
      source.watch = f.api.growth.watch(source.fd.get(), [to = f.to] { to->notify(); });
    // Renamed before the watch: nothing is reported of it any more.
    const auto named = inode_of_name(f, source);
    if (source.fd && named && *named != source.inode) return std::nullopt;
    const bool is_watched = source.fd && named && source.watch && !source.is_stuck;
    if (!is_watched) until = std::min(until, clock_now() + kLookAgain);
    if (!source.fd) continue;
    if (::fstat(source.fd.get(), &file) != 0) continue;
    const auto size = static_cast<std::uint64_t>(file.st_size);
    if (source.is_stuck) continue;
    if (size != source.offset + source.partial) return std::nullopt;
    if (source.partial > 0 && !source.is_cut_character)
      until = std::min(until, source.partial_since + kPartialLineTime);
  }
  return until;
}

asio::awaitable<void> follow(std::shared_ptr<Follower> kept, std::shared_ptr<BodyWriter> to) {
  Follower& f = *kept;
  f.to = to;
  const auto told = f.api.jobs.on_event([to, id = f.id](const JobEvent& event) {
    if (event.job == id) to->notify();
  });
  while (to->is_open()) {
    // Files are the user's: whatever becomes of them, others of the loop have their turn.
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    const auto job = f.api.jobs.find(f.who, f.id);
    if (!job) {
      const std::string gone = to_text(ServerSentEvent{
          f.event_id(), "end", R"({"state": "removed", "exit_code": null, "reason": ""})"});
      co_await to->write(gone);
      break;
    }
    const bool is_at_end = is_over(job->state);  // before the files are read
    bool has_moved = false;
    for (auto& source : f.sources) has_moved = open_again(f, source) || has_moved;
    // Where the end was, or which attempt comes first: a reader that is cut off before the first
    // event goes on from there.
    const bool is_first = std::exchange(f.is_first_look, false);
    if (is_first && (f.query.is_from_end || f.query.rank))
      co_await to->write("id: " + f.event_id() + "\n\n");
    // While there is much, nothing else is looked at.
    while (to->is_open()) {
      const bool is_sent = co_await send_pieces(f, is_at_end);
      if (!is_sent) break;
    }
    if (!to->is_open()) break;
    if (has_moved) continue;
    if (is_at_end) {
      const std::string end = to_text(ServerSentEvent{f.event_id(), "end", encode_end(*job)});
      co_await to->write(end);
      break;
    }
    const auto until = prepare_wait(f);
    if (until) co_await to->wait(*until);
  }
  f.to.reset();
}

HttpReply growth(ApiContext& api, ApiCall call, const LogQuery& query) {
  const auto follower =
      std::make_shared<Follower>(Follower{api, call.who, std::move(call.id), query});
  for (const bool is_stderr : {false, true}) {
    const auto& place = is_stderr ? query.from.err_place : query.from.out_place;
    if (is_stderr ? query.has_err : query.has_out)
      follower->sources.push_back(
          Source{is_stderr, is_stderr ? query.from.err : query.from.out, place, place});
  }
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.stream = [follower](std::shared_ptr<BodyWriter> to) {
    return follow(follower, std::move(to));
  };
  return reply;
}

}  // namespace

asio::awaitable<HttpReply> serve_logs(ApiContext& api, ApiCall call) {
  LogQuery query;
  const auto complaints = read_query(call, query);
  if (!complaints.empty()) co_return refused(complaints);
  const auto job = api.jobs.find(call.who, call.id);
  if (!job) co_return failed(job.error(), 400);
  if (query.is_raw)
    co_return co_await serve_raw_log(
        api, std::move(call),
        {{query.has_err, query.rank, query.is_events}, query.raw_from, query.follows});
  if (query.follows) co_return growth(api, std::move(call), query);
  co_return whole_file(api, call, query);
}

}  // namespace acc::agent::daemon
