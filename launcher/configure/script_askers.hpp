#pragma once

#include "launcher/configure/asker.hpp"

#include <map>
#include <memory>
#include <string>

/// Answers that were written down before: --answers and --set.
namespace acc::configure {

/// A list, in the order of the questions: a number is the line of a menu from 0, text is typed, ""
/// takes the default. A wrong one is followed by the next, as if it had been asked again.
class ListAsker : public Asker {
 public:
  // Parentheses: in braces the list would be its own only item.
  explicit ListAsker(List answers) : answers_(std::move(answers)) {}

  Reply ask(const Prompt& prompt) override;
  void say(const std::string& text) override;
  [[nodiscard]] Reading reading() const override { return Reading::exact; }
  [[nodiscard]] bool is_person() const override { return false; }
  Result<void> finish() override;

 private:
  List answers_;
  std::size_t next_ = 0;
};

/// By the names of the questions; what isn't named takes its default.
class NamedAsker : public Asker {
 public:
  explicit NamedAsker(Map answers) : answers_(std::move(answers)) {}

  Reply ask(const Prompt& prompt) override;
  void say(const std::string& text) override;
  [[nodiscard]] bool is_person() const override { return false; }
  [[nodiscard]] bool has_second_try() const override { return false; }
  Result<void> finish() override;

 private:
  Map answers_;
  std::map<std::string, std::size_t, std::less<>> taken_;  ///< how many answers of a name
};

/// From a file, or the standard input for "-": a list or a mapping, as YAML or JSON.
/// @param more  NAME=VALUE each, added to a mapping
Result<std::unique_ptr<Asker>> script_asker(const std::string& path,
                                            const std::vector<std::string>& more);

}  // namespace acc::configure
