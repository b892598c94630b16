#include "agent/daemon/api_json.hpp"

#include "agent/daemon/api_body.hpp"
#include "agent/daemon/json_text.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <string>

using namespace acc::agent::daemon;
using Catch::Matchers::Contains;

namespace {

bool complains(const std::vector<std::string>& complaints, const std::string& what) {
  return std::ranges::any_of(complaints,
                             [&](const auto& one) { return one.find(what) != std::string::npos; });
}

}  // namespace

TEST_CASE("a submission is read whole", "[agent][http]") {
  const auto got = decode_submission(R"({"name": "train", "words": ["--nproc", "2", "t.py"],
    "working_directory": "/work dir", "env": {"A": "1", "B": ""}, "umask": "027", "slots": 2,
    "gpus": 1, "wait": true, "user": "ann", "restart": {"policy": "on-failure", "max": 3}})");
  REQUIRE(got.complaints.empty());
  const auto& job = got.value;
  CHECK(job.name == "train");
  CHECK(job.words == std::vector<std::string>{"--nproc", "2", "t.py"});
  CHECK(job.working_directory == "/work dir");
  CHECK(job.env == std::map<std::string, std::string>{{"A", "1"}, {"B", ""}});
  CHECK(job.umask == 027);
  CHECK(job.slots == 2);
  CHECK(job.names_slots);
  CHECK(job.gpus == 1);
  CHECK(job.wait);
  CHECK(job.user == "ann");
  CHECK(job.restart == RestartRule::on_failure);
  CHECK(job.max_starts_again == 3);
}

TEST_CASE("a submission without slots names none, so that its plan decides", "[agent][http]") {
  const auto got = decode_submission(R"({"words": ["t.py"], "working_directory": "/"})");
  REQUIRE(got.complaints.empty());
  CHECK_FALSE(got.value.names_slots);
}

TEST_CASE("all that is wrong with a submission is said at once, by name", "[agent][http]") {
  const auto got = decode_submission(R"({"nmae": "x", "words": ["a", 7], "slots": "two", "gpus": -1,
    "wait": 1, "env": {"A=B": "x", "C": 3}, "umask": "999", "restart": {"policy": "often", "mx": 1},
    "name": "No Name"})");
  const auto& all = got.complaints;
  CHECK(complains(all, "nmae: is no key of this object (did you mean name?)"));
  CHECK(complains(all, "words[1]: expected text, got a number 7"));
  CHECK(complains(all, "slots: expected a whole number from 1 on, got text"));
  CHECK(complains(all, "gpus: expected a whole number from 0 on, got a number -1"));
  CHECK(complains(all, "wait: expected true or false, got a number 1"));
  CHECK(complains(all, "env.A=B"));
  CHECK(complains(all, "env.C: expected text"));
  CHECK(complains(all, "umask: expected octal digits"));
  CHECK(complains(all, "restart.mx: is no key"));
  CHECK(complains(all, "restart.policy: expected no, on-failure or always, got 'often'"));
  CHECK(complains(all, "name: 'No Name'"));
  CHECK(complains(all, "working_directory: missing"));
}

