#include "agent/watch/job_watch.hpp"

#include "agent/evidence/culprits.hpp"
#include "agent/job_name.hpp"
#include "agent/output/file_system_check.hpp"
#include "agent/user_messages.hpp"
#include "agent/watch/hang_cause.hpp"
#include "agent/watch/learned_times.hpp"
#include "agent/watch/page_evidence.hpp"
#include "agent/watch/worker_usage.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

namespace acc::agent {

namespace {

constexpr Millis kLookInterval{1'000};
// A timer that is so late means that this process was stopped, and probably the workers as well.
constexpr Millis kLate{5'000};
// The node of the rank that is behind reports it; if it doesn't, this one does.
constexpr Millis kOtherNodesPatience{5'000};

bool is_python(const std::string& program) {
  return program.substr(program.rfind('/') + 1).starts_with("python");  // npos + 1 is 0
}

std::string one_decimal(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(value < 10 ? 2 : 1) << value;
  return text.str();
}

std::string times_file_of(const JobPlan& plan) {
  if (plan.hang.kind != HangPolicy::Kind::learned) return {};
  const bool several = plan.kind == JobKind::elastic && plan.cluster.several();
  auto name = job_name(plan);
  if (is_made_up(plan.cluster.job)) name += "-" + command_mark(plan);
  return learned_times_file(name + (several ? "." + host_name() : ""));
}

}  // namespace

static std::vector<bool> living(const WorkerGroup& workers) {
  std::vector<bool> lives;
  for (const auto& record : workers.records()) lives.push_back(record.is_living());
  return lives;
}

static std::vector<SilentRank> all_silent_for(Millis quiet, const WorkerGroup& workers) {
  std::vector<SilentRank> all;
  for (const auto& record : workers.records())
    if (record.is_living()) all.push_back({record.local_rank, quiet, Millis{0}, false, {}});
  return all;
}

static void tell_behind(const UserMessages& messages, const StackCollection::Evidence& nodes) {
  std::vector<evidence::FinishedRank> finished;
  for (const auto& node : nodes)
    finished.insert(finished.end(), node.finished.begin(), node.finished.end());
  for (const auto& line : evidence::behind_lines(ranks_of(nodes))) messages.warning(line);
  if (const auto words = evidence::finished_words(finished); !words.empty())
    messages.warning(words);
}

JobWatch::JobWatch(const Parts& parts, Hooks hooks)
    : parts_{parts},
      hooks_{std::move(hooks)},
      timer_{parts.io},
      patience_{parts.io},
      times_file_{times_file_of(parts.plan)},
      hangs_{parts.plan.hang, read_learned_times(times_file_)},
      stall_{parts.plan.hang.stall},
      goodput_{clock_now()},
      stacks_{{parts.io, parts.workers, parts.messages, parts.run_folder, parts.job_id, parts.node},
              [this](Instant from, Instant to) { leave_out(from, to); }} {
  if (hooks_.section_signs)
    section_signs_.emplace(*hooks_.section_signs,
                           [this](bool has_risen) { on_section_signs(has_risen); });
  if (hooks_.exchange_step && parts.plan.hang.kind == HangPolicy::Kind::learned)
    shared_step_.emplace(hooks_.exchange_step,
                         [this](Millis step) { hangs_.take_longer_step(step); });
}

// ---- the course of the job ----

void JobWatch::round_started(HeartbeatBoard& board, Round round, Instant now) {
  board_ = &board;
  round_ = round;
  saw_checkpoint_ = is_held_told_ = is_put_off_ = do_others_know_stall_ = false;
  stall_found_.reset();
  told_suspects_.reset();
  stacks_.round_started(board, round);
  const auto workers = static_cast<std::uint32_t>(parts_.workers.records().size());
  hangs_.begin_round(now, workers);
  holders_.begin_round(workers);
  if (section_signs_) section_signs_->begin_round();
  if (shared_step_) shared_step_->begin_round();
  stragglers_.begin_round(workers);
  stall_.begin(now);
  stall_look_ = now;
  goodput_.round_started(now);
  slow_restart_.round_started(now);
  next_deadline_.reset();
  if (parts_.plan.hang.is_on()) next_deadline_ = now + hangs_.first_limit();
  board.on_first_sign([this] { arm(); });
  board.on_checkpoint_told([this] {
    saw_checkpoint_ = true;
    goodput_.checkpoint(clock_now());
  });
  arm();
}

void JobWatch::round_ended(bool is_lost, Instant now) {
  goodput_.round_ended(is_lost, now);
  slow_restart_.round_ended(is_lost, now);
  if (board_ == nullptr) return;
  if (board_->is_in_use())
    hangs_.look(board_->beats(), std::vector<bool>(parts_.workers.records().size(), false),
                clock_now());
  saw_checkpoint_ = saw_checkpoint_ || board_->checkpoints() > 0;
  // The other workers have had no SIGTERM yet.
  constexpr Millis kPatience{200};
  if (const auto learned = hangs_.learned();
      learned && !times_file_.empty() && file_system_answers(times_file_, kPatience))
    write_learned_times(times_file_, *learned);
  board_ = nullptr;
  is_judging_ = false;
  timer_.cancel();
  patience_.cancel();
  stacks_.round_ended();
}

void JobWatch::suspended() {
  is_suspended_ = true;
  stacks_.suspended();
}

void JobWatch::resumed(Instant now) {
  is_suspended_ = false;
  restart_clocks(now);
}

// Asked for again and again, stacks put off no hang: only the time of the collections is left out.
void JobWatch::leave_out(Instant from, Instant to) {
  hangs_.leave_out(from, to);
  if (parts_.plan.hang.stall > Millis{0})
    stall_.leave_out(std::chrono::duration_cast<Millis>(to - from),
                     usage_of(parts_.workers.records()));
  stragglers_.restart(to);
}

void JobWatch::restart_clocks(Instant now) {
  hangs_.restart_clocks(now);
  stall_.begin(now);
  stragglers_.restart(now);
}

// ---- what it knows ----

std::optional<heartbeat::Beat> JobWatch::beat(LocalRank worker) const {
  if (board_ == nullptr || !board_->is_in_use()) return std::nullopt;
  return board_->beat(worker);
}

bool JobWatch::saw_checkpoint() const {
  return saw_checkpoint_ || (board_ != nullptr && board_->checkpoints() > 0);
}

// ---- looking ----

void JobWatch::arm() {
  if (board_ == nullptr) return;
  std::optional<Instant> at = next_deadline_;
  const auto earlier = [&](Instant other) { at = at ? std::min(*at, other) : other; };
  const Instant now = clock_now();
  if (board_->is_in_use()) earlier(now + kLookInterval);
  if (parts_.plan.hang.stall > Millis{0}) earlier(stall_look_ + stall_.interval());
  if (!at) return;
  // Not more than once a second: a silent worker is told a second after its limit at the latest.
  expected_ = std::max(*at, now + Millis{1});
  timer_.expires_at(expected_);
  timer_.async_wait([this](boost::system::error_code cancelled) {
    if (!cancelled) look();
  });
}

void JobWatch::look() {
  if (board_ == nullptr) return;
  const Instant now = clock_now();
  if (now - expected_ > kLate) restart_clocks(now);
  // A debugger holds the workers then: their silence, and slow steps, are ours.
  if (is_suspended_ || is_judging_ || stacks_.is_running()) {
    if (parts_.plan.hang.is_on()) next_deadline_ = now + kLookInterval;
    stall_look_ = now;
  } else {
    next_deadline_.reset();
    release_pages();
    const auto beats = board_->beats();
    if (board_->is_in_use()) {
      look_for_stragglers(beats, now);
      look_for_slow_restart(beats);
      take_back_suspects(beats);
      hooks_.on_look();
    }
    if (parts_.plan.hang.is_on()) look_for_hangs(beats, living(parts_.workers), now);
    if (!is_judging_ && now >= stall_look_ + stall_.interval()) look_for_stall(now);
  }
  arm();
}

void JobWatch::release_pages() {
  const auto beats = board_->beats();
  for (const auto& record : parts_.workers.records()) {
    const auto at = record.local_rank.value();
    if (at >= beats.size() || !record.is_living()) continue;
    if (holders_.has_ended(record.local_rank, beats[at], record.pid))
      board_->release(record.local_rank, beats[at].pid);
  }
}

Rank JobWatch::rank_of(LocalRank worker) const {
  return parts_.workers.records().at(worker.value()).rank;
}

std::vector<std::uint32_t> JobWatch::ranks_of_workers(const std::vector<LocalRank>& workers) const {
  std::vector<std::uint32_t> ranks;
  for (const auto worker : workers) ranks.push_back(rank_of(worker).value());
  return ranks;
}

std::vector<Rank> JobWatch::ranks_here() const {
  std::vector<Rank> ranks;
  for (const auto& record : parts_.workers.records()) ranks.push_back(record.rank);
  return ranks;
}

void JobWatch::look_for_hangs(const std::vector<heartbeat::Beat>& beats,
                              const std::vector<bool>& lives, Instant now) {
  auto seen = hangs_.look(beats, lives, now);
  next_deadline_ = seen.next;
  if (seen.is_unused && !std::exchange(is_unused_told_, true)) {
    parts_.messages.warning("no worker has sent a heartbeat in " + describe(hangs_.first_limit()) +
                            ": --hang_timeout has no effect on a program that sends none "
                            "(docs/worker-socket.md)");
  }
  if (!seen.without_heartbeats.empty() && !std::exchange(is_unused_told_, true)) {
    const auto ranks = ranks_of_workers(seen.without_heartbeats);
    parts_.messages.warning(evidence::name_ranks(ranks) + " sent no heartbeat in " +
                            describe(hangs_.first_limit()) +
                            ", and others go on: --hang_timeout judges only ranks that send some, "
                            "so send them from all ranks (docs/worker-socket.md)");
  }
  if (section_signs_) section_signs_->note(seen, hangs_.step_limit(), now);
  if (shared_step_) shared_step_->note(hangs_.longest_step(), seen.is_any_waiting, now);
  tell_held(seen, now);
  if (!seen.silent.empty()) on_silent(seen);
}

// The time of a section with a limit ends by itself; this one may never end.
void JobWatch::tell_held(const HangDetector::Look& look, Instant now) {
  if (is_held_told_) return;
  const auto beats = board_->beats();
  for (const auto rank : look.in_section) {
    const auto& beat = beats.at(rank.value());
    if (beat.section_limit_ms != 0 || beat.section.empty()) continue;
    const std::string who = "rank " + std::to_string(rank_of(rank).value());
    const std::string where = "section '" + beat.section + "', which has no time-out";
    const Instant since{std::chrono::nanoseconds{beat.section_since_ns}};
    const auto lasts = std::chrono::duration_cast<Millis>(now - since);
    if (!look.held.empty()) {
      std::vector<std::uint32_t> ranks;
      for (const auto& one : look.held) ranks.push_back(rank_of(one.rank).value());
      parts_.messages.warning(evidence::name_ranks(ranks) + " sent no heartbeat for " +
                              describe(look.held.front().silent) + ", but " + who + " is in " +
                              where + ": no rank counts as hung until it ends");
    } else if (section_signs_ && lasts >= hangs_.step_limit()) {
      parts_.messages.warning(who + " has been in " + where + ", for " + describe(lasts) +
                              ": ranks of other nodes that wait for it don't count as hung until "
                              "it ends");
    } else {
      continue;
    }
    is_held_told_ = true;
    return;
  }
}

void JobWatch::look_for_slow_restart(const std::vector<heartbeat::Beat>& beats) {
  const auto& plan = parts_.plan;
  if (!plan.preload.modules.empty() || !is_python(plan.command.front())) return;
  if (const auto found = slow_restart_.look(beats)) {
    parts_.messages.note("the restart took " + describe(found->whole) + ", of which " +
                         describe(found->workers) +
                         " passed from the workers' start to their first heartbeat: --preload auto "
                         "saves the imports in it");
  }
}

void JobWatch::look_for_stragglers(const std::vector<heartbeat::Beat>& beats, Instant now) {
  for (const auto& found : stragglers_.look(beats, now)) {
    const auto rank = rank_of(found.rank).value();
    hooks_.on_straggler(rank_of(found.rank), found);
    log::info("straggler", {{"job", parts_.job_id},
                            {"rank", rank},
                            {"steps_per_second", one_decimal(found.steps_per_second)},
                            {"times_slower", one_decimal(found.times_slower)}});
    parts_.messages.warning(
        "rank " + std::to_string(rank) + " on " + parts_.node + " is " +
        one_decimal(found.times_slower) + " times slower than the other ranks here (" +
        one_decimal(found.steps_per_second) + " steps/s), since " + describe(found.since));
  }
}

void JobWatch::look_for_stall(Instant now) {
  stall_look_ = now;
  if (parts_.plan.hang.stall == Millis{0}) return;
  const auto quiet = stall_.look(usage_of(parts_.workers.records()), now);
  if (!stall_.is_told()) take_back_stall();
  if (quiet) on_stall(*quiet);
}

// ---- a hang ----

// What other nodes say of their ranks in sections, for which those here may wait.
void JobWatch::on_section_signs(bool has_risen) {
  if (board_ == nullptr) return;
  if (has_risen) hangs_.wait_for_other_nodes(clock_now());
  if (std::exchange(is_put_off_, false)) look();
}

void JobWatch::on_silent(const HangDetector::Look& look) {
  const bool is_any_overdue = std::ranges::any_of(look.silent, &SilentRank::is_overdue);
  is_put_off_ = section_signs_ && !is_any_overdue &&
                !section_signs_->is_known(hangs_.step_limit(), clock_now());
  if (is_put_off_) {
    next_deadline_ = clock_now() + kLookInterval;
    return;
  }
  is_judging_ = true;
  if (hooks_.announce_hang) hooks_.announce_hang();
  std::vector<std::uint32_t> ranks;
  for (const auto& one : look.silent) ranks.push_back(rank_of(one.rank).value());
  const auto& first = look.silent.front();
  const std::string what = first.section.empty() ? "sent no heartbeat for " + describe(first.silent)
                                                 : "in section '" + first.section +
                                                       "' for longer than " + describe(first.limit);
  const std::string words = evidence::name_ranks(ranks) + " " + what;
  parts_.messages.warning(words + ": collecting stacks");
  log::info("hang", {{"job", parts_.job_id},
                     {"round", round_.value()},
                     {"ranks", evidence::describe_ranks(ranks)}});
  const Suspects found{look.silent, look.nearly, look.stuck, {}, board_->beats()};
  StackCollection::Request request{
      .question = {words, evidence::Purpose::end}, .silent = found.silent, .stuck = found.stuck};
  request.silent.insert(request.silent.end(), found.nearly.begin(), found.nearly.end());
  stacks_.collect(request, [this, found](Result<evidence::Answer> answer) {
    conclude(found, std::move(answer));
  });
}

// On several nodes one alone may wait for another that works.
void JobWatch::on_stall(Millis quiet) {
  const auto all = all_silent_for(quiet, parts_.workers);
  const std::string words = "no worker here has used the CPU, read or written anything for " +
                            describe(quiet) + " (--stall_timeout)";
  const bool restarts = parts_.plan.hang.stall_restarts;
  const bool by_all = restarts && hooks_.tell_stalled;
  parts_.messages.warning(words + ": collecting stacks" +
                          (by_all ? "; the round ends when all nodes are so" : ""));
  is_judging_ = true;
  // Without a restart this may be a healthy job that waits.
  const auto purpose = restarts && !by_all ? evidence::Purpose::end : evidence::Purpose::look;
  stacks_.collect({.question = {words, purpose}, .silent = all},
                  [this, all, restarts, by_all](Result<evidence::Answer> answer) {
                    if (restarts && !by_all && board_ != nullptr)
                      return conclude({all}, std::move(answer));
                    if (answer) compare_stall(answer->evidence);
                    stall_found_ = std::move(answer);
                    go_on_watching();
                  });
}

void JobWatch::go_on_watching() {
  is_judging_ = false;
  wait_for_stall_of_all();
  arm();
}

void JobWatch::wait_for_stall_of_all() {
  if (!hooks_.tell_stalled || !parts_.plan.hang.stall_restarts) return;
  if (board_ == nullptr || !stall_.is_told() || !stall_found_) return hooks_.tell_stalled(nullptr);
  hooks_.tell_stalled([this] {
    if (board_ == nullptr || is_judging_ || is_suspended_) return;
    look_for_stall(clock_now());  // the last look is some time ago
    if (!stall_.is_told() || !stall_found_) return;
    is_judging_ = true;
    conclude({all_silent_for(parts_.plan.hang.stall, parts_.workers)}, *stall_found_);
  });
}

// What this node tells stays with the others: their stalls may be found some time later.
void JobWatch::compare_stall(const evidence::NodeEvidence& mine) {
  if (!hooks_.compare || board_ == nullptr) return tell_behind(parts_.messages, {mine});
  do_others_know_stall_ = true;
  told_suspects_.reset();
  hooks_.compare(mine, [this, round = round_](const Evidence& all) {
    if (board_ != nullptr && round == round_ && do_others_know_stall_)
      tell_behind(parts_.messages, all);
  });
}

void JobWatch::take_back_stall() {
  if (stall_found_ && hooks_.tell_stalled) hooks_.tell_stalled(nullptr);
  stall_found_.reset();
  if (std::exchange(do_others_know_stall_, false)) hooks_.compare({}, nullptr);
}

void JobWatch::call_off() {
  parts_.messages.warning("the workers go on: no restart");
  go_on_watching();
}

void JobWatch::conclude(const Suspects& found, Result<evidence::Answer> answer) {
  if (board_ == nullptr) return;
  if (is_suspended_) {
    is_judging_ = false;
    return;
  }
  const auto silent = found.still_silent(board_->beats());
  if (silent.empty()) return call_off();
  const bool is_on_stderr = answer && answer->file.empty();
  const std::string file = is_on_stderr ? kOnStderr : answer ? answer->file : std::string{};
  evidence::NodeEvidence mine;
  if (answer) mine = std::move(answer->evidence);
  mark_suspects(found, board_->beats(), mine);
  if (std::ranges::none_of(mine.ranks, [](const auto& rank) { return rank.summary.is_silent; }))
    mine = evidence_of_page({parts_.node, parts_.workers.records(), board_->beats(), clock_now()},
                            found, silent);
  if (!hooks_.compare) return name_culprit(silent, file, {std::move(mine)});
  do_others_know_stall_ = false;  // they know this instead
  told_suspects_.reset();
  hooks_.compare(mine, [this, found, silent, file, round = round_](const Evidence& all) {
    if (board_ == nullptr || round != round_ || !is_judging_) return;
    if (!found.still_silent(board_->beats()).empty()) return name_culprit(silent, file, all);
    hooks_.compare({}, nullptr);
    call_off();
  });
}

void JobWatch::name_culprit(const std::vector<SilentRank>& silent, const std::string& file,
                            const Evidence& nodes) {
  const auto cause = cause_of_hang(silent, ranks_here(), nodes);
  const Hang hang{cause.worker, cause.text, file};
  if (cause.is_here) return report_hang(hang, nodes);
  patience_.expires_after(kOtherNodesPatience);
  patience_.async_wait([this, hang, nodes](boost::system::error_code cancelled) {
    if (!cancelled && board_ != nullptr) report_hang(hang, nodes);
  });
}

// ---- a hang of which other nodes tell ----

// Judged by the same rules as beside a silent rank of this node: one that is nearly silent counts
// as silent, but is no reason to collect stacks. It may be in a long step; its own look tells.
void JobWatch::look_for_others() {
  if (board_ == nullptr || is_judging_ || is_suspended_) return;
  const auto beats = board_->beats();
  const auto lives = living(parts_.workers);
  const auto seen = hangs_.look_beside_silent(beats, lives, clock_now());
  if (!seen.silent.empty()) return;  // found by our own look within a second
  const Suspects found{seen.nearly, {}, seen.stuck, starting_ranks(beats, lives), beats};
  if (found.stuck.empty() && found.starting.empty()) return;
  is_judging_ = true;
  const std::string words =
      "ranks of another node are silent, and may wait for " +
      awaited_words(ranks_of_workers(found.starting), ranks_of_workers(found.stuck));
  parts_.messages.warning(words + ": collecting stacks");
  stacks_.collect(
      {.question = {words, evidence::Purpose::end}, .silent = found.silent, .stuck = found.stuck},
      [this, found](Result<evidence::Answer> answer) {
        conclude_for_others(found, std::move(answer));
      });
}

// The node of the silent ranks judges by the same facts, and reports a rank of its own.
void JobWatch::conclude_for_others(const Suspects& found, Result<evidence::Answer> answer) {
  if (board_ == nullptr) return;
  if (!answer || is_suspended_) return go_on_watching();
  auto mine = std::move(answer->evidence);
  mark_suspects(found, board_->beats(), mine);
  const auto is_suspect = [](const auto& rank) {
    return rank.summary.is_stuck || rank.summary.is_starting;
  };
  if (std::ranges::none_of(mine.ranks, is_suspect)) return go_on_watching();
  const std::string file = answer->file.empty() ? kOnStderr : answer->file;
  told_suspects_ = found;
  do_others_know_stall_ = false;  // they know this instead
  hooks_.compare(mine, [this, found, file, round = round_](const Evidence& all) {
    if (board_ == nullptr || round != round_ || !is_judging_) return;
    const auto here = ranks_here();
    const auto summaries = ranks_of(all);
    const bool is_any_silent = std::ranges::any_of(summaries, [&](const auto& rank) {
      return rank.is_silent && std::ranges::find(here, rank.rank) == here.end();
    });
    if (is_any_silent) {
      const auto beats = board_->beats();
      const auto cause = cause_of_hang(found.still_silent(beats), here, all);
      if (cause.is_here && !found.has_gone_on(cause.worker, beats))
        return report_hang({cause.worker, cause.text, file}, all);
    }
    go_on_watching();
  });
}

void JobWatch::take_back_suspects(const std::vector<heartbeat::Beat>& beats) {
  if (!told_suspects_ || !told_suspects_->has_any_gone_on(beats, living(parts_.workers))) return;
  told_suspects_.reset();
  hooks_.compare({}, nullptr);
}

// On several nodes its file gets what all of them found.
void JobWatch::report_hang(Hang hang, const Evidence& nodes) {
  if (nodes.size() < 2 || hang.file.empty() || hang.file == kOnStderr) return hooks_.on_hang(hang);
  const auto rank = rank_of(hang.rank).value();
  const auto why = "rank " + std::to_string(rank) + " " + hang.cause;
  const auto file = hang.file;
  stacks_.write_together({why, evidence::Purpose::end}, nodes, {}, file,
                         [this, hang = std::move(hang)](const Result<evidence::Answer>&) {
                           if (board_ != nullptr) hooks_.on_hang(hang);
                         });
}

}  // namespace acc::agent
