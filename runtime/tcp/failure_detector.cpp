#include "runtime/tcp/failure_detector.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "runtime/bootstrap/member.hpp"
#include "runtime/net/error_text.hpp"
#include "runtime/net/fields.hpp"
#include "runtime/net/sockets.hpp"
#include "runtime/quiet_thread.hpp"
#include "runtime/tcp/status_text.hpp"
#include "runtime/wake_event.hpp"

#include <poll.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace acc::runtime::tcp {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t kMaxFrame = 256 * 1024;
/// Bytes kept of a text from another host.
constexpr std::size_t kMaxCause = 8 * 1024;
/// For a leader that receives nothing: its host is cut off, or it is stopped.
constexpr auto kSendTime = 500ms;
/// For the cause to be sent to all other hosts before an error is thrown here.
constexpr auto kTellTime = 200ms;
/// For the last frames to reach the other hosts, when this one leaves.
constexpr auto kLeaveTime = 200ms;
/// For the other hosts to report which of their ranks are late.
constexpr auto kAnswerTime = 400ms;

struct Leader {
  KeptFd fd;
  std::string in;
  bool left = false;
};

/// An open question which ranks are late, until all hosts have answered.
struct Question {
  Notice notice;
  Clock::time_point until;
  std::vector<bool> answered;        ///< by host
  std::vector<shm::RankStatus> all;  ///< by rank

  [[nodiscard]] shm::Wait wait() const {
    return {notice.operation,
            notice.peer < 0 ? notice.number : static_cast<std::uint32_t>(notice.peer)};
  }
};

}  // namespace

