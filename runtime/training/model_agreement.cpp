#include "runtime/training/model_agreement.hpp"

#include "common/fnv.hpp"
#include "common/text.hpp"
#include "runtime/backend.hpp"
#include "runtime/checkpoint/safetensors_format.hpp"
#include "runtime/user_call.hpp"

#include <acc/error.hpp>
#include <algorithm>
#include <string>
#include <unordered_set>
#include <vector>

namespace acc::runtime::training {
namespace {

std::string quoted(std::string_view name, std::size_t index) {
  return name.empty() ? std::to_string(index) : "'" + std::string{name} + "'";
}

/// "parameter 'fc.weight' f32 [10, 20]": what must be the same everywhere.
std::vector<std::string> describe(std::span<const Parameter> parameters,
                                  std::span<const ModelBuffer> buffers) {
  std::vector<std::string> lines;
  const auto add = [&](std::string_view kind, std::size_t index, std::string_view name,
                       const TensorView& value) {
    lines.push_back(std::string{kind} + " " + quoted(name, index) + " " +
                    std::string{to_string(value.dtype)} + " " + to_string(value.shape));
  };
  for (std::size_t i = 0; i < parameters.size(); ++i)
    add("parameter", i, parameters[i].name, parameters[i].value);
  for (std::size_t i = 0; i < buffers.size(); ++i)
    add("buffer", i, buffers[i].name, buffers[i].value);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    // A name may hold anything, also a newline: lengths part the lines.
    text += std::to_string(line.size()) + ":" + line;
  }
  return text;
}

// Total: with calls that aren't compared (ACC_CHECK=0) it may be another call's text.
std::vector<std::string> parted(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t colon = std::min(text.find(':'), text.size());
    const auto size = parse_number<std::size_t>(text.substr(0, colon));
    text.remove_prefix(std::min(colon + 1, text.size()));
    if (!size || *size > text.size()) return lines;
    lines.emplace_back(text.substr(0, *size));
    text.remove_prefix(*size);
  }
  return lines;
}

std::string described(const std::vector<std::string>& lines, std::size_t index) {
  return index < lines.size() ? lines[index] : "nothing there";
}

/// The first line in which some rank differs from rank 0.
Error difference(const std::vector<std::string>& texts) {
  std::vector<std::vector<std::string>> models;
  std::size_t longest = 0;
  for (const std::string& text : texts) {
    models.push_back(parted(text));
    longest = std::max(longest, models.back().size());
  }
  for (std::size_t line = 0; line < longest; ++line) {
    const std::string zeros = described(models[0], line);
    std::vector<int> others;
    std::string theirs;
    for (std::size_t rank = 1; rank < models.size(); ++rank) {
      const std::string its = described(models[rank], line);
      if (its == zeros) continue;
      if (others.empty()) theirs = its;
      if (its == theirs) others.push_back(static_cast<int>(rank));
    }
    if (others.empty()) continue;
    return Error{ErrorCode::mismatch,
                 "the ranks have different models: rank 0 has " + zeros + ", " +
                     describe_ranks(others) + " " + have(others) + " " + theirs,
                 others, "gradient_reducer"};
  }
  return Error{ErrorCode::mismatch, "the ranks have different models", {}, "gradient_reducer"};
}

}  // namespace

void check_parameters(std::span<const Parameter> parameters, const Device& device) {
  std::unordered_set<std::string_view> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const TensorView& value = parameter.value;
    const TensorView& gradient = parameter.gradient;
    const std::string name = "parameter " + quoted(parameter.name, i);
    const auto refuse = [&](const std::string& why) {
      throw Error{ErrorCode::invalid_argument, name + " " + why};
    };
    if (value.dtype != DType::f32 && value.dtype != DType::f64 && value.dtype != DType::f16 &&
        value.dtype != DType::bf16)
      refuse("is " + std::string{to_string(value.dtype)} +
             "; f16, bf16, f32 and f64 can be trained");
    if (const auto problem = safetensors::overflow(value)) refuse(problem->substr(1));
    if (value.data == nullptr && value.count() > 0) refuse("has no memory");
    // Buckets are in memory of the group; an unintended copy between the two ends the process.
    if (value.device != device)
      refuse("is on " + to_string(value.device) + ", but the group reduces on " +
             to_string(device) + ": " +
             (value.device.kind == device.kind    ? "use Accelerator::device()"
              : device.kind == Device::Kind::cuda ? "move the model there, or use the cpu backend"
                                                  : "use the nccl backend"));
    if (gradient.data != nullptr &&
        (gradient.dtype != value.dtype || gradient.count() != value.count() ||
         gradient.device != value.device))
      refuse("is " + std::string{to_string(value.dtype)} + " " + to_string(value.shape) + " on " +
             to_string(value.device) + ", but its gradient " +
             std::string{to_string(gradient.dtype)} + " " + to_string(gradient.shape) + " on " +
             to_string(gradient.device));
    if (!parameter.name.empty() && !names.insert(parameter.name).second) refuse("is there twice");
  }
}

void check_same_model(std::span<const Parameter> parameters, std::span<const ModelBuffer> buffers,
                      ProcessGroup& group) {
  if (group.size() == 1) return;
  // As objects, which are in host memory with any backend.
  const std::string mine = joined(describe(parameters, buffers));
  const std::vector<std::string> digests = group.all_gather_object(std::to_string(fnv1a(mine)));
  if (std::ranges::all_of(digests, [&](const std::string& d) { return d == digests[0]; })) return;
  throw difference(group.all_gather_object(mine));
}

void check_same(const std::string& problem, const std::string& mine, ProcessGroup& group) {
  if (group.size() == 1) return;
  const InUserCall within{UserCall::prepare};
  const auto all = group.all_gather_object(mine);
  const auto other = std::ranges::find_if(all, [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  std::vector<int> others;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] == *other) others.push_back(static_cast<int>(rank));
  throw Error{ErrorCode::mismatch,
              problem + ": rank 0 has " + all[0] + ", " + describe_ranks(others) + " " +
                  have(others) + " " + *other,
              others, "prepare"};
}

}  // namespace acc::runtime::training
