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

/// How results are told.
enum class Style {
  text,    ///< lines for people, on rank 0
  silent,  ///< only to the file
  marked,  ///< on rank 0, lines and JSON on standard output behind marks: acc-test is on another
           ///< host
};

/// Begin of a line of standard output in Style::marked (launcher/check/marked_lines reads them).
inline constexpr const char* kTextMark = "acc-test-text: ";
inline constexpr const char* kJsonMark = "acc-test-json: ";

/// Where results go: rank 0 prints them, and one rank of each node writes them to the file that
/// acc-test reads (ACC_TEST_RESULTS).
class Results {
 public:
  Results(const runtime::ProcessGroup& group, Style style);
  /// Without a group, by the launcher's variables.
  Results(int rank, Style style);
  /// @param details  a JSON object; empty: none
  void tell(const Result& result, const std::string& details = {});
  /// A row of a table: a line of text, and a JSON object.
  void tell_row(const std::string& line, const std::string& json);
  void tell_remedy(const std::string& found, const std::string& remedy);
  void print(const std::string& text) const;
  /// From now on the first rank of each node prints, where people read on each of them.
  void print_on_every_node();

 private:
  Results(int rank, bool is_first_of_node, Style style);
  void write(const std::string& json) const;

  Style style_;
  bool prints_ = false;
  bool is_first_of_node_ = false;
  std::string file_;  ///< empty: this rank writes none
};

[[nodiscard]] std::string ranks_text(const runtime::ProcessGroup& group);  ///< "3 ranks"
/// `text` as a JSON string; what isn't UTF-8 is replaced by U+FFFD.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace acc::selftest
