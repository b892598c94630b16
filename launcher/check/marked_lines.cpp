#include "launcher/check/marked_lines.hpp"

#include "common/signals_blocked.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

namespace acc::check {
namespace {

constexpr std::size_t kMostOfALine = 1 << 20;  ///< a longer one comes in pieces

}  // namespace

MarkedLine read_marked_line(std::string_view line) {
  using Kind = MarkedLine::Kind;
  constexpr std::pair<std::string_view, Kind> kMarks[] = {
      {kTextMark, Kind::text}, {kJsonMark, Kind::result}, {kMachineMark, Kind::machine}};
  // "[default0]:" is short; further on a mark is the program's own text.
  constexpr std::size_t kPrefix = 300;
  MarkedLine found{Kind::plain, line};
  std::size_t first = std::string_view::npos;
  for (const auto& [mark, kind] : kMarks) {
    const auto at = line.substr(0, kPrefix + mark.size()).find(mark);
    if (at >= first) continue;
    first = at;
    found = {kind, line.substr(at + mark.size())};
  }
  return found;
}

OutputReader::OutputReader() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error{errno, std::generic_category()};
  reader_.reset(ends[0]);
  UniqueFd writer{ends[1]};
  std::fflush(stdout);
  output_.reset(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3));
  if (!output_ || ::dup2(writer.get(), STDOUT_FILENO) < 0)
    throw std::system_error{errno, std::generic_category()};
}

void OutputReader::start(Take take) {
  take_ = std::move(take);
  const AllSignalsBlocked blocked;  // signals are the launch's
  thread_ = std::thread{[this] { read_lines(); }};
}

OutputReader::~OutputReader() { finish(); }

void OutputReader::finish() {
  if (std::exchange(is_finished_, true)) return;
  std::fflush(stdout);
  ::dup2(output_.get(), STDOUT_FILENO);  // closes the writer's only end, which the thread sees
  if (thread_.joinable()) thread_.join();
}

void OutputReader::read_lines() const {
  std::string held;
  std::array<char, 65536> some{};
  for (;;) {
    const auto got = ::read(reader_.get(), some.data(), some.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    held.append(some.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (auto end = held.find('\n'); end != std::string::npos; end = held.find('\n', begin)) {
      take_(std::string_view{held}.substr(begin, end - begin));
      begin = end + 1;
    }
    held.erase(0, begin);
    if (held.size() < kMostOfALine) continue;
    take_(held);
    held.clear();
  }
  if (!held.empty()) take_(held);
}

}  // namespace acc::check
