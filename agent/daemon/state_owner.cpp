#include "agent/daemon/state_owner.hpp"

#include "agent/daemon/job_files.hpp"
#include "agent/daemon/json_text.hpp"
#include "agent/daemon/process_identity.hpp"
#include "agent/small_file.hpp"
#include "common/host_name.hpp"
#include "common/log.hpp"
#include "common/text.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>

namespace acc::agent::daemon {

namespace {

using Json = nlohmann::json;

std::string text_of(const Json& note, const char* key) {
  const auto found = note.find(key);
  return found != note.end() && found->is_string() ? found->get<std::string>() : std::string{};
}

Error refusal(const StateFolder& folder, const MachineIdentity& other,
              const std::vector<JobId>& jobs) {
  constexpr std::size_t kShown = 8;
  std::vector<std::string> names;
  for (const auto& id : jobs) {
    if (names.size() < kShown) names.push_back(printable(id, 80));
  }
  const auto more = jobs.size() > kShown ? " and " + std::to_string(jobs.size() - kShown) + " more"
                                         : std::string{};
  return Error{
      Errc::not_permitted,
      "the state folder '" + folder.path() + "' is that of another machine, " +
          printable(other.host, 80) + ", which may run " + join(names, ", ") + more +
          ": no job was touched. Start acc-agent there, or here with --state-dir and --jobs-dir "
          "of its own; if that machine is gone for good, remove '" +
          folder.path() + "/" + kMachineNote +
          "': its jobs then count as lost, and those that start again do so here"};
}

}  // namespace

std::string machine_id_in(std::string_view text) {
  constexpr std::size_t kDigits = 32;
  const std::string id{trim(text)};
  const bool is_id = id.size() == kDigits &&
                     id.find_first_not_of("0123456789abcdef") == std::string::npos &&
                     id.find_first_not_of('0') != std::string::npos;
  return is_id ? id : std::string{};
}

Result<MachineIdentity> own_machine() {
  MachineIdentity own{"", host_name(), boot_id()};
  // With a root file system that is read-only systemd makes one here, and mounts it over the file.
  if (::access("/run/machine-id", F_OK) == 0) return own;
  const auto id = read_if_there("/etc/machine-id");
  if (id.has_error()) return id.error();
  own.id = machine_id_in(*id);
  return own;
}

bool are_different(const MachineIdentity& a, const MachineIdentity& b) {
  if (!a.boot.empty() && a.boot == b.boot) return false;
  return a.id.empty() || b.id.empty() ? a.host != b.host : a.id != b.id;
}

std::string encode_machine(const MachineIdentity& machine) {
  const Json note{{"machine_id", machine.id}, {"host", machine.host}, {"boot_id", machine.boot}};
  return json_text(note) + "\n";
}

std::optional<MachineIdentity> decode_machine(std::string_view text) {
  constexpr int kDeepest = 4;
  constexpr std::size_t kLongest = 4096;
  const auto note = parse_bounded(text, kDeepest, kLongest);
  if (!note.is_object()) return std::nullopt;
  MachineIdentity machine{machine_id_in(text_of(note, "machine_id")), text_of(note, "host"),
                          text_of(note, "boot_id")};
  if (machine.host.empty()) return std::nullopt;
  return machine;
}

std::vector<JobId> jobs_kept_there(const std::vector<StoredJob>& jobs,
                                   const std::vector<std::string>& files) {
  std::vector<JobId> kept;
  for (const auto& job : jobs) {
    const bool is_in_a_file =
        !job.job_file.empty() && std::ranges::find(files, job.job_file) != files.end();
    if (job.life.phase != Phase::ended || is_in_a_file) kept.push_back(job.id);
  }
  return kept;
}

// What is refused now may run once it is mended, and its stem is taken until then.
static std::vector<std::string> stems_of(const JobFiles& found) {
  std::vector<std::string> stems;
  for (const auto& file : found.files) stems.push_back(file.name);
  for (const auto& file : found.refused) stems.push_back(file.stem);
  return stems;
}

Result<void> claim_state_folder(StateFolder& folder, const MachineIdentity& machine,
                                const std::vector<StoredJob>& jobs, const std::string& job_files) {
  const auto note = folder.read_note(kMachineNote);
  if (note.has_error()) return note.error();
  const auto found = decode_machine(*note);
  if (found && *found == machine) return {};
  if (found && are_different(*found, machine)) {
    const auto files = read_job_files(job_files, ::geteuid());
    const auto kept =
        jobs_kept_there(jobs, files.has_value() ? stems_of(*files) : std::vector<std::string>{});
    if (!kept.empty()) return refusal(folder, *found, kept);
    if (files.has_error()) return files.error();
    log::warn("state_folder_taken_over", {{"from", found->host}, {"state_dir", folder.path()}});
  }
  // A full disk must not keep a node from serving its jobs.
  if (const auto written = folder.write_note(kMachineNote, encode_machine(machine)); !written)
    log::warn("state_folder_machine_not_noted", {{"why", written.error().what}});
  return {};
}

}  // namespace acc::agent::daemon
