#include "agent/daemon/admission_rules.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <string>

using namespace acc;
using namespace acc::agent::daemon;

namespace {

constexpr uid_t kSubmitter = 1000;
constexpr AdmissionLimits kLimits{
    .jobs = 3, .jobs_of_user = 2, .bytes_of_user = 1U << 20U, .bytes_of_all = 4U << 20U};

Submission of_slots(std::uint32_t slots, std::uint32_t gpus = 0) {
  Submission submission;
  submission.words = {"train.py"};
  submission.slots = slots;
  submission.gpus = gpus;
  return submission;
}

std::string text_of(const std::optional<Error>& error) { return error ? error->what : ""; }

/// A node with four slots and two GPUs, of which "a" and "b" hold three slots and one GPU.
struct Node {
  NodeLoad load;
  SlotTable slots{4, {0, 1}};
  Node() {
    slots.restore("a", 2, {0}, kSubmitter);
    slots.restore("b", 1, {}, kSubmitter + 1);
    load.seen = {"a"};
  }
  std::string refusal(const Submission& submission, uid_t uid = kSubmitter) const {
    return text_of(refusal_of(submission, uid, kLimits, load, slots));
  }
};

}  // namespace

TEST_CASE("a job that fits is admitted, one that waits also without room", "[daemon]") {
  const Node node;
  CHECK(node.refusal(of_slots(1)).empty());
  auto large = of_slots(4);
  CHECK_FALSE(node.refusal(large).empty());
  large.wait = true;
  CHECK(node.refusal(large).empty());
}

TEST_CASE("a refusal for want of room names what runs, as far as the caller may see it",
          "[daemon]") {
  Node node;
  CHECK(node.refusal(of_slots(2, 1)) ==
        "no room: it needs 2 slots and 1 GPU, free: 1 slot and 1 GPU; running here: a and 1 other "
        "job: submit with --wait, or later");
  node.load.seen.clear();
  node.slots.ask("c", {2, 0, kSubmitter});
  CHECK(node.refusal(of_slots(2)) ==
        "no room: it needs 2 slots, free: 1 slot; running here: 2 other jobs, and 1 job waits: "
        "submit with --wait, or later");
  CHECK(node.refusal(of_slots(1)) ==
        "no room: it needs 1 slot, free: 1 slot, for which 1 job waits already; running here: 2 "
        "other jobs: submit with --wait, or later");
}

TEST_CASE("of many jobs that run eight are named", "[daemon]") {
  NodeLoad load;
  SlotTable slots{20, {}};
  for (int i = 0; i < 20; ++i) {
    const std::string id(1, static_cast<char>('a' + i));
    slots.restore(id, 1, {});
    load.seen.push_back(id);
  }
  CHECK(text_of(refusal_of_restart(of_slots(1), kSubmitter, load, slots)) ==
        "no room: running here: a, b, c, d, e, f, g, h and 12 other jobs");
}

TEST_CASE("a job waited for slots of a drained node, or for more than there are, without a word",
          "[daemon]") {
  const SlotTable slots{4, {0}};
  auto wanted = of_slots(4);
  CHECK(waiting_words(wanted, "", slots) == "waits for 4 slots");
  CHECK(waiting_words(wanted, "disk swap", slots) ==
        "waits for 4 slots; this node is drained: disk swap");
  wanted.gpus = 2;
  CHECK(waiting_words(wanted, "", slots) ==
        "waits for 4 slots and 2 GPUs, and this node has 4 slots and 1 GPU in all");
}

TEST_CASE("what a node can never give isn't waited for", "[daemon]") {
  const Node node;
  auto huge = of_slots(5);
  huge.wait = true;
  CHECK(node.refusal(huge) ==
        "it needs 5 slots, and this node has 4 slots in all: ask for fewer, or raise that in the "
        "settings of its acc-agent");
  CHECK(text_of(refusal_of_restart(huge, kSubmitter, node.load, node.slots)) ==
        "this node no longer has that many slots or GPUs");
}

TEST_CASE("a drained node takes neither submissions nor restarts, and says why", "[daemon]") {
  Node node;
  node.load.drained = "bad fan";
  CHECK(node.refusal(of_slots(1)) == "this node is drained: bad fan");
  CHECK(text_of(refusal_of_restart(of_slots(1), kSubmitter, node.load, node.slots)) ==
        "this node is drained: bad fan");
  node.load.is_closed = true;
  CHECK(node.refusal(of_slots(1)) == "acc-agent shuts down");
}

TEST_CASE("a user's jobs are counted, root's aren't", "[daemon]") {
  Node node;
  node.load.jobs_of_user = kLimits.jobs_of_user;
  CHECK(node.refusal(of_slots(1)) == "this user has 2 jobs that haven't ended, which is the limit");
  CHECK(node.refusal(of_slots(1), 0).empty());
  node.load.jobs = kLimits.jobs;
  CHECK(node.refusal(of_slots(1), 0) == "there are 3 jobs on this node already: remove ended ones");
}

TEST_CASE("the words and variables of all of a user's jobs are bounded", "[daemon]") {
  Node node;
  auto submission = of_slots(1);
  node.load.bytes_of_user = kLimits.bytes_of_user / 2;
  CHECK(node.refusal(submission).empty());
  submission.env["DATA"] = std::string(kLimits.bytes_of_user / 2, 'x');
  CHECK(node.refusal(submission)
            .starts_with("the words and variables of this user's jobs would be more than 1 MiB"));
}

TEST_CASE("five users with as much as each may have took all memory that they liked", "[daemon]") {
  Node node;
  auto submission = of_slots(1);
  submission.env["DATA"] = std::string(kLimits.bytes_of_user / 2, 'x');
  node.load.bytes_of_all = 3 * kLimits.bytes_of_user + kLimits.bytes_of_user / 4;
  CHECK(node.refusal(submission).empty());
  node.load.bytes_of_user = kLimits.bytes_of_user / 4;
  CHECK(node.refusal(submission)
            .starts_with("the words and variables of all users' jobs take 3 of 4 MiB, and this "
                         "user may hold no more of them: "));
  CHECK(node.refusal(of_slots(1)).empty());  // a small one still fits
  CHECK(node.refusal(submission, 0).empty());
  node.load.bytes_of_all = 2 * kLimits.bytes_of_all;  // of an earlier release
  CHECK_FALSE(node.refusal(of_slots(1)).empty());
}

TEST_CASE("a user's subordinate uids counted as so many users", "[daemon]") {
  LoginUser user{1001, 1001, "ann", "/", "/bin/sh", {}};
  CHECK_FALSE(refusal_of_account(user));
  user = {100'001, 100'001, "100001", "/", "/bin/sh", {}, false};
  CHECK(text_of(refusal_of_account(user)) ==
        "uid 100001 has no account on this node, and only users with one have jobs here: submit as "
        "such a user, outside of a container that has uids of its own; `getent passwd 100001` must "
        "find it");
  CHECK(text_of(refusal_of_file_owner(user)) ==
        "it belongs to uid 100001, which has no account on this node: chown it to a user that "
        "`getent passwd` finds, whose job it then is");
  user.uid = 0;  // a container without /etc/passwd
  CHECK_FALSE(refusal_of_account(user));
  CHECK_FALSE(refusal_of_file_owner(user));
}
