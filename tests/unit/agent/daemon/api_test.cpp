#include "tests/support/temporary_folder.hpp"

#include <csignal>

#include "api_fixture.hpp"

using namespace acc;
using namespace acc::agent::daemon;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("a job is submitted, shown, signalled, stopped and removed", "[agent][http]") {
  ApiServer api;
  const auto made =
      api.ask("POST /v1/jobs", R"({"name": "t", "words": ["a.py"], "working_directory": "/"})");
  CHECK_THAT(made, StartsWith("HTTP/1.1 201 Created\r\n"));
  CHECK_THAT(made, Contains("Location: /v1/jobs/t-1\r\n") && Contains(R"({"id":"t-1"})"));
  CHECK_THAT(api.ask("GET /v1/jobs"), Contains("\"id\":\"t-1\""));
  api.on_loop([&] {
    api.jobs().live = R"({"ranks": []})";
    api.jobs().kept_report = R"({"verdict": "fine"})";
  });
  CHECK_THAT(api.ask("GET /v1/jobs/t-1"),
             Contains(R"("live":{"ranks":[]})") && Contains(R"("report":{"verdict":"fine"})"));
  CHECK_THAT(api.ask("POST /v1/jobs/t-1/signal", R"({"signal": "USR1"})"),
             StartsWith("HTTP/1.1 202"));
  CHECK_THAT(api.ask("POST /v1/jobs/t-1/stop"), StartsWith("HTTP/1.1 202"));
  CHECK_THAT(api.ask("POST /v1/jobs/t-1/stop", R"({"grace_s": 5})"), StartsWith("HTTP/1.1 202"));
  CHECK_THAT(api.ask("POST /v1/jobs/t-1/restart"), StartsWith("HTTP/1.1 202"));
  const auto early = api.ask("DELETE /v1/jobs/t-1");
  CHECK_THAT(early, StartsWith("HTTP/1.1 409") && Contains(R"("code":"conflict")"));
  api.on_loop([&] { api.jobs().end("t-1", 0); });
  const auto removed = api.ask("DELETE /v1/jobs/t-1");
  CHECK_THAT(removed, StartsWith("HTTP/1.1 204") && !Contains("Content-Length"));
  CHECK_THAT(api.ask("GET /v1/jobs/t-1"), StartsWith("HTTP/1.1 404"));
  api.on_loop([&] {
    CHECK(api.jobs().calls == std::vector<std::string>{"signal " + std::to_string(SIGUSR1),
                                                       "stop 999", "stop 5", "restart", "remove"});
  });
}

TEST_CASE("what isn't there, isn't allowed or isn't JSON is answered by its status",
          "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", 1234);
  CHECK_THAT(api.ask("GET /v2"), StartsWith("HTTP/1.1 404") && Contains("\"code\":\"not_found\""));
  CHECK_THAT(api.ask("GET /v1/jobs/..%2f..%2fetc"), StartsWith("HTTP/1.1 404"));
  CHECK_THAT(api.ask("GET /v1/jobs/.."), StartsWith("HTTP/1.1 404"));
  const auto method = api.ask("PUT /v1/jobs", "{}");
  CHECK_THAT(method, StartsWith("HTTP/1.1 405") && Contains("Allow: POST, GET, HEAD\r\n"));
  const auto typed = [&] {
    auto line = api.client();
    line.send(
        "POST /v1/jobs HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
        "Content-Length: 2\r\n\r\n{}");
    return line.read_reply();
  };
  CHECK_THAT(typed(), StartsWith("HTTP/1.1 415") && Contains("curl --json"));
  auto line = api.client();
  line.send("POST /v1/jobs HTTP/1.1\r\n\r\n");
  CHECK_THAT(line.read_reply(), StartsWith("HTTP/1.1 411"));
  CHECK_THAT(api.ask("POST /v1/jobs", "[1]"), StartsWith("HTTP/1.1 400") && Contains("object"));
  CHECK_THAT(api.ask("POST /v1/jobs/t-1/restart", "{}"), StartsWith("HTTP/1.1 400"));
  CHECK_THAT(api.ask("GET /v1/jobs?folow=1"), StartsWith("HTTP/1.1 400"));
  CHECK_THAT(api.ask("GET /v1/jobs/t-1/logs?follow=yes&rank=x&since=now&stream=both"),
             StartsWith("HTTP/1.1 400") && Contains("follow=yes") && Contains("rank=x") &&
                 Contains("since=now") && Contains("stream=both"));
  CHECK_THAT(api.ask("POST /v1/jobs", R"({"words": ["a"], "working_directory": "/", "slots": 9})"),
             StartsWith("HTTP/1.1 429") && Contains("\"code\":\"exhausted\""));
  CHECK_THAT(api.ask("GET /healthz"), StartsWith("HTTP/1.1 200") && Contains("\r\n\r\nok\n"));
  const auto head = api.ask("HEAD /healthz");
  CHECK_THAT(head,
             StartsWith("HTTP/1.1 200") && Contains("Content-Length: 3") && !Contains("ok\n"));
}

