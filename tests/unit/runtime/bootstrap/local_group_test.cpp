#include "runtime/bootstrap/local_group.hpp"

#include <catch2/catch.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <vector>

using namespace acc::runtime;
using namespace std::chrono_literals;

namespace {

Deadline in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

struct Doors {
  std::vector<acc::UniqueFd> doors;
  std::vector<Member> members;
};

Doors doors_for(int size) {
  Doors made;
  for (int r = 0; r < size; ++r) {
    made.doors.push_back(LocalGroup::open_listener());
    Member member;
    member.rank = r * 10;  // of a larger group
    member.pid = ::getpid();
    member.host = {"key", "here", "net"};
    member.local_group = LocalGroup::name_of_listener(made.doors.back());
    made.members.push_back(member);
  }
  return made;
}

/// What each rank's thread makes of its circle; an error as its text.
std::vector<std::string> in_circle(int size,
                                   const std::function<std::string(LocalGroup&, int)>& act) {
  auto doors = doors_for(size);
  std::vector<std::future<std::string>> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.push_back(std::async(std::launch::async, [&, r]() -> std::string {
      const auto at = static_cast<std::size_t>(r);
      try {
        auto local_group = LocalGroup::connect(doors.doors[at], doors.members, at, "g", in(20s));
        return act(local_group, r);
      } catch (const Error& error) {
        return error.what();
      }
    }));
  }
  std::vector<std::string> said;
  for (auto& rank : ranks) said.push_back(rank.get());
  return said;
}

ino_t inode(int fd) {
  struct stat found {};
  REQUIRE(::fstat(fd, &found) == 0);
  return found.st_ino;
}

}  // namespace

TEST_CASE("the ranks of a host get the same zeroed memory", "[bootstrap][local_group]") {
  std::vector<ino_t> inodes(5);
  const auto said = in_circle(5, [&](LocalGroup& local_group, int rank) {
    auto first = local_group.share(4096, in(10s));
    auto second = local_group.share(8192, in(10s));
    inodes[static_cast<std::size_t>(rank)] = inode(second.get());
    if (inode(first.get()) == inode(second.get())) return std::string{"the same twice"};
    void* at = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, second.get(), 0);
    if (at == MAP_FAILED) return std::string{"no memory"};
    const bool zero = static_cast<char*>(at)[8191] == 0;
    ::munmap(at, 8192);
    if (::ftruncate(second.get(), 0) == 0) return std::string{"a peer could shrink it"};
    return std::string{zero ? "well" : "dirt"};
  });
  CHECK(said == std::vector<std::string>(5, "well"));
  CHECK(inodes == std::vector<ino_t>(5, inodes[0]));
}

TEST_CASE("one rank's failure fails all", "[bootstrap][local_group]") {
  for (const int bad : {0, 1, 3}) {
    const auto said = in_circle(4, [&](LocalGroup& local_group, int rank) {
      std::optional<Error> failure;
      if (rank == bad) failure = Error{ErrorCode::system, "no memory on " + std::to_string(rank)};
      local_group.agree(failure, in(10s));
      return std::string{"well"};
    });
    CHECK(said == std::vector<std::string>(4, "no memory on " + std::to_string(bad)));
  }
}

TEST_CASE("a rank that says nothing until the leader has failed and left hears the leader's cause",
          "[bootstrap][local_group]") {
  std::promise<void> left;
  auto gone = left.get_future().share();
  const auto said = in_circle(3, [&, gone](LocalGroup& local_group, int rank) {
    if (rank == 0) {
      LocalGroup leaving = std::move(local_group);
      try {
        leaving.agree(Error{ErrorCode::system, "no memory on 0"}, in(10s));
      } catch (const Error&) {
        LocalGroup{std::move(leaving)};  // closed, as by an exception that goes on
        left.set_value();
        throw;
      }
    }
    if (rank == 2) gone.wait();  // slower than the leader is in leaving
    local_group.agree({}, in(10s));
    return std::string{"well"};
  });
  CHECK(said == std::vector<std::string>(3, "no memory on 0"));
}

TEST_CASE("a rank that knows why it fails says so, also when the leader is gone by then",
          "[bootstrap][local_group]") {
  std::promise<void> left;
  auto gone = left.get_future().share();
  const auto said = in_circle(2, [&, gone](LocalGroup& local_group, int rank) {
    if (rank == 0) {
      { const LocalGroup leaving = std::move(local_group); }
      left.set_value();
      return std::string{"left"};
    }
    gone.wait();
    local_group.agree(Error{ErrorCode::system, "no memory on 1"}, in(10s));
    return std::string{"well"};
  });
  CHECK(said == std::vector<std::string>{"left", "no memory on 1"});
}

