#include "launcher/document_builder.hpp"

#include "common/text.hpp"

#include <algorithm>

namespace acc::launcher {

void DocumentBuilder::refuse(std::uint32_t line, std::string what) {
  if (!refusal_) refusal_ = (line > 0 ? std::to_string(line) + ": " : " ") + std::move(what);
}

static std::size_t size_of(const Value& value) {
  std::size_t size = 1;
  if (value.list() != nullptr) {
    for (const auto& item : *value.list()) size += size_of(item);
  }
  if (value.map() != nullptr) {
    for (const auto& entry : *value.map()) size += size_of(entry.value);
  }
  return size;
}

bool DocumentBuilder::count(const Value& value) {
  values_ += size_of(value);
  if (values_ > kMaxConfigValues)
    refuse(value.line,
           "more than " + std::to_string(kMaxConfigValues) + " values: not a config file");
  return !refused();
}

static bool is_list_of_maps(const Value& value) {
  const auto* list = value.list();
  return list != nullptr && !list->empty() &&
         std::ranges::all_of(*list, [](const Value& one) { return one.map() != nullptr; });
}

// Own keys win, then those of the last merge key, and of its list the first.
// @param earlier  keys of merge keys before this one
void DocumentBuilder::merge(Open& into, const Map& map, std::vector<std::string>& earlier) {
  for (const auto& entry : map) {
    const auto known = std::ranges::find(into.map, entry.key, &Entry::key);
    if (known == into.map.end()) {
      into.map.push_back(entry);
      into.merged.push_back(entry.key);
    } else if (std::erase(earlier, entry.key) != 0) {
      known->value = entry.value;
    }
  }
}

void DocumentBuilder::add(Value value) {
  if (refused() || !count(value)) return;
  if (open_.empty()) {
    root_ = std::move(value);
    return;
  }
  auto& parent = open_.back();
  if (!parent.is_map) {
    parent.list.push_back(std::move(value));
    return;
  }
  if (parent.map.size() > 2000)
    return refuse(value.line, "more than 2000 keys in one mapping: not a config file");
  const auto known = std::ranges::find(parent.map, *parent.key, &Entry::key);
  auto earlier = parent.merged;
  if (*parent.key == "<<" && value.map() != nullptr) {  // YAML's merge key
    merge(parent, *value.map(), earlier);
  } else if (*parent.key == "<<" && is_list_of_maps(value)) {
    for (const auto& one : *value.list()) merge(parent, *one.map(), earlier);
  } else if (known != parent.map.end()) {
    if (std::erase(parent.merged, known->key) == 0)
      duplicates_.push_back({known->key, known->value.line, value.line});
    known->value = std::move(value);  // as Python: the place of the first, the value of the last
  } else {
    parent.map.push_back({std::move(*parent.key), std::move(value)});
  }
  parent.key.reset();
}

void DocumentBuilder::begin(bool is_map, std::uint32_t line) {
  if (open_.size() >= kMaxConfigDepth)
    refuse(line,
           "nested deeper than " + std::to_string(kMaxConfigDepth) + " levels: not a config file");
  if (refused()) return;
  open_.push_back({is_map, line, {}, {}, {}, {}});
}

Value DocumentBuilder::end() {
  auto done = std::move(open_.back());
  open_.pop_back();
  Value value = done.is_map ? Value{std::move(done.map)} : Value{std::move(done.list)};
  value.line = done.line;
  add(value);
  return value;
}

Document DocumentBuilder::take(const std::string& name) {
  Document document{std::move(root_), {}};
  for (const auto& [key, first, last] : duplicates_) {
    std::string note = name + ":" + std::to_string(last) + ": '" + printable(key);
    note += "' stands in line " + std::to_string(first) + " already: the last one counts";
    document.notes.push_back(std::move(note));
  }
  return document;
}

}  // namespace acc::launcher
