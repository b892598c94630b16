#include "common/json_bytes.hpp"
#include "common/text.hpp"
#include "launcher/ctl/command.hpp"
#include "launcher/ctl/http_response.hpp"
#include "launcher/ctl/job_list.hpp"
#include "launcher/ctl/pages.hpp"
#include "launcher/ctl/sse_reader.hpp"
#include "launcher/ctl/submit.hpp"
#include "launcher/ctl/text_table.hpp"
#include "launcher/ctl/verbs.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

using namespace acc;
using namespace acc::ctl;

namespace {

Command parsed(const std::string& line) {
  std::istringstream in{line};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return parse_command(words);
}
std::string complaints(const std::string& line) {
  std::string all;
  for (const auto& one : parsed(line).complaints) all += one.what + "; ";
  return all;
}
bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

JobRow job(const std::string& id, const std::string& name, const std::string& state) {
  JobRow row;
  row.id = id;
  row.name = name;
  row.state = state;
  return row;
}

std::vector<ServerEvent> events_of(SseReader& reader) {
  std::vector<ServerEvent> events;
  while (auto event = reader.next()) events.push_back(*event);
  return events;
}

}  // namespace

// ---- words ----

TEST_CASE("acc-ctl's words are sorted into verb, operands and flags", "[ctl]") {
  const auto logs = parsed("logs -f --rank=2 --since 10m train");
  CHECK(logs.verb == "logs");
  CHECK(logs.operands == std::vector<std::string>{"train"});
  CHECK(logs.has("--follow"));
  CHECK(logs.value("--rank") == "2");
  CHECK(logs.value("--since") == "10m");
  CHECK(logs.complaints.empty());
  CHECK(parsed("--socket /s ps --json").complaints.empty());
}

TEST_CASE("behind -- all words of submit are acc-launch's", "[ctl]") {
  const auto submit = parsed("submit --name a -e X=1 -e Y --detach -- --num_processes 2 t.py -f");
  CHECK(submit.complaints.empty());
  CHECK(submit.words == std::vector<std::string>{"--num_processes", "2", "t.py", "-f"});
  CHECK(submit.flags.at("--env") == std::vector<std::string>{"X=1", "Y"});
  CHECK(parsed("submit t.py --json").words == std::vector<std::string>{"t.py", "--json"});
}

TEST_CASE("wrong words are told with what may be meant", "[ctl]") {
  CHECK(holds(complaints("kill x"), "'kill' is no verb of acc-ctl (did you mean stop?)"));
  CHECK(holds(complaints("statsu x"), "'statsu' is no verb of acc-ctl (did you mean status?)"));
  CHECK_FALSE(holds(complaints("bogus"), "did you mean"));
  CHECK(holds(complaints("stop --grce 3 x"), "--grce is no flag of acc-ctl stop (did you mean"));
  CHECK(holds(complaints("submit --num_processes 2 t.py"), "flags of acc-launch stand behind --"));
  CHECK(holds(complaints("stop"), "an operand is missing"));
  CHECK(holds(complaints("status a b"), "too many operands, 'b'"));
  CHECK(complaints("stop a b").empty());
  CHECK(complaints("signal USR1 a b c").empty());
  CHECK(holds(complaints("signal USR1"), "an operand is missing"));
  CHECK(holds(complaints("rm"), "an operand is missing"));
  CHECK(holds(complaints("stop --grace x a"), "--grace 'x': expected seconds"));
  CHECK(holds(complaints("logs --stdout --stderr a"), "exclude each other"));
  CHECK(holds(complaints("drain"), "the reason is missing"));
  CHECK(holds(complaints("submit --slots 0 -- a"), "from 1 on"));
  CHECK(holds(complaints("submit --restart often -- a"), "on-failure"));
  CHECK(holds(complaints("ps --json=1"), "--json takes no value"));
  CHECK(holds(complaints("stop a --grace"), "--grace needs a value"));
  CHECK(complaints("--help").empty());
  CHECK(complaints("stop --help").empty());
  CHECK(holds(complaints("--json"), "a verb is missing"));
  CHECK(complaints("--node b --json ps").empty());
  CHECK(holds(complaints("--grace 3 ps"), "--grace is no flag of acc-ctl ps"));
}

TEST_CASE("the flag --restart is a policy and a number of times", "[ctl]") {
  CHECK(parse_restart("always")->max == 0);
  CHECK(parse_restart("on-failure:3")->policy == "on-failure");
  CHECK(parse_restart("on-failure:3")->max == 3);
  for (const auto* wrong : {"", "on_failure", "always:", "always:0", "always:x", "no:-1"})
    CHECK_FALSE(parse_restart(wrong).has_value());
}

