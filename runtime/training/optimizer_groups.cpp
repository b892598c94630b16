#include "runtime/training/optimizer_memory.hpp"
#include "runtime/training/settings_text.hpp"

#include <acc/error.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

/// Parameters with settings of their own.
namespace acc::runtime {
namespace {

using training::shortest;

void require_finite(const char* what, double value) {
  if (std::isfinite(value)) return;
  throw Error{ErrorCode::invalid_argument,
              std::string{"an optimizer with a "} + what + " of " + shortest(value)};
}

void require_not_negative(const char* what, double value) {
  require_finite(what, value);
  if (value >= 0) return;
  throw Error{ErrorCode::invalid_argument,
              std::string{"an optimizer with a negative "} + what + ", " + shortest(value)};
}

std::string text_of(const GroupSettings& group) {
  return "rate " + shortest(group.learning_rate) +
         (group.momentum != 0 ? ", momentum " + shortest(group.momentum) : "") +
         (group.weight_decay != 0 ? ", weight decay " + shortest(group.weight_decay) : "");
}

}  // namespace

void Optimizer::make_groups(GroupSettings settings, const std::vector<ParameterGroup>& groups) {
  groups_.push_back(std::move(settings));
  for (const ParameterGroup& group : groups) {
    if (!group.contains)
      throw Error{ErrorCode::invalid_argument, "the group of parameters '" + group.name +
                                                   "' doesn't say which: 'contains' is empty"};
    const GroupSettings& rest = groups_.front();
    groups_.push_back({group.name, group.learning_rate.value_or(rest.learning_rate),
                       group.momentum.value_or(rest.momentum),
                       group.weight_decay.value_or(rest.weight_decay)});
  }
  for (const GroupSettings& group : groups_) {
    require_not_negative("learning rate", group.learning_rate);
    require_not_negative("momentum", group.momentum);
    require_not_negative("weight decay", group.weight_decay);
  }
  for (const Parameter& parameter : parameters()) {
    const auto found = std::ranges::find_if(
        groups, [&](const ParameterGroup& group) { return group.contains(parameter); });
    group_of_.push_back(
        found == groups.end() ? 0 : static_cast<std::size_t>(found - groups.begin()) + 1);
  }
}

void Optimizer::set_learning_rate(double rate) {
  for (std::size_t group = 0; group < groups_.size(); ++group) set_learning_rate(group, rate);
}

void Optimizer::set_learning_rate(std::size_t group, double rate) {
  require_finite("learning rate", rate);
  if (group >= groups_.size())
    throw Error{ErrorCode::invalid_argument, "an optimizer has no group " + std::to_string(group)};
  groups_[group].learning_rate = rate;
}

void Optimizer::set_momentum(std::size_t group, double momentum) {
  check_momentum(momentum);
  if (group >= groups_.size())
    throw Error{ErrorCode::invalid_argument, "an optimizer has no group " + std::to_string(group)};
  groups_[group].momentum = momentum;
}

void Optimizer::set_weight_decay(std::size_t group, double weight_decay) {
  require_not_negative("weight decay", weight_decay);
  if (group >= groups_.size())
    throw Error{ErrorCode::invalid_argument, "an optimizer has no group " + std::to_string(group)};
  groups_[group].weight_decay = weight_decay;
}

void Optimizer::check_momentum(double momentum) const {
  require_not_negative("momentum", momentum);
}

std::string Optimizer::description() const {
  std::string text = settings_text() + " of " + std::to_string(parameters().size()) +
                     " parameters, " + text_of(groups_.front());
  for (std::size_t group = 1; group < groups_.size(); ++group)
    text += "; '" + groups_[group].name + "' of " +
            std::to_string(std::ranges::count(group_of_, group)) + ", " + text_of(groups_[group]);
  if (sharded()) text += "; sharded";
  return steps_ == 0 ? text : text + "; after " + std::to_string(steps_) + " steps";
}

}  // namespace acc::runtime
