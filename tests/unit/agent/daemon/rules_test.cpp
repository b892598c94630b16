#include "agent/daemon/event_ring.hpp"
#include "agent/daemon/guardian_words.hpp"
#include "agent/daemon/job_record.hpp"
#include "agent/daemon/prune_rules.hpp"
#include "agent/daemon/slot_table.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

using namespace acc::agent::daemon;
using Texts = std::vector<std::string>;

TEST_CASE("two jobs never have the same GPU", "[daemon]") {
  SlotTable table{8, {0, 1, 2, 3}};
  table.ask("a", {2, 2});
  table.ask("b", {2, 2});
  CHECK(table.take_next() == "a");
  CHECK(table.take_next() == "b");
  CHECK(table.gpus_of("a") == std::vector<std::uint32_t>{0, 1});
  CHECK(table.gpus_of("b") == std::vector<std::uint32_t>{2, 3});
  CHECK(table.free_slots() == 4);
  CHECK_FALSE(table.has_free({1, 1}));
  table.free("a");
  CHECK(table.free_gpus() == std::vector<std::uint32_t>{0, 1});
}

TEST_CASE("a job whose slots are about to be given refuses no other that fits, too", "[daemon]") {
  SlotTable table{4, {}};
  table.ask("first", {3, 0});
  CHECK(table.has_free({1, 0}));
  CHECK_FALSE(table.has_free({2, 0}));
}

TEST_CASE("a small job doesn't pass a large one that waits", "[daemon]") {
  SlotTable table{4, {}};
  table.ask("first", {3, 0});
  CHECK(table.take_next() == "first");
  table.ask("large", {4, 0});
  CHECK_FALSE(table.take_next());
  table.ask("small", {1, 0});
  CHECK_FALSE(table.take_next());
  CHECK_FALSE(table.has_free({1, 0}));
  table.free("first");
  CHECK(table.take_next() == "large");
  CHECK_FALSE(table.take_next());
  table.free("large");
  CHECK(table.take_next() == "small");
}

TEST_CASE("one that leaves the queue makes room for the next", "[daemon]") {
  SlotTable table{2, {}};
  table.ask("large", {2, 0});
  table.restore("old", 1, {});
  CHECK_FALSE(table.take_next());
  table.ask("small", {1, 0});
  table.free("large");
  CHECK(table.take_next() == "small");
}

TEST_CASE("jobs that ran before a restart count, also beyond what there is", "[daemon]") {
  SlotTable table{2, {0}};
  table.restore("a", 3, {0});
  CHECK(table.free_slots() == 0);
  CHECK(table.free_gpus().empty());
  table.free("a");
  CHECK(table.free_slots() == 2);
}

TEST_CASE("the oldest ended jobs are pruned, by age, number and size", "[daemon]") {
  const std::vector<EndedJob> jobs{{"c", 300, 10}, {"a", 100, 10}, {"b", 200, 10}};
  PruneRules rules{1000, 10, 1000};
  CHECK(jobs_to_prune(rules, jobs, 400).empty());
  CHECK(jobs_to_prune(rules, jobs, 1100) == Texts{"a"});
  rules.max_ended = 1;
  CHECK(jobs_to_prune(rules, jobs, 400) == Texts{"a", "b"});
  rules = {1000, 10, 15};
  CHECK(jobs_to_prune(rules, jobs, 400) == Texts{"a", "b"});
  CHECK(next_prune_ms(rules, jobs) == 1100);
  CHECK_FALSE(next_prune_ms(rules, {}));
}

TEST_CASE("one user's thousands of ended jobs pushed out those of all others", "[daemon]") {
  std::vector<EndedJob> jobs{{"ann-1", 10, 5, 1001}, {"root-1", 20, 5, 0}};
  for (int i = 0; i < 50; ++i) jobs.push_back({"eve-" + std::to_string(i), 100 + i, 5, 1002});
  const auto kept = [&](const PruneRules& rules) {
    const auto pruned = jobs_to_prune(rules, jobs, 400);
    CHECK(std::ranges::all_of(pruned, [](const auto& id) { return id.starts_with("eve-"); }));
    return jobs.size() - pruned.size();
  };
  CHECK(kept({100000, 10, 1000}) == 12);
  CHECK(kept({100000, 1000, 100}) == 20);
}

