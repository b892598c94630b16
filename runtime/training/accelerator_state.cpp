#include "runtime/training/accelerator_state.hpp"

#include "common/text.hpp"
#include "runtime/backend.hpp"
#include "runtime/checkpoint/agreement.hpp"
#include "runtime/training/accumulated_gradients.hpp"

#include <nlohmann/json.hpp>

#include <acc/agent.hpp>
#include <acc/error.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

/// The contents of a checkpoint, for saving and loading.
namespace acc::runtime {
namespace {

/// "optimizer", "optimizer_1", "optimizer_2": as the original numbers its files.
std::string numbered(std::string_view name, std::size_t index) {
  return std::string{name} + (index == 0 ? "" : "_" + std::to_string(index));
}

std::string name_or_index(const std::string& name, std::size_t index) {
  return name.empty() ? std::to_string(index) : name;
}

// Texts of a checkpoint are JSON; other texts are stored as JSON strings.
std::string wrapped(std::string_view name, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw Error{ErrorCode::invalid_argument,
                "save_state: what '" + printable(name) + "' gave isn't UTF-8 text"};
  }
}

std::string unwrapped(std::string_view name, std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_string())
    throw Error{ErrorCode::corrupt,
                "load_state: '" + std::string{name} + "' isn't what save_state wrote"};
  return json.get<std::string>();
}

const std::string& text_of(const StateTexts& texts, const std::string& name) {
  const auto found = texts.find(name);
  if (found == texts.end())
    throw Error{ErrorCode::invalid_argument, "load_state: the checkpoint has no '" + name +
                                                 "': was it registered when it was saved?"};
  return found->second;
}

constexpr const char* kOwn = "accelerator";

/// Of the accelerator's own text in a checkpoint. @throws Error corrupt
std::uint64_t own_number(const Restored& found, const char* key,
                         std::optional<std::uint64_t> missing) {
  const auto own = nlohmann::json::parse(text_of(found.shared, kOwn), nullptr, false);
  if (missing && own.is_object() && !own.contains(key)) return *missing;
  if (!own.is_object() || !own.contains(key) || !own[key].is_number_unsigned())
    throw Error{ErrorCode::corrupt, "load_state: 'accelerator' isn't what save_state wrote"};
  return own[key].get<std::uint64_t>();
}
constexpr const char* kScaler = "scaler";
constexpr const char* kGenerator = "random_state";
constexpr const char* kGradients = "gradients";
std::string registered(const std::string& name) { return "registered/" + name; }

}  // namespace

// ---- what is prepared ----

const Accelerator::State::PreparedScheduler* Accelerator::State::find(
    const Scheduler& scheduler) const {
  const auto found = std::ranges::find(schedulers, &scheduler, &PreparedScheduler::scheduler);
  return found == schedulers.end() ? nullptr : &*found;
}

bool Accelerator::State::splits_batches(const SchedulerOptions& how) const {
  if (how.split_batches) return *how.split_batches;
  const auto splits = [](const LoaderBase* loader) { return loader->options().split_batches; };
  const bool any = std::ranges::any_of(loaders, splits);
  if (any && !std::ranges::all_of(loaders, splits))
    throw Error{ErrorCode::invalid_argument,
                "step: some prepared loaders split their batches and some don't: say which counts "
                "for the scheduler, in SchedulerOptions::split_batches"};
  return any;
}

void Accelerator::State::refuse_shared_memory(const std::vector<Parameter>& parameters) const {
  for (const GradientReducer& reducer : reducers)
    for (const Parameter& there : reducer.parameters())
      for (const Parameter& parameter : parameters)
        if (parameter.value.data == there.value.data && there.value.count() > 0)
          throw Error{ErrorCode::invalid_argument,
                      "prepare_model: '" + parameter.name + "' lies where '" + there.name +
                          "' of a prepared model does; before a model is built anew, clear() "
                          "forgets the old one"};
}

const std::vector<ModelBuffer>& Accelerator::State::buffers_of(const GradientReducer& model) const {
  for (std::size_t i = 0; i < reducers.size(); ++i)
    if (&reducers[i] == &model) return buffers[i];
  throw Error{ErrorCode::invalid_argument, "this model isn't a prepared one of this Accelerator"};
}

