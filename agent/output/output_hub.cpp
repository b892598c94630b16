#include "agent/output/output_hub.hpp"

#include "agent/output/destinations.hpp"
#include "agent/output/file_system_check.hpp"
#include "agent/output/pseudo_terminal.hpp"
#include "agent/output/pump.hpp"
#include "agent/output/routes.hpp"
#include "agent/output/run_folder.hpp"
#include "agent/output/tail_buffer.hpp"
#include "agent/output/terminal_view.hpp"
#include "agent/output/worker_stream.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/plain_text.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace acc::agent {

namespace {

// Room for what a worker writes while we are busy elsewhere. Not for many workers: an ordinary user
// may have 64 MiB of pipes in all (pipe-user-pages-soft) and gets tiny ones beyond.
constexpr int kPipeBytes = 1 << 18;
constexpr std::uint32_t kManyWorkers = 32;

// Assumed of a pseudo-terminal, whose capacity can't be queried.
constexpr std::size_t kLeastCapacity = std::size_t{16} << 10U;

std::size_t capacity_of(int fd) {
  const int bytes = ::fcntl(fd, F_GETPIPE_SZ);
  return std::max(bytes > 0 ? static_cast<std::size_t>(bytes) : 0, kLeastCapacity);
}

}  // namespace

/// One stream of a worker in this round.
struct OutputHub::Channel {
  TailBuffer tail;
  std::unique_ptr<WorkerStream> stream;
  std::shared_ptr<Pump::Reader> reader;
  UniqueFd child_end;
  std::string path;                // of its log file, or empty
  std::size_t prefix_columns = 0;  // in front of its lines
  bool is_captured = false;        // in this round; also after its end
};

struct OutputHub::Worker {
  Channel out;  // of both streams when they share a pipe
  Channel err;
};

struct OutputHub::NewsTimer {
  explicit NewsTimer(boost::asio::io_context& io) : timer{io} {}
  boost::asio::steady_timer timer;
  bool is_armed = false;
};

OutputHub::OutputHub(boost::asio::io_context& io, const OutputPlan& plan,
                     std::uint32_t local_world_size, const ConsoleFacts& facts,
                     OutputOptions options)
    : plan_{plan},
      local_world_size_{local_world_size},
      facts_{facts},
      options_{std::move(options)},
      wants_files_{wants_files(plan, local_world_size, facts)},
      pump_{std::make_unique<Pump>(io,
                                   [this] {
                                     destinations_->flush();
                                     watch_destinations();
                                   })},
      news_timer_{std::make_unique<NewsTimer>(io)},
      workers_(local_world_size) {
  // Called on the writer threads.
  auto wake = [&io, on_wake = alive_.bind([this] {
    pump_->resume();
    destinations_->tell_news();
  })]() mutable { boost::asio::post(io, on_wake); };
  std::shared_ptr<JournalQueue> journal;
  if (facts_.journal_out || facts_.journal_err)
    journal = JournalQueue::connect(options_.journal_socket,
                                    {options_.console_queue_bytes, plan_.patience}, wake);
  if (!journal) facts_.journal_out = facts_.journal_err = false;
  destinations_ = std::make_unique<Destinations>(facts_, options_, std::move(journal),
                                                 plan_.patience, std::move(wake));
  destinations_->is_log_dir_closed = plan_.is_log_dir_closed;
  if (plan_.is_reported_elsewhere) destinations_->program += ": " + host_name();
}

OutputHub::~OutputHub() {
  destinations_->on_degraded = nullptr;
  end_round();
  destinations_->stop();
}

void OutputHub::set_job(std::string job_id, std::string role) {
  destinations_->job_id = job_id;
  job_id_ = std::move(job_id);
  role_ = std::move(role);
}

// ---- a round ----

void OutputHub::begin_round(Round round, const std::string& run_folder) {
  end_round();
  destinations_->begin_round();
  round_ = round;
  workers_.clear();
  workers_.resize(local_world_size_);
  run_folder_ = run_folder;
  round_folder_.clear();
  if (!wants_files_ || run_folder.empty()) return;
  round_folder_ = attempt_folder(run_folder, round);
  // One that gives no answer: the thread that writes makes them, when it does.
  opens_files_ = file_system_answers(run_folder);
  if (!opens_files_) return;
  for (std::uint32_t i = 0; i < local_world_size_; ++i) {
    const auto made = make_worker_folder(folder_of(LocalRank{i}), plan_.log_dir.empty());
    if (made) continue;
    // Not the end: each file tries again when there is something to write.
    const auto level = plan_.is_log_dir_closed ? log::Level::info : log::Level::warn;
    log::write(level, "log_folder_failed", {{"why", made.error().what}});
    // But for another user's folder: what it holds may lead anywhere.
    if (made.error().errnum == EPERM && plan_.log_dir.empty()) round_folder_.clear();
    return;
  }
  if (plan_.log_dir.empty()) return;
  if (const auto linked = link_latest(plan_.log_dir, run_folder); !linked)
    log::warn("log_link_failed", {{"why", linked.error().what}});
}

