#include "common/text.hpp"
#include "runtime/data/batches.hpp"
#include "runtime/timeout.hpp"

#include <acc/error.hpp>
#include <acc/loader.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace acc::runtime {

namespace {

constexpr std::array<std::string_view, 4> kStateNames{"epoch", "seed", "samples", "finished"};

[[noreturn]] void refuse(const LoaderOptions& options, const std::string& why) {
  throw Error{ErrorCode::invalid_argument, options.name + ": " + why};
}

}  // namespace

std::string to_string(const LoaderState& state) {
  return "epoch=" + std::to_string(state.epoch) + " seed=" + std::to_string(state.seed) +
         " samples=" + std::to_string(state.samples) + " finished=" + (state.finished ? "1" : "0");
}

LoaderState parse_loader_state(std::string_view text) {
  std::array<std::uint64_t, kStateNames.size()> values{};
  const auto words = split(text, ' ');
  bool good = words.size() == values.size();
  for (std::size_t i = 0; good && i < values.size(); ++i) {
    const auto equals = words[i].find('=');
    good = equals != std::string::npos && words[i].substr(0, equals) == kStateNames[i];
    const auto value =
        good ? parse_number<std::uint64_t>(words[i].substr(equals + 1)) : std::nullopt;
    good = value.has_value();
    values[i] = value.value_or(0);
  }
  if (!good || values[3] > 1) {
    throw Error{ErrorCode::corrupt, "'" + printable(text) + "' is not the state of a loader: '" +
                                        to_string(LoaderState{}) + "' would be one"};
  }
  return {values[0], values[1], values[2], values[3] == 1};
}

LoaderBase::LoaderBase(LoaderOptions options, ProcessGroup group,
                       std::optional<std::size_t> samples, bool stream)
    : options_{std::move(options)},
      group_{std::move(group)},
      samples_{samples},
      dataset_size_{samples.value_or(0)},
      stream_{stream} {
  if (group_) {
    rank_ = group_.rank();
    ranks_ = group_.size();
  }
  options_.timeout = checked_timeout(options_.timeout, options_.name + ": timeout");
  shape_ = step_shape(options_.rules(), ranks_);
  if (stream_) {
    if (options_.shuffle || options_.sampler)
      refuse(options_, "a stream has its own order: it can't be shuffled or sampled");
    return;
  }
  if (options_.sampler) {
    if (options_.shuffle) refuse(options_, "a sampler is given, and shuffle: which one?");
    samples_ = options_.sampler->size();
    at_->state.seed = options_.sampler->seed();
  } else if (options_.shuffle) {
    options_.sampler = std::make_shared<RandomSampler>(*samples, options_.seed);
    at_->state.seed = options_.seed;
  } else {
    options_.sampler = std::make_shared<SequentialSampler>(*samples);
  }
}

std::string LoaderBase::description() const {
  std::string text;
  if (!options_.dispatch_batches)
    text = (samples_ ? std::to_string(*samples_) : "unknown many") + " samples ";
  text += "in batches of " + std::to_string(options_.batch_size);
  if (options_.split_batches) text += " (split)";
  if (options_.drop_last) text += ", last dropped";
  if (!options_.even_batches) text += ", not evened";
  if (options_.skip_batches > 0) text += ", " + std::to_string(options_.skip_batches) + " skipped";
  if (stream_) text += ", a stream";
  if (options_.dispatch_batches) text += ", dispatched";
  if (options_.shuffle) return text + ", shuffled by seed " + std::to_string(at_->state.seed);
  if (at_->state.seed != 0) text += ", ordered by seed " + std::to_string(at_->state.seed);
  return text;
}

void LoaderBase::require_source(bool given) const {
  if (given || (options_.dispatch_batches && rank_ > 0)) return;
  refuse(options_, stream_ ? "StreamDataset::open isn't given" : "Dataset::get isn't given");
}

