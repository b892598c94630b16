#include "agent/daemon/api_raw_log.hpp"

#include "agent/daemon/api_json.hpp"
#include "common/duration.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

namespace acc::agent::daemon {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kRawPieceBytes = 64 * 1024;
/// How often a file is looked for that a running job has not made yet, or that can't be watched.
constexpr Millis kLookAtRawLogAgain{500};

struct RawFile {
  ApiContext& api;
  Principal who;
  JobId id;
  RawLogQuery query;
  std::uint64_t offset = 0;
  UniqueFd fd{};
  ino_t inode = 0;
  FileGrowth::Watch watch{};
};

bool read_piece(const RawFile& file, std::string& piece) {
  piece.resize(kRawPieceBytes);
  ssize_t n = 0;
  do n = ::pread(file.fd.get(), piece.data(), piece.size(), static_cast<off_t>(file.offset));
  while (n < 0 && errno == EINTR);
  piece.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return !piece.empty();
}

/// The file that has the name now, if it is another than ours: after a rotation. True: it begins
/// anew.
bool open_raw_again(RawFile& file) {
  auto opened = file.api.jobs.open_output(file.who, file.id, file.query.choice);
  struct stat now {};
  if (!opened || ::fstat(opened->get(), &now) != 0) return false;
  if (file.fd && now.st_ino == file.inode) return false;
  const bool is_first = !file.fd;
  file.fd = std::move(*opened);
  file.inode = now.st_ino;
  if (!is_first) file.offset = 0;
  return true;
}

/// Until there is nothing more at the moment; false: the reader has gone.
asio::awaitable<bool> send_all(RawFile& file, BodyWriter& to, std::string& piece) {
  while (file.fd && read_piece(file, piece)) {
    file.offset += piece.size();
    const bool is_written = co_await to.write(piece);
    if (!is_written) co_return false;
  }
  co_return to.is_open();
}

asio::awaitable<void> follow_raw(std::shared_ptr<RawFile> kept, std::shared_ptr<BodyWriter> to) {
  RawFile& file = *kept;
  const auto told = file.api.jobs.on_event([to, id = file.id](const JobEvent& event) {
    if (event.job == id) to->notify();
  });
  for (;;) {
    const auto job = file.api.jobs.find(file.who, file.id);
    const bool is_at_end = !job || is_over(job->state);  // before the file is read
    std::string piece;
    do {
      const bool is_open = co_await send_all(file, *to, piece);
      if (!is_open) co_return;
    } while (open_raw_again(file));
    if (is_at_end) co_return;
    piece = std::string{};
    // What is written between the watch and the wait is reported; what was before, is seen here.
    if (file.fd) file.watch = file.api.growth.watch(file.fd.get(), [to] { to->notify(); });
    struct stat now {};
    const bool has_more = file.fd && ::fstat(file.fd.get(), &now) == 0 &&
                          static_cast<std::uint64_t>(now.st_size) > file.offset;
    if (has_more) continue;
    const bool is_watched = file.fd && file.watch;
    co_await to->wait(is_watched ? Instant::max() : clock_now() + kLookAtRawLogAgain);
  }
}

/// What is there now.
asio::awaitable<void> write_so_far(std::shared_ptr<RawFile> file, std::uint64_t size,
                                   std::shared_ptr<BodyWriter> to) {
  std::string piece;
  while (file->offset < size && read_piece(*file, piece)) {
    piece.resize(std::min<std::uint64_t>(piece.size(), size - file->offset));
    file->offset += piece.size();
    const bool is_written = co_await to->write(piece);
    if (!is_written) co_return;
  }
}

}  // namespace

asio::awaitable<HttpReply> serve_raw_log(ApiContext& api, ApiCall call, RawLogQuery query) {
  const auto file =
      std::make_shared<RawFile>(RawFile{api, std::move(call.who), std::move(call.id), query});
  open_raw_again(*file);
  struct stat now {};
  const bool is_there = file->fd && ::fstat(file->fd.get(), &now) == 0;
  const auto size = is_there ? static_cast<std::uint64_t>(now.st_size) : 0;
  file->offset = query.from.value_or(size);
  if (file->offset > size)
    co_return refused(416, "from=" + std::to_string(file->offset) + ": there are " +
                               std::to_string(size) + " bytes");
  HttpReply reply;
  reply.headers.emplace_back("X-Acc-From", std::to_string(file->offset));
  reply.content_type = "application/octet-stream";
  if (query.follows) {
    reply.stream = [file](std::shared_ptr<BodyWriter> to) { return follow_raw(file, std::move(to)); };
  } else if (size > file->offset) {
    reply.stream = [file, size](std::shared_ptr<BodyWriter> to) {
      return write_so_far(file, size, std::move(to));
    };
  }
  co_return reply;
}

}  // namespace acc::agent::daemon
