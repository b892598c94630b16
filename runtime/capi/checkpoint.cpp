#include "runtime/capi/structs.hpp"
#include "runtime/capi/training_handles.hpp"

#include <nlohmann/json.hpp>

#include <acc/acc_training.h>

#include <acc/checkpoint.hpp>
#include <set>
#include <string>

using namespace acc::capi;
using namespace acc::runtime;

struct acc_state {
  struct Trained {
    Optimizer* optimizer;
    std::string name;
  };
  std::vector<StateTensor> tensors;
  std::vector<Trained> trained;
  StateTexts shared, per_rank;
  std::set<std::string> set_by_caller;  ///< of shared; others come from a checkpoint

  [[nodiscard]] CheckpointState whole() {
    CheckpointState all{tensors, wrapped(shared), wrapped(per_rank)};
    for (const auto& [optimizer, name] : trained) {
      for (const Parameter& parameter : optimizer->parameters())
        all.tensors.push_back({parameter.name, parameter.value, Placement::replicated,
                               name.empty() ? "model" : "model_" + name});
      const auto own = optimizer->state(name.empty() ? "optimizer" : "optimizer_" + name);
      all.tensors.insert(all.tensors.end(), own.begin(), own.end());
      all.shared[text_name(name)] = optimizer->state_text();
    }
    return all;
  }

  void take(const Restored& restored) {
    for (const auto& [optimizer, name] : trained) {
      const auto text = restored.shared.find(text_name(name));
      if (text == restored.shared.end())
        throw Error{ErrorCode::corrupt, "the checkpoint has no text '" + text_name(name) + "'"};
      optimizer->load_state_text(text->second);
    }
    StateTexts texts = restored.shared;
    for (const auto& one : trained) texts.erase(text_name(one.name));
    shared = unwrapped(texts);
    per_rank = unwrapped(restored.per_rank);
  }

  // Texts of a checkpoint are JSON; the caller's may be any, and go as JSON strings.
  [[nodiscard]] static StateTexts wrapped(const StateTexts& texts) {
    StateTexts all;
    for (const auto& [name, text] : texts) all[name] = nlohmann::json(text).dump();
    return all;
  }
  [[nodiscard]] static StateTexts unwrapped(const StateTexts& texts) {
    StateTexts all;
    for (const auto& [name, text] : texts) {
      const auto json = nlohmann::json::parse(text, nullptr, false);
      all[name] = json.is_string() ? json.get<std::string>() : text;
    }
    return all;
  }

  /// As Accelerator names them, so that a checkpoint of one is one of the other's.
  [[nodiscard]] static std::string text_name(const std::string& name) {
    return name.empty() ? "optimizer" : "optimizer_" + name;
  }
};

struct acc_checkpointer {
  Checkpointer checkpointer;
};

namespace {

constexpr acc_checkpointer_config kCheckpointer = ACC_CHECKPOINTER_CONFIG_INIT;

std::string words_of_taken(const std::string& name) {
  return "a text '" + name +
         "' and an optimizer whose settings are saved under that name can't be in one state: name "
         "the text otherwise";
}

}  // namespace

extern "C" {

acc_status acc_state_create(acc_state** state) {
  return made(state, [] { return new acc_state; });
}

acc_status acc_state_add_optimizer(acc_state* state, acc_optimizer* optimizer, const char* name) {
  return guarded([&] {
    auto& all = given(state, "state").trained;
    auto* const added = given(optimizer, "optimizer").optimizer.get();
    if (std::ranges::any_of(all, [&](const auto& one) { return one.name == text_of(name); }))
      refuse("the state has an optimizer of the name '" + text_of(name) + "' already");
    const auto own = acc_state::text_name(text_of(name));
    if (state->set_by_caller.contains(own)) refuse(words_of_taken(own));
    state->shared.erase(own);  // of a checkpoint that was loaded before, where it is an optimizer's
    all.push_back({added, text_of(name)});
  });
}

acc_status acc_state_add_tensor(acc_state* state, const acc_parameter* tensor, int32_t sharded) {
  return guarded([&] {
    const auto known = known_parameter(given(tensor, "tensor"));
    if (known.name == nullptr || *known.name == '\0') refuse("the tensor has no name");
    given(state, "state")
        .tensors.push_back({known.name, view_of(known, known.values),
                            sharded != 0 ? Placement::sharded : Placement::replicated,
                            "registered"});
  });
}

acc_status acc_state_set_text(acc_state* state, const char* name, const void* text, size_t bytes,
                              int32_t per_rank) {
  return guarded([&] {
    auto& all = given(state, "state");
    given(name, "name");
    if (text == nullptr && bytes > 0) refuse("the text is a null pointer");
    const bool is_taken = per_rank == 0 && std::ranges::any_of(all.trained, [&](const auto& one) {
                            return acc_state::text_name(one.name) == name;
                          });
    if (is_taken) refuse(words_of_taken(name));
    std::string kept =
        bytes > 0 ? std::string{static_cast<const char*>(text), bytes} : std::string{};
    try {
      (void)nlohmann::json(kept).dump();
    } catch (const nlohmann::json::exception&) {
      refuse("the text '" + std::string{name} + "' isn't UTF-8");
    }
    (per_rank != 0 ? all.per_rank : all.shared)[name] = std::move(kept);
    if (per_rank == 0) all.set_by_caller.insert(name);
  });
}

const void* acc_state_text(const acc_state* state, const char* name, int32_t per_rank,
                           size_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  if (state == nullptr || name == nullptr) return nullptr;
  const auto& all = per_rank != 0 ? state->per_rank : state->shared;
  const auto found = all.find(name);
  if (found == all.end()) return nullptr;
  if (bytes != nullptr) *bytes = found->second.size();
  return found->second.c_str();
}

void acc_state_free(acc_state* state) { delete state; }

void acc_checkpointer_config_init(acc_checkpointer_config* config, size_t size) {
  write_defaults(config, size, kCheckpointer);
}

acc_status acc_checkpointer_create(acc_comm* comm, const acc_checkpointer_config* config,
                                   acc_checkpointer** checkpointer) {
  return made(checkpointer, [&] {
    const auto known = known_part(config, kCheckpointer);
    CheckpointOptions options;
    if (known.folder != nullptr) options.folder = known.folder;
    options.keep_last = known.keep_last;
    options.async = known.async != 0;
    return new acc_checkpointer{Checkpointer{given(comm, "comm").group, std::move(options)}};
  });
}

acc_status acc_save(acc_checkpointer* checkpointer, uint64_t number, acc_state* state) {
  return guarded([&] {
    given(checkpointer, "checkpointer").checkpointer.save(number, given(state, "state").whole());
  });
}

acc_status acc_load(acc_checkpointer* checkpointer, acc_state* state, int32_t* found,
                    uint64_t* number) {
  return guarded([&] {
    given(found, "found") = 0;
    const auto restored =
        given(checkpointer, "checkpointer").checkpointer.load(given(state, "state").whole());
    if (!restored) return;
    state->take(*restored);
    *found = 1;
    if (number != nullptr) *number = restored->checkpoint.number();
  });
}

acc_status acc_checkpointer_wait(acc_checkpointer* checkpointer) {
  return guarded([&] { given(checkpointer, "checkpointer").checkpointer.wait(); });
}

void acc_checkpointer_free(acc_checkpointer* checkpointer) { delete checkpointer; }

}  // extern "C"