TEST_CASE("a user sees its own jobs, and doesn't drain the node", "[agent][http]") {
  HttpSettings settings = ApiServer::own_settings();
  settings.own = 77;
  ApiServer api{settings};
  api.played_uid = 1001;
  api.add_job("mine-1", 1001);
  api.add_job("other-1", 1002);
  CHECK_THAT(api.ask("GET /v1/jobs"), Contains("mine-1") && !Contains("other-1"));
  for (const std::string request :
       {"GET /v1/jobs/other-1", "GET /v1/jobs/other-1/logs", "GET /v1/jobs/other-1/logs?follow=1",
        "DELETE /v1/jobs/other-1", "POST /v1/jobs/other-1/stop"})
    CHECK_THAT(api.ask(request), StartsWith("HTTP/1.1 404"));
  CHECK_THAT(api.ask("POST /v1/node/drain", R"({"reason": "x"})"), StartsWith("HTTP/1.1 403"));
  CHECK_THAT(api.ask("GET /v1/events"), Contains("mine-1") && !Contains("other-1"));
}

TEST_CASE("a stop that a full disk doesn't keep is told with a warning", "[agent][http]") {
  ApiServer api;
  api.add_job("mine-1", ::geteuid());
  api.jobs().stop_warning = "no space left";
  CHECK_THAT(api.ask("POST /v1/jobs/mine-1/stop"), Contains("\n{\"warning\":\"no space left\"}\n"));
}

TEST_CASE("an operator drains the node and takes it back", "[agent][http]") {
  ApiServer api;
  CHECK_THAT(api.ask("POST /v1/node/drain", R"({"reason": "disk"})"), StartsWith("HTTP/1.1 202"));
  CHECK_THAT(api.ask("GET /v1/node"), Contains("\"drained\":\"disk\""));
  api.jobs().drain_warning = "no space left";
  CHECK_THAT(api.ask("POST /v1/node/drain", R"({"reason": "disk"})"),
             Contains("\n{\"warning\":\"no space left\"}\n"));
  CHECK_THAT(api.ask("POST /v1/node/undrain"), StartsWith("HTTP/1.1 202"));
  CHECK_THAT(api.ask("GET /v1/node"), Contains("\"drained\":\"\""));
}

TEST_CASE("a connection takes one request after the other, also sent at once", "[agent][http]") {
  ApiServer api;
  auto line = api.client();
  std::string many;
  for (int i = 0; i < 50; ++i) many += "GET /healthz HTTP/1.1\r\n\r\n";
  REQUIRE(line.send(many));
  for (int i = 0; i < 50; ++i) REQUIRE_THAT(line.read_reply(), StartsWith("HTTP/1.1 200"));
  line.send("GET /healthz HTTP/1.0\r\n\r\n");
  CHECK_THAT(line.read_all(), StartsWith("HTTP/1.1 200") && Contains("(end)"));
}

TEST_CASE("a client that ended its side still gets its answer", "[agent][http]") {
  ApiServer api;
  auto line = api.client();
  line.send("GET /healthz HTTP/1.1\r\n\r\n");
  line.end_writing();
  CHECK_THAT(line.read_all(), StartsWith("HTTP/1.1 200") && Contains("(end)"));
}

TEST_CASE("a body that is too long is refused before it is read, and the client learns why",
          "[agent][http]") {
  ApiServer api;
  auto line = api.client();
  REQUIRE(line.send("POST /v1/jobs HTTP/1.1\r\nContent-Length: 100000000\r\n\r\n"));
  const std::string piece(1'000'000, 'x');
  for (int i = 0; i < 20; ++i) {
    if (!line.send(piece)) break;
  }
  line.end_writing();
  CHECK_THAT(line.read_all(), StartsWith("HTTP/1.1 413") && Contains("too_large"));
}

