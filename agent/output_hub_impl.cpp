#include "agent/output_hub_impl.hpp"

#include "agent/journal.hpp"
#include "agent/run_folder.hpp"
#include "common/log.hpp"

#include <boost/asio/post.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

namespace acc::agent {

namespace {

// Room for what a worker writes while we are busy elsewhere. Not for many workers: an ordinary user
// may have 64 MiB of pipes in all (pipe-user-pages-soft) and gets tiny ones beyond.
constexpr int kPipeBytes = 1 << 18;
constexpr std::uint32_t kManyWorkers = 32;

constexpr Millis kStopBound{200};
constexpr Millis kLateWords{200};  // after the last finish()
constexpr Millis kLetGo{100};      // for a thread that is told to give up what it writes
constexpr Millis kLook{100};       // at the limits of finish()
constexpr Millis kWaitIsTold{5'000};

// Of a pseudo-terminal, which doesn't tell.
constexpr std::size_t kLeastCapacity = std::size_t{16} << 10U;

std::size_t pipe_bytes(int fd) {
  const int bytes = ::fcntl(fd, F_GETPIPE_SZ);
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

}  // namespace

OutputHub::Impl::Impl(boost::asio::io_context& io, const OutputPlan& plan,
                      std::uint32_t local_world_size, const ConsoleFacts& facts,
                      OutputOptions options)
    : io_{io},
      plan_{plan},
      local_world_size_{local_world_size},
      facts_{facts},
      options_{std::move(options)},
      wants_files_{wants_files(plan, local_world_size, facts)} {}

void OutputHub::Impl::set_up() {
  pump_ = std::make_shared<Pump>(io_, [this] { flush(); });
  workers_.resize(local_world_size_);
  set_up_consoles();
}

void OutputHub::Impl::set_up_consoles() {
  const DropPolicy::Limits limits{options_.console_queue_bytes, plan_.patience};
  const bool wants_journal = facts_.journal_out || facts_.journal_err;
  std::shared_ptr<BatchSink> journal =
      wants_journal ? JournalSink::connect(options_.journal_socket, waker()) : nullptr;
  if (!journal) facts_.journal_out = facts_.journal_err = false;
  const auto outlet = [&](std::string where, int fd, bool to_journal) {
    if (to_journal)
      return std::make_unique<ConsoleOutlet>("journal", limits, [journal] { return journal; });
    return std::make_unique<ConsoleOutlet>(std::move(where), limits, [fd, wake = waker()] {
      return std::make_shared<ConsoleSink>(fd, wake);
    });
  };
  const bool is_one = facts_.same_target || (facts_.journal_out && facts_.journal_err);
  out_ = outlet(is_one ? "console" : "stdout", options_.out, facts_.journal_out);
  if (!is_one) err_ = outlet("stderr", options_.err, facts_.journal_err);
}

// For the writer threads: on_wake() on the loop.
std::function<void()> OutputHub::Impl::waker() {
  return [&io = io_, weak = weak_from_this()] {
    boost::asio::post(io, [weak] {
      if (const auto self = weak.lock()) self->on_wake();
    });
  };
}

void OutputHub::Impl::on_wake() {
  pump_->resume();
  for (Outlet* outlet : outlets()) tell(*outlet);
}

std::vector<Outlet*> OutputHub::Impl::outlets() const {
  std::vector<Outlet*> all;
  for (Outlet* outlet : std::initializer_list<Outlet*>{out_.get(), err_.get(), files_.get()})
    if (outlet != nullptr) all.push_back(outlet);
  return all;
}

void OutputHub::Impl::flush() {
  out_->flush();
  if (err_) err_->flush();
  tell(*out_);
  if (err_) tell(*err_);
  if (files_) tell(*files_);
}

void OutputHub::Impl::tell(Outlet& outlet) {
  if (is_finished_) return;  // the queue of a sink that was given up is empty, but not recovered
  const Outlet::News news = outlet.news(std::chrono::steady_clock::now());
  if (news == Outlet::News::none) return;
  if (news == Outlet::News::recovered) return say("acc-launch: " + outlet.describe_recovery());
  const auto losses = outlet.losses();
  if (losses && on_degraded) on_degraded(*losses);
}

void OutputHub::Impl::begin_round(Round round, const std::string& run_folder) {
  end_round();
  is_finished_ = false;
  for (Outlet* outlet : outlets()) outlet->begin_round();
  round_ = round;
  workers_.clear();
  workers_.resize(local_world_size_);
  round_folder_.clear();
  if (!wants_files_ || run_folder.empty()) return;
  round_folder_ = attempt_folder(run_folder, round);
  if (!files_) {
    const DropPolicy::Limits limits{options_.files_queue_bytes, plan_.patience};
    files_ = std::make_unique<FilesOutlet>("log files in " + run_folder, limits, waker());
  }
  for (std::uint32_t i = 0; i < local_world_size_; ++i) {
    const auto made = make_folder(folder_of(LocalRank{i}));
    if (made) continue;
    // Not the end: each file tries again when there is something to write.
    log::warn("log_folder_failed", {{"why", made.error().what}});
    return;
  }
  if (plan_.log_dir.empty()) return;
  if (const auto linked = link_latest(plan_.log_dir, run_folder); !linked)
    log::warn("log_link_failed", {{"why", linked.error().what}});
}

std::string OutputHub::Impl::folder_of(LocalRank local) const {
  return round_folder_ + "/" + std::to_string(local.value());
}

bool OutputHub::Impl::wants_color(bool is_err) const {
  if (plan_.color != Choice::automatic) return plan_.color == Choice::yes;
  return (is_err ? facts_.err_is_tty : facts_.out_is_tty) && !facts_.no_color;
}

WorkerStream::Targets OutputHub::Impl::targets_of(LocalRank local, Rank rank, const Route& route,
                                                  bool is_err) {
  WorkerStream::Targets to;
  to.show = route.show;
  if (route.show != Show::nothing) to.console = &console(is_err);
  to.is_terminal = is_err ? facts_.err_is_tty : facts_.out_is_tty;
  to.is_journal = is_journal(is_err);
  if (route.show == Show::prefixed)
    to.prefix =
        render_prefix(plan_.prefix, {role, rank, local, !to.is_journal && wants_color(is_err)});
  if (to.is_journal)
    to.journal_fields = journal_fields(job_id, round_, rank, local, is_err ? "stderr" : "stdout");
  return to;
}

Result<void> OutputHub::Impl::open_channel(Channel& channel, LocalRank local, Rank rank,
                                           const Route& route, bool is_err) {
  WorkerStream::Targets to = targets_of(local, rank, route, is_err);
  channel.prefix_columns = 0;
  if (route.show == Show::prefixed)
    channel.prefix_columns = prefix_width(plan_.prefix, {role, rank, local});
  UniqueFd read_end;
  if (route.pty) read_end = open_terminal(channel);
  if (!read_end) {
    auto opened = open_pipe(channel, is_err);
    if (!opened) return opened.error();
    read_end = std::move(*opened);
  }
  const std::size_t capacity = std::max(pipe_bytes(read_end.get()), kLeastCapacity);
  if (to.console != nullptr) to.console->reserve(capacity);
  if (route.file && files_) {
    channel.path = folder_of(local) + (is_err ? "/stderr.log" : "/stdout.log");
    LogFile file{channel.path, {plan_.rotate_bytes, plan_.rotate_keep}};
    // A failure is told when there is something to lose.
    (void)file.open();
    to.files = files_.get();
    to.files->reserve(capacity);
    to.slot = std::make_shared<FileSink::Slot>(std::move(file));
  }
  channel.stream = std::make_unique<WorkerStream>(std::move(to), channel.tail);
  channel.reader = pump_->add(std::move(read_end), *channel.stream);
  return {};
}

Result<UniqueFd> OutputHub::Impl::open_pipe(Channel& channel, bool is_err) {
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

Result<ChildStreams> OutputHub::Impl::open(LocalRank local, Rank rank) {
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

void OutputHub::Impl::close_child_ends(LocalRank local) {
  Worker& worker = workers_.at(local.value());
  worker.out.child_end.reset();
  worker.err.child_end.reset();
}

void OutputHub::Impl::drain(LocalRank local) {
  Worker& worker = workers_.at(local.value());
  for (Channel* channel : {&worker.out, &worker.err})
    if (channel->reader) pump_->drain(*channel->reader);
}

void OutputHub::Impl::close_channel(Channel& channel) {
  channel.child_end.reset();
  if (channel.reader) {
    pump_->drain(*channel.reader);
    pump_->close(*channel.reader);
  }
  channel.reader.reset();
  channel.stream.reset();
}

void OutputHub::Impl::end_round() {
  for (Worker& worker : workers_)
    for (Channel* channel : {&worker.out, &worker.err}) close_channel(*channel);
  flush();
}

std::string OutputHub::Impl::tail(LocalRank local) const {
  if (local.value() >= workers_.size()) return {};
  const Worker& worker = workers_[local.value()];
  return worker.err.tail.blank() ? worker.out.tail.text() : worker.err.tail.text();
}

std::string OutputHub::Impl::log_path(LocalRank local, Streams which) const {
  if (local.value() >= workers_.size()) return {};
  const Worker& worker = workers_[local.value()];
  if (which == Streams::out) return worker.out.path;
  if (which == Streams::err) return worker.err.path;
  return worker.out.path.empty() && worker.err.path.empty() ? std::string{} : folder_of(local);
}

void OutputHub::Impl::say(std::string_view text) {
  ConsoleOutlet& to = console(true);
  std::string& batch = to.batch();
  const std::size_t mark = batch.size();
  if (is_journal(true)) {
    append_record(batch, text.substr(0, text.find_last_not_of('\n') + 1), journal_fields(job_id));
  } else {
    batch.append(text);
    if (!text.ends_with('\n')) batch.push_back('\n');
  }
  to.commit(mark, {this, true, is_journal(true)}, Fate::queue);
  to.flush();
}

std::vector<Losses> OutputHub::Impl::losses() const {
  std::vector<Losses> all;
  for (const Outlet* outlet : outlets())
    if (auto lost = outlet->losses()) all.push_back(std::move(*lost));
  return all;
}

void OutputHub::Impl::finish(const std::function<FlushLimits()>& limits) {
  end_round();
  is_finished_ = true;
  is_wait_told_ = false;
  const Instant from = clock_now();
  // Files first, then stderr, where our own words are. All move at the same time, so the second
  // has not lost what the first one took.
  std::vector<Outlet*> all = outlets();
  std::reverse(all.begin(), all.end());
  for (Outlet* outlet : all)
    if (!write_out(*outlet, from, limits)) outlet->abandon(kLetGo, was_cut_off(*outlet, from));
}

// It had not had the whole patience.
bool OutputHub::Impl::was_cut_off(const Outlet& outlet, Instant from) const {
  return clock_now() < std::max(from, outlet.last_progress()) + plan_.patience;
}

// False: it must be given up.
bool OutputHub::Impl::write_out(Outlet& outlet, Instant from,
                                const std::function<FlushLimits()>& limits) {
  for (;;) {
    const auto [patience, cap] = limits();
    const Instant now = clock_now();
    if (outlet.wait_written(from, patience,
                            from + std::min<Instant::duration>(cap, now - from + kLook)))
      return true;
    const Instant later = clock_now();
    if (later - from >= cap || later - std::max(from, outlet.last_progress()) >= patience)
      return false;
    if (later - from < kWaitIsTold || std::exchange(is_wait_told_, true)) continue;
    say("acc-launch: the workers are gone; waiting for " + outlet.where() + " to take the last " +
        std::to_string(outlet.queued() >> 10U) + " KiB (as long as it takes some within " +
        describe(patience) + "; Ctrl-C gives them up)");
  }
}

void OutputHub::Impl::shorten_patience(Millis patience) {
  for (Outlet* outlet : outlets()) outlet->shorten_patience(patience);
  pump_->resume();
}

void OutputHub::Impl::stop() {
  const Instant now = std::chrono::steady_clock::now();
  if (is_finished_) console(true).wait_written(now, kLateWords, now + kLateWords);
  for (Outlet* outlet : outlets()) outlet->stop(kStopBound);
}

}  // namespace acc::agent
