#include "runtime/device/kernels.hpp"
#include "runtime/training/cast.hpp"
#include "runtime/training/optimizer_memory.hpp"

#include <nlohmann/json.hpp>

#include <acc/checkpoint.hpp>
#include <acc/error.hpp>
#include <acc/optimizer.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

namespace acc::runtime {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t padded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

std::string name_of(std::span<const Parameter> parameters, std::size_t index) {
  const std::string& name = parameters[index].name;
  return name.empty() ? std::to_string(index) : name;
}

[[noreturn]] void refuse_state(const std::string& why) {
  throw Error{ErrorCode::corrupt, "the state of an optimizer: " + why};
}

/// By parameter the steps in which it was left out; empty: none, or an older checkpoint.
std::vector<std::uint64_t> skipped_in(const nlohmann::json& json, std::uint64_t steps,
                                      std::span<const Parameter> parameters) {
  const auto stored = json.find("skipped");
  if (stored == json.end()) return {};
  if (!stored->is_object()) refuse_state("'skipped' isn't an object");
  std::vector<std::uint64_t> skipped(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto one = stored->find(name_of(parameters, i));
    if (one == stored->end()) continue;
    if (!one->is_number_unsigned() || one->get<std::uint64_t>() > steps)
      refuse_state("'skipped' of '" + one.key() + "' isn't a number up to that of the steps");
    skipped[i] = one->get<std::uint64_t>();
  }
  return skipped;
}

bool is_on_device(const Parameter& parameter) {
  return parameter.value.device.kind == Device::Kind::cuda;
}

}  // namespace

DType Optimizer::Memory::type_of(const Parameter& parameter) noexcept {
  return parameter.value.dtype == DType::f64 ? DType::f64 : DType::f32;
}

bool Optimizer::Memory::has_master(const Parameter& parameter) noexcept {
  return parameter.value.dtype == DType::f16 || parameter.value.dtype == DType::bf16;
}

std::size_t Optimizer::Memory::tensors_of(const Parameter& parameter, std::size_t kinds) noexcept {
  return kinds + (has_master(parameter) ? 1 : 0);
}

void Optimizer::Memory::make(std::span<const Parameter> parameters,
                             std::span<const GradientRange> ranges,
                             const std::vector<std::string_view>& kinds, void* stream) {
  std::size_t space = kAlignment, device_space = 0;
  for (const GradientRange& range : ranges) {
    const Parameter& parameter = parameters[range.parameter];
    const std::size_t piece = range.count * size_of(type_of(parameter));
    (is_on_device(parameter) ? device_space : space) +=
        padded(piece) * tensors_of(parameter, kinds.size());
  }
  arena_.resize(space);
  const auto address = reinterpret_cast<std::uintptr_t>(arena_.data());
  std::byte* on_host = arena_.data() + (padded(address) - address);
  std::byte* on_device = make_device_arena(device_space);
  for (const GradientRange& range : ranges) {
    const Parameter& parameter = parameters[range.parameter];
    std::vector<void*>& pieces = pieces_.emplace_back();
    std::byte*& at = is_on_device(parameter) ? on_device : on_host;
    for (std::size_t kind = 0; kind < tensors_of(parameter, kinds.size()); ++kind) {
      pieces.push_back(at);
      at += padded(range.count * size_of(type_of(parameter)));
    }
  }
  made_ = true;
  take_masters(parameters, ranges, stream);
}

void Optimizer::Memory::take_masters(std::span<const Parameter> parameters,
                                     std::span<const GradientRange> ranges, void* stream) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Parameter& parameter = parameters[ranges[i].parameter];
    if (!has_master(parameter)) continue;
    const auto* values = static_cast<const std::byte*>(parameter.value.data) +
                         ranges[i].offset * size_of(parameter.value.dtype);
    auto* const master = static_cast<float*>(pieces_[i].back());
    if (is_on_device(parameter)) {
      // Behind the broadcast and the updates; awaited, as a checkpoint may fill them on another.
      device::widen(values, parameter.value.dtype, master, ranges[i].count, parameter.value.device,
                    stream);
      cuda::synchronize(stream);
    } else {
      training::to_floats(values, parameter.value.dtype, master, ranges[i].count);
    }
  }
}

float* Optimizer::Memory::floats(std::size_t count) {
  if (floats_.bytes() < count * sizeof(float)) floats_ = cuda::DeviceBuffer{count * sizeof(float)};
  return static_cast<float*>(floats_.data());
}

std::byte* Optimizer::Memory::make_device_arena(std::size_t bytes) {
  if (bytes == 0) return nullptr;  // CUDA isn't touched where nothing is on a device
  device_arena_ = cuda::DeviceBuffer{bytes};
  cuda::fill_async(device_arena_.data(), 0, bytes, nullptr);
  cuda::synchronize(nullptr);  // updates may come on any stream
  return static_cast<std::byte*>(device_arena_.data());
}

