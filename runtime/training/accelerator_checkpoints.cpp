#include "common/text.hpp"
#include "runtime/checkpoint/agreement.hpp"
#include "runtime/checkpoint/folder.hpp"
#include "runtime/checkpoint/model_files.hpp"
#include "runtime/training/accelerator_state.hpp"
#include "runtime/user_call.hpp"

#include <acc/accelerator.hpp>
#include <acc/cuda.hpp>
#include <acc/error.hpp>
#include <acc/safetensors.hpp>
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

/// save_state and load_state, save_model and load_model.
namespace acc::runtime {
namespace {

/// The values of a model by their names.
std::vector<NamedTensor> tensors_of(std::span<const Parameter> parameters,
                                    std::span<const ModelBuffer> buffers) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    tensors.push_back(
        {parameters[i].name.empty() ? std::to_string(i) : parameters[i].name, parameters[i].value});
  for (const ModelBuffer& buffer : buffers) tensors.push_back({buffer.name, buffer.value});
  return tensors;
}

/// In host memory: copies of what is on the device, behind the work that is pending there on any
/// stream. They live as long as `copies`.
std::vector<NamedTensor> on_host(std::vector<NamedTensor> tensors, const Device& device,
                                 std::vector<HostTensor>& copies) {
  cuda::synchronize(device);
  copies.reserve(tensors.size());
  for (NamedTensor& tensor : tensors) {
    if (tensor.view.device.kind == Device::Kind::cpu) continue;
    HostTensor& copy = copies.emplace_back(tensor.view.dtype, tensor.view.shape);
    cuda::copy(copy.bytes().data(), tensor.view.data, copy.bytes().size());
    tensor.view = std::as_const(copy).view();
  }
  return tensors;
}

/// What the files have for these tensors.
/// @throws Error invalid_argument: not the same tensors
std::vector<HostTensor> read_all(const std::filesystem::path& path,
                                 std::span<const NamedTensor> tensors) {
  const SafetensorsModel model{path};
  std::vector<std::string> unknown = model.names();
  std::vector<HostTensor> values;
  for (const NamedTensor& tensor : tensors) {
    std::erase(unknown, tensor.name);
    HostTensor& value = values.emplace_back(tensor.view.dtype, tensor.view.shape);
    model.read(tensor.name, value.view());
  }
  if (!unknown.empty())
    throw Error{ErrorCode::invalid_argument, in_quotes(path.native()) + " also holds " +
                                                 join(unknown, ", ") + ", which the model hasn't"};
  return values;
}

void put(const HostTensor& from, const TensorView& to) {
  if (to.device.kind == Device::Kind::cuda) {
    cuda::copy(to.data, from.bytes().data(), to.bytes());
  } else {
    std::ranges::copy(from.bytes(), static_cast<std::byte*>(to.data));
  }
}

/// Of tensors_of(): the memory is the model's.
TensorView writable(const NamedTensor& tensor) {
  const ConstTensorView& view = tensor.view;
  return {const_cast<void*>(view.data), view.dtype, view.shape, view.device};
}

/// Behind the work that is pending on any stream; `values` is empty but on rank 0.
void put_all(std::span<const HostTensor> values, std::span<const NamedTensor> tensors,
             const Device& device) {
  cuda::synchronize(device);
  for (std::size_t i = 0; i < values.size(); ++i) put(values[i], writable(tensors[i]));
}

/// Done when it returns, for work on any stream.
void broadcast_all(ProcessGroup& group, std::span<const NamedTensor> tensors, void* stream) {
  for (const NamedTensor& tensor : tensors)
    group.broadcast(writable(tensor), 0, {.stream = stream});
  cuda::synchronize(group.device());
}

bool updates_one_of(const Optimizer& optimizer, std::span<const NamedTensor> tensors) {
  return std::ranges::any_of(optimizer.parameters(), [&](const Parameter& parameter) {
    return std::ranges::any_of(
        tensors, [&](const auto& tensor) { return tensor.view.data == parameter.value.data; });
  });
}

/// @throws Error invalid_argument, if there is something that nothing here takes
void refuse_unused(const Restored& found, const std::vector<std::string>& left) {
  if (left.empty()) return;
  throw Error{ErrorCode::invalid_argument,
              "load_state: " + in_quotes(found.checkpoint.path().native()) +
                  " holds what nothing here takes: " + join(left, ", ") +
                  ". prepare() or register it before load_state(), or say that it is meant: "
                  "LoadStateOptions::allow_unused"};
}

}  // namespace

void Accelerator::register_for_checkpointing(std::string name, const TensorView& tensor,
                                             Placement placement) {
  state().require_new_name(name);
  state().tensors.push_back({std::move(name), tensor, placement, "registered"});
}

