#include "agent/daemon/api_raw_log.hpp"

#include "agent/daemon/api_json.hpp"
#include "agent/daemon/api_rank_folders.hpp"
#include "agent/output/event_file_line.hpp"
#include "common/duration.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kRawPieceBytes = 64 * 1024;
/// How often a file is looked for that a running job has not made yet, or that can't be watched.
constexpr Millis kLookAtRawLogAgain{500};

/// One file of a stream, and its place in it. Of events there are up to two, which say where they
/// begin; a reader's offset is about all of them together.
struct RawPart {
  UniqueFd fd{};
  ino_t inode = 0;
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  [[nodiscard]] std::uint64_t end() const { return begin + size; }
};

struct RawFile {
  ApiContext& api;
  Principal who;
  JobId id;
  RawLogQuery query;
  std::uint64_t offset = 0;
  RawPart part{};
  std::optional<RawPart> next{};  ///< read when `part` is at its end
  bool is_named = false;          ///< a file has the name; between two renamings none has
  FileGrowth::Watch watch{};
  RankFolders folders{};
  std::optional<LogPlace> ahead{};  ///< of a rank: from where on the next file is looked for
  bool has_moved = false;           ///< `ahead`: look again, there may be more
  bool is_unreadable = false;
};

std::uint64_t begin_of(int fd) {
  std::array<char, kMaxEventFileLine> head;
  ssize_t n = 0;
  do n = ::pread(fd, head.data(), head.size(), 0);
  while (n < 0 && errno == EINTR);
  return n > 0 ? begins_at({head.data(), static_cast<std::size_t>(n)}) : 0;
}

/// The first file of the rank that wasn't read.
Result<UniqueFd> open_next_of_rank(RawFile& file, std::uint32_t rank) {
  auto found = file.api.jobs.find_rank_log(
      file.who, file.id, {rank, file.query.choice.is_stderr, file.ahead, file.part.inode});
  if (found.has_error()) return found.error();
  file.has_moved = file.has_moved || !is_same_attempt(file.ahead, found->place);
  file.ahead = found->place;
  return std::move(found->fd);
}

std::optional<RawPart> open_part(RawFile& file, bool is_previous) {
  auto choice = file.query.choice;
  choice.is_previous = is_previous;
  auto opened = choice.local_rank ? open_next_of_rank(file, *choice.local_rank)
                                  : file.api.jobs.open_output(file.who, file.id, choice);
  struct stat now {};
  if (!opened || ::fstat(opened->get(), &now) != 0) return std::nullopt;
  RawPart part{std::move(*opened), now.st_ino, 0, static_cast<std::uint64_t>(now.st_size)};
  if (choice.is_events) part.begin = begin_of(part.fd.get());
  return part;
}

/// The newer one first: if it is renamed meanwhile, both are the same.
std::optional<RawPart> open_previous(RawFile& file, const RawPart& current) {
  if (!file.query.choice.is_events || current.begin == 0) return std::nullopt;
  auto previous = open_part(file, true);
  const bool is_before =
      previous && previous->inode != current.inode && previous->end() == current.begin;
  return is_before ? std::move(previous) : std::nullopt;
}

/// False: nothing more is there now, or it can't be read.
bool read_piece(RawFile& file, std::string& piece) {
  piece.clear();
  // What was before a part's begin is gone, also where its first line claims a begin of its own.
  file.offset = std::max(file.offset, file.part.begin);
  piece.resize(kRawPieceBytes);
  const auto at = static_cast<off_t>(file.offset - file.part.begin);
  ssize_t n = 0;
  do n = ::pread(file.part.fd.get(), piece.data(), piece.size(), at);
  while (n < 0 && errno == EINTR);
  file.is_unreadable = n < 0;
  piece.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return !piece.empty();
}

/// The file that has the name now, if it is another than ours: after a rotation. Ours is read to
/// its end once more, as it may have grown before it was renamed. True: there is something to read.
bool go_on(RawFile& file) {
  if (file.next) {
    const bool is_events = file.query.choice.is_events;
    // A reader so slow that two files were renamed: what is left of the first is lost.
    if (auto between = open_previous(file, *file.next); between && between->begin >= file.offset)
      file.next = std::move(between);
    file.part = std::move(*file.next);
    file.next.reset();
    file.offset = is_events ? std::max(file.offset, file.part.begin) : 0;
    return true;
  }
  auto current = open_part(file, false);
  file.is_named = current.has_value();
  if (!current || (file.part.fd && current->inode == file.part.inode)) return false;
  const bool is_first = !file.part.fd;
  (is_first ? file.part : file.next.emplace()) = std::move(*current);
  return true;
}

