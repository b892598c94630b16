#include "launcher/input_file.hpp"

#include "common/unique_fd.hpp"
#include "tests/support/temporary_folder.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

using acc::UniqueFd;
using acc::launcher::read_input;
using namespace std::chrono_literals;

namespace {

struct Pipe {
  UniqueFd reading;
  UniqueFd writing;

  Pipe() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    reading = UniqueFd{ends[0]};
    writing = UniqueFd{ends[1]};
  }
  void write(std::string_view text) const {
    REQUIRE(::write(writing.get(), text.data(), text.size()) == std::ssize(text));
  }
  [[nodiscard]] std::string path() const { return "/dev/fd/" + std::to_string(reading.get()); }
};

}  // namespace

TEST_CASE("a file or a pipe is read to its end", "[launcher]") {
  const acc::testing::TestFolder folder;
  const std::string file = folder / "hosts";
  std::ofstream{file} << "a\nb\n";
  CHECK(read_input(file, 100).value() == "a\nb\n");
  CHECK(read_input("/dev/null", 100).value().empty());
  CHECK(read_input(folder / "none", 100).error().what.find("none': No such file") !=
        std::string::npos);
  CHECK(read_input(folder.path(), 100).error().what.find("Is a directory") != std::string::npos);
  Pipe pipe;
  pipe.write("a\n");
  std::thread writer{[&] {
    std::this_thread::sleep_for(50ms);
    pipe.write("b\n");
    pipe.writing.reset();
  }};
  CHECK(read_input(pipe.path(), 100).value() == "a\nb\n");
  writer.join();
  Pipe empty;  // true | acc-launch --hostfile /dev/stdin
  empty.writing.reset();
  CHECK(read_input(empty.path(), 100).value().empty());
  const std::string fifo = folder / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  std::thread late{[&] {
    std::this_thread::sleep_for(50ms);
    std::ofstream{fifo} << "c\n";
  }};
  CHECK(read_input(fifo, 100).value() == "c\n");
  late.join();
}

TEST_CASE("acc-launch hung at a pipe as --hostfile whose writer never closed it", "[launcher]") {
  const acc::testing::TestFolder folder;
  const std::string fifo = folder / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(read_input(fifo, 100, 50ms).error().what.find("nothing came for") != std::string::npos);
  const Pipe pipe;
  pipe.write("a\n");
  CHECK(read_input(pipe.path(), 100, 50ms).error().what.find("it hasn't ended") !=
        std::string::npos);
}
