#pragma once

#include <acc/parameter.hpp>
#include <acc/process_group.hpp>
#include <span>
#include <string>

namespace acc::runtime::training {

/// Is each parameter one that can be trained, on the group's device, and its name used once?
/// Without communication.
/// @throws Error invalid_argument naming it.
void check_parameters(std::span<const Parameter> parameters, const Device& device);

/// Do all ranks have the same parameters and buffers? Collective: some 20 bytes when they do.
/// @throws Error mismatch on all ranks, naming the first that differs, with what each side has.
void check_same_model(std::span<const Parameter> parameters, std::span<const ModelBuffer> buffers,
                      ProcessGroup& group);

/// Have all ranks the same, as these words describe it? Collective.
/// @param problem  "prepare: the ranks have different optimizers"
/// @throws Error mismatch on all ranks, with what each side has.
void check_same(const std::string& problem, const std::string& mine, ProcessGroup& group);

}  // namespace acc::runtime::training
