#include "agent/daemon/job_file_loader.hpp"

#include "agent/daemon/accounts.hpp"
#include "agent/daemon/admission_rules.hpp"
#include "agent/daemon/on_pool.hpp"
#include "agent/daemon/process_identity.hpp"
#include "common/log.hpp"
#include "common/random.hpp"
#include "common/text.hpp"

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace acc::agent::daemon {

using boost::asio::awaitable;

namespace {

/// As it stands in the folder, with its ending.
std::string file_name(const JobFile& file) { return file.path.substr(file.path.rfind('/') + 1); }

std::string program_in(const PrintedPlan& plan) {
  return plan.program ? plan.program->path : std::string{};
}

}  // namespace

void JobFileLoader::refuse(const std::string& name, const std::string& why) {
  log::error("job_file_refused", {{"file", name}, {"why", why}});
  keeper_.events().report(
      "refused", nullptr,
      "job file " + printable(name, 80) + " is refused: " + why +
          (job_of(name.substr(0, name.rfind('.'))) ? "; its job stays as it was" : ""));
}

// Records of earlier versions may name a file that has a newer job since.
JobPtr JobFileLoader::job_of(const std::string& name) const {
  const auto rank = [](const Job& job) {
    return std::pair{job.stored.life.phase != Phase::ended, job.stored.submitted_ms};
  };
  JobPtr found;
  for (const auto& [id, job] : keeper_.jobs())
    if (job->stored.job_file == name && !job->is_leaving && (!found || rank(*found) < rank(*job)))
      found = job;
  return found;
}

awaitable<Result<void>> JobFileLoader::load() {
  loads_again_ = true;
  if (is_loading_) co_return Result<void>{};
  is_loading_ = true;
  Result<void> loaded;
  try {
    while (loads_again_) {
      loads_again_ = false;
      loaded = co_await load_all();
    }
  } catch (...) {  // memory or threads ran out; the next reload may have them
    end_load();
    throw;
  }
  end_load();
  co_return loaded;
}

void JobFileLoader::end_load() {
  is_loading_ = false;
  was_loaded_ = true;
  loaded_.cancel();
}

awaitable<void> JobFileLoader::first_load() {
  while (is_loading_ && !was_loaded_) {
    boost::system::error_code woken;
    co_await loaded_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
}

awaitable<Result<void>> JobFileLoader::load_all() {
  std::function<Result<JobFiles>()> read = [folder = keeper_.settings().job_files] {
    return read_job_files(folder, ::geteuid());
  };
  auto found = co_await on_pool(keeper_.files(), std::move(read));
  if (found.has_error()) co_return found.error();
  if (!found->has_folder) {
    keep_jobs_without_folder();
    co_return Result<void>{};
  }
  for (const auto& refused : found->refused) refuse(refused.name, refused.why);
  co_await stop_job_without_file(*found);
  Owners owners;
  for (auto& file : found->files) co_await load_one(std::move(file), owners);
  co_return Result<void>{};
}

// A mount that is gone, or a folder under another name, is no order to stop all of its jobs.
void JobFileLoader::keep_jobs_without_folder() {
  const bool has_jobs = std::ranges::any_of(
      keeper_.jobs(), [](const auto& entry) { return !entry.second->stored.job_file.empty(); });
  if (!has_jobs) return;
  const auto& folder = keeper_.settings().job_files;
  const std::string why =
      "there is no such folder; the jobs of its files go on: make an empty one to stop them";
  log::error("job_files_refused", {{"folder", folder}, {"why", why}});
  keeper_.events().report("refused", nullptr, "job files " + printable(folder, 200) + ": " + why);
}

awaitable<void> JobFileLoader::stop_job_without_file(const JobFiles& found) {
  for (const auto& [id, job] : std::map{keeper_.jobs()}) {
    const auto& name = job->stored.job_file;
    if (name.empty()) continue;
    const uid_t uid = job->stored.uid;
    const bool is_there =
        std::ranges::any_of(
            found.files, [&](const auto& file) { return file.name == name && file.uid == uid; }) ||
        std::ranges::any_of(found.refused, [&](const auto& file) { return file.stem == name; });
    if (is_there) continue;
    log::info("job_file_gone", {{"job", job->id()}, {"file", name}});
    job->stored.job_file.clear();  // a file of that name will be another job
    keeper_.change(job, StopAsked{});
    // One that has ended already changes no more. What can't be written is tried again.
    if (job->stored.life.phase == Phase::ended) (void)co_await keeper_.record(job);
  }
}

awaitable<Result<LoginUser>> JobFileLoader::owner_of(const JobFile& file, Owners& owners) {
  const std::pair key{file.uid, file.gid};
  auto known = owners.find(key);
  if (known == owners.end()) {
    auto found = co_await ask_user(file.uid, file.gid);
    known = owners.emplace(key, std::move(found)).first;
  }
  co_return known->second;
}

awaitable<void> JobFileLoader::load_one(JobFile file, Owners& owners) {
  const auto job = job_of(file.name);
  const bool is_unchanged = job && job->stored.file_digest == file.digest;
  // It starts at boot, whatever ended it before.
  const bool starts_again =
      is_unchanged && job->stored.life.phase == Phase::ended && job->stored.boot_id != boot_id();
  if (is_unchanged && !starts_again) co_return;
  auto user = co_await owner_of(file, owners);
  if (::geteuid() == 0 && user.has_value())
    if (const auto why = refusal_of_file_owner(*user)) co_return refuse(file_name(file), why->what);
  if (starts_again) {
    job->stored.boot_id = boot_id();
    co_return keeper_.change(job, RestartAsked{});
  }
  if (!job && keeper_.is_drained()) {
    log::info("job_file_waits", {{"file", file.path}, {"why", "this node is drained"}});
    co_return;
  }
  if (user.has_error()) co_return refuse(file_name(file), user.error().what);
  const auto checked = co_await check(*user, file);
  if (checked.has_error()) co_return refuse(file_name(file), checked.error().what);
  if (job)
    co_await change(job, std::move(file), *checked);
  else
    co_await add(std::move(file), std::move(*user), *checked);
}

std::string JobFileLoader::complaint(const PlanShare& share) const {
  const auto& table = keeper_.slots();
  if (share.slots == 0 && share.gpus == 0) return "slots: at least 1, or a GPU";
  if (share.slots > table.slots())
    return "it takes " + plural(share.slots, "slot") +
           " (one for each worker, unless its key slots says another number), and this node has " +
           std::to_string(table.slots());
  if (share.gpus > table.gpus().size())
    return "gpus: it asks for " + plural(share.gpus, "GPU") + ", and this node has " +
           std::to_string(table.gpus().size()) +
           ": ask for fewer, or name them in the settings of its acc-agent";
  return {};
}

// Of a copy: what was checked is what will run, also if the file is changed meanwhile.
awaitable<Result<PrintedPlan>> JobFileLoader::check(LoginUser user, const JobFile& file) {
  const std::string name = "check-" + random_name() + (file.is_json ? ".json" : ".yaml");
  std::function<Result<std::string>()> copy = [this, name, text = file.text, uid = user.uid,
                                               gid = user.gid] {
    return keeper_.folder().write_for_user(name, text, uid, gid);
  };
  const auto path = co_await on_pool(keeper_.files(), std::move(copy));
  if (path.has_error()) co_return path.error();
  std::vector<std::string> words{"--print_plan", "--config_file", *path};
  const auto trial = co_await keeper_.trials().try_launcher(std::move(user), std::move(words));
  std::function<Result<void>()> remove = [this, name] {
    return keeper_.folder().write_note(name, "");
  };
  (void)co_await on_pool(keeper_.files(), std::move(remove));
  if (trial.has_error()) co_return trial.error();
  if (trial->exit_code == 0) {
    const auto plan = read_plan(trial->output);
    if (plan.has_error()) co_return plan.error();
    PrintedPlan printed = plan->value_or(PrintedPlan{});
    const auto why = complaint(printed.share);
    if (why.empty()) co_return printed;
    co_return Error{Errc::bad_config, why};
  }
  constexpr std::size_t kLongest = 2000;
  std::string why{trim(trial->output)};
  for (auto at = why.find(*path); at != why.npos; at = why.find(*path))
    why.replace(at, path->size(), file.path);
  std::ranges::replace(why, '\n', ' ');
  co_return Error{Errc::bad_config, printable(why, kLongest)};
}

awaitable<void> JobFileLoader::add(JobFile file, LoginUser user, PrintedPlan plan) {
  StoredJob job;
  job.uid = user.uid;
  job.gid = user.gid;
  job.user = user.name;
  job.job_file = file.name;
  job.file_digest = file.digest;
  job.boot_id = boot_id();
  job.program = program_in(plan);
  auto& wanted = job.submission.edit();
  wanted.name = file.name;
  wanted.slots = plan.share.slots;
  wanted.gpus = plan.share.gpus;
  wanted.wait = true;
  wanted.restart = RestartRule::always;
  wanted.working_directory = user.home;
  job.life.rule = RestartRule::always;
  const JobConfig config{std::move(file.text), file.is_json};
  const auto added = co_await keeper_.add(std::move(job), std::move(user), &config);
  if (added.has_error()) refuse(file_name(file), added.error().what);
}

awaitable<void> JobFileLoader::change(JobPtr job, JobFile file, PrintedPlan plan) {
  const auto share = plan.share;
  const JobConfig config{file.text, file.is_json};
  std::function<Result<void>()> write = [this, id = job->id(), config, uid = job->stored.uid,
                                         gid = job->stored.gid] {
    return keeper_.folder().write_config(id, config, uid, gid);
  };
  const auto written = co_await on_pool(keeper_.files(), std::move(write));
  if (written.has_error()) co_return refuse(file_name(file), written.error().what);
  job->stored.file_digest = file.digest;
  job->stored.boot_id = boot_id();
  job->stored.program = program_in(plan);
  auto& wanted = job->stored.submission.edit();
  wanted.words = {"--config_file", keeper_.folder().config_path(job->id(), config)};
  auto& table = keeper_.slots();
  const bool holds = table.holds(job->id());
  const bool has_other_share = wanted.gpus != share.gpus || (!holds && wanted.slots != share.slots);
  wanted.slots = share.slots;
  wanted.gpus = share.gpus;
  if (holds && !has_other_share)
    table.restore(job->id(), share.slots, job->stored.gpus, job->stored.uid);
  keeper_.change(job, Reconfigured{has_other_share});
}

}  // namespace acc::agent::daemon