void LoaderBase::require_wire(bool wired) const {
  if (options_.dispatch_batches && ranks_ > 1 && !wired)
    refuse(options_, "samples of this type can't be sent to other ranks: specialize Wire for it");
}

std::optional<std::size_t> LoaderBase::length() const {
  if (!samples_) return std::nullopt;
  const auto rules = options_.rules();
  std::size_t length = 0;
  if (options_.dispatch_batches) {
    length = announced_of_dispatch(*samples_, rules, ranks_);
  } else if (ranks_ == 1) {
    length = batches_of(*samples_, rules.batch_size, rules.drop_last);
  } else if (stream_) {
    length =
        batches_of(announced_of_stream(*samples_, rules, ranks_), shape_.batch, rules.drop_last);
  } else {
    length = BatchSamplerShard{IndexOrder::sequential(*samples_), rules, rank_, ranks_}.announced();
  }
  if (options_.skip_batches > length) {
    refuse(options_, "skips " + std::to_string(options_.skip_batches) + " batches and has " +
                         std::to_string(length));
  }
  return length - options_.skip_batches;
}

std::int64_t LoaderBase::remainder(std::size_t from) const noexcept {
  if (options_.drop_last || options_.dispatch_batches || !samples_) return -1;
  // As recorded: a stream that is shared counts as full, so what was filled up stays in metrics.
  if (stream_ && ranks_ > 1) return 0;
  return static_cast<std::int64_t>((*samples_ - std::min(from, *samples_)) % shape_.global);
}

void LoaderBase::set_epoch(std::uint64_t epoch) noexcept {
  at_->state = {epoch, at_->state.seed, 0, false};
  at_->begin_at.reset();
  at_->left.current = 0;
  ++at_->edition;
}

// A stream's length is only announced, and of dispatched batches rank 0 alone may have the samples.
void LoaderBase::require_in_epoch(const LoaderState& state) const {
  const bool has_samples = !stream_ && !(options_.dispatch_batches && rank_ > 0);
  if (!has_samples || state.finished || state.samples <= *samples_) return;
  refuse(options_,
         "can't go on from " + to_string(state) + ": an epoch has " + plural(*samples_, "sample") +
             " here. Use the data set with which the state was saved; to begin with "
             "another one, use set_epoch() in place of restore(), or prepare() the loader "
             "after load_state() with LoadStateOptions::allow_unused");
}

void LoaderBase::restore(const LoaderState& state) {
  require_in_epoch(state);
  if (!options_.shuffle && state.seed != at_->state.seed) {
    refuse(options_, "can't go on from " + to_string(state) + ": the seed here is " +
                         std::to_string(at_->state.seed));
  }
  at_->state = state;
  at_->begin_at = state;
  at_->left.current = 0;
  ++at_->edition;
  follow_seed();
}

void LoaderBase::follow_seed() {
  if (options_.shuffle && options_.sampler->seed() != at_->state.seed)
    options_.sampler = std::make_shared<RandomSampler>(*samples_, at_->state.seed);
}

/// Both are meant to be: a checkpoint of a loop that a pre-emption ended is gone on with in the
/// middle, and a loop limited by break, as of an evaluation, begins anew each time. Together they
/// part the run from one that is resumed.
void LoaderBase::tell_begins_again(const LoaderState& left) noexcept {
  if (rank_ != 0 || std::exchange(at_->left.is_told, true)) return;
  std::fprintf(
      stderr,
      "acc: %s: a loop over it was left early (break) and its state saved there: a run "
      "that loads that checkpoint goes on behind sample %llu of epoch %llu, while this run "
      "begins the epoch again, so they see different samples. Call "
      "loader.set_epoch(loader.epoch() + 1) before the save to end the epoch in both, or "
      "loader.set_epoch(loader.epoch()) to begin it again in both; this message is not "
      "repeated\n",
      options_.name.c_str(), static_cast<unsigned long long>(left.samples),
      static_cast<unsigned long long>(left.epoch));
}