void Accelerator::State::require_new_name(const std::string& name) const {
  const auto is_it = [&](const auto& one) { return one.name == name; };
  if (std::ranges::any_of(tensors, is_it) || std::ranges::any_of(texts, is_it))
    throw Error{ErrorCode::invalid_argument,
                "register_for_checkpointing: '" + name + "' is registered already"};
}

GradientReducer& Accelerator::State::only_model(const char* what) {
  if (reducers.size() == 1) return reducers.front();
  throw Error{ErrorCode::invalid_argument,
              std::string{what} + ": " + std::to_string(reducers.size()) +
                  " models are prepared; " +
                  (reducers.empty() ? "prepare_model() first" : "say which")};
}

// ---- together ----

void Accelerator::State::together(const char* operation, const std::function<void()>& work) {
  std::exception_ptr mine;
  const auto say = [&](const char* words) {
    mine = std::current_exception();
    return Error{ErrorCode::invalid_argument, std::string{operation} + ": " + words};
  };
  try {
    checkpoint::agree(group, [&]() -> std::string {
      try {
        work();
      } catch (const Error&) {
        mine = std::current_exception();
        throw;
      } catch (const std::exception& error) {
        throw say(error.what());
      } catch (...) {
        throw say("an exception of an unknown type");
      }
      return {};
    });
  } catch (const Error&) {
    if (mine) std::rethrow_exception(mine);
    throw;
  }
}

Checkpointer& Accelerator::State::checkpoints() {
  if (checkpointer) return *checkpointer;
  CheckpointOptions how;
  how.folder = options.project.project_dir / "checkpoints";
  how.keep_last = options.project.total_limit;
  how.async = options.async_checkpoints;
  how.saved = [](std::uint64_t number, const std::filesystem::path&) { agent::checkpoint(number); };
  return checkpointer.emplace(group, std::move(how));
}

/// A new run in a folder with the checkpoints of another would mix both, and remove the old ones.
void Accelerator::State::refuse_overwriting() {
  const auto newest = checkpoints().newest_number();
  if (!newest) return;
  throw Error{ErrorCode::invalid_argument,
              "save_state: " + in_quotes(checkpoints().options().folder.native()) +
                  " holds checkpoints of another run, up to " + checkpoint_name(*newest) +
                  ": call load_state() first to go on with it, or take another project_dir"};
}

void Accelerator::State::require_same_registered() {
  if (group.size() == 1) return;
  std::set<std::string> mine;
  for (const StateTensor& tensor : tensors) {
    const bool is_sharded =
        tensor.placement == Placement::sharded;  // each piece has a shape of its own
    mine.insert(in_quotes(tensor.name) + " (" + std::string{to_string(tensor.view.dtype)} + " " +
                (is_sharded ? "sharded" : to_string(tensor.view.shape)) + ")");
  }
  for (const Text& text : texts)  // a text of each rank may be one of some ranks
    if (text.owner == Owner::shared) mine.insert(in_quotes(text.name) + " (text)");
  const auto all = group.all_gather_object(join(std::vector(mine.begin(), mine.end()), "\n"));
  const auto other = std::ranges::find_if(all, [&](const auto& one) { return one != all[0]; });
  if (other == all.end()) return;
  std::vector<int> others;
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] == *other) others.push_back(static_cast<int>(rank));
  const auto missing_in = [](const std::string& there, const std::string& here) {
    const auto known = split(there, '\n');
    std::vector<std::string> missing;
    for (const auto& one : split(here, '\n'))
      if (!one.empty() && std::ranges::find(known, one) == known.end()) missing.push_back(one);
    return missing.empty() ? "nothing more" : join(missing, ", ");
  };
  throw Error{ErrorCode::mismatch,
              "save_state: the ranks have registered different things: rank 0 has " +
                  missing_in(*other, all[0]) + ", " + describe_ranks(others) + " " + have(others) +
                  " " + missing_in(all[0], *other),
              others, "save_state"};
}

// ---- what goes in ----

void Accelerator::State::add_tensors(CheckpointState& state) {
  std::size_t index = 0;
  for (GradientReducer& reducer : reducers) {
    const auto parameters = reducer.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      state.tensors.push_back({name_or_index(parameters[i].name, i), parameters[i].value,
                               Placement::replicated, numbered("model", index)});
    for (std::size_t i = 0; i < buffers[index].size(); ++i)
      state.tensors.push_back({name_or_index(buffers[index][i].name, i), buffers[index][i].value,
                               Placement::replicated, numbered("buffers", index)});
    ++index;
  }
  index = 0;
  for (Optimizer* optimizer : optimizers)
    for (StateTensor& tensor : optimizer->state(numbered("optimizer", index++)))
      state.tensors.push_back(std::move(tensor));
  state.tensors.insert(state.tensors.end(), tensors.begin(), tensors.end());
}

