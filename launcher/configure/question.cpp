#include "launcher/configure/question.hpp"

#include <algorithm>

namespace acc::configure {

const Value* Answers::find(std::string_view id) const {
  for (auto answer = given_.rbegin(); answer != given_.rend(); ++answer) {
    if (answer->question->id == id) return &answer->value;
  }
  return nullptr;
}

bool Answers::is_yes(std::string_view id) const {
  const auto* value = find(id);
  return value != nullptr && value->is_bool() && truthy(*value);
}

std::string Answers::text(std::string_view id) const {
  const auto* value = find(id);
  return value == nullptr ? std::string{} : python_text(*value);
}

std::int64_t Answers::integer(std::string_view id) const {
  const auto* value = find(id);
  return value == nullptr || value->integer() == nullptr ? 0 : *value->integer();
}

std::string Answers::distributed_type() const {
  if (is_yes("use_megatron_lm")) return "MEGATRON_LM";
  if (is_yes("use_fsdp")) return "FSDP";
  if (is_yes("use_deepspeed")) return "DEEPSPEED";
  return text("machine_type");
}

}  // namespace acc::configure
