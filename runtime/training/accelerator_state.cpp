#include "runtime/training/accelerator_state.hpp"

#include <nlohmann/json.hpp>

#include <acc/agent.hpp>
#include <acc/error.hpp>
#include <string>
#include <utility>

/// save_state and load_state: what goes into a checkpoint, and where it lies.
namespace acc::runtime {
namespace {

/// "optimizer", "optimizer_1", "optimizer_2": as the original numbers its files.
std::string numbered(std::string_view name, std::size_t index) {
  return std::string{name} + (index == 0 ? "" : "_" + std::to_string(index));
}

std::string name_or_index(const std::string& name, std::size_t index) {
  return name.empty() ? std::to_string(index) : name;
}

// Texts of a checkpoint are JSON; those of others may be anything, and go as a JSON string.
std::string wrapped(const std::string& text) { return nlohmann::json(text).dump(); }

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
constexpr const char* kScaler = "scaler";
constexpr const char* kGenerator = "random_state";
std::string registered(const std::string& name) { return "registered/" + name; }

}  // namespace

Checkpointer& Accelerator::State::checkpoints() {
  if (checkpointer) return *checkpointer;
  CheckpointOptions how;
  how.folder = options.project.project_dir / "checkpoints";
  how.keep_last = options.project.total_limit;
  how.async = options.async_checkpoints;
  how.saved = [](std::uint64_t number, const std::filesystem::path&) { agent::checkpoint(number); };
  return checkpointer.emplace(group, std::move(how));
}

/// A run that begins anew where another one left its checkpoints would replace them one by one. One
/// that has loaded goes on behind what it loaded, and newer ones are torn or given up.
void Accelerator::State::refuse_overwriting() {
  const auto path =
      options.project.project_dir / "checkpoints" / checkpoint_name(options.project.iteration);
  std::error_code unreadable;  // then writing will say so
  const bool there = group.rank() == 0 && std::filesystem::exists(path, unreadable);
  if (group.broadcast_object(there ? "there" : "", 0).empty()) return;
  throw Error{ErrorCode::invalid_argument, "save_state: " + path.string() +
                                               " is there already; call load_state() first, or set "
                                               "ProjectConfiguration::iteration"};
}

std::vector<StateTensor> Accelerator::all_tensors() {
  std::vector<StateTensor> all;
  std::size_t index = 0;
  for (GradientReducer& reducer : state_->reducers) {
    const auto parameters = reducer.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      all.push_back({name_or_index(parameters[i].name, i), parameters[i].value,
                     Placement::replicated, numbered("model", index)});
    const auto& buffers = state_->buffers[index];
    for (std::size_t i = 0; i < buffers.size(); ++i)
      all.push_back({name_or_index(buffers[i].name, i), buffers[i].value, Placement::replicated,
                     numbered("buffers", index)});
    ++index;
  }
  index = 0;
  for (Optimizer* optimizer : state_->optimizers)
    for (StateTensor& tensor : optimizer->state(numbered("optimizer", index++)))
      all.push_back(std::move(tensor));
  all.insert(all.end(), state_->tensors.begin(), state_->tensors.end());
  return all;
}

void Accelerator::give_texts(CheckpointState& state) {
  std::size_t index = 0;
  for (const Optimizer* optimizer : state_->optimizers)
    state.shared[numbered("optimizer", index++)] = optimizer->state_text();
  index = 0;
  for (const LoaderBase* loader : state_->loaders)
    state.shared[numbered("loader", index++)] = wrapped(to_string(loader->state()));
  state.shared[kScaler] = state_->scaler.state_text();
  state.shared[kOwn] = nlohmann::json{{"batches", state_->gradient_state->batches()},
                                      {"iteration", state_->options.project.iteration}}
                           .dump();
  state.per_rank[kGenerator] = wrapped(state_->generator.state());
  for (const State::Text& text : state_->texts) {
    if (text.owner == Owner::each_rank) {
      state.per_rank[registered(text.name)] = wrapped(text.save());
    } else {  // the others' would not be kept
      state.shared[registered(text.name)] = is_main_process() ? wrapped(text.save()) : "null";
    }
  }
}

void Accelerator::take_texts(const StateTexts& shared, const StateTexts& per_rank) {
  std::size_t index = 0;
  for (Optimizer* optimizer : state_->optimizers)
    optimizer->load_state_text(text_of(shared, numbered("optimizer", index++)));
  index = 0;
  for (LoaderBase* loader : state_->loaders) {
    const std::string name = numbered("loader", index++);
    loader->restore(parse_loader_state(unwrapped(name, text_of(shared, name))));
  }
  state_->scaler.load_state_text(text_of(shared, kScaler));

  const auto own = nlohmann::json::parse(text_of(shared, kOwn), nullptr, false);
  if (!own.is_object() || !own.contains("batches") || !own["batches"].is_number_unsigned() ||
      !own.contains("iteration") || !own["iteration"].is_number_unsigned())
    throw Error{ErrorCode::corrupt, "load_state: 'accelerator' isn't what save_state wrote"};
  state_->gradient_state->restore(own["batches"].get<std::uint64_t>());
  state_->options.project.iteration = own["iteration"].get<std::uint64_t>() + 1;

  // A rank that wasn't there when it was saved keeps the generator that it was seeded with.
  if (const auto text = per_rank.find(kGenerator); text != per_rank.end())
    state_->generator.restore(unwrapped(kGenerator, text->second));
  for (const State::Text& text : state_->texts) {
    const std::string name = registered(text.name);
    if (text.owner == Owner::shared) {
      text.load(unwrapped(name, text_of(shared, name)));
    } else if (const auto found = per_rank.find(name); found != per_rank.end()) {
      text.load(unwrapped(name, found->second));
    }
  }
}

void Accelerator::register_for_checkpointing(std::string name, const TensorView& tensor,
                                             Placement placement) {
  state_->tensors.push_back({std::move(name), tensor, placement, "registered"});
}

void Accelerator::register_for_checkpointing(std::string name, std::function<std::string()> save,
                                             std::function<void(std::string_view)> load,
                                             Owner owner) {
  for (const State::Text& text : state_->texts)
    if (text.name == name)
      throw Error{ErrorCode::invalid_argument,
                  "register_for_checkpointing: '" + name + "' is registered already"};
  state_->texts.push_back({std::move(name), std::move(save), std::move(load), owner});
}

std::filesystem::path Accelerator::save_state(const std::filesystem::path& path) {
  ProjectConfiguration& project = state_->options.project;
  if (!project.automatic_checkpoint_naming && path.empty())
    throw Error{ErrorCode::invalid_argument,
                "save_state: a path, or automatic_checkpoint_naming, is needed"};
  if (project.automatic_checkpoint_naming && !state_->goes_on) state_->refuse_overwriting();
  CheckpointState state;
  state.tensors = all_tensors();
  give_texts(state);
  if (!project.automatic_checkpoint_naming) {
    state_->checkpoints().save_as(path, state);
    ++project.iteration;
    return path;
  }
  auto folder = state_->checkpoints().save(project.iteration, state);
  ++project.iteration;
  return folder;
}

std::filesystem::path Accelerator::load_state(const std::filesystem::path& path) {
  const bool newest = path.empty() && state_->options.project.automatic_checkpoint_naming;
  if (path.empty() && !newest)
    throw Error{ErrorCode::invalid_argument,
                "load_state: a path, or automatic_checkpoint_naming, is needed"};
  CheckpointState state;
  state.tensors = all_tensors();
  std::optional<Restored> found;
  if (newest) {
    found = state_->checkpoints().load(state);
    state_->goes_on = true;
    if (!found) return {};
  } else {
    found = state_->checkpoints().load_from(path, state);
  }
  take_texts(found->shared, found->per_rank);
  state_->goes_on = true;
  return found->checkpoint.path();
}

void Accelerator::wait_for_checkpoint() {
  if (state_->checkpointer) state_->checkpointer->wait();
}

}  // namespace acc::runtime