/// In the middle of an accumulated step each rank's own sums.
void Accelerator::State::add_gradients(CheckpointState& state) {
  const bool between_steps =
      gradient_state->sync_gradients() &&
      std::ranges::none_of(reducers, [](const auto& reducer) { return reducer.accumulating(); });
  if (between_steps) return;
  auto facts = nlohmann::json::array();
  std::size_t index = 0;
  for (const GradientReducer& reducer : reducers) {
    facts.push_back({{"used", reducer.used()}, {"accumulating", reducer.accumulating()}});
    const std::string part = numbered(kGradients, index++);
    const auto parameters = reducer.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      state.tensors.push_back({name_or_index(parameters[i].name, i),
                               training::as_row(parameters[i].gradient), Placement::sharded, part});
  }
  state.per_rank[kGradients] = facts.dump();
}

void Accelerator::State::add_texts(CheckpointState& state) {
  std::size_t index = 0;
  for (const Optimizer* optimizer : optimizers)
    state.shared[numbered("optimizer", index++)] = optimizer->state_text();
  index = 0;
  for (const PreparedScheduler& prepared : schedulers)
    state.shared[numbered("scheduler", index++)] = prepared.scheduler->state_text();
  index = 0;
  for (const LoaderBase* loader : loaders)
    state.shared[numbered("loader", index++)] = wrapped("loader", to_string(loader->position()));
  state.shared[kScaler] = scaler.state_text();
  state.shared[kOwn] = nlohmann::json{{"batches", gradient_state->batches()},
                                      {"accumulation_steps", gradient_state->steps()},
                                      {"iteration", options.project.iteration}}
                           .dump();
  state.per_rank[kGenerator] = wrapped(kGenerator, generator.state());
}

void Accelerator::State::clear() {
  for (const GradientReducer& reducer : reducers) reducer.require_between_backwards("clear");
  optimizers.clear();
  schedulers.clear();
  loaders.clear();
  tensors.clear();
  texts.clear();
  hooks.clear();
  buffers.clear();
  reducers.clear();
  scaler.forget_optimizers();
  gradient_state->restore(0);
}

void Accelerator::State::gather_means() {
  for (GradientReducer& reducer : reducers)
    if (!reducer.in_backward()) reducer.gather_means();
}

void Accelerator::State::tell_unapplied() {
  if (told_unapplied || group.rank() != 0) return;
  if (!gradient_state->sync_gradients()) return;  // add_gradients() keeps them
  if (std::ranges::none_of(optimizers, &Optimizer::has_unapplied_gradients)) return;
  told_unapplied = true;
  std::fprintf(
      stderr,
      "acc: save_state between backward() and step(): the gradients are complete and not "
      "applied yet, and a run that loads the checkpoint goes on without this step. Save "
      "behind step(), or add up by accumulate(): gradients added up by hand for a later step "
      "aren't in the checkpoint. A step left out on purpose, whose gradients are dropped, "
      "loses nothing, and zero_grad() before the save avoids this message, which is not "
      "repeated\n");
}

CheckpointState Accelerator::State::what_to_save() {
  for (const GradientReducer& reducer : reducers) reducer.require_between_backwards("save_state");
  tell_unapplied();
  CheckpointState state;
  add_tensors(state);
  add_gradients(state);
  add_texts(state);
  for (const LoaderBase* loader : loaders) loader->note_saved();
  for (const Text& text : texts) {
    if (text.owner == Owner::each_rank) {
      state.per_rank[registered(text.name)] = wrapped(text.name, text.save());
    } else {  // those of other ranks would not be kept
      state.shared[registered(text.name)] =
          group.rank() == 0 ? wrapped(text.name, text.save()) : "null";
    }
  }
  return state;
}

CheckpointState Accelerator::State::agree_what_to_save() {
  CheckpointState state;
  together("save_state", [&] { state = what_to_save(); });
  require_same_registered();
  return state;
}

// ---- what comes out ----

CheckpointState Accelerator::State::what_to_load() {
  for (const GradientReducer& reducer : reducers) reducer.require_between_backwards("load_state");
  CheckpointState state;
  add_tensors(state);
  add_texts(state);  // for their names
  for (const Text& text : texts)
    (text.owner == Owner::each_rank ? state.per_rank : state.shared)[registered(text.name)] = {};
  return state;
}