TEST_CASE("a user with forty uids pushed out another's newest ended jobs", "[daemon]") {
  std::vector<EndedJob> jobs;
  for (int i = 0; i < 20; ++i) jobs.push_back({"bob-" + std::to_string(i), 100 + i, 5, 1002});
  for (std::uint32_t i = 0; i < 80; ++i)
    jobs.push_back({"eve-" + std::to_string(i), 200 + i, 5, 100'000 + i / 2});
  const PruneRules rules{100000, 60, 10000};
  const auto pruned = jobs_to_prune(rules, jobs, 400);
  CHECK(pruned.size() == 10);  // 90 stay: not one of the newest ten of any uid
  CHECK(std::ranges::all_of(pruned, [](const auto& id) { return id.starts_with("bob-"); }));
  CHECK(std::ranges::find(pruned, "bob-10") == pruned.end());
}

TEST_CASE("one user's waiting jobs block no other user", "[daemon]") {
  SlotTable table{16, {}};
  table.ask("eve-runs", {4, 0, 1002});
  CHECK(table.take_next() == "eve-runs");
  for (int i = 0; i < 100; ++i) table.ask("eve-" + std::to_string(i), {16, 0, 1002});
  CHECK(table.has_free({1, 0, 1001}));
  CHECK_FALSE(table.has_free({1, 0, 1002}));
  table.ask("ann", {1, 0, 1001});
  CHECK(table.take_next() == "ann");
  CHECK_FALSE(table.take_next());
}

TEST_CASE(
    "a job that waits for more slots or GPUs than the node still has kept an idle node's user out",
    "[daemon]") {
  SlotTable table{1, {0}};
  table.ask("for-two-slots", {2, 0, 1001});
  table.ask("for-two-gpus", {1, 2, 1001});
  CHECK(table.waiting() == 0);
  CHECK(table.has_free({1, 1, 1001}));
  CHECK(table.has_free({1, 0, 1002}));
  for (int i = 0; i < 100; ++i) {  // also a hundred times
    table.ask("small", {1, 1, 1001});
    CHECK(table.take_next() == "small");
    table.free("small");
  }
}

TEST_CASE("who has the fewest slots is next", "[daemon]") {
  SlotTable table{4, {}};
  for (int i = 0; i < 6; ++i) table.ask("eve-" + std::to_string(i), {1, 0, 1002});
  while (table.take_next()) {
  }
  table.ask("ann", {1, 0, 1001});
  table.free("eve-0");
  CHECK(table.take_next() == "ann");
}

TEST_CASE("a large job is passed so often, and then waited for", "[daemon]") {
  SlotTable table{2, {}};
  table.restore("old", 1, {}, 7);
  table.ask("large", {2, 0, 1001});
  int passes = 0;
  for (; passes < 1000; ++passes) {
    const auto job = std::to_string(passes);
    table.ask(job, {1, 0, 1002});
    if (table.take_next() != job) break;
    table.free(job);
  }
  CHECK(passes == 64);
  table.free("old");
  CHECK(table.take_next() == "large");
}

TEST_CASE("numbers of events go on, and the oldest are forgotten", "[daemon]") {
  EventRing ring{100};
  for (int i = 0; i < 5000; ++i) ring.add({});
  const auto all = [](const JobEvent&) { return true; };
  CHECK(ring.after(0, all).size() == EventRing::kKept);
  CHECK(ring.after(0, all).front().number == 100 + 5000 - EventRing::kKept);
  CHECK(ring.after(5098, all).size() == 1);
  CHECK(ring.after(5099, all).empty());
  CHECK(ring.after(~0ULL, all).empty());
}

TEST_CASE("the events of one user pushed out those of all others", "[agent][daemon]") {
  EventRing ring{1};
  const auto add = [&](uid_t uid) {
    JobEvent event;
    event.uid = uid;
    ring.add(event);
  };
  const auto count_of = [&](uid_t uid) {
    return ring.after(0, [&](const JobEvent& event) { return event.uid == uid; }).size();
  };
  for (int i = 0; i < 3; ++i) add(1002);
  add(0);
  for (int i = 0; i < 10'000; ++i) add(1001);
  CHECK(count_of(1002) == 3);
  CHECK(count_of(0) == 1);
  CHECK(count_of(1001) == EventRing::kKept - 4);
  // Two that write much share it.
  for (int i = 0; i < 10'000; ++i) add(1003);
  CHECK(count_of(1001) == count_of(1003));
  CHECK(count_of(1002) == 3);
}

TEST_CASE("a report, rank logs and events are added unless the words name them", "[daemon]") {
  const Texts report{"--report", "/f/report.json"};
  const Texts events{"--events", "/f/events.jsonl", "--events_size", "16M"};
  const auto joined = [](std::initializer_list<Texts> parts) {
    Texts all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  CHECK(guardian_words({"train.py"}, "/f") ==
        joined({report, {"--log_dir", "/f/logs", "--tee", "3"}, events, {"train.py"}}));
  for (const std::string word :
       {"--log_dir", "--log-dir=x", "--tee=1", "--redirects", "-r3", "-t"}) {
    const auto words = guardian_words({word, "x", "train.py"}, "/f");
    CHECK(words == joined({report, events, {word, "x", "train.py"}}));
  }
  CHECK(guardian_words({"--report=y", "a"}, "/f").front() == "--log_dir");
  for (const std::string word : {"--events=y", "--hosts=a,b", "--hostfile"}) {
    const auto words = guardian_words({word, "a"}, "/f");
    CHECK(std::ranges::count(words, "--events") == 0);
  }
}

TEST_CASE("a guardian's environment is the user's login, the submission and the folder",
          "[daemon]") {
  Submission job;
  job.env = {{"PATH", "/own"}, {"ACC_JOB_FOLDER", "/elsewhere"}};
  const LoginUser user{1001, 1001, "ann", "/home/ann", "/bin/zsh", {1001}};
  const auto env = guardian_environment(user, job, "/f", GpuNumbers{2, 3}, "C.UTF-8");
  CHECK(env == Texts{"ACC_JOB_FOLDER=/f", "CUDA_VISIBLE_DEVICES=2,3", "HOME=/home/ann",
                     "LANG=C.UTF-8", "LOGNAME=ann", "PATH=/own", "SHELL=/bin/zsh", "USER=ann"});
  CHECK(guardian_environment(user, job, "/f", std::nullopt, "C").at(1) == "HOME=/home/ann");
  CHECK(guardian_environment(user, job, "/f", GpuNumbers{}, "C").at(1) == "CUDA_VISIBLE_DEVICES=");
  job.env["CUDA_VISIBLE_DEVICES"] = "7";
  CHECK(guardian_environment(user, job, "/f", GpuNumbers{2}, "C").at(1) == "CUDA_VISIBLE_DEVICES=7");
}

TEST_CASE("52,000 variables of three letters count as what they take in memory", "[daemon]") {
  Submission submission;
  submission.words = {"train.py"};
  const auto before = memory_of(submission);
  for (int i = 0; i < 1000; ++i) submission.env["A" + std::to_string(i)] = "";
  CHECK(memory_of(submission) - before > 128'000);
  SharedSubmission shared{std::move(submission)};
  const auto listed = shared;
  CHECK(&*listed == &*shared);
  shared.edit().slots = 5;
  CHECK(listed->slots == 1);
}

TEST_CASE("a submission that can't be run is refused with what is wrong", "[daemon]") {
  Submission good;
  good.words = {"train.py"};
  good.working_directory = "/";
  CHECK(submission_complaint(good).empty());
  const auto with = [&](auto change) {
    auto bad = good;
    change(bad);
    return submission_complaint(bad);
  };
  CHECK(with([](auto& s) { s.name = "../x"; }).starts_with("name: "));
  CHECK(with([](auto& s) { s.name = "Big"; }).starts_with("name: "));
  CHECK(with([](auto& s) { s.words.clear(); }).starts_with("words: "));
  CHECK(with([](auto& s) { s.words = {std::string(1, '\0')}; }).starts_with("words: a NUL"));
  CHECK(with([](auto& s) { s.words = {std::string(300'000, 'x')}; }).starts_with("words: 1 with"));
  CHECK(with([](auto& s) { s.env = {{"A=B", ""}}; }).starts_with("env: "));
  CHECK(with([](auto& s) { s.working_directory = "x"; }).starts_with("working_directory: "));
  CHECK(with([](auto& s) { s.slots = 0; }).starts_with("slots: "));
  CHECK(with([](auto& s) { s.umask = 01000; }).starts_with("umask: "));
}

namespace {

StoredJob sample() {
  StoredJob job;
  job.id = "train-k3jd82";
  job.uid = 1001;
  job.gid = 100;
  job.user = "ann";
  job.submission.edit().name = "train";
  job.submission.edit().words = {"train.py", "a\xff\n\"b", "\x01", "ü"};
  job.submission.edit().working_directory = "/srv/\xfe";
  job.submission.edit().env = {{"A", "\x80"}, {"B", ""}};
  job.life.phase = Phase::stopping;
  job.life.rule = RestartRule::on_failure;
  job.life.exit_code = 70;
  job.life.reason = "why\xff";
  job.life.starts = 4;
  job.guardian = {4711, 123456789012345ULL, "boot"};
  job.gpus = {1, 3};
  job.program = "/srv/\xfe.py";
  job.submitted_ms = 1'700'000'000'000;
  return job;
}

}  // namespace

TEST_CASE("a job's record is read as it was written, whatever bytes are in it", "[daemon]") {
  const auto job = sample();
  const auto read = decode_job(encode_job(job));
  REQUIRE(read.has_value());
  CHECK(read->submission->words == job.submission->words);
  CHECK(read->submission->env == job.submission->env);
  CHECK(read->submission->working_directory == job.submission->working_directory);
  CHECK(read->life == job.life);
  CHECK(read->guardian == job.guardian);
  CHECK(read->gpus == job.gpus);
  CHECK(read->program == job.program);
  CHECK(encode_job(*read) == encode_job(job));
}

TEST_CASE("a damaged record is an error that names what is wrong", "[daemon]") {
  const std::string good = encode_job(sample());
  for (std::size_t n = 0; n < good.size() - 1; ++n)  // a file that was cut off anywhere
    REQUIRE(decode_job(good.substr(0, n)).has_error());
  const auto changed = [&](const std::string& from, const std::string& to) {
    auto text = good;
    REQUIRE(text.find(from) != std::string::npos);
    text.replace(text.find(from), from.size(), to);
    const auto read = decode_job(text);
    REQUIRE(read.has_error());
    return read.error().what;
  };
  CHECK(decode_job("").error().what == "job.json: empty");
  CHECK(changed("\"format\": 1", "\"format\": 9") == "job.json: format 9, this version reads 1");
  CHECK(changed("\"uid\": 1001", "\"uid\": -1") == "job.json: uid is no number that fits");
  CHECK(changed("\"pid\": 4711", "\"pid\": -1") == "job.json: pid is none of a guardian");
  CHECK(changed("\"pid\": 4711", "\"pid\": 1") == "job.json: pid is none of a guardian");
  CHECK(changed("train-k3jd82", "../../etc") == "job.json: id '../../etc' is no job's id");
  CHECK(changed("\"stopping\"", "\"flying\"") == "job.json: life.phase is unknown: 'flying'");
  CHECK(changed("\"starts\"", "\"stars\"") == "job.json: life.starts is missing");
  CHECK(decode_job(std::string(100'000, '[')).error().what == "job.json: nested too deeply");
}

TEST_CASE("an exit note of a user is taken only if it is one", "[daemon]") {
  CHECK(decode_exit(R"({"exit_code": 7, "time_ms": 12})")->exit_code == 7);
  CHECK_FALSE(decode_exit(R"({"exit_code": 7, "time_ms": 12})")->was_stopped);
  CHECK(decode_exit(R"({"exit_code": 143, "time_ms": 12, "stopped": true})")->was_stopped);
  CHECK(decode_exit(R"({"exit_code": 127, "time_ms": 12, "not_started": "why"})")->not_started ==
        "why");
  CHECK(decode_exit(R"({"exit_code": 127, "time_ms": 12, "not_started": 1})").has_error());
  for (const std::string bad :
       {"", "7", "{}", R"({"exit_code": 256, "time_ms": 1})", R"({"exit_code": -1, "time_ms": 1})",
        R"({"exit_code": 143, "time_ms": 1, "stopped": 1})", R"({"exit_code": "0", "time_ms": 1})",
        R"({"exit_code": 1e99, "time_ms": 1})"})
    CHECK(decode_exit(bad).has_error());
  CHECK(decode_exit(std::string(5000, ' ')).has_error());
}

TEST_CASE("an id is a name and six characters", "[daemon]") {
  CHECK(is_job_id("train-k3jd82"));
  CHECK(is_job_id("a.b_c-d-000000"));
  for (const auto* bad : {"", "train", "train-K3jd82", "train-k3jd8", "-k3jd82", "../x-k3jd82",
                          "a/b-k3jd82", ".new-k3jd82"})
    CHECK_FALSE(is_job_id(bad));
}
