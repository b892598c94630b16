#pragma once

#include <acc/gradient_reducer.hpp>
#include <acc/optimizer.hpp>
#include <acc/parameter.hpp>
#include <acc/process_group.hpp>
#include <span>
#include <string_view>
#include <vector>

/// The gradients that a rank owns, of a reducer or of an optimizer.
namespace acc::runtime::training {

/// The gradients of one rank and, if they are a part of the whole, the group that has the rest.
struct Gradients {
  std::span<const Parameter> parameters;
  std::vector<GradientRange> ranges;
  ProcessGroup* parts_of = nullptr;  ///< nullptr: every rank has all of it
  void* stream = nullptr;            ///< of what is in device memory
  /// To which a change is reported, as the other ranks change theirs; nullptr: none.
  GradientReducer* reducer = nullptr;

  [[nodiscard]] TensorView piece(const GradientRange& range) const;
  /// @throws Error invalid_argument naming the first that is nowhere.
  void require_memory(std::string_view what) const;
};

/// Values and gradients, each in memory of its own? One element in two of them would be updated
/// twice, and reduced while it is written.
/// @throws Error invalid_argument naming the first two that share memory.
void require_apart(std::span<const Parameter> parameters, std::string_view what);

/// Of the reducer, which is to outlive them, but for those that a step leaves alone: their memory
/// may hold anything, as values where gradients are scattered.
[[nodiscard]] Gradients gradients_of(GradientReducer& reducer);
/// Of an optimizer, with a reducer or without.
[[nodiscard]] Gradients gradients_of(const Optimizer& optimizer);

/// @throws Error invalid_argument: its gradients are in flight; only known with a reducer.
void require_between_backwards(const Optimizer& optimizer, std::string_view what);

}  // namespace acc::runtime::training
