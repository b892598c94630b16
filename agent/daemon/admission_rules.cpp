#include "agent/daemon/admission_rules.hpp"

#include "common/text.hpp"

#include <algorithm>

namespace acc::agent::daemon {

namespace {

// "a-k3jd82, b-x2 and 3 other jobs"
std::string busy_text(const SlotTable& slots, std::vector<JobId> seen) {
  constexpr std::size_t kNamed = 8;
  const std::size_t others = slots.holders().size() - std::min(seen.size(), kNamed);
  if (seen.size() > kNamed) seen.resize(kNamed);
  std::string text = seen.empty() ? "" : join(seen, ", ");
  if (others > 0) text += (text.empty() ? "" : " and ") + plural(others, "other job");
  return text.empty() ? "nothing" : text;
}

std::optional<Error> refusal_of_user(const Submission& submission, uid_t uid,
                                     const AdmissionLimits& limits, const NodeLoad& load) {
  if (uid != 0 && load.jobs_of_user >= limits.jobs_of_user)
    return Error{Errc::exhausted, "this user has " + std::to_string(limits.jobs_of_user) +
                                      " jobs that haven't ended, which is the limit"};
  if (load.bytes_of_user + memory_of(submission) > limits.bytes_of_user)
    return Error{Errc::exhausted,
                 "the words and variables of this user's jobs would be more than " +
                     std::to_string(limits.bytes_of_user >> 20U) +
                     " MiB: remove ended ones, or carry less by --env"};
  // Each may hold as much as is left: of a full memory those who hold most are refused first, and
  // a user without jobs finds room for a job of usual size.
  const auto left = limits.bytes_of_all - std::min(limits.bytes_of_all, load.bytes_of_all);
  if (uid != 0 && load.bytes_of_user + memory_of(submission) > left)
    return Error{Errc::exhausted,
                 "the words and variables of all users' jobs take " +
                     std::to_string(load.bytes_of_all >> 20U) + " of " +
                     std::to_string(limits.bytes_of_all >> 20U) +
                     " MiB, and this user may hold no more of them: remove ended ones, or carry "
                     "less by --env"};
  return std::nullopt;
}

std::string slots_and_gpus(const SlotRequest& wanted, std::size_t slots, std::size_t gpus) {
  return plural(slots, "slot") + (wanted.gpus == 0 ? "" : " and " + plural(gpus, "GPU"));
}

std::optional<Error> refusal_of_room(const Submission& submission, uid_t uid, const NodeLoad& load,
                                     const SlotTable& slots) {
  const SlotRequest wanted{submission.slots, submission.gpus, uid};
  const std::string asked = slots_and_gpus(wanted, wanted.slots, wanted.gpus);
  if (!slots.can_hold(wanted))
    return Error{Errc::exhausted, "it needs " + asked + ", and this node has " +
                                      slots_and_gpus(wanted, slots.slots(), slots.gpus().size()) +
                                      " in all: ask for fewer, or raise that in the settings of "
                                      "its acc-agent"};
  if (submission.wait || slots.has_free(wanted)) return std::nullopt;
  const auto others = plural(slots.waiting(), "job") + (slots.waiting() == 1 ? " waits" : " wait");
  const bool is_taken = slots.free_slots() < wanted.slots || slots.free_gpus().size() < wanted.gpus;
  std::string text = "no room: it needs " + asked + ", free: " +
                     slots_and_gpus(wanted, slots.free_slots(), slots.free_gpus().size()) +
                     (is_taken ? "" : ", for which " + others + " already") +
                     "; running here: " + busy_text(slots, load.seen);
  if (slots.waiting() > 0 && is_taken) text += ", and " + others;
  return Error{Errc::exhausted, text + ": submit with --wait, or later"};
}

}  // namespace

std::optional<Error> refusal_of_account(const LoginUser& user) {
  if (user.has_account || user.uid == 0) return std::nullopt;
  const auto uid = std::to_string(user.uid);
  return Error{Errc::not_permitted,
               "uid " + uid +
                   " has no account on this node, and only users with one have jobs here: submit "
                   "as such a user, outside of a container that has uids of its own; `getent "
                   "passwd " +
                   uid + "` must find it"};
}

std::optional<Error> refusal_of_file_owner(const LoginUser& owner) {
  if (!refusal_of_account(owner)) return std::nullopt;
  return Error{Errc::not_permitted,
               "it belongs to uid " + std::to_string(owner.uid) +
                   ", which has no account on this node: chown it to a user that `getent passwd` "
                   "finds, whose job it then is"};
}

std::optional<Error> refusal_of_all(const NodeLoad& load) {
  if (load.is_closed) return Error{Errc::unavailable, "acc-agent shuts down"};
  if (!load.drained.empty())
    return Error{Errc::unavailable, "this node is drained: " + load.drained};
  return std::nullopt;
}

std::optional<Error> refusal_of(const Submission& submission, uid_t uid,
                                const AdmissionLimits& limits, const NodeLoad& load,
                                const SlotTable& slots) {
  if (auto why = refusal_of_all(load)) return why;
  if (load.jobs >= limits.jobs)
    return Error{Errc::exhausted, "there are " + plural(load.jobs, "job") +
                                      " on this node already: remove ended ones"};
  if (auto why = refusal_of_user(submission, uid, limits, load)) return why;
  return refusal_of_room(submission, uid, load, slots);
}

std::optional<Error> refusal_of_restart(const Submission& submission, uid_t uid,
                                        const NodeLoad& load, const SlotTable& slots) {
  if (auto why = refusal_of_all(load)) return why;
  const SlotRequest wanted{submission.slots, submission.gpus, uid};
  if (!slots.can_hold(wanted))
    return Error{Errc::exhausted, "this node no longer has that many slots or GPUs"};
  if (!submission.wait && !slots.has_free(wanted))
    return Error{Errc::exhausted, "no room: running here: " + busy_text(slots, load.seen)};
  return std::nullopt;
}

std::string waiting_words(const Submission& submission, const std::string& drained,
                          const SlotTable& slots) {
  const SlotRequest wanted{submission.slots, submission.gpus};
  std::string words = "waits for " + slots_and_gpus(wanted, wanted.slots, wanted.gpus);
  if (!slots.can_hold(wanted))
    words += ", and this node has " + slots_and_gpus(wanted, slots.slots(), slots.gpus().size()) +
             " in all";
  if (!drained.empty()) words += "; this node is drained: " + drained;
  return words;
}

}  // namespace acc::agent::daemon