std::string OutputHub::folder_of(LocalRank local) const {
  return round_folder_ + "/" + std::to_string(local.value());
}

Result<ChildStreams> OutputHub::open(LocalRank local, Rank rank) {
  const WorkerRoutes routes = routes_of(plan_, local, local_world_size_, facts_);
  Worker& worker = workers_.at(local.value());
  ChildStreams child;
  if (!routes.out.inherit) {
    if (auto opened = open_channel(worker.out, local, rank, routes.out, false); !opened)
      return opened.error();
    child.out = worker.out.child_end.get();
  }
  if (routes.one_pipe) {
    child.err = child.out;
  } else if (!routes.err.inherit) {
    if (auto opened = open_channel(worker.err, local, rank, routes.err, true); !opened) {
      close_channel(worker.out);
      return opened.error();
    }
    child.err = worker.err.child_end.get();
  }
  return child;
}

Result<void> OutputHub::open_channel(Channel& channel, LocalRank local, Rank rank,
                                     const Route& route, bool is_err) {
  const PrefixFacts prefix{role_, rank, local};
  channel.prefix_columns = route.show == Show::prefixed ? prefix_width(plan_.prefix, prefix) : 0;
  auto read_end = open_read_end(channel, route, is_err);
  if (!read_end) return read_end.error();
  channel.is_captured = true;
  const std::size_t capacity = capacity_of(read_end->get());

  WorkerStream::Targets to;
  to.show = route.show;
  if (route.show != Show::nothing) {
    to.console = &destinations_->console(is_err);
    to.console->reserve(capacity);
    to.is_terminal = is_err ? facts_.err_is_tty : facts_.out_is_tty;
    const bool is_journal = to.console->takes_records();
    if (route.show == Show::prefixed)
      to.prefix =
          render_prefix(plan_.prefix, {role_, rank, local, !is_journal && wants_color(is_err)});
    if (is_journal)
      to.journal_fields =
          journal_fields(job_id_, round_, rank, local, is_err ? "stderr" : "stdout");
  }
  if (route.file && !round_folder_.empty()) {
    channel.path = folder_of(local) + (is_err ? "/stderr.log" : "/stdout.log");
    LogFile file{channel.path, {plan_.rotate_bytes, plan_.rotate_keep}, plan_.log_dir.empty()};
    // A failure is reported when there is something to lose.
    if (opens_files_) (void)file.open();
    to.files = &destinations_->files("log files in " + run_folder_);
    to.files->reserve(capacity);
    to.slot = std::make_shared<LogFileQueue::Slot>(std::move(file));
  }
  to.totals = totals_.get();
  channel.stream = std::make_unique<WorkerStream>(std::move(to), channel.tail);
  channel.reader = pump_->add(std::move(*read_end), *channel.stream);
  return {};
}

bool OutputHub::wants_color(bool is_err) const {
  if (plan_.color != Choice::automatic) return plan_.color == Choice::yes;
  return (is_err ? facts_.err_is_tty : facts_.out_is_tty) && !facts_.no_color;
}