/// The same on all ranks: nothing here depends on what one of them may do alone, as calling
/// state().
bool LoaderBase::used_up_restored() const noexcept {
  // A run that goes on from the checkpoint doesn't see the batch that was looked at before it.
  if (at_->left.in_checkpoint && at_->state != *at_->begin_at) return true;
  // This pass stands in the loop that goes on from there, or replaces its iterator.
  return at_->left.current != 0 && options_.gradient_state &&
         options_.gradient_state->trainings() != at_->left.trainings;
}

void LoaderBase::begin_counted_epoch() noexcept {
  auto& at = at_->begin_at;
  if (!counts_itself_ || !at || !at->finished) return;
  if (options_.skip_batches * shape_.global < at->samples)
    at = LoaderState{at->epoch + 1, at->seed, 0, false};
}

void LoaderBase::begin_pass() noexcept {
  if (at_->begin_at && used_up_restored()) at_->begin_at.reset();
  begin_counted_epoch();
  const bool is_saved = std::exchange(at_->left.is_saved, false);
  at_->left.in_checkpoint = false;
  if (at_->begin_at) {
    at_->state = *at_->begin_at;
    return;
  }
  const bool goes_on = options_.skip_batches * shape_.global >= at_->state.samples;
  if (is_saved && !goes_on) {
    if (at_->left.current == 0)
      tell_begins_again(at_->state);
    else  // it goes on if this pass is an inner loop of it, and is left if it is replaced
      at_->left.superseded = at_->left.current;
  }
  at_->state.samples = 0;
  at_->state.finished = false;
}

void LoaderBase::require_in_dataset(const IndexOrder& order) const {
  if (order.size() == 0 || order.largest() < dataset_size_) return;
  refuse(options_, "the sampler's order of epoch " + std::to_string(at_->state.epoch) +
                       " has the index " + std::to_string(order.largest()) + ", and the dataset " +
                       std::to_string(dataset_size_) + " samples");
}

void LoaderBase::refuse_peek() const {
  refuse(options_, "peek() found no batch: the epochs have none");
}

PrefetchOptions LoaderBase::prefetch_options() const {
  return {options_.workers, options_.prefetch, options_.timeout, options_.name};
}

// ---- a pass ----

LoaderPass::LoaderPass(LoaderBase& loader)
    : pass_of_{loader},
      gradient_state_{loader.options_.gradient_state},
      number_{++loader.at_->passes},
      edition_{loader.at_->edition} {
  loader.begin_pass();
  loader.follow_seed();
  if (gradient_state_) trainings_ = gradient_state_->trainings();
  become_current();
  ++loader.at_->left.loops;
  position_ = loader.at_->state;
  is_last_ = position_.finished;
  const std::size_t skipped = loader.options_.skip_batches * loader.shape_.global;
  from_ = std::max(static_cast<std::size_t>(position_.samples), skipped);
  *status_ = {false, loader.remainder(from_)};
  loader.status_ = *status_;
  if (!gradient_state_) return;
  gradient_state_->enter(status_);
}

LoaderPass::~LoaderPass() {
  const bool moves = edition_ == pass_of_.at_->edition;
  if (!ended_ && moves) {
    if (gradient_state_ && gradient_state_->trainings() != trainings_)
      pass_of_.at_->begin_at.reset();
    if (pass_of_.at_->left.superseded == number_) pass_of_.tell_begins_again(position_);
  }
  leave();
}

void LoaderPass::become_current() noexcept {
  pass_of_.at_->left.current = number_;
  pass_of_.at_->left.trainings = trainings_;
}

void LoaderPass::leave() noexcept {
  if (std::exchange(ended_, true)) return;
  --pass_of_.at_->left.loops;
  if (pass_of_.at_->left.current == number_) pass_of_.at_->left.current = 0;
  if (gradient_state_) gradient_state_->leave(status_);
}

