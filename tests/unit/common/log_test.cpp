#include "common/log.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace acc;

TEST_CASE("a log line is the event and its fields in the order given, on one line", "[common]") {
  std::string seen;
  log::set_writer([&](std::string_view line) { seen += line; });
  log::set_level(log::Level::info);
  log::info("worker_exited", {{"rank", 3}, {"why", "two\nlines"}, {"none", ""}});
  log::debug("not_seen");
  log::set_writer([](std::string_view) {});
  log::set_level(log::Level::warn);
  CHECK(seen.find("info worker_exited rank=3 why=two\\x0alines none=\"\"\n") != std::string::npos);
  CHECK(seen.find("not_seen") == std::string::npos);
  CHECK(seen.find("Z ") == 23);  // 2026-01-02T03:04:05.678Z
}

TEST_CASE("a warning among messages has their form, where no log was asked for", "[common]") {
  std::string seen;
  log::set_writer([&](std::string_view line) { seen += line; });
  log::warn("log_folder_failed", {{"why", "no\nspace"}, {"again_ms", 5}});
  log::error("the end");
  log::set_writer([](std::string_view) {});
  CHECK(seen ==
        "test-common: warning: log folder failed (why: no\\x0aspace, again_ms: 5)\n"
        "test-common: the end\n");
}