std::vector<std::string> Accelerator::State::not_taken(const Checkpoint& checkpoint,
                                                       const CheckpointState& wanted) const {
  std::set<std::pair<std::string_view, std::string_view>> asked;
  for (const StateTensor& tensor : wanted.tensors) asked.emplace(tensor.part, tensor.name);
  std::set<std::string> left;
  for (const StoredTensor& tensor : checkpoint.tensors())
    if (!asked.contains({tensor.part, tensor.name}) && !tensor.part.starts_with(kGradients))
      left.insert(tensor.part + " (" + tensor.name + ")");
  for (const auto& [name, text] : checkpoint.shared())
    if (!wanted.shared.contains(name)) left.insert(name);
  for (const auto& [name, text] : checkpoint.of_rank(group.rank()))
    if (!wanted.per_rank.contains(name) && name != kGradients) left.insert(name);
  return {left.begin(), left.end()};
}

training::SavedGradients Accelerator::State::gradients_in(const Restored& found) const {
  training::SavedGradients saved;
  saved.in_a_step = found.checkpoint.of_rank(0).contains(kGradients);
  saved.of_steps = own_number(found, "accumulation_steps", gradient_state->steps());
  if (!saved.in_a_step || saved.of_steps != gradient_state->steps()) return saved;
  std::size_t model = 0;
  for (const GradientReducer& reducer : reducers) {
    saved.models.push_back(training::read_gradients(found.checkpoint, numbered(kGradients, model),
                                                    model, reducer.parameters(), group.rank(),
                                                    group.size()));
    ++model;
  }
  return saved;
}

void Accelerator::State::take(const Restored& found, training::SavedGradients gradients) {
  take_texts(found);
  gradient_state->restore(own_number(found, "batches", {}));
  options.project.iteration = own_number(found, "iteration", {}) + 1;
  take_gradients(found, std::move(gradients));
}

void Accelerator::State::take_texts(const Restored& found) {
  std::size_t index = 0;
  for (Optimizer* optimizer : optimizers)
    optimizer->load_state_text(text_of(found.shared, numbered("optimizer", index++)));
  index = 0;
  for (const PreparedScheduler& prepared : schedulers)
    prepared.scheduler->load_state_text(text_of(found.shared, numbered("scheduler", index++)));
  index = 0;
  for (LoaderBase* loader : loaders) {
    const std::string name = numbered("loader", index++);
    loader->restore(parse_loader_state(unwrapped(name, text_of(found.shared, name))));
  }
  scaler.load_state_text(text_of(found.shared, kScaler));
  // A rank that did not exist at the save keeps its seeded generator.
  if (const auto text = found.per_rank.find(kGenerator); text != found.per_rank.end())
    generator.restore(unwrapped(kGenerator, text->second));
  for (const Text& text : texts) {
    const std::string name = registered(text.name);
    if (text.owner == Owner::shared) {
      text.load(unwrapped(name, text_of(found.shared, name)));
    } else if (const auto mine = found.per_rank.find(name); mine != found.per_rank.end()) {
      text.load(unwrapped(name, mine->second));
    }
  }
}

void Accelerator::State::take_gradients(const Restored& found, training::SavedGradients gradients) {
  const bool fits = gradients.of_steps == gradient_state->steps();
  // The number of batches says nothing about steps of another length: also between two of them a
  // step begins. Accelerate counts on, and the first step is short.
  if (!fits) gradient_state->restore(0);
  if (gradients.in_a_step && !fits && group.rank() == 0)
    std::fprintf(stderr,
                 "acc: load_state: %s was saved in the middle of a step of %llu batches, and a "
                 "step has %llu here: the gradients of its first batches are left out\n",
                 found.checkpoint.path().filename().c_str(),
                 static_cast<unsigned long long>(gradients.of_steps),
                 static_cast<unsigned long long>(gradient_state->steps()));
  auto sums = gradients.models.begin();
  for (GradientReducer& reducer : reducers) {
    if (sums == gradients.models.end()) {
      reducer.restore_gradients({}, {}, false);
      continue;
    }
    reducer.restore_gradients(std::move(sums->gradients), sums->used, sums->accumulating);
    ++sums;
  }
}

}  // namespace acc::runtime
