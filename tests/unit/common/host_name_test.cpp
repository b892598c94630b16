#include "common/host_name.hpp"

#include <catch2/catch.hpp>

using acc::name_of_place;

TEST_CASE("two nodes that a user had named after their host were both called by the host",
          "[common]") {
  CHECK(name_of_place("box-a", "box") == "box-a");
  CHECK(name_of_place("box-gpu0", "box") == "box-gpu0");
  CHECK(name_of_place("h2", "box") == "h2");
  CHECK(name_of_place("box2", "box") == "box2");
}

TEST_CASE("a name that acc-launch made of the host's is no name", "[common]") {
  for (const char* made : {"box", "box@4026531840", "box@4026531840-1", "box-1", ""})
    CHECK(name_of_place(made, "box") == "box");
  CHECK(name_of_place("box-", "box") == "box-");
}