void LoaderPass::move_to(std::size_t steps, bool finished) noexcept {
  if (steps > 0) position_.samples = from_ + steps * pass_of_.shape_.global;
  position_.finished = finished;
  if (edition_ != pass_of_.at_->edition) return;
  if (pass_of_.at_->state != position_)
    pass_of_.at_->left.is_saved = pass_of_.at_->left.in_checkpoint = false;
  if (pass_of_.at_->left.superseded == number_) pass_of_.at_->left.superseded = 0;
  pass_of_.at_->state = position_;
  become_current();
}

void LoaderPass::ask() noexcept {
  move_to(steps_, false);
  if (steps_ > 0 && edition_ == pass_of_.at_->edition) pass_of_.at_->begin_at.reset();
  ++steps_;
  is_new_ = false;
}

void LoaderPass::found(bool last) noexcept {
  is_new_ = true;
  is_last_ = last;
  status_->end_of_dataloader = last;
  pass_of_.status_ = *status_;
}

void LoaderPass::take_batch() noexcept {
  if (std::exchange(is_new_, false)) move_to(steps_, is_last_);
}

void LoaderPass::refuse_take() const {
  const std::string epoch = "epoch " + std::to_string(position_.epoch);
  const bool is_restored_end = position_.finished && steps_ == 0;
  if (!is_restored_end) {
    refuse(pass_of_.options_, "no batch to take: the iterator is at the end of " + epoch +
                                  ". Compare it with end() first");
  }
  refuse(pass_of_.options_,
         "no batch to take: the position that was restored is the end of " + epoch +
             ", so this pass has none. Compare the iterator with end() first, or look at a batch "
             "with peek()");
}

void LoaderPass::end() noexcept {
  if (ended_) return;
  leave();
  if (edition_ != pass_of_.at_->edition) return;
  pass_of_.at_->begin_at.reset();
  pass_of_.at_->state = {position_.epoch + 1, position_.seed, 0, false};
}

std::string DispatchMessage::head() const {
  std::string head{static_cast<char>(kind)};
  Wire<std::uint64_t>::write(head, samples);
  return head;
}

DispatchMessage DispatchMessage::read(std::string_view message, const std::string& loader) {
  DispatchMessage read;
  read.kind = Kind{Wire<std::uint8_t>::read(message)};
  read.samples = Wire<std::uint64_t>::read(message);
  read.rest = message;
  if (read.kind > Kind::failure)
    throw Error{ErrorCode::mismatch, loader + ": rank 0 sent something else than a batch", {0}};
  if (read.kind == Kind::failure) {
    throw Error{
        ErrorCode::system, loader + ": rank 0 can't read a batch: " + std::string{message}, {0}};
  }
  return read;
}

void Wire<HostTensor>::write(std::string& out, const HostTensor& value) {
  Wire<DType>::write(out, value.dtype());
  Wire<Shape>::write(out, value.shape());
  out.append(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
}

HostTensor Wire<HostTensor>::read(std::string_view& in) {
  const auto type = Wire<DType>::read(in);
  auto shape = Wire<Shape>::read(in);
  std::uint64_t left = in.size();
  bool fits = static_cast<std::size_t>(type) < kDTypes;
  bool empty = false;
  for (const auto extent : shape) empty = empty || extent == 0;
  // Checked by division, as a product could wrap around.
  if (fits) left /= size_of(type);
  for (const auto extent : shape) {
    fits = fits && extent >= 0;
    if (fits && !empty) left /= static_cast<std::uint64_t>(extent);
  }
  if (!fits || (!empty && left == 0)) (void)take_bytes(in, ~std::uint64_t{0});
  HostTensor tensor{type, std::move(shape)};
  const auto bytes = take_bytes(in, tensor.bytes().size());
  if (!bytes.empty()) std::memcpy(tensor.bytes().data(), bytes.data(), bytes.size());
  return tensor;
}

}  // namespace acc::runtime
