#include "launcher/configure/script_askers.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "launcher/configure/config_map.hpp"
#include "launcher/configure/messages.hpp"
#include "launcher/configure/questions.hpp"
#include "launcher/document.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace acc::configure {

namespace {

/// As it would be typed.
std::string typed_text(const Value& value) {
  if (value.is_none()) return {};
  if (value.is_bool()) return truthy(value) ? "yes" : "no";
  return python_text(value);
}

Result<std::string> read_all_of(const std::string& path) {
  const UniqueFd file{path == "-" ? ::dup(STDIN_FILENO)
                                  : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  const auto attempted = "--answers: read " + in_quotes(path);
  if (!file) return Error{Errc::bad_usage, system_error(errno, attempted).what};
  std::string text;
  char buffer[16384];
  while (text.size() <= launcher::kMaxConfigBytes) {
    const auto got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{Errc::bad_usage, system_error(errno, attempted).what};
    if (got == 0) break;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return text;
}

}  // namespace

Reply ListAsker::ask(const Prompt& prompt) {
  if (next_ == answers_.size())
    return {Reply::Kind::ended, "there are " + std::to_string(answers_.size()) +
                                    " answers, and none for the question "};
  const auto& answer = answers_[next_++];
  const auto* line = answer.integer();
  if (prompt.question->kind != Kind::choice || line == nullptr)
    return {Reply::Kind::typed, typed_text(answer)};
  if (*line >= 0 && static_cast<std::size_t>(*line) < prompt.options.size())
    return {Reply::Kind::option, {}, static_cast<std::size_t>(*line)};
  return {Reply::Kind::typed, "line " + std::to_string(*line)};
}

void ListAsker::say(const std::string& text) {
  tell("answer " + std::to_string(next_) + ": " + text);
}

Result<void> ListAsker::finish() {
  if (next_ == answers_.size()) return {};
  return Error{Errc::bad_usage, "only " + std::to_string(next_) + " of the " +
                                    std::to_string(answers_.size()) +
                                    " answers were asked for: they don't fit the questions"};
}

Reply NamedAsker::ask(const Prompt& prompt) {
  const auto& question = *prompt.question;
  auto& count = taken_[std::string{question.id}];
  const auto* value = value_of(answers_, question.id);
  if (value != nullptr && value->list() != nullptr) {
    value = count < value->list()->size() ? &(*value->list())[count] : nullptr;
  } else if (count > 0 && question.repeats_from != 0) {
    value = nullptr;
  }
  ++count;
  if (value != nullptr) return {Reply::Kind::typed, typed_text(*value)};
  if (!question.initial && question.kind != Kind::choice)
    return {Reply::Kind::ended, "no answer, and no default, for the question "};
  return {Reply::Kind::typed, {}};
}

void NamedAsker::say(const std::string& text) { tell(text); }

Result<void> NamedAsker::finish() {
  std::vector<std::string> complaints;
  for (const auto& [name, value] : answers_) {
    if (taken_.contains(name)) continue;
    const auto found = std::ranges::find(questions(), name, &Question::id);
    if (found != questions().end()) {
      complaints.push_back("the answer to " + name + " was not asked for: it is for " +
                           std::string{found->when});
      continue;
    }
    std::vector<std::string_view> names;
    for (const auto& question : questions()) names.push_back(question.id);
    const auto meant = nearest(name, names);
    complaints.push_back("there is no question " + in_quotes(name, 60) +
                         (meant.empty() ? " (acc-config questions lists them)"
                                        : " (did you mean " + std::string{meant} + "?)"));
  }
  if (complaints.empty()) return {};
  return Error{Errc::bad_usage, join(complaints, "\n")};
}

Result<std::unique_ptr<Asker>> script_asker(const std::string& path,
                                            const std::vector<std::string>& more) {
  Value root{Map{}};
  if (!path.empty()) {
    const auto text = read_all_of(path);
    if (!text) return text.error();
    auto document = path.ends_with(".json") ? launcher::read_json(*text, path)
                                            : launcher::read_yaml(*text, path);
    if (!document) return document.error();
    root = std::move(document->root);
  }
  if (auto* list = std::get_if<List>(&root.data); list != nullptr && more.empty())
    return std::unique_ptr<Asker>{std::make_unique<ListAsker>(std::move(*list))};
  auto* map = std::get_if<Map>(&root.data);
  if (map == nullptr)
    return Error{Errc::bad_usage, "--answers " + in_quotes(path) +
                                      ": expected a list of answers, or names with answers (" +
                                      "num_machines: 2)"};
  for (const auto& word : more) {
    const auto equals = word.find('=');
    if (equals == std::string::npos || equals == 0)
      return Error{Errc::bad_usage, "--set " + in_quotes(word, 60) +
                                        ": expected NAME=ANSWER (acc-config questions lists the "
                                        "names)"};
    put(*map, word.substr(0, equals), Value{word.substr(equals + 1)});
  }
  return std::unique_ptr<Asker>{std::make_unique<NamedAsker>(std::move(*map))};
}

}  // namespace acc::configure