TEST_CASE("a client that asks first is told to go on", "[agent][http]") {
  ApiServer api;
  auto line = api.client();
  line.send("POST /v1/jobs HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  CHECK(line.read_to("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  line.send("{}");
  CHECK_THAT(line.read_reply(), StartsWith("HTTP/1.1 400"));
}

TEST_CASE("slow and idle clients are disconnected at their deadlines", "[agent][http]") {
  auto settings = ApiServer::own_settings();
  settings.times = {Millis{100}, Millis{200}, Millis{150}, Millis{100}};
  ApiServer api{settings};
  auto slow_header = api.client();
  slow_header.send("GET / HT");
  auto slow_body = api.client();
  slow_body.send("POST /v1/jobs HTTP/1.1\r\nContent-Length: 5\r\n\r\n{");
  auto idle = api.client();
  CHECK_THAT(slow_header.read_all(), StartsWith("HTTP/1.1 408") && Contains("headers"));
  CHECK_THAT(slow_body.read_all(), StartsWith("HTTP/1.1 408") && Contains("body"));
  CHECK(idle.read_all() == "(end)");
  CHECK(api.comes_true([&] { return api.server().connections() == 0; }));
}

TEST_CASE("more connections than a user may have are turned away with a reason", "[agent][http]") {
  auto settings = ApiServer::own_settings();
  settings.limits.connections_of_a_user = 3;
  ApiServer api{settings};
  std::vector<RawClient> lines;
  for (int i = 0; i < 3; ++i) {
    lines.push_back(api.client());
    lines.back().send("GET /healthz HTTP/1.1\r\n\r\n");
    REQUIRE_THAT(lines.back().read_reply(), StartsWith("HTTP/1.1 200"));
  }
  auto more = api.client();
  CHECK_THAT(more.read_all(), StartsWith("HTTP/1.1 503") && Contains("too many connections"));
  lines.pop_back();
  CHECK(api.comes_true([&] { return api.server().connections() == 2; }));
  CHECK_THAT(api.ask("GET /healthz"), StartsWith("HTTP/1.1 200"));
}

TEST_CASE("all users that a user namespace doesn't map were taken for one", "[agent][http]") {
  auto settings = ApiServer::own_settings();
  settings.unmapped = ::geteuid();  // by that number they come here
  ApiServer api{settings};
  auto line = api.client();
  CHECK_THAT(line.read_all(), StartsWith("HTTP/1.1 403") && Contains("user namespace"));
  CHECK(api.server().connections() == 0);
}

TEST_CASE("the server ends when its last reply is out, and closes streams", "[agent][http]") {
  ApiServer api;
  auto idle = api.client();
  auto stream = api.client();
  stream.send("GET /v1/events?follow=1 HTTP/1.1\r\n\r\n");
  CHECK_THAT(stream.read_to("events follow"), Contains("text/event-stream"));
  std::promise<void> ended;
  api.on_loop([&] { api.server().stop([&] { ended.set_value(); }); });
  CHECK(ended.get_future().wait_for(kTestLimit) == std::future_status::ready);
  CHECK_THAT(idle.read_all(), Contains("(end)"));
  CHECK_THAT(stream.read_all(), Contains("(end)"));
}

TEST_CASE("a socket's place is taken from the dead only", "[agent][http]") {
  ApiServer api;
  std::string folder = (std::filesystem::temp_directory_path() / "acc-sock-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const auto path = folder + "/agent.sock";
  {
    auto first = SocketFile::open(path, 0640);
    REQUIRE(first.has_value());
    CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
          static_cast<std::filesystem::perms>(0640));
    const auto second = SocketFile::open(path, 0640);
    REQUIRE(second.has_error());
    CHECK_THAT(second.error().what, Contains("another process serves it"));
    { const auto closed = first->take(); }  // its process has died
    auto third = SocketFile::open(path, 0600);
    REQUIRE(third.has_value());
    CHECK_FALSE(first->is_in_place());
    CHECK(third->is_in_place());
  }
  CHECK_FALSE(std::filesystem::exists(path));
  const UniqueFd file{::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)};
  CHECK_THAT(SocketFile::open(path, 0600).error().what, Contains("no socket"));
  CHECK_THAT(SocketFile::open("relative", 0600).error().what, Contains("absolute"));
  CHECK_THAT(SocketFile::open("/" + std::string(120, 'x'), 0600).error().what,
             Contains("too long"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("root's daemon served a socket in a folder of others, who made it open a file to all",
          "[agent][http]") {
  const acc::testing::TestFolder folder;
  const auto open = (folder / "open").string();
  const auto path = open + "/agent.sock";
  std::filesystem::create_directory(open);
  const auto mode_of = [](const std::string& file) {
    struct stat info {};
    return ::lstat(file.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
  };
  REQUIRE(::chmod(open.c_str(), 0777) == 0);
  const auto refused = SocketFile::open(path, 0666);
  REQUIRE(refused.has_error());
  CHECK(refused.error().what ==
        "listen at '" + path + "': the socket could be replaced by another user's: '" + open +
            "', above it, can be written by other users and isn't sticky (chmod +t it): choose one "
            "below /run or $XDG_RUNTIME_DIR with --socket");
  CHECK(std::filesystem::is_empty(open));
  REQUIRE(::chmod(open.c_str(), 01777) == 0);  // others replace nothing there
  const auto before = ::umask(0077);
  const auto served = SocketFile::open(path, 0666);
  ::umask(before);
  REQUIRE(served.has_value());
  CHECK(mode_of(path) == 0666);
}

TEST_CASE("reports that a user doesn't read aren't made beyond the memory for replies",
          "[agent][http]") {
  auto settings = ApiServer::own_settings();
  settings.limits.reply_bytes_of_a_user = 4 << 20;
  ApiServer api{settings};
  api.add_job("t-1", ::geteuid());
  int made = 0;
  api.on_loop([&] {
    api.jobs().end("t-1", 0);
    api.jobs().kept_report = '"' + std::string(1'000'000, 'x') + '"';
    api.jobs().on_report = [&] { ++made; };
  });
  std::vector<RawClient> lines;
  int sent = 0;
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    lines.push_back(api.client());
    lines.back().send("GET /v1/jobs/t-1 HTTP/1.1\r\n\r\n");
    const auto status = lines.back().read_to("\r\n");  // and no more of it
    sent += status.starts_with("HTTP/1.1 200") ? 1 : 0;
    refused += status.starts_with("HTTP/1.1 503") ? 1 : 0;
  }
  api.on_loop([&] { CHECK(made == sent); });
  CHECK(sent >= 3);
  CHECK(refused == 20 - sent);
  CHECK(refused > 0);
  CHECK_THAT(lines[0].read_to("xxx\""), Contains("report"));
  CHECK(api.comes_true([&] { return made == sent; }));
}

TEST_CASE("a user's two hundred large reports hold up no other request", "[agent][http]") {
  ApiServer api;
  api.add_job("t-1", ::geteuid());
  constexpr int kReaders = 200;
  int made = 0;
  bool is_answered_between = false;
  std::vector<RawClient> lines;
  for (int i = 0; i < kReaders + 1; ++i) {
    lines.push_back(api.client());
    lines.back().send("GET /healthz HTTP/1.1\r\n\r\n");
    REQUIRE_THAT(lines.back().read_reply(), StartsWith("HTTP/1.1 200"));
  }
  auto& other = lines.back();
  api.on_loop([&] {
    api.jobs().end("t-1", 0);
    api.jobs().kept_report = "[" + std::string(50'000, ' ') + "]";
    api.jobs().on_report = [&] {
      ++made;
      if (made == 1) other.send("GET /healthz HTTP/1.1\r\n\r\n");
      if (made == kReaders / 2) is_answered_between = other.has_answer();
    };
    // All of them are there before the loop looks.
    for (int i = 0; i < kReaders; ++i)
      lines[static_cast<std::size_t>(i)].send("GET /v1/jobs/t-1 HTTP/1.1\r\n\r\n");
  });
  for (int i = 0; i < kReaders; ++i)
    REQUIRE_THAT(lines[static_cast<std::size_t>(i)].read_reply(), StartsWith("HTTP/1.1 200"));
  CHECK_THAT(other.read_reply(), StartsWith("HTTP/1.1 200"));
  api.on_loop([&] {
    CHECK(made == kReaders);
    CHECK(is_answered_between);
  });
}