class FailureDetector::Loop {
 public:
  Loop(NodeSegment& node, const RankPlacement& placement, std::vector<UniqueFd> leaders,
       std::vector<UniqueFd> connections)
      : node_{node}, placement_{placement}, leaders_(leaders.size()) {
    if (!wake_ || !broken_) throw Error{ErrorCode::system, system_error(errno, "socketpair").what};
    for (auto& connection : connections) connections_.emplace_back(std::move(connection));
    for (std::size_t i = 0; i < leaders.size(); ++i) leaders_[i].fd = KeptFd{std::move(leaders[i])};
    thread_ = quiet_thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock{mutex_};
      stop_ = true;
    }
    wake_.set();
    thread_.join();
    send_cause();  // the thread may have been stopped at the same moment
    std::vector<int> fds;
    for (auto& leader : leaders_) {
      send(leader, pack({"left"}));
      if (leader.fd.is_ours()) fds.push_back(leader.fd.get());
    }
    drain(fds, Clock::now() + kLeaveTime);
  }

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void notify(const Notice& notice) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (notice.kind == Notice::Kind::late) own_question_ = notice;
    }
    wake_.set();
  }

  void await_cause_sent() noexcept {
    std::unique_lock lock{mutex_};
    cause_sent_.wait_for(lock, kTellTime, [this] { return is_cause_sent_ || ended_; });
  }

  [[nodiscard]] int broken_fd() const noexcept { return broken_.fd(); }

 private:
  void run() {
    serve();
    const std::lock_guard lock{mutex_};
    ended_ = true;
    cause_sent_.notify_all();
  }

  void serve() {
    std::vector<pollfd> waits;
    while (!take_own_notices()) {
      send_cause();
      waits.resize(1);
      for (const auto& connection : connections_) waits.push_back({connection.get(), POLLIN, 0});
      for (const auto& leader : leaders_) waits.push_back({leader.fd.get(), POLLIN, 0});
      const auto until = question_ ? question_->until : Clock::time_point::max();
      if (wake_.poll(waits, poll_time(until)) < 0 && errno != EINTR) return;
      for (std::size_t i = 0; i < connections_.size(); ++i)
        if (waits[1 + i].revents != 0) read_notice(connections_[i]);
      for (std::size_t h = 0; h < leaders_.size(); ++h)
        if (waits[1 + connections_.size() + h].revents != 0) read_leader(h);
      if (question_ && Clock::now() >= question_->until) conclude();
    }
  }

  bool take_own_notices() {
    std::optional<Notice> question;
    {
      const std::lock_guard lock{mutex_};
      if (stop_) return true;
      question = std::exchange(own_question_, std::nullopt);
    }
    if (question) ask(*question);
    return false;
  }

  void read_notice(KeptFd& connection) {
    if (!connection.is_ours()) return connection.reset();  // the program has closed it
    Notice notice;
    const auto n = ::recv(connection.get(), &notice, sizeof notice, MSG_DONTWAIT);
    if (n == static_cast<ssize_t>(sizeof notice)) {
      if (notice.kind == Notice::Kind::late) ask(notice);
    } else if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      connection.reset();  // it left; a death is reported by the process watch
    }
  }

  // ---- the other hosts ----

  void send(Leader& leader, const std::string& frame) {
    if (!leader.fd.is_ours()) return;
    const auto size = static_cast<std::uint32_t>(frame.size());
    std::string bytes(sizeof size, '\0');
    std::memcpy(bytes.data(), &size, sizeof size);
    bytes += frame;
    // A host that can't be reached detects the failure by itself.
    (void)send_all(leader.fd.get(), std::as_bytes(std::span{bytes}), Clock::now() + kSendTime);
  }

  void read_leader(std::size_t host) {
    auto& leader = leaders_[host];
    if (!leader.fd.is_ours()) return lose_own(host);
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
    node_.break_with({ErrorCode::peer_lost, node_.describe(rank) + " is gone: " + how, {rank}});
  }

  void lose_own(std::size_t host) {
    leaders_[host].fd.reset();
    if (leaders_[host].left) return;
    const int own = placement_.rank;
    node_.break_with({ErrorCode::peer_lost,
                      node_.describe(own) + ": this program has closed the connection to rank " +
                          std::to_string(placement_.hosts[host].ranks.front()),
                      {own}});
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
    if (fields && !fields->empty()) handle(host, *fields);
    return true;
  }

  void handle(std::size_t host, const std::vector<std::string>& fields) {
    const auto& word = fields[0];
    if (word == "left") {
      leaders_[host].left = true;
    } else if (word == "cause" && fields.size() == 2) {
      if (const auto error = parse_error(fields[1]))
        node_.break_with({error->code(), printable(error->what(), kMaxCause), error->ranks()});
    } else if (word == "ranks?") {
      answer(host);
    } else if (word == "ranks" && question_) {
      const auto& ranks = placement_.hosts[host].ranks;
      if (fields.size() != 1 + ranks.size()) return;
      for (std::size_t i = 0; i < ranks.size(); ++i)
        if (auto status = parse_status(fields[1 + i]))
          question_->all[static_cast<std::size_t>(ranks[i])] = *std::move(status);
      question_->answered[host] = true;
      conclude_if_all();
    }
  }

  void send_cause() {
    if (is_cause_sent_ || node_.is_healthy())
      return;  // only this thread and the destructor write is_cause_sent_
    broken_.set();
    const Notice notice;
    for (const auto& connection : connections_) {
      if (connection.is_ours())
        (void)send_all(connection.get(), std::as_bytes(std::span{&notice, 1}), Clock::now() + 50ms);
    }
    const Error unknown{ErrorCode::peer_lost,
                        "the rank that broke the group ended before it could say why"};
    const auto frame = pack({"cause", to_text(node_.peers().cause().value_or(unknown))});
    for (auto& leader : leaders_) send(leader, frame);
    const std::lock_guard lock{mutex_};
    is_cause_sent_ = true;
    cause_sent_.notify_all();
  }

  // ---- who is late? ----

  void ask(const Notice& notice) {
    if (question_ || !node_.is_healthy()) return;
    question_ = Question{notice, Clock::now() + kAnswerTime, {}, node_.statuses()};
    question_->answered.resize(leaders_.size());
    question_->answered[placement_.host] = true;
    for (std::size_t h = 0; h < leaders_.size(); ++h)
      if (h != placement_.host) send(leaders_[h], pack({"ranks?"}));
    conclude_if_all();
  }

  void answer(std::size_t host) {
    const auto all = node_.statuses();
    std::vector<std::string> fields{"ranks"};
    for (const int rank : placement_.local_ranks())
      fields.push_back(to_text(all[static_cast<std::size_t>(rank)]));
    send(leaders_[host], pack(fields));
  }

  void conclude_if_all() {
    for (const bool answered : question_->answered)
      if (!answered) return;
    conclude();
  }

  void conclude() {
    auto question = *std::move(question_);
    question_.reset();
    auto& all = question.all;
    for (std::size_t h = 0; h < question.answered.size(); ++h)
      if (!question.answered[h]) mark_silent(placement_.hosts[h].ranks, all);
    const auto mine = question.wait();
    const auto found =
        shm::blame(all, mine,
                   shm::is_message(mine.operation) ? std::vector<int>{question.notice.peer}
                                                   : shm::late_in(all, mine.of));
    const auto text = found.culprits.empty()
                          ? "all ranks have arrived, but their data has not"
                          : shm::describe(found, all, [this](int r) { return node_.describe(r); });
    node_.break_with(
        {ErrorCode::timed_out,
         "timed out after " + acc::describe(Millis{question.notice.limit_ms}) + ": " + text,
         found.ranks()});
  }

  /// Marks the ranks of a host whose leader doesn't answer.
  static void mark_silent(const std::vector<int>& ranks, std::vector<shm::RankStatus>& all) {
    for (const int rank : ranks) all[static_cast<std::size_t>(rank)].behind = ranks.front();
    all[static_cast<std::size_t>(ranks.front())].source = shm::RankStatus::Source::silent;
  }

  NodeSegment& node_;
  const RankPlacement& placement_;
  std::vector<KeptFd> connections_;
  WakeEvent wake_, broken_;
  std::vector<Leader> leaders_;
  std::optional<Question> question_;
  std::mutex mutex_;
  std::condition_variable cause_sent_;
  bool is_cause_sent_ = false;  ///< to all hosts
  bool ended_ = false;
  bool stop_ = false;
  std::optional<Notice> own_question_;
  std::thread thread_;
};

FailureDetector::FailureDetector(NodeSegment& node, const RankPlacement& placement,
                                 std::vector<UniqueFd> leaders, std::vector<UniqueFd> connections)
    : loop_{std::make_unique<Loop>(node, placement, std::move(leaders), std::move(connections))} {}

FailureDetector::~FailureDetector() = default;

void FailureDetector::notify(const Notice& notice) noexcept { loop_->notify(notice); }

void FailureDetector::await_cause_sent() noexcept { loop_->await_cause_sent(); }

int FailureDetector::broken_fd() const noexcept { return loop_->broken_fd(); }

}  // namespace acc::runtime::tcp
