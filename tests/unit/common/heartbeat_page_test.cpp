#include "common/heartbeat_page.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>

using namespace acc;
using namespace acc::heartbeat;

namespace {

Mapping page_of(std::uint32_t slots) {
  auto made = Mapping::make(slots, 7);
  REQUIRE(made.has_value());
  return std::move(*made);
}

std::string variable_for(const Mapping& page, std::uint32_t slot) {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(page.fd()) + ":" +
         std::to_string(slot_offset(slot));
}

}  // namespace

TEST_CASE("what a worker writes into its slot the agent reads", "[heartbeat]") {
  const auto page = page_of(3);
  auto* const slot = map_slot(variable_for(page, 1));
  REQUIRE(slot != nullptr);
  CHECK(read(page.slot(1)).pid == static_cast<std::uint32_t>(::getpid()));

  write_beat(*slot, 41);
  write_beat(*slot, 42);
  write_checkpoint(*slot, 40);
  slot->collective.store(pack({17, 1, true}));
  slot->peer_failed.store(1);
  const auto beat = read(page.slot(1));
  CHECK(beat.beats == 2);
  CHECK(beat.step == 42);
  CHECK(beat.checkpoints == 1);
  CHECK(beat.checkpoint_step == 40);
  CHECK(beat.collective == Collective{17, 1, true});
  CHECK(beat.peer_failed);
  CHECK(operation_name(beat.collective.operation) == "all_reduce");

  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                                              std::chrono::nanoseconds{1});
  CHECK(beat.time_ns <= now);
  CHECK(now - beat.time_ns < 10'000'000'000U);

  CHECK(read(page.slot(0)) == Beat{});  // the neighbours'
  CHECK(read(page.slot(2)) == Beat{});
}

TEST_CASE("a program that takes a page over wrote into what another one had left there",
          "[heartbeat]") {
  const auto page = page_of(1);
  auto& slot = page.slot(0);
  slot.pid.store(4711);
  slot.stacks_signal.store(40);
  slot.stacks_fd.store(9);
  slot.collective.store(pack({17, 1, true}));
  write_beat(slot, 41);
  write_checkpoint(slot, 40);
  write_section(slot, "checkpoint", 123, 5'000);
  REQUIRE(map_slot(variable_for(page, 0)) != nullptr);
  Beat fresh;
  fresh.pid = static_cast<std::uint32_t>(::getpid());
  fresh.checkpoints = 1;
  fresh.checkpoint_step = 40;
  CHECK(read(slot) == fresh);
  SECTION("of the same pid, by exec") {
    write_beat(slot, 5);
    REQUIRE(map_slot(variable_for(page, 0)) != nullptr);
    CHECK(read(slot) == fresh);
  }
  SECTION("but not what Python of the same process wrote") {
    const UniqueFd stacks{::memfd_create("acc-stacks", MFD_CLOEXEC)};
    slot.stacks_fd.store(static_cast<std::uint32_t>(stacks.get()));
    write_beat(slot, 5);
    REQUIRE(map_slot(variable_for(page, 0)) != nullptr);
    CHECK(read(slot).step == 5);
  }
}

TEST_CASE("a program that a rank starts ended its rank's section", "[heartbeat]") {
  const auto page = page_of(1);
  auto& slot = page.slot(0);
  slot.pid.store(static_cast<std::uint32_t>(::getpid()));
  const bool has_beats = GENERATE(true, false);
  if (has_beats) write_beat(slot, 5);
  write_section(slot, "evaluation", 123, 5'000);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(map_slot(variable_for(page, 0)) != nullptr ? 0 : 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  CHECK(slot.pid == static_cast<std::uint32_t>(has_beats ? ::getpid() : child));
  CHECK(read(slot).section == (has_beats ? "evaluation" : ""));
}

TEST_CASE("a section has a name, a beginning and a limit, and its end leaves none", "[heartbeat]") {
  const auto page = page_of(1);
  write_section(page.slot(0), "evaluation \033[31m of everything that there is to evaluate in here",
                123, 60'000);
  auto beat = read(page.slot(0));
  CHECK(beat.section_since_ns == 123);
  CHECK(beat.section_limit_ms == 60'000);
  CHECK(beat.section.starts_with("evaluation "));
  CHECK(beat.section.find('\033') == std::string::npos);
  CHECK(beat.time_ns != 0);
  write_section(page.slot(0), "", 0, 0);
  beat = read(page.slot(0));
  CHECK(beat.section_since_ns == 0);
  CHECK(beat.section.empty());
}

TEST_CASE("a limit beyond all clocks overflowed the agent's, which took the section for hung",
          "[heartbeat]") {
  const auto limit = GENERATE(std::uint64_t{1} << 62U, std::numeric_limits<std::uint64_t>::max());
  const auto page = page_of(1);
  write_section(page.slot(0), "evaluation", 123, limit);
  const auto read_limit = read(page.slot(0)).section_limit_ms;
  CHECK(read_limit > 0);
  constexpr std::uint64_t kYear = 365ULL * 24 * 60 * 60 * 1000;
  CHECK(read_limit >= 50 * kYear);
  CHECK(read_limit <= 100 * kYear);  // added to a time of a clock in nanoseconds
}

TEST_CASE("a reader doesn't wait for a writer that was stopped in the middle of a section's change",
          "[heartbeat]") {
  const auto page = page_of(1);
  write_beat(page.slot(0), 5);
  page.slot(0).edition.store(3);
  CHECK(read(page.slot(0)).step == 5);
}

TEST_CASE("a variable that names no slot of a page is no harm", "[heartbeat]") {
  const auto page = page_of(2);
  const auto path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(page.fd());
  for (const auto& text :
       {std::string{}, std::string{"x"}, path, path + ":", path + ":0", path + ":65",
        path + ":" + std::to_string(slot_offset(2)), path + ":18446744073709551615",
        std::string{"/proc/self/fd/9999:64"}, std::string{"/dev/null:64"}}) {
    CAPTURE(text);
    CHECK(map_slot(text) == nullptr);
  }
  const UniqueFd other{::memfd_create("other", MFD_CLOEXEC)};
  REQUIRE(::ftruncate(other.get(), 4096) == 0);
  CHECK_FALSE(Mapping::open(other.get()).has_value());
}

TEST_CASE("no worker can shorten the page under its agent", "[heartbeat]") {
  const auto page = page_of(2);
  CHECK(::ftruncate(page.fd(), 0) != 0);
}
