#pragma once

#include <acc/loader.hpp>
#include <acc/parameter.hpp>
#include <acc/process_group.hpp>
#include <span>

namespace acc::runtime::training {

/// Is each parameter one that can be trained, on the group's device, and its name used once?
/// Without communication.
/// @throws Error invalid_argument naming it.
void check_parameters(std::span<const Parameter> parameters, const Device& device);

/// Do all ranks have the same parameters and buffers? Collective: some 20 bytes when they do.
/// @throws Error mismatch on all ranks, naming the first that differs, with what each side has.
void check_same_model(std::span<const Parameter> parameters, std::span<const ModelBuffer> buffers,
                      ProcessGroup& group);

/// Would the ranks share the same samples? Collective.
/// @throws Error mismatch on all ranks.
void check_same_loader(const LoaderBase& loader, ProcessGroup& group);

}  // namespace acc::runtime::training
