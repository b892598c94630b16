#include "agent/control_protocol.hpp"
#include "agent/control_server.hpp"

#include "common/json_bytes.hpp"
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

using namespace acc;
using namespace acc::agent;
namespace fs = std::filesystem;

namespace {

std::string why(std::string_view line) {
  const auto request = control::decode(line);
  return request ? "" : request.error().what;
}

/// A folder of its own, and a loop that serves a ControlServer in it.
struct Folder {
  std::string path;
  Folder() {
    std::string name = fs::temp_directory_path() / "acc-control-XXXXXX";
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
};

ControlPlace place_in(const char* job_folder, const char* runtime_folder) {
  const std::string here = runtime_folder != nullptr ? runtime_folder : "/nonexistent";
  auto place = find_control_place(job_folder, {{here, "acc", false}}, "train", 42);
  REQUIRE(place.has_value());
  return std::move(*place);
}

ControlServer::Handler answers(const std::string& text) {
  return [text](const control::Request&, uid_t, const ControlServer::Reply& reply) { reply(text); };
}

/// One request over a real socket; the loop runs until the connection is closed.
std::string ask(boost::asio::io_context& io, const std::string& path, const std::string& text) {
  const UniqueFd fd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  REQUIRE(path.size() < sizeof at.sun_path);
  path.copy(at.sun_path, path.size());
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  REQUIRE(::send(fd.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::string answer;
  const auto until = clock_now() + std::chrono::seconds{10};
  while (clock_now() < until) {
    io.restart();
    io.run_for(Millis{5});
    char chunk[65536];
    const auto n = ::recv(fd.get(), chunk, sizeof chunk, MSG_DONTWAIT);
    if (n == 0) return answer;
    if (n > 0) answer.append(chunk, static_cast<std::size_t>(n));
  }
  FAIL("no end of the answer: " + answer);
  return answer;
}

}  // namespace

TEST_CASE("each request of the control socket is understood", "[agent][control]") {
  CHECK(std::holds_alternative<control::Status>(*control::decode(R"({"do":"status"})")));
  CHECK(std::holds_alternative<control::Restart>(*control::decode(R"({"do":"restart"})")));
  const auto stop = [](std::string_view line) {
    return std::get<control::Stop>(*control::decode(line)).grace;
  };
  CHECK(stop(R"({"do":"stop"})") == std::nullopt);
  CHECK(stop(R"({"do":"stop","grace_s":null})") == std::nullopt);
  CHECK(stop(R"({"do":"stop","grace_s":5})") == Millis{5000});
  CHECK(stop(R"({"do":"stop","grace_s":0.25})") == Millis{250});
  CHECK(
      std::get<control::Signal>(*control::decode(R"({"do":"signal","signal":"SIGUSR1"})")).signo ==
      SIGUSR1);
  CHECK(std::get<control::Signal>(*control::decode(R"({"do":"signal","signal":"hup"})")).signo ==
        SIGHUP);
}

TEST_CASE("what costs more is asked for by name", "[agent][control]") {
  const auto status = [](std::string_view line) {
    return std::get<control::Status>(*control::decode(line));
  };
  CHECK(status(R"({"do":"status"})") == control::Status{});
  CHECK(status(R"({"do":"status","last_lines":true,"gpus":true})") == control::Status{true, true});
  CHECK(status(R"({"do":"status","last_lines":"yes","gpus":1})") == control::Status{});
  CHECK(std::get<control::Output>(*control::decode(
            R"({"do":"output","local_rank":3,"stream":"stderr","from":70000})")) ==
        control::Output{LocalRank{3}, true, 70'000});
  CHECK(std::get<control::Output>(*control::decode(R"({"do":"output","local_rank":0})")) ==
        control::Output{});
  CHECK(why(R"({"do":"output"})").find("\"local_rank\" is missing") == 0);
  CHECK(why(R"({"do":"output","local_rank":-1})").find("\"local_rank\"") == 0);
  CHECK(why(R"({"do":"output","local_rank":99999999999})").find("\"local_rank\"") == 0);
  CHECK(why(R"({"do":"output","local_rank":0,"stream":7})").find("\"stream\"") == 0);
  CHECK(why(R"({"do":"output","local_rank":0,"from":-5})").find("\"from\"") == 0);
}

TEST_CASE("output is carried as the bytes that it is", "[agent][control]") {
  const auto json =
      nlohmann::json::parse(control::output_reply({Round{2}, 10, 14, "a\xff\x1b\n"}));
  CHECK(json["round"] == 2);
  CHECK(json["from"] == 10);
  CHECK(json["end"] == 14);
  CHECK(json["captured"] == true);
  CHECK(bytes_of(json["text"].get<std::string>()) == "a\xff\x1b\n");
}

TEST_CASE("a request that means nothing is refused with what would", "[agent][control]") {
  CHECK(why("").find("one line with a JSON object") != std::string::npos);
  CHECK(why("[1]").find("one line with a JSON object") != std::string::npos);
  CHECK(why("{}").find("\"do\" is missing") != std::string::npos);
  CHECK(why(R"({"do":7})").find("\"do\" is missing") != std::string::npos);
  CHECK(why(R"({"do":"stopp"})").find("'stopp' is no request: one of status, stop") == 0);
  CHECK(why(R"({"do":"stop","grace_s":-1})").find("grace_s") != std::string::npos);
  CHECK(why(R"({"do":"stop","grace_s":"5"})").find("grace_s") != std::string::npos);
  CHECK(why(R"({"do":"stop","grace_s":1e300})").find("grace_s") != std::string::npos);
  CHECK(why(R"({"do":"signal"})").find("SIGUSR1") != std::string::npos);
  CHECK(why(R"({"do":"signal","signal":"KILL"})").find("'KILL' isn't passed on") == 0);
  CHECK(why(R"({"do":"signal","signal":"no\u0007"})").find('\a') == std::string::npos);
  CHECK(why(std::string(5000, '[')) == "a request has at most 4096 bytes");
  CHECK_FALSE(why(std::string(4000, '[')).empty());
}

TEST_CASE("the status of a job has what is known of each worker", "[agent][control]") {
  control::JobView job;
  job.name = "train\xff";
  job.state = "running";
  job.max_restarts = 3;
  job.workers = {{Rank{4}, LocalRank{0}, 100, {}, 2.5, control::ProcessUsage{4096, 1.5}},
                 {Rank{5}, LocalRank{1}, 101, Signaled{SIGSEGV}, 1, {}},
                 {Rank{6}, LocalRank{2}, 0, {}, 0, {}}};
  const auto line = control::encode(job);
  CHECK(line.ends_with("\n"));
  CHECK(line.find('\n') == line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  CHECK(json["job"] == "train\xef\xbf\xbd");
  CHECK(json["log_folder"].is_null());
  CHECK(json["workers"][0]["rank"] == 4);
  CHECK(json["workers"][0]["state"] == "running");
  CHECK(json["workers"][0]["rss_bytes"] == 4096);
  CHECK(json["workers"][0]["exit_code"].is_null());
  CHECK(json["workers"][1]["state"] == "exited");
  CHECK(json["workers"][1]["exit_code"] == 139);
  CHECK(json["workers"][1]["signal"] == "SIGSEGV");
  CHECK(json["workers"][2]["state"] == "starting");
  CHECK_FALSE(json["workers"][0].contains("last_line"));
  CHECK_FALSE(json.contains("gpus"));
  CHECK(json["losses"].empty());
  job.losses = {{"stdout", "No space left on device", 120, 9, {}, {}, false, true}};
  job.workers[0].last_line = "step 7";
  job.workers[0].gpus = {1};
  job.gpus = {{1, 93, 5, 10}, {2, std::nullopt, 0, 0}};
  const auto more = nlohmann::json::parse(control::encode(job));
  CHECK(more["workers"][0]["last_line"] == "step 7");
  CHECK(more["workers"][0]["gpus"] == nlohmann::json{1});
  CHECK(more["gpus"][0]["percent"] == 93);
  CHECK(more["gpus"][1]["percent"].is_null());
  CHECK(more["losses"][0]["where"] == "stdout");
  CHECK(more["losses"][0]["lines"] == 9);
  CHECK(more["losses"][0]["goes_on"] == true);
}

TEST_CASE("the status showed a decaying rate and an ageing heartbeat of a rank that had exited",
          "[agent][control]") {
  control::JobView job;
  job.workers = {{Rank{4}, LocalRank{0}, 100, {}, 2.5, {}},
                 {Rank{5}, LocalRank{1}, 101, Exited{0}, 1, {}}};
  for (auto& worker : job.workers) worker.progress = {7, 3.5, 0.25, "evaluation"};
  const auto json = nlohmann::json::parse(control::encode(job));
  CHECK(json["workers"][0]["steps_per_second"] == 0.25);
  CHECK(json["workers"][0]["section"] == "evaluation");
  const auto& exited = json["workers"][1];
  CHECK(exited["step"] == 7);
  for (const auto* key : {"steps_per_second", "seconds_since_heartbeat", "section"})
    CHECK(exited[key].is_null());
}

TEST_CASE("a job's state is told in one of five words", "[agent][control]") {
  GroupState group;
  CHECK(control::state_of(group) == "starting");
  group.phase = Phase::running;
  CHECK(control::state_of(group) == "running");
  group.phase = Phase::stopping;
  group.stop_signal = SIGTERM;
  CHECK(control::state_of(group) == "stopping");
  group.stop_signal = 0;
  group.restart_asked = true;
  CHECK(control::state_of(group) == "restarting");
  group.restart_asked = false;
  group.first_failure = WorkerFailure{};
  CHECK(control::state_of(group) == "stopping");
  group.restart.max_restarts = 1;
  CHECK(control::state_of(group) == "restarting");
  group.phase = Phase::awaiting;
  CHECK(control::state_of(group) == "waiting for nodes");
  group.coordinated = true;
  group.phase = Phase::idle;
  CHECK(control::state_of(group) == "waiting for nodes");
  group.starting = true;
  CHECK(control::state_of(group) == "starting");
}

TEST_CASE("memory and processor time are read whatever a process calls itself",
          "[agent][control]") {
  const std::string rest =
      " S 1 2 3 4 5 6 7 8 9 10 150 50 13 14 15 16 17 18 19 20 250 22 23 24 25\n";
  const auto usage = control::usage_from_stat("12 (a) b (c)" + rest, 4096, 100);
  REQUIRE(usage);
  CHECK(usage->rss_bytes == 250 * 4096);
  CHECK(usage->cpu_s == Approx(2.0));
  CHECK_FALSE(control::usage_from_stat("", 4096, 100));
  CHECK_FALSE(control::usage_from_stat("1 (x) S 1 2", 4096, 100));
  CHECK_FALSE(control::usage_from_stat("1 (x)" + rest, 4096, 0));
}

TEST_CASE("a socket's name has nothing of a job's name that means something in a path",
          "[agent][control]") {
  CHECK(control::socket_name("train", 7) == "train.7.sock");
  CHECK(control::socket_name("../a", 7).find('/') == std::string::npos);
  CHECK_FALSE(control::socket_name("..", 7).starts_with('.'));
  CHECK(control::socket_name("", 7) == "job.7.sock");
  CHECK(control::socket_name(std::string(500, 'x'), 7).size() < 70);
}

SCENARIO("a control socket is found, served and removed", "[agent][control]") {
  Folder folder;
  boost::asio::io_context io{1};
  GIVEN("$XDG_RUNTIME_DIR") {
    const std::string path = folder.path + "/acc/jobs/train.42.sock";
    ControlServer server{io, answers("{\"ok\":true}\n")};
    REQUIRE(server.listen(place_in(nullptr, folder.path.c_str())).has_value());
    THEN("its folders are this user's alone") {
      struct stat info {};
      REQUIRE(::stat((folder.path + "/acc/jobs").c_str(), &info) == 0);
      CHECK((info.st_mode & 0777) == 0700);
      REQUIRE(::stat(path.c_str(), &info) == 0);
      CHECK((info.st_mode & 0777) == 0600);
    }
    THEN("a request is answered, and the connection closed") {
      CHECK(ask(io, path, "{\"do\":\"status\"}\n") == "{\"ok\":true}\n");
    }
    THEN("what is no request is told why") {
      CHECK(ask(io, path, "hello\n").find("bad_request") != std::string::npos);
      CHECK(ask(io, path, std::string(5000, 'x')).find("4096") != std::string::npos);
    }
    THEN("a second agent of the same name doesn't take it away") {
      ControlServer other{io, answers("other\n")};
      CHECK_FALSE(other.listen(place_in(nullptr, folder.path.c_str())).has_value());
      CHECK(ask(io, path, "{\"do\":\"status\"}\n") == "{\"ok\":true}\n");
    }
    THEN("it is gone afterwards") {
      server.close();
      CHECK_FALSE(fs::exists(path));
      CHECK(fs::is_empty(folder.path + "/acc/jobs"));
    }
  }
  GIVEN("$ACC_JOB_FOLDER, whose path is longer than a socket's address") {
    std::string deep = folder.path;
    for (int i = 0; i < 3; ++i) deep += "/" + std::string(100, 'd');
    fs::create_directories(deep);
    ControlServer server{io, answers("here\n")};
    REQUIRE(server.listen(place_in(deep.c_str(), folder.path.c_str())));
    CHECK(fs::exists(deep + "/control.sock"));
    CHECK_FALSE(fs::exists(folder.path + "/acc"));
    server.close();
    CHECK_FALSE(fs::exists(deep + "/control.sock"));
  }
  GIVEN("the socket of an agent that was killed") {
    const std::string path = folder.path + "/control.sock";
    {
      const UniqueFd dead{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
      sockaddr_un at{};
      at.sun_family = AF_UNIX;
      path.copy(at.sun_path, path.size());
      REQUIRE(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    }
    THEN("it is replaced") {
      ControlServer server{io, answers("new\n")};
      REQUIRE(server.listen(place_in(folder.path.c_str(), nullptr)).has_value());
      CHECK(ask(io, path, "{\"do\":\"status\"}\n") == "new\n");
    }
  }
}

TEST_CASE("without a folder of its own there is no control socket", "[agent][control]") {
  Folder folder;
  const auto find = [](const std::string& base) {
    return find_control_place(nullptr, {{base, "acc", false}}, "x", 1);
  };
  CHECK_FALSE(find_control_place("relative", {}, "x", 1).has_value());
  CHECK(find(folder.path + "/missing").error().code == Errc::unavailable);
  SECTION("a link in place of its folder is not followed") {
    fs::create_directory(folder.path + "/elsewhere");
    fs::create_symlink(folder.path + "/elsewhere", folder.path + "/acc");
    CHECK(find(folder.path).error().code == Errc::not_permitted);  // so that the user is told
    CHECK(fs::is_empty(folder.path + "/elsewhere"));
  }
  SECTION("a folder of another user is refused") {
    if (::geteuid() != 0) return;
    REQUIRE(::chown(folder.path.c_str(), 1, 1) == 0);
    CHECK_FALSE(find(folder.path).has_value());
  }
}

TEST_CASE("without XDG_RUNTIME_DIR the control socket lies where acc-ctl finds it, in a private folder",
          "[agent][control]") {
  Folder folder;
  const auto places = control_folders(nullptr, ::geteuid(), folder.path + "/none", folder.path);
  const auto own = folder.path + "/acc-" + std::to_string(::geteuid());
  const auto find = [&] { return find_control_place(nullptr, places, "train", 42); };
  REQUIRE(places.size() == 2);
  CHECK(places.back().path() == own + "/jobs");
  SECTION("it is made for this user alone") {
    REQUIRE(find().has_value());
    struct stat info {};
    REQUIRE(::stat(own.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0700);
    CHECK(fs::is_directory(own + "/jobs"));
  }
  SECTION("one that another user made before is refused") {
    if (::geteuid() != 0) return;
    fs::create_directory(own);
    REQUIRE(::chown(own.c_str(), 1, 1) == 0);
    REQUIRE_FALSE(find().has_value());
    CHECK(find().error().what.find("belongs to uid 1") != std::string::npos);
    CHECK(fs::is_empty(own));
  }
  SECTION("a link there is not followed") {
    fs::create_directory(folder.path + "/elsewhere");
    fs::create_symlink(folder.path + "/elsewhere", own);
    CHECK_FALSE(find().has_value());
    CHECK(fs::is_empty(folder.path + "/elsewhere"));
  }
  SECTION("one that others may write to is refused") {
    fs::create_directory(own);
    fs::permissions(own, fs::perms::all);
    CHECK_FALSE(find().has_value());
  }
  SECTION("a program that only looks makes nothing") {
    CHECK_FALSE(open_control_folder(places.back(), false).has_value());
    CHECK_FALSE(fs::exists(own));
  }
}

TEST_CASE("a variable that names another folder hides no place from acc-ctl", "[agent][control]") {
  const auto paths = [](const char* runtime) {
    std::vector<std::string> all;
    for (const auto& place : control_folders(runtime, 7)) all.push_back(place.path());
    return all;
  };
  using Paths = std::vector<std::string>;
  const Paths usual{"/run/user/7/acc/jobs", "/tmp/acc-7/jobs"};
  CHECK(paths(nullptr) == usual);
  CHECK(paths("relative") == usual);
  CHECK(paths("/run/user/7/") == usual);
  CHECK(paths("/x") == Paths{"/x/acc/jobs", usual[0], usual[1]});
}
