#include "runtime/tcp/control.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/fields.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/bootstrap/quiet_thread.hpp"
#include "runtime/bootstrap/sockets.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace acc::runtime::hosts {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxFrame = 256 * 1024;
/// For a leader that takes nothing: its host is cut off, or it is stopped.
constexpr auto kSendTime = 500ms;
/// For the cause to be on its way to all other hosts, before an error is thrown here.
constexpr auto kTellTime = 200ms;
/// For the last frames to reach the other hosts, when this one leaves.
constexpr auto kLeaveTime = 200ms;
/// How long the other hosts may take to say who is late there.
constexpr auto kAnswerTime = 400ms;

UniqueFd make_event() {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!event) throw Error{ErrorCode::system, system_error(errno, "eventfd").what};
  return event;
}

void signal(const UniqueFd& event) noexcept {
  const std::uint64_t one = 1;
  // Fails only when it is full, and then it is signalled already.
  [[maybe_unused]] const auto n = ::write(event.get(), &one, sizeof one);
}

struct Leader {
  UniqueFd fd;
  std::string in;
  bool left = false;
};

/// A question about who is late, until all hosts have answered.
struct Question {
  Note note;
  Clock::time_point until;
  std::vector<bool> answered;  ///< by host
  std::vector<Room::Late> late;
};

}  // namespace