/// Until there is nothing more at the moment; false: the reader has gone, or is told that the body
/// isn't whole.
asio::awaitable<bool> send_all(RawFile& file, BodyWriter& to, std::string& piece) {
  while (file.part.fd && read_piece(file, piece)) {
    file.offset += piece.size();
    const bool is_written = co_await to.write(piece);
    if (!is_written) co_return false;
  }
  if (file.is_unreadable) to.break_off();
  co_return to.is_open();
}

asio::awaitable<void> follow_raw(std::shared_ptr<RawFile> kept, std::shared_ptr<BodyWriter> to) {
  RawFile& file = *kept;
  const auto told = file.api.jobs.on_event([to, id = file.id](const JobEvent& event) {
    if (event.job == id) to->notify();
  });
  std::optional<std::uint64_t> stuck_at;
  for (;;) {
    // Files are the user's: whatever becomes of them, others of the loop have their turn.
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
    const auto job = file.api.jobs.find(file.who, file.id);
    const bool is_at_end = !job || is_over(job->state);  // before the file is read
    std::string piece;
    do {
      const bool is_open = co_await send_all(file, *to, piece);
      if (!is_open) co_return;
    } while (go_on(file));
    if (std::exchange(file.has_moved, false)) continue;
    if (is_at_end) co_return;
    piece = std::string{};
    // What is written between the watch and the wait is reported; what was before, is seen here.
    const int fd = file.part.fd.get();
    const bool is_of_rank = file.query.choice.local_rank.has_value();
    if (is_of_rank) file.folders.watch(file.api, file.who, file.id, to);
    if (file.part.fd) file.watch = file.api.growth.watch(fd, [to] { to->notify(); });
    if (go_on(file) || file.has_moved) continue;  // renamed before the watch
    struct stat now {};
    const bool has_more = file.part.fd && ::fstat(fd, &now) == 0 &&
                          file.part.begin + static_cast<std::uint64_t>(now.st_size) > file.offset;
    // Twice at the same place: a file that says it has more, and gives none.
    if (has_more && std::exchange(stuck_at, file.offset) != file.offset) continue;
    const bool is_watched = file.part.fd && file.is_named && file.watch && !has_more;
    auto until = is_watched ? Instant::max() : clock_now() + kLookAtRawLogAgain;
    if (is_of_rank) until = std::min(until, file.folders.look_again_by());
    co_await to->wait(until);
  }
}

/// What is there now.
asio::awaitable<void> write_so_far(std::shared_ptr<RawFile> file, std::uint64_t end,
                                   std::shared_ptr<BodyWriter> to) {
  std::string piece;
  while (file->offset < end) {
    if (!read_piece(*file, piece)) {
      if (file->is_unreadable) co_return to->break_off();
      if (!file->next) co_return;
      go_on(*file);
      continue;
    }
    piece.resize(std::min<std::uint64_t>(piece.size(), end - file->offset));
    file->offset += piece.size();
    const bool is_written = co_await to->write(piece);
    if (!is_written) co_return;
  }
}

}  // namespace

asio::awaitable<HttpReply> serve_raw_log(ApiContext& api, ApiCall call, RawLogQuery query) {
  const auto file =
      std::make_shared<RawFile>(RawFile{api, std::move(call.who), std::move(call.id), query});
  go_on(*file);
  const auto end = file->part.end();
  file->offset = query.from.value_or(end);
  if (file->offset > end)
    co_return refused(416, "from=" + std::to_string(file->offset) + ": there are " +
                               std::to_string(end) + " bytes");
  if (file->offset < file->part.begin) {
    if (auto previous = open_previous(*file, file->part)) {
      file->next = std::move(file->part);
      file->part = std::move(*previous);
    }
    file->offset = std::max(file->offset, file->part.begin);  // what was before is gone
  }
  HttpReply reply;
  reply.headers.emplace_back("X-Acc-From", std::to_string(file->offset));
  reply.content_type = "application/octet-stream";
  if (query.follows) {
    reply.stream = [file](std::shared_ptr<BodyWriter> to) {
      return follow_raw(file, std::move(to));
    };
  } else if (end > file->offset) {
    reply.stream = [file, end](std::shared_ptr<BodyWriter> to) {
      return write_so_far(file, end, std::move(to));
    };
  }
  co_return reply;
}

}  // namespace acc::agent::daemon