TEST_CASE("what is no object is said to be so, however deep it is", "[agent][http]") {
  for (const auto& body :
       {std::string{}, std::string{"{"}, std::string{"[]"}, std::string{"null"},
        std::string{"\xff"}, std::string(500'000, '['), R"({"env":)" + std::string(100'000, '{')}) {
    CHECK(decode_submission(body).complaints.size() == 1);
    CHECK(decode_signal(body).complaints.size() == 1);
    CHECK(decode_drain(body).complaints.size() == 1);
  }
}

TEST_CASE("a thousand wrong keys give a bounded answer", "[agent][http]") {
  std::string body = "{";
  for (int i = 0; i < 1000; ++i) body += "\"wrong" + std::to_string(i) + "\": 1,";
  body += "\"words\": [\"a\"]}";
  CHECK(decode_submission(body).complaints.size() == 20);
}

TEST_CASE("a body of many wrong words is judged up to the last complaint that is told",
          "[agent][http]") {
  std::string body = R"({"working_directory": "/", "words": [)";
  for (int i = 0; i < 30; ++i) body += "7,";
  body += R"("behind"], "env": {"A": "b"}})";
  const auto got = decode_submission(body);
  CHECK(got.complaints.size() == 20);
  CHECK(got.value.words.empty());
  CHECK(got.value.env.empty());
}

TEST_CASE("a report of countless small values is left out of a job's page", "[agent][http]") {
  std::string report = R"({"a":[)";
  for (std::size_t i = 0; i < acc::kMostForeign; ++i) report += "{},";
  report += "{}]}";
  const auto without = nlohmann::json::parse(encode_job(JobRecord{}, {report, {}}));
  CHECK_FALSE(without.contains("report"));
  CHECK_THAT(without["report_left_out"].get<std::string>(), Contains("more than 100000 values"));
  CHECK(encode_job(JobRecord{}, {R"({"a":[{},{}]})", {}}).find("\"report\"") != std::string::npos);
  CHECK(parse_bounded("[1,2,\",,,,\"]", 4, 4).is_array());
}

TEST_CASE("stop, signal and drain read their one key", "[agent][http]") {
  CHECK_FALSE(decode_stop("").value.has_value());
  CHECK_FALSE(decode_stop("{}").value.has_value());
  CHECK(decode_stop(R"({"grace_s": 5})").value == 5U);
  CHECK(decode_stop(R"({"grace_s": 0})").value == 0U);
  CHECK_FALSE(decode_stop(R"({"grace": 5})").is_right());
  CHECK_FALSE(decode_stop(R"({"grace_s": -5})").is_right());
  CHECK(decode_signal(R"({"signal": "SIGUSR1"})").value == SIGUSR1);
  CHECK(decode_signal(R"({"signal": "term"})").value == SIGTERM);
  CHECK_FALSE(decode_signal(R"({"signal": "SIGNONE"})").is_right());
  CHECK_FALSE(decode_signal(R"({"signal": 10})").is_right());
  CHECK_FALSE(decode_signal("{}").is_right());
  CHECK(decode_drain(R"({"reason": "new disk"})").value == "new disk");
  CHECK_FALSE(decode_drain(R"({"reason": ""})").is_right());
}

TEST_CASE("a list of jobs with long command lines took gigabytes of the daemon", "[agent][http]") {
  JobRecord job;
  job.submission.edit().words = {"train.py", std::string(250'000, 'x'), "last"};
  const auto list = encode_jobs(std::vector<JobRecord>(178, job));
  CHECK(list.size() < 178 * kListedJobBytes);
  const auto listed = nlohmann::json::parse(list)["jobs"][177];
  CHECK(listed["words"] == nlohmann::json::array({"train.py"}));
  CHECK(listed["words_left_out"] == 2);
  const auto whole = nlohmann::json::parse(encode_job(job, {}));
  CHECK(whole["words"].size() == 3);
  CHECK_FALSE(whole.contains("words_left_out"));
}

TEST_CASE("a user's report is put in if it is JSON, and can't break the answer", "[agent][http]") {
  JobRecord job;
  job.id = "a-1";
  const auto with = [&](const std::string& report) {
    return nlohmann::json::parse(encode_job(job, {report, R"({"state": "running"})"}));
  };
  CHECK(with(R"({"verdict": "fine"})")["report"]["verdict"] == "fine");
  CHECK(with("{}")["live"]["state"] == "running");
  CHECK_FALSE(with("not json").contains("report"));
  CHECK(with("not json")["report_left_out"] == "it is no JSON");
  CHECK(with("{\"a\": 1e999}")["report_left_out"] == "it is no JSON");
  CHECK(with("{\"a\": \"\xff\"}")["report_left_out"] == "it is no JSON");
  CHECK(with("\"a\"}, {\"b\": 1")["report_left_out"] == "it is no JSON");
  CHECK_FALSE(with("{}").contains("report_left_out"));
  CHECK_FALSE(with("").contains("report_left_out"));
  CHECK_FALSE(with(std::string(1'000'000, '[')).contains("report"));
  CHECK_FALSE(with(std::string(70, '[') + std::string(70, ']')).contains("report"));
  const auto line = encode_job(
      job,
      {"\xef\xbb\xbf {\r\n\t\"a \\\" b\\\\\": [ 1 , \"\\\\\", \" \" ] }\n\n", R"({"b": "\" "})"});
  CHECK(line.find("\"report\":{\"a \\\" b\\\\\":[1,\"\\\\\",\" \"]},") != std::string::npos);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(nlohmann::json::parse(line)["live"]["b"] == "\" ");
  job.submission.edit().words = {"\xff\xfe"};
  CHECK(with("{}")["words"].size() == 1);
}
