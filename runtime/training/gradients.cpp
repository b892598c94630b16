#include "runtime/training/gradients.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

namespace acc::runtime {

std::vector<GradientRange> whole_ranges(std::span<const Parameter> parameters) {
  std::vector<GradientRange> ranges;
  ranges.reserve(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i)
    ranges.push_back({i, 0, parameters[i].value.count(), 0});
  return ranges;
}

namespace training {
namespace {

std::string gradient_of(const Parameter& parameter) {
  return "the gradient of '" + parameter.name + "'";
}

/// The memory of a value or a gradient.
struct Place {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::size_t parameter = 0;  ///< index
  bool is_gradient = false;
};

}  // namespace

TensorView Gradients::piece(const GradientRange& range) const {
  const TensorView& whole = parameters[range.parameter].gradient;
  return {static_cast<std::byte*>(whole.data) + range.offset * size_of(whole.dtype),
          whole.dtype,
          {static_cast<std::int64_t>(range.count)},
          whole.device};
}

void Gradients::require_memory(std::string_view what) const {
  for (const Parameter& parameter : parameters)
    if (parameter.gradient.data == nullptr && parameter.gradient.count() > 0)
      throw Error{ErrorCode::invalid_argument,
                  std::string{what} + ": " + gradient_of(parameter) + " has no memory"};
}

void require_apart(std::span<const Parameter> parameters, std::string_view what) {
  std::vector<Place> places;
  places.reserve(2 * parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const TensorView* view : {&parameters[i].value, &parameters[i].gradient}) {
      if (view->data == nullptr || view->bytes() == 0) continue;
      const auto begin = reinterpret_cast<std::uintptr_t>(view->data);
      places.push_back({begin, begin + view->bytes(), i, view == &parameters[i].gradient});
    }
  }
  std::ranges::sort(places, {}, &Place::begin);
  const auto shared = std::ranges::adjacent_find(
      places, [](const Place& before, const Place& after) { return after.begin < before.end; });
  if (shared == places.end()) return;
  const auto words = [&](const Place& place) {
    const Parameter& parameter = parameters[place.parameter];
    return (place.is_gradient ? "the gradient of parameter " : "the value of parameter ") +
           std::to_string(place.parameter) +
           (parameter.name.empty() ? "" : " ('" + parameter.name + "')");
  };
  const auto [first, second] =
      std::minmax(shared[0], shared[1], [](const Place& a, const Place& b) {
        return std::tie(a.parameter, a.is_gradient) < std::tie(b.parameter, b.is_gradient);
      });
  throw Error{ErrorCode::invalid_argument,
              std::string{what} + ": " + words(first) + " and " + words(second) +
                  " share memory; give a tensor that is used in two places once"};
}

Gradients gradients_of(GradientReducer& reducer) {
  const bool parts = reducer.mode() == GradientMode::reduce_scatter && reducer.group().size() > 1;
  Gradients found{
      reducer.parameters(), {}, parts ? &reducer.group() : nullptr, reducer.stream(), &reducer};
  std::ranges::copy_if(reducer.ranges(), std::back_inserter(found.ranges),
                       [&](const auto& range) { return reducer.has_gradient(range.parameter); });
  return found;
}

Gradients gradients_of(const Optimizer& optimizer) {
  if (optimizer.reducer() != nullptr) return gradients_of(*optimizer.reducer());
  return {optimizer.parameters(), whole_ranges(optimizer.parameters())};
}

void require_between_backwards(const Optimizer& optimizer, std::string_view what) {
  if (optimizer.reducer() != nullptr) optimizer.reducer()->require_between_backwards(what);
}

}  // namespace training
}  // namespace acc::runtime
