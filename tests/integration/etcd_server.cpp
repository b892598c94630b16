#include "tests/integration/etcd_server.hpp"

#include "common/unique_fd.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// etcd says "true" at /health once it has a leader.
bool is_healthy(std::uint16_t port) {
  const acc::UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval limit{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto address = loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return false;
  const std::string request = "GET /health HTTP/1.0\r\n\r\n";
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return false;
  std::string answer;
  std::array<char, 1024> piece{};
  for (ssize_t n = 0; (n = ::recv(fd.get(), piece.data(), piece.size(), 0)) > 0;)
    answer.append(piece.data(), static_cast<std::size_t>(n));
  return answer.find("\"true\"") != std::string::npos;
}

}  // namespace

std::uint16_t free_port() {
  const acc::UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  auto address = loopback(0);
  socklen_t length = sizeof address;
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error{"no free port"};
  return ntohs(address.sin_port);
}

std::string EtcdServer::version() {
  FILE* pipe = ::popen("etcd --version 2>/dev/null", "r");
  if (pipe == nullptr) return {};
  std::array<char, 200> line{};
  const bool is_there = std::fgets(line.data(), line.size(), pipe) != nullptr;
  ::pclose(pipe);
  std::string text = is_there ? line.data() : "";
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

EtcdServer::EtcdServer() {
  std::string pattern = (std::filesystem::temp_directory_path() / "acc-etcd-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error{"mkdtemp"};
  folder_ = pattern;
  port_ = free_port();
  peer_port_ = free_port();
  start();
}

EtcdServer::~EtcdServer() {
  kill();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void EtcdServer::start() {
  const std::string clients = "http://127.0.0.1:" + std::to_string(port_);
  const std::string peers = "http://127.0.0.1:" + std::to_string(peer_port_);
  const std::string log = folder_ + "/log";
  std::vector<std::string> words{"etcd",
                                 "--data-dir",
                                 folder_ + "/data",
                                 "--listen-client-urls",
                                 clients,
                                 "--advertise-client-urls",
                                 clients,
                                 "--listen-peer-urls",
                                 peers,
                                 "--initial-advertise-peer-urls",
                                 peers,
                                 "--initial-cluster",
                                 "default=" + peers};
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(out, 1);
    ::dup2(out, 2);
    ::close_range(3, ~0U, 0);
    if (::getppid() == parent) ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  std::printf("%s, pid %d, %s\n", version().c_str(), static_cast<int>(pid_), clients.c_str());
  std::fflush(stdout);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!is_healthy(port_)) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error{"etcd doesn't serve; see " + log};
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
}

void EtcdServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void EtcdServer::forget() {
  kill();
  std::filesystem::remove_all(folder_ + "/data");
}

void EtcdServer::freeze() const { ::kill(pid_, SIGSTOP); }
void EtcdServer::thaw() const { ::kill(pid_, SIGCONT); }