TEST_CASE("the flag --since is a time ago or a local time", "[ctl]") {
  CHECK(*parse_expiry("12h") == 12U * 3600);
  CHECK(*parse_expiry("366d") == 366U * 86400);
  for (const auto* wrong :
       {"", "0", "0.5", "7", "3600", "367d", "d", "-1d", "9999999h", "tomorrow"}) {
    INFO(wrong);
    CHECK_FALSE(parse_expiry(wrong).has_value());
  }
  CHECK(*parse_since("10m", 1'000'000) == 400'000);
  CHECK(*parse_since("1.5", 10'000) == 8'500);
  const auto day = *parse_since("2026-01-31", 0);
  CHECK(*parse_since("2026-01-31T01:00", 0) - day == 3'600'000);
  CHECK(*parse_since("2026-01-31T01:00:05", 0) - day == 3'605'000);
  CHECK_FALSE(parse_since("yesterday", 0).has_value());
  CHECK_FALSE(parse_since("2026-01-31T", 0).has_value());
}

TEST_CASE("help and completions have every verb and flag of the table", "[ctl][docs]") {
  const auto help = help_text("");
  const auto bash = completion("bash");
  const auto zsh = completion("zsh");
  const auto fish = completion("fish");
  for (const auto& verb : verb_rows()) {
    INFO(verb.name);
    const std::string name{verb.name};
    CHECK(holds(help, "\n  " + name));
    CHECK(holds(bash, name + ") flags="));
    CHECK(holds(zsh, "'" + name + ":"));
    CHECK(holds(fish, "-a " + name + " "));
    CHECK(holds(help_text(name), "usage: acc-ctl " + name));
  }
  for (const auto& flag : flag_rows()) {
    INFO(flag.name);
    const std::string name{flag.name};
    CHECK(holds(help, name));
    CHECK(holds(bash, name));
    CHECK(holds(zsh, "'" + name));
    CHECK(holds(fish, " -l " + name.substr(2)));
    for (const auto& verb : split(flag.verbs, ' '))
      CHECK((verb.empty() || find_verb(verb) != nullptr));
  }
  CHECK(completion("csh").empty());
  for (const auto& line : split(help, '\n')) {
    INFO(line);
    CHECK(line.size() <= 92);  // as bytes; the table itself keeps to 80 columns
  }
}

TEST_CASE("ps shows the script of a job, not the flags before it", "[ctl]") {
  const auto shown = [](std::vector<std::string> words, bool is_of_service) {
    JobRow job;
    job.id = "a";
    job.words = std::move(words);
    job.is_of_service = is_of_service;
    return jobs_table({job}, 0, 200);
  };
  CHECK(holds(shown({"--num_processes", "2", "--log-dir=/x", "train.py", "--lr", "1"}, true),
              "  train.py --lr 1"));
  CHECK(holds(shown({"--no_python", "sh", "-c", "echo"}, true), "  sh -c echo"));
  CHECK(holds(shown({"--config_file", "job.yaml"}, true), "  --config_file job.yaml"));
  CHECK(holds(shown({"/usr/bin/python3", "-u", "train.py", "-x"}, false), "  train.py -x"));
  CHECK(holds(shown({"/usr/bin/python3"}, false), "  /usr/bin/python3"));
  CHECK(holds(shown({"./a.out", "-x"}, false), "  ./a.out -x"));
}

TEST_CASE("jobs of jobs.d were all --config_file in ps", "[ctl]") {
  const auto jobs = jobs_of_service(
      R"({"jobs": [{"id": "embed-x", "words": ["--config_file", "/var/lib/acc/jobs/embed-x/config.yaml"],)"
      R"( "program": "/srv/embed/serve.py"}]})",
      "/s");
  REQUIRE(jobs);
  CHECK(command_text(jobs->at(0)) == "/srv/embed/serve.py");
}

TEST_CASE("a script's name becomes a job's name", "[ctl]") {
  CHECK(job_name("Train Me.sh") == "train-me.sh");
  CHECK(job_name("--x") == "x");
  CHECK(job_name("...").empty());
  CHECK(job_name(std::string(100, 'a')).size() == 40);
}

// ---- tables ----

TEST_CASE("a table fits the terminal, and its last column gives way", "[ctl]") {
  const auto text = table_text({{"ID", "COMMAND"}, {"train-1", std::string(200, 'x')}}, 40);
  for (const auto& line : split(text, '\n')) CHECK(line.size() <= 40);
  CHECK(holds(text, "ID       COMMAND\n"));
  CHECK(holds(text, "xx..\n"));
  CHECK(table_text({}, 80).empty());
  CHECK_FALSE(table_text({{std::string(300, 'a'), "bbbbbbbbbbbbbbbbbbbbbb"}}, 10).empty());
}

TEST_CASE("names with umlauts shifted the columns of a table, and were cut within a character",
          "[ctl]") {
  CHECK(table_text({{"ID", "STATE"}, {"größe", "done"}, {"東京", "done"}}, 80) ==
        "ID     STATE\ngröße  done\n東京   done\n");
  for (std::size_t width = 10; width < 20; ++width) {
    const auto text = table_text({{"ID", "COMMAND"}, {"a", "ö東ö東ö東ö東ö東ö東"}}, width);
    CHECK(is_utf8(text));
    CHECK_THAT(text, Catch::EndsWith("..\n"));
  }
}

TEST_CASE("nothing foreign reaches the terminal as it is", "[ctl]") {
  const auto text = table_text({{"\x1b[2J", "a\nb"}}, 80);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
  const auto shown = job_text(job("\x1b]0;x", "n", "fail\x1b"), nlohmann::json{}, 0, 80);
  CHECK(shown.find('\x1b') == std::string::npos);
}

TEST_CASE("a rank that had exited had a rate that decayed, and a heartbeat that grew old",
          "[ctl]") {
  nlohmann::json worker{
      {"rank", 0},          {"local_rank", 0},         {"pid", 71},
      {"state", "running"}, {"exit_code", nullptr},    {"seconds", 20.0},
      {"step", 41},         {"steps_per_second", 2.5}, {"seconds_since_heartbeat", 9.0}};
  const auto shown = [&] {
    const nlohmann::json live{{"workers", {worker}}};
    return job_text(job("train.1", "n", "run"), live, 0, 100);
  };
  CHECK(holds(shown(), "41    2.5      9 s ago\n"));
  worker["state"] = "exited";
  worker["exit_code"] = 0;
  CHECK(holds(shown(), "41    -        -\n"));
}

TEST_CASE("status of a job that had failed said its code, and not why", "[ctl]") {
  using nlohmann::json;
  const json failure{{"rank", 1}, {"host", "a"}, {"cause", "hung: no heartbeat for 6 s\x1b[2J"}};
  const auto text = failure_text(json{{"first_failure", failure}});
  CHECK(text.starts_with("rank 1 on a hung: no heartbeat for 6 s"));
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.back() == '\n');
  CHECK(failure_text(json{{"first_failure", nullptr}, {"start_failure", "cannot start './x'"}}) ==
        "cannot start './x'\n");
  CHECK(failure_text(json{{"first_failure", nullptr}, {"reason", "node b is lost"}}) ==
        "node b is lost\n");
  for (const auto* other :
       {"null", "[]", "{}", R"({"first_failure": 1})", R"({"first_failure": {}})",
        R"({"first_failure": {"rank": "x", "cause": 2}})"})
    CHECK(failure_text(json::parse(other)).empty());
}

TEST_CASE("spans and sizes are told in words", "[ctl]") {
  CHECK(span_words(-5) == "0 s");
  CHECK(span_words(0.4) == "0 s");
  CHECK(span_words(59.9) == "59 s");
  CHECK(span_words(130) == "2 min");
  CHECK(span_words(3600 * 5) == "5 h");
  CHECK(span_words(86400.0 * 9) == "9 d");
  CHECK(span_words(1e300) == "?");
  CHECK(size_words(0) == "0 B");
  CHECK(size_words(2048) == "2 KiB");
  CHECK(size_words(1024 * 1024 * 3 / 2) == "1.5 MiB");
  CHECK(size_words(std::uint64_t{5} << 40U) == "5.0 TiB");
}

// ---- jobs ----

TEST_CASE("a job is found by its id, name or an unambiguous prefix", "[ctl]") {
  const std::vector<JobRow> jobs{
      job("train-k3jd82", "train", "failed"), job("train-x1y2z3", "train", "running"),
      job("eval-aaaaaa", "eval", "succeeded"), job("tr", "other", "running")};
  CHECK(find_job(jobs, "train-k3jd82", "")->id == "train-k3jd82");
  CHECK(find_job(jobs, "train-k", "")->id == "train-k3jd82");
  CHECK(find_job(jobs, "train", "")->id == "train-x1y2z3");  // the one that lives
  CHECK(find_job(jobs, "ev", "")->id == "eval-aaaaaa");
  CHECK(find_job(jobs, "tr", "")->id == "tr");  // an exact id beats prefixes
  CHECK(find_job(jobs, "trai", "").error().code == Errc::bad_usage);
  CHECK(holds(find_job(jobs, "trai", "").error().what, "train-k3jd82, train-x1y2z3"));
  CHECK(find_job(jobs, "x", "").error().code == Errc::not_found);
  CHECK(find_job(jobs, "", "").error().code == Errc::not_found);
}

TEST_CASE("root's stop of its own job's name asked another user's job to stop", "[ctl]") {
  const auto of = [](const std::string& user, JobRow row) {
    row.user = user;
    return row;
  };
  const auto own_over = of("root", job("eval-own", "eval", "succeeded"));
  const auto own_runs = of("root", job("eval-runs", "eval", "running"));
  const auto other = of("ann", job("eval-ann", "eval", "running"));
  const auto unsure = find_job({own_over, other}, "eval", "root");
  REQUIRE(unsure.has_error());
  CHECK(unsure.error().what == "'eval' may mean several jobs: eval-own, eval-ann of ann");
  CHECK(find_job({own_runs, other}, "eval", "root")->id == "eval-runs");
  CHECK(find_job({own_over, own_runs}, "eval", "root")->id == "eval-runs");
  CHECK(find_job({own_over, of("ann", job("eval-a", "eval", "failed"))}, "eval", "root")->id ==
        "eval-own");
  CHECK(find_job({other}, "eval", "root")->id == "eval-ann");
}

TEST_CASE("a service's answer becomes rows, whatever is wrong in it", "[ctl]") {
  CHECK_FALSE(jobs_of_service("", "/s"));
  CHECK_FALSE(jobs_of_service("[]", "/s"));
  CHECK_FALSE(jobs_of_service(R"({"jobs":7})", "/s"));
  const auto jobs = jobs_of_service(
      R"({"jobs":[{"id":"a-1","state":"failed","exit_code":3,"slots":-4,"words":["x",7]},7,{"id":5}]})",
      "/s");
  REQUIRE(jobs);
  REQUIRE(jobs->size() == 1);
  CHECK(jobs->front().exit_code == 3);
  CHECK(jobs->front().slots == 0);
  CHECK(jobs->front().words == std::vector<std::string>{"x"});
  const auto json = nlohmann::json::parse(jobs_json(*jobs));
  CHECK(json["jobs"][0]["id"] == "a-1");
  CHECK(json["jobs"][0]["exit_code"] == 3);
  CHECK(json["jobs"][0]["source"] == "acc-agent");
}

TEST_CASE("an agent's status becomes a row of the same table", "[ctl]") {
  const auto row =
      job_of_agent(R"({"job":"train","state":"restarting","seconds":2,"workers":[1,2]})",
                   "/run/user/1/acc/jobs/train.77.sock", "me", 10'000);
  REQUIRE(row);
  CHECK(row->id == "train.77");
  CHECK(row->state == "running");
  CHECK(row->slots == 2);
  CHECK(row->started_ms == 8'000);
  CHECK(job_of_agent(R"({"state":"waiting for nodes"})", "a.sock", "me", 0)->state == "waiting");
  CHECK_FALSE(job_of_agent(R"({"error":"x"})", "a.sock", "me", 0));
  CHECK(silent_job("/r/my.job.77.sock", "me").id == "my.job.77");
  CHECK(silent_job("/r/my.job.77.sock", "me").name == "my.job");
}

// ---- what a service sends ----

TEST_CASE("server-sent events are read from pieces of any length", "[ctl]") {
  const std::string text =
      "id: 5,0\nevent: stdout\ndata: \"a\"\n\n: comment\nevent: end\ndata: {}\ndata: x\r\n\r\n"
      "data: lost";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    SseReader reader;
    reader.feed(text.substr(0, cut));
    reader.feed(text.substr(cut));
    const auto events = events_of(reader);
    REQUIRE(events.size() == 2);
    CHECK(events[0] == ServerEvent{"stdout", "\"a\""});
    CHECK(events[1] == ServerEvent{"end", "{}\nx"});
    CHECK(reader.last_id() == "5,0");
  }
}

TEST_CASE("after a lost connection half an event is forgotten and its id, too", "[ctl]") {
  SseReader reader;
  reader.feed("id: 1\ndata: a\n\nid: 2\ndata: half");
  CHECK(reader.last_id() == "1");
  reader.begin_again();
  reader.feed("data: b\n\n");
  const auto events = events_of(reader);
  REQUIRE(events.size() == 2);
  CHECK(events[1].data == "b");
  CHECK(reader.last_id() == "1");
}

TEST_CASE("an event that is too long is dropped, and the next one read", "[ctl]") {
  SseReader reader;
  const std::string much(SseReader::kMaxEvent, 'x');
  reader.feed("data: " + much);
  reader.feed(much + "\n\n");
  reader.feed("data: " + much.substr(10) + "\ndata: " + much.substr(10) + "\n\ndata: b\n\n");
  const auto events = events_of(reader);
  REQUIRE(events.size() == 1);
  CHECK(events[0].data == "b");
}

TEST_CASE("an answer in chunks is read from pieces of any length", "[ctl]") {
  const std::string text =
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    HttpResponse response;
    REQUIRE(response.feed(text.substr(0, cut)).has_value());
    std::string body = response.has_header() ? response.take_body() : "";
    REQUIRE(response.feed(text.substr(cut)).has_value());
    body += response.take_body();
    CHECK(body == "hello world");
    CHECK(response.is_done());
    CHECK(response.status() == 200);
  }
}

TEST_CASE("what is no HTTP is an error, and an answer that breaks off is not complete", "[ctl]") {
  HttpResponse other;
  CHECK_FALSE(other.feed("220 mail.example ESMTP\r\n\r\n").has_value());
  HttpResponse half;
  CHECK(half.feed("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").has_value());
  CHECK_FALSE(half.end());
  HttpResponse open_end;
  CHECK(open_end.feed("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc").has_value());
  CHECK(open_end.end());
  CHECK(open_end.take_body() == "abc");
}

TEST_CASE("an error's sentence and complaints are told, made printable", "[ctl]") {
  CHECK(error_of(R"({"error":"no\u001b[2J","complaints":["a","b"]})") == "no\\x1b[2J\n  a\n  b");
  CHECK(error_of("<html>").empty());
}

TEST_CASE("acc-ctl stacks died of a job that answered with 2,000,000 brackets", "[ctl]") {
  constexpr std::size_t kMany = 2'000'000;
  const auto deep = std::string(kMany, '[') + std::string(kMany, ']');
  CHECK(parse_json("{\"text\":" + deep + "}").is_null());
  CHECK(text_of(parse_json(R"({"text": "#0 main"})"), "text") == "#0 main");
  CHECK(parse_json("{").is_null());
}

TEST_CASE("a refused `acc-ctl signal KILL` is told once", "[ctl]") {
  CHECK(error_of(R"({"error":"signal: no","complaints":["signal: no"]})") == "signal: no");
  CHECK(error_of(R"({"error":"name: a; gpus: b","complaints":["name: a","gpus: b"]})") ==
        "2 things in the request can't be taken:\n  name: a\n  gpus: b");
}

TEST_CASE("a submission carries what was asked for", "[ctl]") {
  ::setenv("ACC_CTL_TEST", "ours", 1);
  Planned planned;
  planned.slots = 3;
  planned.name = "train";
  const auto body = [&](const std::string& line) {
    const auto text = submission(parsed(line), planned);
    REQUIRE(text.has_value());
    return nlohmann::json::parse(*text);
  };
  const auto plain = body("submit -- a.py 1");
  CHECK(plain["words"] == nlohmann::json({"a.py", "1"}));
  CHECK(plain["slots"] == 3);
  CHECK(plain["name"] == "train");
  CHECK(plain["wait"] == false);
  CHECK(plain["env"].empty());
  CHECK(plain["working_directory"].get<std::string>().starts_with("/"));
  const auto all = body(
      "submit --name b --slots 7 --gpus 2 --wait --restart always:2 -e "
      "ACC_CTL_TEST -e X=a=b -- a.py");
  CHECK(all["name"] == "b");
  CHECK(all["slots"] == 7);
  CHECK(all["gpus"] == 2);
  CHECK(all["wait"] == true);
  CHECK(all["restart"] == nlohmann::json({{"policy", "always"}, {"max", 2}}));
  CHECK(all["env"] == nlohmann::json({{"ACC_CTL_TEST", "ours"}, {"X", "a=b"}}));
  CHECK_FALSE(submission(parsed("submit -e NOT_SET_ANYWHERE -- a.py"), planned).has_value());
}
