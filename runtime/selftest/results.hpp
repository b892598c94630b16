#pragma once

#include <acc/process_group.hpp>
#include <string>

namespace acc::selftest {

struct Result {
  std::string name;
  bool ok = true;
  std::string found;  ///< what is well, or what isn't and on which ranks
  double seconds = 0;
};

/// Where results go: rank 0 prints them, and one rank of each node writes them to the file that
/// acc-test reads (ACC_TEST_RESULTS).
class Results {
 public:
  Results(const runtime::ProcessGroup& group, bool silent);
  void tell(const Result& result);
  /// A row of the bandwidth table: a line of text, and a JSON object.
  void tell_row(const std::string& line, const std::string& json);
  void print(const std::string& text) const;

 private:
  void write(const std::string& json) const;

  bool prints_ = false;
  std::string file_;  ///< empty: this rank writes none
};

[[nodiscard]] std::string ranks_text(const runtime::ProcessGroup& group);  ///< "3 ranks"
/// "text" as a JSON string.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace acc::selftest
