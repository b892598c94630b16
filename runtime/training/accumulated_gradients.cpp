#include "runtime/training/accumulated_gradients.hpp"

#include "runtime/training/cast.hpp"

#include <nlohmann/json.hpp>

#include <acc/error.hpp>
#include <algorithm>
#include <cstdint>

namespace acc::runtime::training {
namespace {

/// State of the reducer of this model on this rank.
AccumulatedGradients facts_of(const Checkpoint& checkpoint, int rank, std::size_t model,
                              std::size_t parameters) {
  const auto corrupt = [] {
    throw Error{ErrorCode::corrupt, "load_state: 'gradients' isn't what save_state wrote"};
  };
  const StateTexts texts = checkpoint.of_rank(rank);
  const auto text = texts.find("gradients");
  if (text == texts.end()) corrupt();
  const auto json = nlohmann::json::parse(text->second, nullptr, false);
  if (!json.is_array() || json.size() <= model || !json[model].is_object()) corrupt();
  const auto& mine = json[model];
  if (!mine.contains("used") || !mine["used"].is_string() || !mine.contains("accumulating") ||
      !mine["accumulating"].is_boolean())
    corrupt();
  AccumulatedGradients facts;
  facts.used = mine["used"].get<std::string>();
  facts.accumulating = mine["accumulating"].get<bool>();
  if (facts.used.size() != parameters) corrupt();
  return facts;
}

void add(std::vector<double>& sums, const HostTensor& row) {
  if (row.dtype() == DType::f64) {
    const auto values = row.as<double>();
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
    return;
  }
  std::vector<float> values(sums.size());
  if (row.dtype() == DType::f32) {
    std::ranges::copy(row.as<float>(), values.begin());
  } else {
    to_floats(row.bytes().data(), row.dtype(), values.data(), values.size());
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

void put_mean(const std::vector<double>& sums, int rows, HostTensor& into) {
  if (into.dtype() == DType::f64) {
    const auto values = into.as<double>();
    for (std::size_t i = 0; i < sums.size(); ++i) values[i] = sums[i] / rows;
    return;
  }
  std::vector<float> values(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) values[i] = static_cast<float>(sums[i] / rows);
  if (into.dtype() == DType::f32) {
    std::ranges::copy(values, into.as<float>().begin());
  } else {
    from_floats(values.data(), into.bytes().data(), into.dtype(), values.size());
  }
}

}  // namespace

TensorView as_row(const TensorView& gradient) {
  TensorView row = gradient;
  row.shape = {1, static_cast<std::int64_t>(gradient.count())};
  return row;
}

AccumulatedGradients read_gradients(const Checkpoint& checkpoint, const std::string& part,
                                    std::size_t model, std::span<const Parameter> parameters,
                                    int rank, int ranks) {
  const int rows = checkpoint.ranks();
  const bool same = rows == ranks;
  AccumulatedGradients all = facts_of(checkpoint, same ? rank : 0, model, parameters.size());
  std::vector<std::string> used{all.used};
  for (int other = 1; !same && other < rows; ++other) {
    const auto& theirs =
        used.emplace_back(facts_of(checkpoint, other, model, parameters.size()).used);
    for (std::size_t i = 0; i < all.used.size(); ++i)
      if (all.used[i] != '1' && theirs[i] != '0') all.used[i] = theirs[i];
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string name = parameters[i].name.empty() ? std::to_string(i) : parameters[i].name;
    HostTensor row{parameters[i].gradient.dtype, as_row(parameters[i].gradient).shape};
    if (same) {
      checkpoint.read(part, name, rank, row.view());
    } else {
      std::vector<double> sums(row.count());
      for (int other = 0; other < rows; ++other) {
        const char how = used[static_cast<std::size_t>(other)][i];
        // Zeros, or what a step has applied, beside what others have added up since.
        if (all.used[i] == '1' && (how == '0' || how == '3')) continue;
        checkpoint.read(part, name, other, row.view());
        add(sums, row);
      }
      put_mean(sums, rows, row);
    }
    all.gradients.push_back(std::move(row));
  }
  return all;
}

}  // namespace acc::runtime::training
