#pragma once

#include "common/unique_fd.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

/// With --hosts the ranks of acc-test run on other machines, and their standard output is all that
/// comes back. What they tell acc-test stands in it behind marks.
namespace acc::check {

/// As runtime/selftest/results.hpp writes them, and on_rank.
inline constexpr std::string_view kTextMark = "acc-test-text: ";
inline constexpr std::string_view kJsonMark = "acc-test-json: ";
inline constexpr std::string_view kMachineMark = "acc-test-machine: ";

struct MarkedLine {
  enum class Kind : std::uint8_t { plain, text, result, machine };
  Kind kind = Kind::plain;
  std::string_view content;  ///< within the line
};
/// A launcher may have put a rank in front of the mark.
[[nodiscard]] MarkedLine read_marked_line(std::string_view line);

/// Takes this process's standard output, which a launch writes to, and gives it line by line to
/// `take`, from a thread, until finish().
class OutputReader {
 public:
  using Take = std::function<void(std::string_view line)>;
  /// Standard output goes into a pipe from now on.
  /// @throws std::system_error: no pipe
  OutputReader();
  ~OutputReader();
  OutputReader(const OutputReader&) = delete;
  OutputReader& operator=(const OutputReader&) = delete;
  /// Once: a thread gives each line to `take`, which sees what was written before this call.
  /// @throws std::system_error: no thread
  void start(Take take);
  /// Standard output is as before, and all that came has been taken.
  void finish();
  /// The former standard output, for what `take` prints.
  [[nodiscard]] int output() const noexcept { return output_.get(); }

 private:
  void read_lines() const;

  Take take_;
  UniqueFd output_;
  UniqueFd reader_;
  std::thread thread_;
  bool is_finished_ = false;
};

}  // namespace acc::check
