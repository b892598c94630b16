#include "common/alive.hpp"

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <string>

using namespace acc;

namespace {

class Counter {
 public:
  explicit Counter(int& calls) : calls_{calls} {}
  std::function<void()> handler() {
    return alive_.bind([this] { ++calls_; });
  }

 private:
  int& calls_;
  Alive alive_;
};

}  // namespace

TEST_CASE("a handler runs while its object exists, and does nothing afterwards", "[common]") {
  int calls = 0;
  auto counter = std::make_unique<Counter>(calls);
  const auto handler = counter->handler();
  handler();
  handler();
  CHECK(calls == 2);
  counter.reset();
  handler();
  CHECK(calls == 2);
}

TEST_CASE("a bound handler passes its arguments on as they are", "[common]") {
  const Alive alive;
  std::string taken;
  auto handler = alive.bind([&](std::unique_ptr<std::string> text, const int& number) {
    taken = *text + std::to_string(number);
  });
  handler(std::make_unique<std::string>("port "), 29500);
  CHECK(taken == "port 29500");
}

TEST_CASE("an object that a call destroys is seen to be gone", "[common]") {
  auto alive = std::make_unique<Alive>();
  const Alive::Watch watch = alive->watch();
  CHECK(watch.is_alive());
  SECTION("with its Alive") { alive.reset(); }
  SECTION("before its destructor is done") { alive->end(); }
  CHECK_FALSE(watch.is_alive());
}