void Optimizer::values_changed() {
  if (memory_->made()) memory_->take_masters(parameters(), ranges(), stream());
}

/// Without the state itself: it settles the layout, which is to be done on all ranks alike.
std::size_t Optimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const GradientRange& range : ranges()) {
    const Parameter& parameter = parameters()[range.parameter];
    bytes += range.count * size_of(Memory::type_of(parameter)) *
             Memory::tensors_of(parameter, kinds().size());
  }
  return bytes;
}

std::size_t Optimizer::whole_state_bytes() const {
  std::size_t bytes = 0;
  for (const Parameter& parameter : parameters())
    bytes += parameter.value.count() * size_of(Memory::type_of(parameter)) *
             Memory::tensors_of(parameter, kinds().size());
  return bytes;
}

std::vector<StateTensor> Optimizer::state(std::string_view part) {
  make_state();
  const auto all = ranges();
  std::vector<std::optional<std::size_t>> range_of(parameters().size());
  for (std::size_t i = 0; i < all.size(); ++i) range_of[all[i].parameter] = i;

  std::vector<StateTensor> tensors;
  for (std::size_t index = 0; index < parameters().size(); ++index) {
    const Parameter& parameter = parameters()[index];
    std::vector<std::string_view> names = kinds();
    if (Memory::has_master(parameter)) names.push_back(Memory::kMaster);
    for (std::size_t kind = 0; kind < names.size(); ++kind) {
      StateTensor& tensor = tensors.emplace_back();
      tensor.name = std::string{names[kind]} + "/" + name_of(parameters(), index);
      tensor.view = {nullptr, Memory::type_of(parameter), {0}, parameter.value.device};
      tensor.placement = sharded() ? Placement::sharded : Placement::replicated;
      tensor.part = part;
      if (!range_of[index]) continue;
      tensor.view.data = memory_->of_range(*range_of[index])[kind];
      tensor.view.shape = {static_cast<std::int64_t>(all[*range_of[index]].count)};
    }
  }
  return tensors;
}

std::string Optimizer::state_text() const {
  auto groups = nlohmann::json::array();
  for (const GroupSettings& group : groups_)
    groups.push_back({{"name", group.name},
                      {"learning_rate", group.learning_rate},
                      {"momentum", group.momentum},
                      {"weight_decay", group.weight_decay}});
  nlohmann::json json{{"steps", steps_},
                      {"learning_rate", learning_rate()},
                      {"groups", std::move(groups)},
                      {"settings", more_settings()}};
  for (std::size_t i = 0; i < skipped_.size(); ++i)
    if (skipped_[i] > 0) json["skipped"][name_of(parameters(), i)] = skipped_[i];
  return json.dump();
}

/// Of a checkpoint of version 0.1 the one rate of all groups.
void Optimizer::load_state_text(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) refuse_state("not a JSON object");
  const auto number = [&](const nlohmann::json& in, const char* key) {
    const auto found = in.is_object() ? in.find(key) : in.end();
    if (!in.is_object() || found == in.end() || !found->is_number())
      refuse_state("'" + std::string{key} + "' is missing");
    return found->get<double>();
  };
  const auto steps = json.find("steps");
  if (steps == json.end() || !steps->is_number_unsigned()) refuse_state("'steps' is missing");
  std::vector<GroupSettings> groups = groups_;
  const auto stored = json.find("groups");
  if (stored == json.end()) {
    for (GroupSettings& group : groups) group.learning_rate = number(json, "learning_rate");
  } else if (!stored->is_array() || stored->size() != groups.size()) {
    throw Error{ErrorCode::invalid_argument,
                "the state of an optimizer: it has " + std::to_string(stored->size()) +
                    " groups of parameters, here are " + std::to_string(groups.size())};
  } else {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      groups[i].learning_rate = number((*stored)[i], "learning_rate");
      const double momentum = number((*stored)[i], "momentum");
      const bool has_place = groups[i].momentum != 0 || !kinds().empty();
      if (has_place) groups[i].momentum = momentum;
      if ((*stored)[i].contains("weight_decay"))
        groups[i].weight_decay = number((*stored)[i], "weight_decay");
    }
  }
  MoreSettings more = more_settings();
  if (const auto settings = json.find("settings"); settings != json.end())
    for (auto& [name, value] : more)
      if (settings->is_object() && settings->contains(name))
        value = number(*settings, name.c_str());
  skipped_ = skipped_in(json, steps->get<std::uint64_t>(), parameters());
  steps_ = steps->get<std::uint64_t>();
  groups_ = std::move(groups);
  set_more(more);
}

}  // namespace acc::runtime
