#include "launcher/config_keys.hpp"

#include "common/duration.hpp"
#include "common/text.hpp"
#include "launcher/key_table.hpp"
#include "launcher/setting_parsers.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace acc::launcher {

namespace {

constexpr GroupRow kGroups[] = {
    {Group::job, "job", "What to run"},
    {Group::processes, "processes", "How many workers, and on what"},
    {Group::machines, "machines", "Several machines"},
    {Group::precision, "precision", "Mixed precision and torch.compile"},
    {Group::restart, "restart", "After a failure"},
    {Group::stop, "stop", "Stopping"},
    {Group::output, "output", "Output, log files, report"},
    {Group::inspect, "inspect", "Looking instead of running"},
    {Group::torchrun, "torchrun", "torchrun's spellings (counts are per machine)"},
    {Group::deepspeed, "deepspeed", "DeepSpeed (section deepspeed_config)"},
    {Group::fsdp, "fsdp", "Fully sharded data parallel (section fsdp_config)"},
    {Group::megatron, "megatron", "Megatron-LM (section megatron_lm_config)"},
    {Group::fp8, "fp8", "8-bit floats (section fp8_config; needs mixed_precision fp8)"},
    {Group::parallelism, "parallelism", "Kinds of parallelism (section parallelism_config)"},
    {Group::mpi, "mpi", "An outer mpirun (section mpirun_config)"},
    {Group::cloud, "cloud", "TPU and SageMaker: understood, but refused"},
};

struct Section {
  Place place;
  std::string_view name, prefix;
};
constexpr Section kSections[] = {
    {Place::deepspeed_config, "deepspeed_config", ""},
    {Place::fsdp_config, "fsdp_config", "fsdp"},
    {Place::parallelism_config, "parallelism_config", ""},
    {Place::megatron_lm_config, "megatron_lm_config", ""},
    {Place::mpirun_config, "mpirun_config", ""},
    {Place::fp8_config, "fp8_config", "fp8"},
    {Place::dynamo_config, "dynamo_config", "dynamo_"},
};

Error bad(std::string_view word, std::string_view expected) {
  return {Errc::bad_config, "'" + printable(word) + "' is not " + std::string{expected}};
}

/// As Python's int(): blanks around, a sign, single underscores between digits.
std::string python_digits(std::string_view word) {
  auto text = trim(word);
  std::string out;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    if (text[0] == '-') out = "-";
    text.remove_prefix(1);
    if (!text.empty() && (text[0] == '+' || text[0] == '-')) return {};
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && i + 1 < text.size() && text[i - 1] != '_' && text[i + 1] != '_')
      continue;
    out += text[i];
  }
  return out;
}

Result<Value> parse_integer(std::string_view word) {
  const auto number = parse_number<std::int64_t>(python_digits(word));
  if (!number) return bad(word, "a whole number");
  return Value{*number};
}

Result<Value> parse_float(std::string_view word) {
  const auto digits = python_digits(word);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  const bool hex = digits.find_first_of("xX") != std::string::npos;
  if (digits.empty() || hex || end != digits.c_str() + digits.size()) return bad(word, "a number");
  return Value{number};
}

Result<Value> parse_truth(std::string_view word) {
  constexpr std::string_view kYes[] = {"y", "yes", "t", "true", "on", "1"};
  constexpr std::string_view kNo[] = {"n", "no", "f", "false", "off", "0"};
  const auto lower = to_lower(word);
  if (std::ranges::find(kYes, lower) != std::end(kYes)) return Value{std::int64_t{1}};
  if (std::ranges::find(kNo, lower) != std::end(kNo)) return Value{std::int64_t{0}};
  return bad(word, "true or false");
}

Result<Value> parse_truths(std::string_view word) {
  List list;
  if (word.empty())
    return Value{
        List{Value{false}, Value{false}, Value{false}}};  // the original's default: booleans
  for (const auto& part : split(word, ',')) {
    auto one = parse_truth(part);
    if (!one) return one.error();
    list.push_back(std::move(*one));
  }
  if (list.size() != 3) return bad(word, "three of true or false, as true,false,false");
  return Value{std::move(list)};
}

