#pragma once

#include <acc/gradient_reducer.hpp>
#include <acc/parameter.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace acc::runtime {

struct StateTensor;  // acc/checkpoint.hpp

/// Parameters with settings of their own, as torch's param_groups. What isn't given is as the
/// optimizer's options say.
struct ParameterGroup {
  std::string name = {};  ///< for messages and checkpoints
  /// A parameter belongs to the first group that contains it; if none does, to group 0.
  std::function<bool(const Parameter&)> contains = {};
  std::optional<double> learning_rate = {};
  std::optional<double> momentum = {};  ///< Sgd's momentum, AdamW's beta1
  std::optional<double> weight_decay = {};
};

/// What the parameters of a group are updated with. A scheduler changes it from step to step.
struct GroupSettings {
  std::string name = {};
  double learning_rate = 0;
  double momentum = 0;  ///< Sgd's momentum, AdamW's beta1
  double weight_decay = 0;
};

/// Updates parameters from their gradients, in host memory or in that of a CUDA device: Sgd, AdamW,
/// or an optimizer of yours (kinds() and update() below). With a reducer that scatters gradients
/// its state is sharded (ZeRO stage 1): each rank keeps the state of 1/n of the elements, updates
/// those, and gets the others' values. The parameters have the same bits as with the unsharded
/// one, on any number of ranks that are given the same gradients: an element's update depends on
/// nothing but itself. f16 and bf16 are updated in float, from a master copy that is kept in the
/// state.
///
/// A frozen parameter, one without a gradient on any rank since zero_grad()
/// (GradientReducer::has_gradient), isn't touched: neither weight decay nor momentum move it, and
/// the step isn't one of its own, which AdamW's corrections count. As in torch, where grad is None
/// after zero_grad(set_to_none=True). Without a reducer that finds unused parameters none is
/// frozen.
class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Collective where gradients are scattered, after which they are undefined.
  void step();
  void zero_grad();  ///< on all ranks alike: GradientReducer::zero_gradients()
  /// In place of step(), for a scaler that found an infinity: the gradients count as applied. On
  /// all ranks alike, as zero_grad().
  void skip_step() noexcept;
  /// Is there a mean of gradients that neither step() nor skip_step() took?
  [[nodiscard]] bool has_unapplied_gradients() const noexcept;

  /// Of group 0.
  [[nodiscard]] double learning_rate() const noexcept { return groups_.front().learning_rate; }
  /// Of all groups. @throws Error invalid_argument: not a finite number
  void set_learning_rate(double rate);
  /// All, also those that left single parameters out.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

  /// Group 0 has what no other contains, with the settings of the options; then those of the
  /// options, in their order.
  [[nodiscard]] std::span<const GroupSettings> groups() const noexcept { return groups_; }
  [[nodiscard]] std::size_t group_of(std::size_t parameter) const {
    return group_of_.at(parameter);
  }
  /// @throws Error invalid_argument: no such group; not a finite number
  void set_learning_rate(std::size_t group, double rate);
  /// @throws Error invalid_argument: negative, or for AdamW not below 1; for Sgd above 0, and no
  ///   group had a momentum when it was made: there is no state for it
  void set_momentum(std::size_t group, double momentum);
  /// @throws Error invalid_argument: no such group; negative, or not a finite number
  void set_weight_decay(std::size_t group, double weight_decay);

  /// What must be the same on every rank, in words: "Sgd of 2 parameters: rate 0.1, …".
  [[nodiscard]] std::string description() const;
  /// The parameters' values were set from outside: master copies of 16-bit ones are made of them
  /// anew. Accelerator::load_model() calls it.
  void values_changed();

  [[nodiscard]] std::span<const Parameter> parameters() const noexcept;
  [[nodiscard]] GradientReducer* reducer() const noexcept { return reducer_; }
  [[nodiscard]] bool sharded() const noexcept;

  /// What this rank's state takes: about 1/n of whole_state_bytes() when sharded, where the first
  /// backward may still shift some elements between ranks. Not collective.
  [[nodiscard]] std::size_t state_bytes() const;
  [[nodiscard]] std::size_t whole_state_bytes() const;

  /// The state for a checkpoint, as rows of elements by the name "exp_avg/fc.weight": the same
  /// names on every rank, of some maybe no element. Views of the optimizer's memory, to be written,
  /// or to be filled on any number of ranks, sharded or not.
  [[nodiscard]] std::vector<StateTensor> state(std::string_view part = "optimizer");
  [[nodiscard]] std::string state_text() const;  ///< the rest, as JSON
  /// Steps and all settings, as torch.optim's load_state_dict: those of the checkpoint replace the
  /// constructor's. What a checkpoint of an older version doesn't have stays as it is.
  /// @throws Error corrupt
  void load_state_text(std::string_view text);

 protected:
  enum class Reach : std::uint8_t {
    host,  ///< parameters on a device are refused
    /// update() also takes pieces on a CUDA device, and enqueues its work on stream(). Of 16-bit
    /// parameters it gets a master copy and gradients as floats, made and written back by kernels
    /// of this library.
    device,
  };
  /// @param reducer  outlives this, and isn't moved
  Optimizer(GradientReducer& reducer, double learning_rate, Reach reach = Reach::host);
  Optimizer(std::vector<Parameter> parameters, double learning_rate, Reach reach = Reach::host);
  /// @param settings  of group 0, and of the others where they say nothing else
  Optimizer(GradientReducer& reducer, GroupSettings settings,
            const std::vector<ParameterGroup>& groups, Reach reach = Reach::host);
  Optimizer(std::vector<Parameter> parameters, GroupSettings settings,
            const std::vector<ParameterGroup>& groups, Reach reach = Reach::host);

  /// A stretch of one parameter. Types are f32 or f64; all memory is where the parameter is.
  struct Piece {
    const Parameter& parameter;
    void* values;
    const void* gradient;
    std::span<void* const> state;  ///< by kind; zeros at first
    DType type;
    std::size_t count;
    const GroupSettings& settings;  ///< of the parameter's group
    std::uint64_t step;             ///< of this parameter, from 1: those without it left out
  };
  /// What is kept for each element, by the names it has in a checkpoint: {"momentum_buffer"}.
  [[nodiscard]] virtual std::vector<std::string_view> kinds() const = 0;
  virtual void update(const Piece& piece) const = 0;
  /// For work on a device: the reducer's (ReducerOptions::how), else the legacy one.
  [[nodiscard]] void* stream() const noexcept;
  /// Its name and the settings beside GroupSettings, for description().
  [[nodiscard]] virtual std::string settings_text() const { return "an optimizer"; }
  /// @throws Error invalid_argument: a momentum that this optimizer can't have
  virtual void check_momentum(double momentum) const;
  /// The settings beside GroupSettings by the names that a checkpoint has for them, of any type
  /// that a double can hold.
  using MoreSettings = std::map<std::string, double, std::less<>>;
  [[nodiscard]] virtual MoreSettings more_settings() const { return {}; }
  /// @param settings  of a checkpoint: the names of more_settings(), each finite
  virtual void set_more(const MoreSettings& settings) { static_cast<void>(settings); }

 private:
  friend class LossScaler;
  struct Memory;
  void make_groups(GroupSettings settings, const std::vector<ParameterGroup>& groups);
  void make_state();
  void count_step();
  void update(std::size_t range);
  void update_16_bits(const Piece& whole) const;
  /// As step(), of f16 gradients that are still multiplied by `scale`.
  void step_scaled(double scale);
  [[nodiscard]] std::span<const GradientRange> ranges() const;

  GradientReducer* reducer_ = nullptr;
  std::vector<Parameter> own_;  ///< without a reducer
  std::vector<GradientRange> own_ranges_;
  std::vector<GroupSettings> groups_;
  std::vector<std::size_t> group_of_;  ///< by parameter
  std::uint64_t steps_ = 0;
  std::vector<std::uint64_t> skipped_;  ///< by parameter, of steps_; empty: none
  std::uint64_t applied_ = 0;           ///< the reducer's means() of the last step
  std::unique_ptr<Memory> memory_;
};

struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  std::function<bool(const Parameter&)> decays = {};  ///< which have weight decay; none: all
  std::vector<ParameterGroup> groups = {};            ///< with settings of their own
};

/// As torch.optim.SGD, which refuses the same settings: negative ones; nesterov without momentum or
/// with dampening.
class Sgd final : public Optimizer {
 public:
  Sgd(GradientReducer& reducer, SgdOptions options);
  Sgd(std::vector<Parameter> parameters, SgdOptions options);

 private:
  [[nodiscard]] std::vector<std::string_view> kinds() const override;
  void update(const Piece& piece) const override;
  [[nodiscard]] std::string settings_text() const override;
  void check_momentum(double momentum) const override;
  [[nodiscard]] MoreSettings more_settings() const override;
  void set_more(const MoreSettings& settings) override;
  void check_settings() const;
  SgdOptions options_;
  bool has_momentum_;  ///< in any group, when it was made
};

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  std::function<bool(const Parameter&)> decays = {};  ///< which have weight decay; none: all
  std::vector<ParameterGroup> groups = {};            ///< with settings of their own
};

/// As torch.optim.AdamW: weight decay apart from the gradient. Refuses the same settings: negative
/// ones, and betas that aren't below 1.
class AdamW final : public Optimizer {
 public:
  AdamW(GradientReducer& reducer, AdamWOptions options);
  AdamW(std::vector<Parameter> parameters, AdamWOptions options);

 private:
  [[nodiscard]] std::vector<std::string_view> kinds() const override;
  void update(const Piece& piece) const override;
  [[nodiscard]] std::string settings_text() const override;
  void check_momentum(double momentum) const override;
  [[nodiscard]] MoreSettings more_settings() const override;
  void set_more(const MoreSettings& settings) override;
  void check_settings() const;
  AdamWOptions options_;
};

}  // namespace acc::runtime

namespace acc {
using runtime::AdamW;
using runtime::AdamWOptions;
using runtime::GroupSettings;
using runtime::Optimizer;
using runtime::ParameterGroup;
using runtime::Sgd;
using runtime::SgdOptions;
}  // namespace acc
