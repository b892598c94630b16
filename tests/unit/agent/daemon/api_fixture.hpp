#pragma once

#include "agent/daemon/api_routes.hpp"
#include "agent/daemon/http_server.hpp"
#include "agent/daemon/http_socket_file.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "fake_jobs.hpp"

namespace acc::agent::daemon {

constexpr Millis kTestLimit{10'000};  ///< for anything that should be immediate

/// A client without a library: bytes out, bytes in, under a deadline.
class RawClient {
 public:
  explicit RawClient(const std::string& path) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), path.size());
    fd_ = UniqueFd{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    REQUIRE(::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    const timeval limit{kTestLimit.count() / 1000, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  /// False: the server has closed, or takes no more.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const auto n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  /// As much as is there without waiting.
  std::size_t send_what_fits(std::string_view text) {
    const auto n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  [[nodiscard]] bool has_answer() const {
    char byte = 0;
    return ::recv(fd_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  void end_writing() { ::shutdown(fd_.get(), SHUT_WR); }
  /// Up to and with `mark`; without it what came until the end, and "(end)".
  std::string read_to(const std::string& mark) {
    for (;;) {
      const auto at = held_.find(mark);
      if (at != std::string::npos) {
        auto text = held_.substr(0, at + mark.size());
        held_.erase(0, at + mark.size());
        return text;
      }
      char chunk[4096];
      const auto n = ::recv(fd_.get(), chunk, sizeof chunk, 0);
      if (n <= 0) return std::exchange(held_, {}) + (n == 0 ? "(end)" : "(silence)");
      held_.append(chunk, static_cast<std::size_t>(n));
    }
  }
  std::string read_all() { return read_to("\1never"); }
  /// One reply with a Content-Length, or none.
  std::string read_reply() {
    auto head = read_to("\r\n\r\n");
    const auto at = head.find("Content-Length: ");
    if (at == std::string::npos) return head;
    const auto size = std::stoul(head.substr(at + 16));
    while (held_.size() < size) {
      char chunk[4096];
      const auto n = ::recv(fd_.get(), chunk, sizeof chunk, 0);
      if (n <= 0) return head + held_ + "(end)";
      held_.append(chunk, static_cast<std::size_t>(n));
    }
    head += held_.substr(0, size);
    held_.erase(0, size);
    return head;
  }

 private:
  UniqueFd fd_;
  std::string held_;
};

/// The API over a unix socket, with jobs in memory; its loop runs on a thread of its own.
class ApiServer {
 public:
  explicit ApiServer(HttpSettings settings = own_settings())
      : folder_{make_folder()},
        path_{folder_ + "/agent.sock"},
        jobs_{folder_},
        growth_{io_},
        api_{jobs_, growth_, settings.own},
        server_{io_, settings, [this](Principal who, HttpRequest request) {
                  if (played_uid) who.uid = *played_uid;
                  return answer(api_, who, std::move(request));
                }} {
    auto file = SocketFile::open(path_, 0600);
    REQUIRE(file.has_value());
    REQUIRE(server_.listen(file->take()).has_value());
    file_.emplace(std::move(*file));
    thread_ = std::thread{[this] { io_.run(); }};
  }
  ~ApiServer() {
    boost::asio::post(io_, [this] { io_.stop(); });
    thread_.join();
    std::filesystem::remove_all(folder_);
  }

  void on_loop(const std::function<void()>& what) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      what();
      done.set_value();
    });
    REQUIRE(done.get_future().wait_for(kTestLimit) == std::future_status::ready);
  }
  template <class Condition>
  [[nodiscard]] bool comes_true(Condition condition) {
    const auto deadline = clock_now() + kTestLimit;
    while (clock_now() < deadline) {
      bool is_true = false;
      on_loop([&] { is_true = condition(); });
      if (is_true) return true;
      std::this_thread::sleep_for(Millis{2});
    }
    return false;
  }
  [[nodiscard]] RawClient client() const { return RawClient{path_}; }
  /// The reply to one request on a connection of its own.
  std::string ask(const std::string& head, const std::string& body = {}) {
    auto line = client();
    std::string text = head + " HTTP/1.1\r\nHost: acc\r\n";
    if (!body.empty())
      text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n";
    REQUIRE(line.send(text + "Connection: close\r\n\r\n" + body));
    return line.read_all();
  }
  void add_job(const JobId& id, uid_t uid) {
    Submission submission;
    submission.name = "a";
    submission.words = {"t.py"};
    on_loop([&] { jobs_.add(id, uid, submission); });
  }
  /// What the loop uses; from the test's thread only by on_loop.
  FakeJobs& jobs() { return jobs_; }
  HttpServer& server() { return server_; }
  FileGrowth& growth() { return growth_; }

  void set_event_silence(Millis time) {
    on_loop([&] { api_.event_silence = time; });
  }

  std::optional<uid_t> played_uid{};  ///< in place of the kernel's word; set before any request

  static HttpSettings own_settings() {
    HttpSettings settings;
    settings.own = ::geteuid();
    return settings;
  }

 private:
  static std::string make_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "acc-api-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    return name;
  }

  std::string folder_;
  std::string path_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{
      io_.get_executor()};
  FakeJobs jobs_;
  FileGrowth growth_;
  ApiContext api_;
  HttpServer server_;
  std::optional<SocketFile> file_;
  std::thread thread_;
};

}  // namespace acc::agent::daemon