template <class T>
Result<Value> kept_if(const Result<T>& parsed, std::string_view word) {
  if (!parsed) return parsed.error();
  return Value{std::string{word}};
}

Result<Value> check_choice(const KeyRow& row, std::string_view word) {
  if (row.choices.empty()) return Value{std::string{word}};
  const auto choices = split(row.choices, ' ');
  if (std::ranges::find(choices, word) != choices.end()) return Value{std::string{word}};
  return bad(word, "one of " + join(choices, ", "));
}

}  // namespace

std::span<const KeyRow> key_rows() { return kKeyRows; }
const KeyRow& row_of(Key key) { return kKeyRows[key.row]; }
std::span<const GroupRow> group_rows() { return kGroups; }
Key key_of(const KeyRow& row) { return {static_cast<std::size_t>(&row - kKeyRows)}; }

const KeyRow* find_key(std::string_view name) {
  const auto found = std::ranges::find(kKeyRows, name, &KeyRow::name);
  return found == std::end(kKeyRows) ? nullptr : &*found;
}

std::string_view section_name(Place place) {
  const auto found = std::ranges::find(kSections, place, &Section::place);
  return found == std::end(kSections) ? std::string_view{} : found->name;
}

std::string_view section_prefix(Place place) {
  const auto found = std::ranges::find(kSections, place, &Section::place);
  return found == std::end(kSections) ? std::string_view{} : found->prefix;
}

std::string name_in_section(Place place, const std::string& name) {
  const auto prefix = section_prefix(place);
  if (prefix.empty() || name.starts_with(prefix)) return name;
  return std::string{prefix} + (prefix.ends_with('_') ? "" : "_") + name;
}

Place section_of(std::string_view name) {
  const auto found = std::ranges::find(kSections, name, &Section::name);
  return found == std::end(kSections) ? Place::nowhere : found->place;
}

Result<Value> parse_value(const KeyRow& row, std::string_view word) {
  switch (row.type) {
    case Type::flag:
      return Value{word == "true"};
    case Type::integer:
      return parse_integer(word);
    case Type::number:
      return parse_float(word);
    case Type::any_text_is_true:
      return Value{!word.empty()};
    case Type::truth:
      return parse_truth(word);
    case Type::truths:
      return parse_truths(word);
    case Type::duration:
      return kept_if(parse_duration(word), word);
    case Type::bytes:
      return kept_if(parse_bytes(word), word);
    case Type::signals:
      return kept_if(parse_signals(word), word);
    case Type::codes:
      return kept_if(parse_codes(word), word);
    case Type::ranks:
      return kept_if(parse_ranks(word), word);
    case Type::path:
      if (word.empty())
        return Error{Errc::bad_config, "the path is empty: name one, or leave this setting out"};
      return Value{std::string{word}};
    case Type::address: {
      auto address = parse_address(word);
      if (!address) return address.error();
      return Value{std::move(*address)};
    }
    case Type::streams:  // checked when a plan is made: the original ignores it where no agent runs
    case Type::list:
    case Type::text:
      break;
  }
  return check_choice(row, word);
}

static bool takes_list(const KeyRow& row) {
  constexpr Type kLists[] = {
      Type::truths, Type::signals, Type::codes,  Type::streams,
      Type::ranks,  Type::list,    Type::address};  // [::1] is a list in YAML
  return row.joins_list || std::ranges::find(kLists, row.type) != std::end(kLists);
}

Result<void> check_shape(const KeyRow& row, const Value& value) {
  const auto wrong = [&](const Value& what, const std::string& instead) {
    return Error{Errc::bad_config, printable(python_text(what)) + " is " +
                                       std::string{kind_name(what)} + ": write " + instead};
  };
  const bool several = takes_list(row);
  if (value.map() != nullptr)
    return wrong(value,
                 several && row.type != Type::address ? "values separated by commas" : "one value");
  const auto* list = value.list();
  if (list == nullptr || row.type == Type::list) return {};
  if (!several) {
    const bool holds_one = list->size() == 1 && list->front().list() == nullptr &&
                           list->front().map() == nullptr && !list->front().is_none();
    return wrong(value, holds_one ? "the value alone, without brackets or dash" : "one value");
  }
  for (const auto& item : *list) {
    if (item.list() != nullptr || item.map() != nullptr || item.is_none())
      return wrong(item, "a plain value in this list");
  }
  return {};
}