void Accelerator::register_for_checkpointing(std::string name, std::function<std::string()> save,
                                             std::function<void(std::string_view)> load,
                                             Owner owner) {
  state().require_new_name(name);
  state().texts.push_back({std::move(name), std::move(save), std::move(load), owner});
}

std::filesystem::path Accelerator::save_state(const std::filesystem::path& path) {
  const InUserCall within{UserCall::save_state};
  State& s = state();
  ProjectConfiguration& project = s.options.project;
  if (!project.automatic_checkpoint_naming && path.empty())
    throw Error{ErrorCode::invalid_argument,
                "save_state: a path, or automatic_checkpoint_naming, is needed"};
  const CheckpointState what = s.agree_what_to_save();
  if (!project.automatic_checkpoint_naming) {
    s.checkpoints().save_as(path, what);
    ++project.iteration;
    return path;
  }
  if (!s.goes_on) s.refuse_overwriting();
  s.goes_on = true;
  auto folder = s.checkpoints().save(project.iteration, what);
  ++project.iteration;
  return folder;
}

std::filesystem::path Accelerator::load_state(const std::filesystem::path& path,
                                              LoadStateOptions options) {
  const InUserCall within{UserCall::load_state};
  State& s = state();
  const bool numbered = s.options.project.automatic_checkpoint_naming;
  if (path.empty() && !numbered)
    throw Error{ErrorCode::invalid_argument,
                "load_state: a path, or automatic_checkpoint_naming, is needed"};
  CheckpointState wanted;
  s.together("load_state", [&] { wanted = s.what_to_load(); });
  training::SavedGradients gradients;
  const auto read = [&](Restored& found) {
    s.goes_on = s.goes_on || path.empty();
    s.together("load_state", [&] {
      if (!options.allow_unused) refuse_unused(found, s.not_taken(found.checkpoint, wanted));
    });
    s.checkpoints().fill(wanted, found);
    s.together("load_state", [&] { gradients = s.gradients_in(found); });
  };
  std::optional<Restored> found;
  if (path.empty()) {
    found = s.checkpoints().read_newest(read);
    s.goes_on = true;
    if (!found) return {};
  } else {
    found = s.checkpoints().open_from(path);
    read(*found);
  }
  s.together("load_state", [&] { s.take(*found, std::move(gradients)); });
  // An existing number is never reused: its checkpoint may be valid for another run.
  const auto newest = numbered ? s.checkpoints().newest_number() : std::nullopt;
  if (newest && *newest >= s.options.project.iteration) s.options.project.iteration = *newest + 1;
  s.goes_on = true;
  return found->checkpoint.path();
}

void Accelerator::wait_for_checkpoint() {
  if (state().checkpointer) state().checkpointer->wait();
}

// ---- models ----

std::vector<std::string> Accelerator::save_model(const std::filesystem::path& folder,
                                                 std::string_view max_shard_size) {
  return save_model(state().only_model("save_model"), folder, max_shard_size);
}

std::vector<std::string> Accelerator::save_model(const GradientReducer& model,
                                                 const std::filesystem::path& folder,
                                                 std::string_view max_shard_size) {
  const InUserCall within{UserCall::save_model};
  State& s = state();
  std::string names;
  s.together("save_model", [&] {
    const std::uint64_t most = checkpoint::parse_size(max_shard_size);
    const auto& buffers = s.buffers_of(model);
    if (folder.empty())
      throw Error{ErrorCode::invalid_argument, "save_model: the path of a folder is needed"};
    if (!is_main_process()) return;
    checkpoint::refuse_folder_of_checkpoint(folder);
    std::vector<HostTensor> copies;
    const auto tensors = on_host(tensors_of(model.parameters(), buffers), s.group.device(), copies);
    checkpoint::make_folders(checkpoint::FileOps::real(), folder);
    names = join(save_safetensors_model(folder, tensors, most, {{"format", "pt"}}), "\n");
  });
  return split(s.group.broadcast_object(names, 0, checkpoint::call_for_files(s.group)), '\n');
}

void Accelerator::load_model(const std::filesystem::path& path) {
  load_model(state().only_model("load_model"), path);
}

void Accelerator::load_model(const GradientReducer& model, const std::filesystem::path& path) {
  const InUserCall within{UserCall::load_model};
  State& s = state();
  std::vector<NamedTensor> tensors;
  s.together("load_model", [&] {
    model.require_between_backwards("load_model");
    tensors = tensors_of(model.parameters(), s.buffers_of(model));
    std::vector<HostTensor> values;
    if (is_main_process()) values = read_all(path, tensors);  // all before the first is changed
    put_all(values, tensors, s.group.device());
  });
  broadcast_all(s.group, tensors, model.stream());
  for (Optimizer* optimizer : s.optimizers)
    if (updates_one_of(*optimizer, tensors)) optimizer->values_changed();
}

}  // namespace acc::runtime
