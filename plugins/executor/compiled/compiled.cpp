// The pass of a network compiled for its shapes: on the CPU nodes fused, layouts that oneDNN runs fast kept from layer
// to layer, memory planned ahead; on a GPU recorded (README.md).
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include <trainyard/error.hpp>
#include <trainyard/graph/inputs.hpp>
#include <trainyard/helpers/eager.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/host.hpp>
#include <trainyard/state.hpp>

#include "../../shared/samples_of_run.hpp"
#include "device_plan.hpp"
#include "plan.hpp"
#include "run_kernels.hpp"

namespace {

using namespace trainyard;
using namespace compiled;

class CompiledExecutor final : public Executor {
 public:
  struct Options {
    std::string fuse = "all";
    bool winograd = true;
    std::string kernels = "measured";
    std::string on_new_shape = "recompile";
    std::int64_t plans = 8;
    bool strict = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("compiled")
        .version("1.0.0")
        .summary(
            "Steps whose network is compiled for the shapes of the batch: fused nodes, oneDNN, memory "
            "planned ahead.");
    Eager::offer_all(m);
    m.needs("prefers graph").needs("prefers trainer.precision = fp32 | bf16-mixed");
    m.needs("prefers model.dropout.type != blockwise | dropconnect");
    m.option("fuse", &Options::fuse,
             "all: nodes with a rule are compiled, fused where they can be; none: each node runs by LibTorch")
        .one_of({"all", "none"});
    m.option("winograd", &Options::winograd,
             "convolutions of 3 x 3 and 5 x 5 take a quarter of the products where that is faster "
             "(Winograd's minimal "
             "filtering), which costs a digit of single precision");
    m.option(
         "kernels", &Options::kernels,
         "which kernels compute convolutions, and whether bf16-mixed has bfloat16. measured: the fastest, "
         "timed once for each shape on this machine; counted: by numbers of operations, bfloat16 always")
        .one_of({"measured", "counted"});
    m.option(
         "on_new_shape", &Options::on_new_shape,
         "a batch of another shape than the first, of training or of an evaluation: compile it, or run it as "
         "eager does")
        .one_of({"recompile", "eager"});
    m.option("plans", &Options::plans,
             "compiled shapes that are kept; the one that was not used for longest goes")
        .min(1);
    m.option("strict", &Options::strict,
             "refuse what is not compiled: passes that would run as eager runs them, and nodes that LibTorch "
             "would compute");
  }
  explicit CompiledExecutor(const Options& options) : options_(options) {}

  void open(Workbench& bench) override {
    plans_.clear();
    copies_.clear();
    untapped_.reset();
    network_ = dynamic_cast<GraphNetwork*>(&bench.network());
    const char* const why = reason_against(network_);
    if (why == nullptr && bench.autocasts() && !compiled::has_halves())
      return log_once(LogLevel::warning, mixed_precision);
    if (why == nullptr) return tell_kernels(bench);
    network_ = nullptr;
    log_once(LogLevel::warning, std::string(why) + ": every step runs as eager does");
  }

  void step(Workbench& bench, StepWork& work) override {
    const ForwardPass forward = pass_of(bench);
    do
      for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i, forward);
    while (bench.update() == Update::repeat);
  }

  Graded evaluate(Workbench& bench, const Batch& batch, const ForwardContext& pass) override {
    return bench.grade(batch, pass, pass_of(bench));
  }

  void settle(Workbench&, Pause pause) override {
    if (pause == Pause::evaluation) first_evaluated_.clear();
  }

  void save(StateWriter& state) const override {
    if (!first_trained_.empty()) state.scalar("first_trained", first_trained_);
    kernels_.save(state);
  }
  void load(const StateReader& state) override {
    first_trained_ = state.has_scalar("first_trained") ? state.text("first_trained") : "";
    kernels_.load(state);
  }

 private:
  /// Why a network cannot be compiled, or null.
  static const char* reason_against(const GraphNetwork* network) {
    if (network == nullptr) return "the model has no graph";
    if (network->graph()->outputs.size() != 1) return "the model has several outputs";
    for (const NamedTensor& each : network->parameters())
      if (each.tensor.scalar_type() != at::kFloat)
        return "the kernels are of floats, and the weights are not";
    return nullptr;
  }

