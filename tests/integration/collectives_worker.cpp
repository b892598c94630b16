// A rank for tests of the runtime: `collectives_worker check` tries what moves and what is reduced;
// `collectives_worker loop` reduces until something goes wrong, and says what; with `fail RANK`
// that rank leaves by an exception of its own and exits 250 ms later, with code 42. Each line is
// one write, so that those of several ranks don't mix.
#include <unistd.h>

#include <acc/process_group.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace acc::runtime;

void say(const std::string& text) {
  const auto line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(9);
}

std::string name(const ProcessGroup& group) {
  return "rank " + std::to_string(group.rank()) + "/" + std::to_string(group.size()) + " local " +
         std::to_string(group.local_rank()) + "/" + std::to_string(group.local_size());
}

void require(bool is_so, const std::string& what) {
  if (!is_so) throw std::runtime_error{"wrong: " + what};
}

void check(ProcessGroup& group) {
  const auto n = static_cast<std::int64_t>(group.size());
  for (const std::size_t count : {1UL, 1'001UL, 100'003UL, 1'500'001UL}) {
    std::vector<std::int64_t> data(count);
    for (std::size_t i = 0; i < count; ++i)
      data[i] = static_cast<std::int64_t>(i) * (group.rank() + 1);
    group.all_reduce(std::span{data});
    for (std::size_t i = 0; i < count; ++i)
      require(data[i] == static_cast<std::int64_t>(i) * n * (n + 1) / 2, "all_reduce");
    std::iota(data.begin(), data.end(), group.rank() == n - 1 ? 5 : 0);
    group.broadcast(std::span{data}, static_cast<int>(n) - 1);
    require(data.back() == static_cast<std::int64_t>(count) + 4, "broadcast");
    std::vector<std::int64_t> all(count * static_cast<std::size_t>(n));
    std::fill(data.begin(), data.end(), group.rank());
    group.all_gather(data.data(), all.data(), count, DType::i64);
    for (std::size_t i = 0; i < all.size(); ++i)
      require(all[i] == static_cast<std::int64_t>(i / count), "all_gather");
    group.barrier();
  }
  const int to = (group.rank() + 1) % group.size(),
            from = (group.rank() + group.size() - 1) % group.size();
  std::vector<float> out(200'000, static_cast<float>(group.rank())), in(out.size());
  const auto sending = group.send_async(out.data(), out.size(), DType::f32, to);
  group.recv_async(in.data(), in.size(), DType::f32, from).wait();
  sending.wait();
  require(in.front() == static_cast<float>(from) && in.back() == in.front(), "messages");
  say(name(group) + " checked");
}

struct OwnFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void loop(ProcessGroup& group, int culprit = -1) {
  std::vector<float> data(50'000, 0.0F);
  group.all_reduce(std::span{data});  // whoever ends this rank now ends one that has made a call
  say(name(group) + " loops, pid " + std::to_string(::getpid()));
  for (int i = 0;; ++i) {
    group.all_reduce(std::span{data});
    if (group.rank() == culprit && i == 100) throw OwnFailure{"no such file: data.bin"};
  }
}

}  // namespace

int main(int count, char** words) {
  const std::string mode = count > 1 ? words[count - 1] : "check";
  ProcessGroup group;
  const auto began = std::chrono::steady_clock::now();
  try {
    group = ProcessGroup::from_environment();
    if (mode == "loop")
      loop(group);
    else if (const std::string before = count > 2 ? words[count - 2] : ""; before == "fail")
      loop(group, std::stoi(mode));
    else
      check(group);
  } catch (const Error& error) {
    const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - began);
    const auto who = group ? name(group) : std::string{"nobody"};
    say(who + " failed after " + std::to_string(took.count()) +
        " ms: " + std::string{to_string(error.code())} + ": " + error.what());
    return 3;
  } catch (const OwnFailure& error) {
    say("failed: " + std::string{error.what()});
    group = {};
    std::this_thread::sleep_for(std::chrono::milliseconds{250});  // as an exit that frees much
    return 42;
  } catch (const std::exception& error) {
    say("failed: " + std::string{error.what()});
    return 4;
  }
  return 0;
}