// Of a pseudo-terminal where the route wants one and it can be had, else of a pipe.
Result<UniqueFd> OutputHub::open_read_end(Channel& channel, const Route& route, bool is_err) {
  if (route.pty) {
    if (auto terminal =
            open_pseudo_terminal(window_beside(channel.prefix_columns, facts_.window))) {
      channel.child_end = std::move(terminal->workers);
      return std::move(terminal->ours);
    }
    const int why = errno;
    if (!std::exchange(lacks_terminals_, true))
      say("acc-launch: warning: no pseudo-terminal for workers (" +
          std::string{std::strerror(why)} +
          "): C programs may show their output late (--pty off says nothing of it)");
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return system_error(errno, "make a pipe for a worker's output");
  UniqueFd read_end{ends[0]};
  channel.child_end.reset(ends[1]);
  ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  // stderr is seldom busy, and the size costs time in the kernel.
  if (!is_err && local_world_size_ <= kManyWorkers)
    ::fcntl(read_end.get(), F_SETPIPE_SZ, kPipeBytes);
  return read_end;
}

void OutputHub::close_child_ends(LocalRank local) {
  Worker& worker = workers_.at(local.value());
  worker.out.child_end.reset();
  worker.err.child_end.reset();
}

void OutputHub::drain(LocalRank local) {
  Worker& worker = workers_.at(local.value());
  for (Channel* channel : {&worker.out, &worker.err})
    if (channel->reader) pump_->drain(*channel->reader);
}

void OutputHub::close_channel(Channel& channel) {
  channel.child_end.reset();
  if (channel.reader) {
    pump_->drain(*channel.reader);
    pump_->close(*channel.reader);
  }
  channel.reader.reset();
  channel.stream.reset();
}

void OutputHub::end_round() {
  for (Worker& worker : workers_)
    for (Channel* channel : {&worker.out, &worker.err}) close_channel(*channel);
  destinations_->flush();
}

// ---- what is known of the workers ----

std::string OutputHub::tail(LocalRank local) const {
  if (local.value() >= workers_.size()) return {};
  const Worker& worker = workers_[local.value()];
  // What a failure says last is on stderr as a rule; where both have lines, their order isn't known.
  if (worker.err.tail.blank()) return worker.out.tail.text();
  if (worker.out.tail.blank()) return worker.err.tail.text();
  auto both = worker.out.tail.text();
  if (!both.ends_with('\n')) both += '\n';
  return both += worker.err.tail.text();
}

std::string OutputHub::last_line(LocalRank local) const {
  constexpr std::size_t kLookedAt = 1024;
  constexpr std::size_t kShown = 256;
  if (local.value() >= workers_.size()) return {};
  const auto& [out, err] = workers_[local.value()];
  const bool is_err_later = err.tail.last_append() > out.tail.last_append();
  const auto& last = is_err_later ? err.tail : out.tail;
  auto line = last_plain_line(last.text(kLookedAt), kShown);
  if (!line.empty()) return line;
  return last_plain_line((is_err_later ? out.tail : err.tail).text(kLookedAt), kShown);
}

OutputHub::Kept OutputHub::kept_output(LocalRank local, bool is_stderr, std::uint64_t from) const {
  if (local.value() >= workers_.size()) return {};
  const auto& worker = workers_[local.value()];
  const auto& channel = is_stderr ? worker.err : worker.out;
  const auto& tail = channel.tail;
  const auto end = tail.total();
  const auto wanted = end > from ? end - from : 0;
  Kept kept{tail.text(std::min<std::uint64_t>(wanted, TailBuffer::kSize)), 0, end,
            channel.is_captured};
  kept.from = end - kept.text.size();
  return kept;
}

std::string OutputHub::log_path(LocalRank local, Streams which) const {
  if (local.value() >= workers_.size()) return {};
  const Worker& worker = workers_[local.value()];
  if (which == Streams::out) return worker.out.path;
  if (which == Streams::err) return worker.err.path;
  return worker.out.path.empty() && worker.err.path.empty() ? std::string{} : folder_of(local);
}

std::vector<Variable> OutputHub::environment(LocalRank local, Rank rank) const {
  const Route out = routes_of(plan_, local, local_world_size_, facts_).out;
  const bool is_prefixed = out.show == Show::prefixed;
  return output_variables(out, is_prefixed ? prefix_width(plan_.prefix, {role_, rank, local}) : 0,
                          facts_);
}

void OutputHub::window_changed() {
  facts_.window = window_size(options_.out, options_.err);
  for (Worker& worker : workers_)
    for (Channel* channel : {&worker.out, &worker.err})
      if (channel->reader)
        Pump::set_window(*channel->reader, window_beside(channel->prefix_columns, facts_.window));
}

// ---- the destinations ----

void OutputHub::say(std::string_view line) { destinations_->say(line); }

bool OutputHub::can_show_status() const {
  return facts_.err_is_tty && (facts_.same_target || !facts_.out_is_tty);
}

bool OutputHub::is_bypassed() const {
  for (std::uint32_t i = 0; i < local_world_size_; ++i) {
    const auto routes = routes_of(plan_, LocalRank{i}, local_world_size_, facts_);
    if (routes.out.inherit || routes.err.inherit) return true;
  }
  return false;
}

void OutputHub::set_status(std::string line) {
  if (line.empty() && !has_status_) return;
  has_status_ = !line.empty();
  destinations_->set_status(std::move(line));
  const bool may_inherit = local_world_size_ == 1 || plan_.capture == Choice::no;
  if (!has_status_ && may_inherit) destinations_->settle();
}

void OutputHub::shorten_patience(Millis patience) {
  destinations_->shorten_patience(patience);
  pump_->resume();
}

void OutputHub::suspended() { destinations_->suspend(); }

void OutputHub::resumed() {
  destinations_->resume();
  pump_->resume();
  watch_destinations();
}

void OutputHub::count_output() {
  if (!totals_) totals_ = std::make_unique<OutputTotals>();
}

OutputTotals OutputHub::totals() const { return totals_ ? *totals_ : OutputTotals{}; }

void OutputHub::watch_destinations() {
  if (news_timer_->is_armed) return;
  const auto next = destinations_->next_news();
  if (!next) return;
  news_timer_->is_armed = true;
  news_timer_->timer.expires_at(*next);
  news_timer_->timer.async_wait(alive_.bind([this](boost::system::error_code cancelled) {
    news_timer_->is_armed = false;
    if (cancelled) return;
    destinations_->tell_news();
    watch_destinations();
  }));
}

std::vector<Losses> OutputHub::losses() const { return destinations_->losses(); }

void OutputHub::on_degraded(std::function<void(const Losses&)> told) {
  destinations_->on_degraded = std::move(told);
}

void OutputHub::finish(const AskFlushLimits& limits) {
  end_round();
  news_timer_->timer.cancel();
  destinations_->finish(limits);
}

}  // namespace acc::agent
