// A rank that makes several groups of its environment, with the C++ library, the C library, or both
// by turns: `groups_worker N cpp|c|both overlap|sequence`. overlap: one while the last is alive;
// sequence: one after the other, with pauses. Each group must have this job's ranks and no others:
// JOB tells who is whose.
#include <acc/acc.h>
#include <unistd.h>

#include <acc/process_group.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

void say(const std::string& text) {
  const auto line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::_Exit(9);
}

/// A group of either library, as this program needs it.
class AnyGroup {
 public:
  virtual ~AnyGroup() = default;
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  virtual int rank() = 0;
};

class CppGroup final : public AnyGroup {
 public:
  std::vector<std::string> gather(const std::string& mine) override {
    return group_.all_gather_object(mine);
  }
  int rank() override { return group_.rank(); }

 private:
  acc::runtime::ProcessGroup group_ = acc::runtime::ProcessGroup::from_environment();
};

class CGroup final : public AnyGroup {
 public:
  CGroup() { check(acc_init(nullptr, &comm_)); }
  ~CGroup() override { acc_finalize(comm_); }
  CGroup(const CGroup&) = delete;
  CGroup& operator=(const CGroup&) = delete;
  std::vector<std::string> gather(const std::string& mine) override {
    acc_objects* objects = nullptr;
    check(acc_all_gather_object(comm_, mine.data(), mine.size(), &objects));
    std::vector<std::string> all;
    for (std::size_t i = 0; i < acc_objects_count(objects); ++i)
      all.emplace_back(static_cast<const char*>(acc_objects_data(objects, i)),
                       acc_objects_size(objects, i));
    acc_objects_free(objects);
    return all;
  }
  int rank() override { return acc_rank(comm_); }

 private:
  static void check(acc_status status) {
    if (status != ACC_OK) throw std::runtime_error{acc_last_error()};
  }
  acc_comm* comm_ = nullptr;
};

std::unique_ptr<AnyGroup> make(const std::string& library, int number) {
  if (library == "c" || (library == "both" && number % 2 == 1)) return std::make_unique<CGroup>();
  return std::make_unique<CppGroup>();
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  const int groups = std::atoi(words[1]);
  const std::string library = words[2];
  const bool overlap = std::string{words[3]} == "overlap";
  const char* job = std::getenv("JOB");
  const std::string mine = job != nullptr ? job : "?";
  std::minstd_rand random{static_cast<unsigned>(::getpid())};
  const auto pause = [&] {
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 2000});
  };
  std::unique_ptr<AnyGroup> last;
  int made = 0;
  try {
    for (; made < groups; ++made) {
      auto group = make(library, made);
      for (const auto& other : group->gather(mine))
        if (other != mine)
          throw std::runtime_error{"job " + mine + " works with a rank of job " + other};
      if (overlap) {
        last = std::move(group);
      } else {
        pause();
        group.reset();
        pause();
      }
    }
    say("job " + mine + " pid " + std::to_string(::getpid()) + " made " + std::to_string(made) +
        " groups");
  } catch (const std::exception& error) {
    say("job " + mine + " group " + std::to_string(made) + ": " + error.what());
    return 1;
  }
}