std::string joined(const List& list) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ",") + python_text(item);
  return text;
}

Result<Value> check_value(const KeyRow& row, const Value& value) {
  if (value.is_none()) return value;
  if (const auto shape = check_shape(row, value); !shape) return shape.error();
  const auto shown = value.spelled.empty() ? python_text(value) : value.spelled;
  if (row.type == Type::flag) {
    if (value.is_bool()) return value;
    const auto truth =
        parse_truth(python_text(value));  // downcast_bf16: 'no' is what `accelerate config` writes
    if (!truth) return truth.error();
    return Value{truthy(*truth)};
  }
  if (row.type == Type::list) {
    if (value.list() != nullptr) return value;
    return bad(shown, "a list of words, as [--lr, '0.1']");
  }
  if (value.list() != nullptr)  // gpu_ids: [0, 1] and the like mean what they look like
    return parse_value(row, joined(*value.list()));
  if (value.is_bool()) {
    const auto quoted =
        row.type == Type::streams ? kept_if(parse_streams(shown), shown) : parse_value(row, shown);
    if (!quoted) return quoted.error();  // in quotes it would be no better
    const std::string quote = value.is_json ? "\"" : "'";
    return Error{Errc::bad_config, as_read(value) + ", not " + metavar(row) + ": write " + quote +
                                       shown + quote + " in quotes if the word is meant"};
  }
  auto checked = parse_value(row, python_text(value));
  if (checked && (row.type == Type::text || row.type == Type::path))
    return Value{python_text(value)};
  return checked;
}

Result<void> check_passed_on(const KeyRow& row, const Value& value) {
  if (row.valid.empty() || value.is_none()) return {};
  const auto word = to_upper(python_text(value));
  std::vector<std::string> names;
  for (auto& one : split(row.valid, ' ')) {
    const bool is_kind = one == "BOOL" || one == "NUMBER";
    if (one == "BOOL" && parse_truth(word)) return {};
    if (one == "NUMBER" && parse_number<std::uint32_t>(word)) return {};
    if (!is_kind && to_upper(one) == word) return {};
    names.push_back(one == "BOOL" ? "true" : one == "NUMBER" ? "a number" : std::move(one));
    if (names.back() == "true") names.emplace_back("false");
  }
  const auto shown = value.spelled.empty() ? python_text(value) : value.spelled;
  const std::vector<std::string_view> known{names.begin(), names.end()};
  const auto meant = nearest(word, known);
  return Error{Errc::bad_config,
               "'" + printable(shown) + "' is not one of " + join(names, ", ") +
                   (meant.empty() ? "" : " (did you mean " + std::string{meant} + "?)")};
}

Value default_value(const KeyRow& row) {
  if (row.initial == nullptr) return {};
  constexpr Type kTexts[] = {Type::text, Type::path, Type::streams, Type::address};
  if (std::ranges::find(kTexts, row.type) != std::end(kTexts))
    return Value{std::string{row.initial}};
  return parse_value(row, row.initial).value();
}

std::string metavar(const KeyRow& row) {
  if (!row.choices.empty() && row.choices.size() <= 40) return join(split(row.choices, ' '), "|");
  switch (row.type) {
    case Type::flag:
      return "";
    case Type::integer:
      return "N";
    case Type::number:
      return "NUMBER";
    case Type::truth:
      return "true|false";
    case Type::truths:
      return "B,B,B";
    case Type::duration:
      return "TIME";
    case Type::bytes:
      return "SIZE";
    case Type::signals:
      return "SIGNAL,...";
    case Type::codes:
      return "CODE,FROM-TO,...";
    case Type::streams:
      return "N|RANK:N,...";
    case Type::ranks:
      return "RANK,...";
    case Type::list:
      return "LIST";
    case Type::address:
      return "ADDRESS";
    case Type::path:
      return "PATH";
    case Type::any_text_is_true:
    case Type::text:
      break;
  }
  return "TEXT";
}

}  // namespace acc::launcher