class Control::Loop {
 public:
  Loop(Room& room, const Placement& placement, std::vector<UniqueFd> leaders,
       std::vector<UniqueFd> lines)
      : room_{room},
        placement_{placement},
        lines_{std::move(lines)},
        wake_{make_event()},
        broken_{make_event()},
        leaders_(leaders.size()) {
    for (std::size_t i = 0; i < leaders.size(); ++i) leaders_[i].fd = std::move(leaders[i]);
    thread_ = quiet_thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    signal(wake_);
    thread_.join();
    pass_on_cause();  // the thread may have been asked to end in the same moment
    std::vector<int> fds;
    for (auto& leader : leaders_) {
      send(leader, pack({"left"}));
      if (leader.fd) fds.push_back(leader.fd.get());
    }
    drain(fds, Clock::now() + kLeaveTime);
  }

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void tell(const Note& note) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (note.kind == Note::Kind::late) asked_ = note;
    }
    signal(wake_);
  }

  void await_told() noexcept {
    std::unique_lock lock{mutex_};
    passed_on_.wait_for(lock, kTellTime, [this] { return told_ || ended_; });
  }

  [[nodiscard]] int broken_fd() const noexcept { return broken_.get(); }

 private:
  void run() {
    tell_until_stopped();
    const std::lock_guard lock{mutex_};
    ended_ = true;
    passed_on_.notify_all();
  }

  void tell_until_stopped() {
    std::vector<pollfd> waits;
    while (!take_own_notes()) {
      pass_on_cause();
      waits.assign(1, {wake_.get(), POLLIN, 0});
      for (const auto& line : lines_) waits.push_back({line.get(), POLLIN, 0});
      for (const auto& leader : leaders_) waits.push_back({leader.fd.get(), POLLIN, 0});
      const auto until = question_ ? question_->until : Clock::time_point::max();
      if (::poll(waits.data(), waits.size(), poll_time(until)) < 0 && errno != EINTR) return;
      for (std::size_t i = 0; i < lines_.size(); ++i)
        if (waits[1 + i].revents != 0) hear_line(lines_[i]);
      for (std::size_t h = 0; h < leaders_.size(); ++h)
        if (waits[1 + lines_.size() + h].revents != 0) hear_leader(h);
      if (question_ && Clock::now() >= question_->until) conclude();
    }
  }

  bool take_own_notes() {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto n = ::read(wake_.get(), &count, sizeof count);
    std::optional<Note> asked;
    {
      const std::lock_guard lock{mutex_};
      if (stop_) return true;
      asked = std::exchange(asked_, std::nullopt);
    }
    if (asked) ask(*asked);
    return false;
  }

  void hear_line(UniqueFd& line) {
    Note note;
    const auto n = ::recv(line.get(), &note, sizeof note, MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(sizeof note)) {
      if (note.kind == Note::Kind::late) ask(note);
    } else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      line.reset();  // it left, or the process watch tells
    }
  }

  // ---- the other hosts ----

  void send(Leader& leader, const std::string& frame) {
    if (!leader.fd) return;
    const auto size = static_cast<std::uint32_t>(frame.size());
    std::string bytes(sizeof size, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    bytes += frame;
    // One that can't be told will find out by itself.
    (void)send_all(leader.fd.get(), std::as_bytes(std::span{bytes}), Clock::now() + kSendTime);
  }

  void hear_leader(std::size_t host) {
    auto& leader = leaders_[host];
    char chunk[16 * 1024];
    const auto n = ::recv(leader.fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n > 0) {
      leader.in.append(chunk, static_cast<std::size_t>(n));
      while (read_frame(host)) {
      }
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      lose(host, n == 0 ? "its process ended" : std::strerror(errno));
    }
  }

  void lose(std::size_t host, const std::string& how) {
    auto& leader = leaders_[host];
    leader.fd.reset();
    if (leader.left) return;
    const int rank = placement_.hosts[host].ranks.front();
    room_.break_with({ErrorCode::peer_lost, room_.describe(rank) + " is gone: " + how, {rank}});
  }

  bool read_frame(std::size_t host) {
    auto& in = leaders_[host].in;
    std::uint32_t size = 0;
    if (!leaders_[host].fd || in.size() < sizeof size) return false;
    std::memcpy(&size, in.data(), sizeof size);
    if (size > kMaxFrame) {
      lose(host, "it sends what isn't ours");
      return false;
    }
    if (in.size() < sizeof size + size) return false;
    const auto fields = unpack(std::string_view{in}.substr(sizeof size, size));
    in.erase(0, sizeof size + size);
    if (fields && !fields->empty()) obey(host, *fields);
    return true;
  }

  void obey(std::size_t host, const std::vector<std::string>& fields) {
    const auto& word = fields[0];
    if (word == "left") {
      leaders_[host].left = true;
    } else if (word == "cause" && fields.size() == 2) {
      if (const auto error = parse_error(fields[1])) room_.break_with(*error);
    } else if (word == "late?" && fields.size() == 3) {
      const auto number = parse_number<std::uint32_t>(fields[1]);
      const auto peer = parse_number<std::int32_t>(fields[2]);
      if (number && peer) answer(host, *number, *peer);
    } else if (word == "late" && question_) {
      for (std::size_t i = 1; i + 1 < fields.size(); i += 2)
        if (const auto rank = parse_number<int>(fields[i]))
          question_->late.push_back({*rank, fields[i + 1]});
      question_->answered[host] = true;
      conclude_if_all();
    }
  }

  void pass_on_cause() {
    if (told_ || room_.is_well()) return;  // only this thread and the destructor write told_
    signal(broken_);
    const Note note;
    for (const auto& line : lines_) {
      if (line) (void)send_all(line.get(), std::as_bytes(std::span{&note, 1}), Clock::now() + 50ms);
    }
    const auto frame = pack({"cause", to_text(*room_.cause())});
    for (auto& leader : leaders_) send(leader, frame);
    const std::lock_guard lock{mutex_};
    told_ = true;
    passed_on_.notify_all();
  }

  // ---- who is late? ----

  void ask(const Note& note) {
    if (question_ || !room_.is_well()) return;
    question_ = Question{note, Clock::now() + kAnswerTime, {}, {}};
    question_->answered.resize(leaders_.size());
    if (note.peer >= 0) {
      const auto host = placement_.host_of(note.peer);
      question_->answered.assign(leaders_.size(), true);
      question_->answered[host] = false;
    }
    const auto frame = pack({"late?", std::to_string(note.number), std::to_string(note.peer)});
    for (std::size_t h = 0; h < leaders_.size(); ++h) {
      if (h == placement_.host || question_->answered[h]) continue;
      send(leaders_[h], frame);
    }
    if (!question_->answered[placement_.host]) {
      question_->late = look(note.number, note.peer);
      question_->answered[placement_.host] = true;
    }
    conclude_if_all();
  }

  [[nodiscard]] std::vector<Room::Late> look(std::uint32_t number, int peer) const {
    if (peer < 0) return room_.late(number);
    return {{peer, room_.describe_state(placement_.index_of(peer))}};
  }

  void answer(std::size_t host, std::uint32_t number, int peer) {
    if (peer >= placement_.size() || (peer >= 0 && placement_.host_of(peer) != placement_.host))
      return;
    std::vector<std::string> fields{"late"};
    for (auto& [rank, text] : look(number, peer)) {
      fields.push_back(std::to_string(rank));
      fields.push_back(std::move(text));
    }
    send(leaders_[host], pack(fields));
  }

  void conclude_if_all() {
    for (const bool answered : question_->answered)
      if (!answered) return;
    conclude();
  }

  void conclude() {
    auto [note, until, answered, late] = *std::move(question_);
    question_.reset();
    std::vector<std::string> parts;
    std::vector<int> ranks;
    for (auto& [rank, text] : late) {
      ranks.push_back(rank);
      parts.push_back(note.peer < 0 ? std::move(text) : describe_message(note, text));
    }
    for (std::size_t h = 0; h < answered.size(); ++h) {
      if (answered[h]) continue;
      const int rank = placement_.hosts[h].ranks.front();
      ranks.push_back(rank);
      parts.push_back(room_.describe(rank) +
                      " doesn't answer: it is stopped, or its host is cut off");
    }
    if (parts.empty()) parts.emplace_back("all ranks came, but their bytes don't");
    room_.break_with(
        {ErrorCode::timed_out,
         "timed out after " + acc::describe(Millis{note.limit_ms}) + ": " + join(parts, ", "),
         std::move(ranks)});
  }

  [[nodiscard]] std::string describe_message(const Note& note, const std::string& state) const {
    return room_.describe(note.peer) +
           (note.operation == Operation::recv ? " has not sent; "
                                              : " has not received what was sent; ") +
           state;
  }

  Room& room_;
  const Placement& placement_;
  std::vector<UniqueFd> lines_;
  UniqueFd wake_, broken_;
  std::vector<Leader> leaders_;
  std::optional<Question> question_;
  std::mutex mutex_;
  std::condition_variable passed_on_;
  bool told_ = false;  ///< the cause, to all hosts
  bool ended_ = false;
  bool stop_ = false;
  std::optional<Note> asked_;
  std::thread thread_;
};

Control::Control(Room& room, const Placement& placement, std::vector<UniqueFd> leaders,
                 std::vector<UniqueFd> lines)
    : loop_{std::make_unique<Loop>(room, placement, std::move(leaders), std::move(lines))} {}

Control::~Control() = default;

void Control::tell(const Note& note) noexcept { loop_->tell(note); }

void Control::await_told() noexcept { loop_->await_told(); }

int Control::broken_fd() const noexcept { return loop_->broken_fd(); }

}  // namespace acc::runtime::hosts