  ForwardPass pass_of(Workbench& bench) {
    return [this, &bench](const Batch& batch, const ForwardContext& pass) {
      while (TrackedPass* const plan = plan_for(bench, batch, pass)) {
        try {
          return plan->forward(batch, pass);
        } catch (const OtherRows& found) {
          copies_.erase(found.node);
          if (found.copies > 1) copies_.emplace(found.node, found.copies);
        }
      }
      return bench.network().forward(batch, pass);
    };
  }

  /// Null where the pass is one that no plan makes, which the log says.
  TrackedPass* plan_for(Workbench& bench, const Batch& batch, const ForwardContext& pass) {
    if (network_ == nullptr) return nullptr;
    check_inputs(*network_->graph(), batch.inputs);
    if (batch.inputs.empty()) return nullptr;
    const at::Device device = batch.inputs.front().device();
    PlanKey key{.training = pass.training,
                .dropped = network_->dropped_nodes(pass),
                .threads = device.is_cpu() ? at::get_num_threads() : 1,
                .device = device,
                .precision = precision_of(device)};
    if (!key.dropped.empty()) key.copies = copies_;
    for (const at::Tensor& input : batch.inputs) key.inputs.push_back(input.sizes().vec());
    if (const char* const why = reason_against(bench, batch, pass, key)) {
      const bool always = why == mixed_precision || why == dropout_computes;
      log_once(always ? LogLevel::warning : LogLevel::info, why);
      return nullptr;
    }
    const auto known =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& each) { return each.first == key; });
    if (known == plans_.end()) return keep(key, make(key, batch, pass));
    plans_.splice(plans_.begin(), plans_, known);
    TrackedPass* const plan = known->second.get();
    if (plan == nullptr) return nullptr;
    if (plan->is_busy()) {
      log_once(LogLevel::info, second_pass);
      return nullptr;
    }
    if (plan->fits()) return plan;
    plans_.pop_front();
    return keep(key, make(key, batch, pass));
  }

  static constexpr const char* mixed_precision =
      "trainer.precision is a mixed one, and passes are compiled here in single precision, or with bfloat16 "
      "on a "
      "processor that computes with it (AVX512-BF16): every pass runs as eager does (set trainer.precision = "
      "\"fp32\", or executor.type = \"eager\")";
  static constexpr const char* dropout_computes =
      "the dropout of the run masks weights or computes layers: while it does, passes run as eager does "
      "(one of activations, such as model.dropout.type = \"standard\", is compiled with the network)";
  static constexpr const char* second_pass =
      "a second pass of the same shapes began ahead of the backward of the first: such passes run as "
      "eager does";

  /// The type of the operands of products.
  static at::ScalarType precision_of(at::Device device) {
    return at::autocast::is_autocast_enabled(device.type()) ? at::autocast::get_autocast_dtype(device.type())
                                                            : at::kFloat;
  }

  /// Why a pass runs as eager runs it, or null.
  const char* reason_against(Workbench& bench, const Batch& batch, const ForwardContext& pass,
                             const PlanKey& key) {
    const bool as_halves = key.precision == at::kBFloat16 && key.device.is_cpu() && compiled::has_halves();
    if (key.precision != at::kFloat && !as_halves) return mixed_precision;
    if (pass.training != at::GradMode::is_enabled())
      return "gradients are off in a pass of training, or on in an evaluation: it runs as eager does";
    for (const at::Tensor& input : batch.inputs)
      if (input.device() != key.device || input.requires_grad() || input.layout() != at::kStrided)
        return "inputs are on several devices, sparse, or get a gradient: such passes run as eager does";
    if (!have_one_batch(key))
      return "inputs have different numbers of samples: such passes run as eager does";
    if (!network_->runs_by_nodes(pass)) return reason_in_nodes(bench, pass);
    if (!key.device.is_cpu() && !key.training)
      return "evaluations on a GPU are not compiled: they run as eager does";
    if (!key.device.is_cpu() && !key.dropped.empty())
      return "a pass that is recorded on a GPU draws the same numbers again: with a dropout every step "
             "runs as eager does";
    if (!key.device.is_cpu() && !has_device(key.device))
      return "this plugin was built without CUDA: every step runs as eager does";
    if (options_.on_new_shape == "eager" && !is_first(key))
      return "a batch has other shapes than the first: it runs as eager does, as executor.on_new_shape says";
    return nullptr;
  }

  /// The reason for a pass that is not node by node: a twin of the network has its dropout, and nobody looks at its nodes.
  const char* reason_in_nodes(Workbench& bench, const ForwardContext& pass) {
    if (bench.drops() && !untapped_) untapped_ = bench.twin();
    if (untapped_ && !dynamic_cast<GraphNetwork&>(*untapped_).runs_by_nodes(pass)) return dropout_computes;
    return "a rule, a recorder or a hook looks at nodes: the passes that it looks at run as eager does";
  }

  /// Says once, in the log and in the journal of the run, why passes run as eager runs them.
  void log_once(LogLevel level, const std::string& why) {
    if (options_.strict) throw ConfigError(why + " (refused, as executor.strict = true)");
    if (!told_.insert(why).second) return;
    host().log(level, why);
    host().journal("left to eager", why);
  }

  /// Whether all inputs are of as many samples.
  bool have_one_batch(const PlanKey& key) const {
    const Graph& graph = *network_->graph();
    std::optional<std::int64_t> samples;
    for (std::size_t i = 0; i < key.inputs.size(); ++i) {
      const std::vector<std::int64_t>& expected =
          graph.values[static_cast<std::size_t>(graph.inputs[i])].shape;
      for (std::size_t d = 0; d < expected.size(); ++d) {
        if (expected[d] >= 0) continue;
        if (samples.value_or(key.inputs[i][d] / -expected[d]) * -expected[d] != key.inputs[i][d])
          return false;
        samples = key.inputs[i][d] / -expected[d];
      }
    }
    return true;
  }

  /// Whether it has the shapes of the first of training, which a run that goes on elsewhere has to know, or of this
  /// evaluation, which is another one on each rank.
  bool is_first(const PlanKey& key) {
    std::string& first = key.training ? first_trained_ : first_evaluated_;
    if (first.empty()) first = shapes_text(key);
    return first == shapes_text(key);
  }

  static std::string shapes_text(const PlanKey& key) {
    std::string text;
    for (const auto& shape : key.inputs) text += shape_text(shape) + " ";
    return text;
  }

  /// Whether there is what records passes on a device.
  bool has_device(at::Device device) {
    if (!device_ || device_->first != device) device_.emplace(device, cuda_device(device));
    return device_->second != nullptr;
  }

  std::shared_ptr<TrackedPass> make(const PlanKey& key, const Batch& batch, const ForwardContext& pass) {
    if (key.device.is_cpu() && key.training) decide_kernels(key);
    const auto start = std::chrono::steady_clock::now();
    const auto took = [&] {
      return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    };
    const bool fuses = options_.fuse == "all";
    if (key.device.is_cpu()) {
      auto plan = std::make_shared<Plan>(*network_, key, choices_for(key));
      report(key, *plan, took());
      return plan;
    }
    try {
      auto plan = std::make_shared<DevicePlan>(*network_, fuses, *device_->second, batch, pass);
      host().log(LogLevel::info, compiled_for(key, took()) + std::to_string(plan->steps()) +
                                     " steps, recorded forward and backward");
      return plan;
    } catch (const std::exception& error) {  // of whatever it is, eager runs the pass or says what is wrong
      log_once(LogLevel::warning,
               "steps of " + shapes_text(key) +
                   "run as eager does, as theirs cannot be recorded: " + std::string(error.what()));
      return nullptr;
    }
  }

  /// Ranks would have to agree, as a checkpoint has the state of one of them.
  bool measures() const {
    return options_.kernels == "measured" && options_.fuse == "all" && host().run().ranks == nullptr;
  }

  /// At the first pass of training; what was compiled ahead of it goes.
  void decide_kernels(const PlanKey& key) {
    if (!measures() || (kernels_.is_decided() && kernels_.is_for(key.threads))) return;
    kernels_.decide(*network_->graph(), key, options_.winograd, host());
    plans_.clear();
  }

  Choices choices_for(const PlanKey& key) const {
    Choices choices{.fuses = options_.fuse == "all", .winograd = options_.winograd};
    if (!measures() || !kernels_.is_for(key.threads)) return choices;
    choices.halves = kernels_.has_halves();
    choices.kernels = kernels_.times();
    return choices;
  }

  /// For the log and for `trainyard plan`, as the executor opens.
  void tell_kernels(Workbench& bench) {
    if (options_.kernels == "counted" || options_.fuse == "none" || host().run().device != "cpu") return;
    const int threads = at::get_num_threads();
    const std::int64_t samples = run_file::samples_of_run(bench);
    const bool halves = bench.autocasts() && compiled::has_halves();
    if (!measures())
      return host().log(LogLevel::info,
                        "counts of operations choose kernels, as several ranks would have to agree on times");
    if (kernels_.is_decided() && kernels_.is_for(threads))
      return host().log(LogLevel::info, "the run goes on with the kernels that it began with");
    if (samples < 1) return;
    const std::string found =
        RunKernels::foreseen(*network_->graph(), samples, threads, halves, options_.winograd);
    if (!found.empty()) host().log(LogLevel::info, found);
  }

  TrackedPass* keep(const PlanKey& key, std::shared_ptr<TrackedPass> plan) {
    if (std::ssize(plans_) == options_.plans) plans_.pop_back();
    plans_.emplace_front(key, std::move(plan));
    return plans_.front().second.get();
  }

  std::string compiled_for(const PlanKey& key, double milliseconds) const {
    return (key.training ? "compiled for " : "compiled for evaluations of ") + shapes_text(key) + "in " +
           std::to_string(static_cast<int>(milliseconds)) +
           " ms: " + std::to_string(network_->graph()->nodes.size()) + " nodes in ";
  }

  /// How many convolutions take fewer products.
  static std::string kernels_text(const std::vector<Kernel>& kernels) {
    constexpr const char* names[directions] = {"forward", "gradients of weights", "gradients of data"};
    std::string text;
    for (std::size_t d = 0; d < directions; ++d) {
      std::int64_t all = 0, fewer = 0;
      for (const Kernel& each : kernels) {
        if (each.direction != static_cast<Direction>(d)) continue;
        ++all;
        if (each.way == Way::winograd) ++fewer;
      }
      if (all == 0) continue;
      text += (text.empty() ? "; fewer products for " : ", ") + std::to_string(fewer) + " of " +
              std::to_string(all) + " " + names[d];
    }
    return text;
  }

  void report(const PlanKey& key, const Plan& plan, double milliseconds) {
    std::string text = compiled_for(key, milliseconds) + std::to_string(plan.steps()) +
                       " steps, an arena of " + std::to_string(plan.arena_bytes() >> 10) + " KiB";
    const std::vector<std::string>& left = plan.by_libtorch();
    std::string names;
    for (const std::string& each : left) names += (names.empty() ? "" : ", ") + each;
    if (options_.strict && !left.empty())
      throw ConfigError(
          "LibTorch would compute " + names +
          ", for which there is no rule, or at which a dropout acts (refused, as executor.strict = true)");
    text += kernels_text(plan.kernels());
    host().log(LogLevel::info, left.empty() ? text : text + "; by LibTorch: " + names);
  }

  Options options_;
  std::string first_trained_, first_evaluated_;  ///< shapes, where others run as eager does
  RunKernels kernels_;
  Copies copies_;                            ///< that the dropout made last
  std::set<std::string, std::less<>> told_;  ///< why passes ran as eager runs them
  GraphNetwork* network_ = nullptr;
  std::unique_ptr<Network> untapped_;  ///< a twin of it on its tensors, once a pass was not node by node
  std::optional<std::pair<at::Device, std::unique_ptr<Device>>> device_;  ///< null: of no use
  /// The last used first. Null: what it would be made for runs as eager does.
  std::list<std::pair<PlanKey, std::shared_ptr<TrackedPass>>> plans_;
};

}  // namespace

TRAINYARD_PLUGIN(CompiledExecutor)