TEST_CASE("a rank that connects and says nothing of use is not the end of the leader",
          "[bootstrap][local_group]") {
  auto doors = doors_for(2);
  const auto name = doors.members[0].local_group;
  auto leading = std::async(std::launch::async, [&] {
    return LocalGroup::connect(doors.doors[0], doors.members, 0, "g", in(20s)).is_leader();
  });
  for (const std::string& bytes : {std::string{}, std::string(4, '\xff'), std::string(3, 'x')}) {
    auto rude = connect_to(SocketAddress::abstract(name), in(10s));
    REQUIRE(rude.has_value());
    if (!bytes.empty()) REQUIRE(send_all(rude->get(), bytes_of(bytes), in(10s)).has_value());
  }
  (void)LocalGroup::connect({}, doors.members, 1, "g", in(10s));
  CHECK(leading.get());
}

TEST_CASE("memory beyond the limit of file sizes is an error, not the end of the process",
          "[bootstrap][local_group]") {
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit low{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  std::string said;
  try {
    (void)make_memory(8192);
  } catch (const Error& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK_THAT(said, Catch::Contains("8192 bytes") && Catch::Contains("ulimit -f"));
}

TEST_CASE("the leader asks beyond the host before it says that all is well",
          "[bootstrap][local_group]") {
  const auto said = in_circle(3, [&](LocalGroup& local_group, int) {
    local_group.agree({}, in(10s), [](const std::optional<Error>& ours) {
      if (!ours) throw Error{ErrorCode::timed_out, "host b is late"};
    });
    return std::string{"well"};
  });
  CHECK(said == std::vector<std::string>(3, "host b is late"));
}

TEST_CASE("ranks that ask for different sizes hear it", "[bootstrap][local_group]") {
  const auto said = in_circle(2, [&](LocalGroup& local_group, int rank) {
    (void)local_group.share(rank == 0 ? 4096 : 8192, in(10s));
    return std::string{"well"};
  });
  CHECK(said[1] == "shared memory: the ranks of this host ask for 8192 and 4096 bytes");
}

TEST_CASE("a process that ends before it came is told by the leader at once",
          "[bootstrap][local_group]") {
  auto doors = doors_for(3);
  int hold[2];
  REQUIRE(::pipe(hold) == 0);
  const auto child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    char none = 0;
    ::close(hold[1]);
    [[maybe_unused]] const auto n = ::read(hold[0], &none, 1);
    ::_exit(0);
  }
  ::close(hold[0]);
  doors.members[2].pid = child;
  auto leading = std::async(std::launch::async, [&]() -> std::string {
    try {
      (void)LocalGroup::connect(doors.doors[0], doors.members, 0, "g", in(20s));
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::peer_lost);
      CHECK(error.ranks() == std::vector{20});
      return error.what();
    }
    return "all came";
  });
  ::kill(child, SIGKILL);
  CHECK(leading.get() ==
        "rank 20 (host here, pid " + std::to_string(child) + ") is gone: its process ended");
  ::waitpid(child, nullptr, 0);
  ::close(hold[1]);
}

TEST_CASE("another user's connections without end kept the leader beyond its deadline",
          "[bootstrap][local_group]") {
  if (::geteuid() != 0) {
    WARN("SKIPPED: needs root, to connect as another user");
    return;
  }
  auto doors = doors_for(2);
  const auto address = SocketAddress::abstract(doors.members[0].local_group);
  std::vector<pid_t> flood;
  for (int i = 0; i < 24; ++i) {
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      if (::setuid(65534) != 0) ::_exit(1);
      ::alarm(30);
      for (;;) (void)connect_to(address, in(1s));
    }
    flood.push_back(child);
  }
  auto leading = std::async(std::launch::async, [&] {
    try {
      (void)LocalGroup::connect(doors.doors[0], doors.members, 0, "g", in(500ms));
    } catch (const Error& error) {
      return std::string{error.what()};
    }
    return std::string{"all came"};
  });
  CHECK(leading.wait_for(5s) == std::future_status::ready);
  for (const auto child : flood) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  CHECK_THAT(leading.get(), Catch::Contains("it has not connected to the leader of its host"));
}

TEST_CASE("a guest of another group is not taken in", "[bootstrap][local_group]") {
  auto doors = doors_for(2);
  const auto name = doors.members[0].local_group;
  auto leading = std::async(std::launch::async, [&] {
    return LocalGroup::connect(doors.doors[0], doors.members, 0, "g", in(20s)).is_leader();
  });
  {
    auto wrong = LocalGroup::connect({}, doors.members, 1, "another", in(10s));
    CHECK_THROWS_AS(wrong.share(4096, in(10s)), Error);
  }
  (void)LocalGroup::connect({}, doors.members, 1, "g", in(10s));
  CHECK(leading.get());
}
