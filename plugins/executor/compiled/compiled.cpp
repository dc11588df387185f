// The pass of a network compiled for its shapes: nodes fused, layouts that oneDNN runs fast kept from layer to
// layer, memory planned ahead (README.md).
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <optional>

#include <trainyard/helpers/eager.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/host.hpp>

#include "plan.hpp"

namespace {

using namespace trainyard;
using namespace compiled;

class CompiledExecutor final : public Executor {
 public:
  struct Options {
    std::string fuse = "all";
    bool winograd = true;
    std::string on_new_shape = "recompile";
    std::int64_t plans = 8;
  };
  static void describe(Manifest<Options>& m) {
    m.name("compiled")
        .version("1.0.0")
        .summary(
            "Steps whose network is compiled for the shapes of the batch: fused nodes, oneDNN, memory "
            "planned ahead.");
    m.fires(micro_events);
    m.option("fuse", &Options::fuse,
             "all: nodes with a rule are compiled, fused where they can be; none: each node runs by LibTorch")
        .one_of({"all", "none"});
    m.option("winograd", &Options::winograd,
             "convolutions of 3 x 3 and 5 x 5 take a quarter of the products where that is faster "
             "(Winograd's minimal "
             "filtering), which costs a digit of single precision");
    m.option("on_new_shape", &Options::on_new_shape,
             "a batch of another shape: compile it, or run it as eager does")
        .one_of({"recompile", "eager"});
    m.option("plans", &Options::plans,
             "compiled shapes that are kept; the one that was not used for longest goes")
        .min(1);
  }
  explicit CompiledExecutor(const Options& options) : options_(options) {}

  void open(Workbench& bench) override {
    plans_.clear();
    network_ = dynamic_cast<GraphNetwork*>(&bench.network());
    const char* const why = reason_against(network_);
    if (why == nullptr) return;
    network_ = nullptr;
    host().log(LogLevel::warning, std::string(why) + ": every step runs as eager does");
  }

  void step(Workbench& bench, StepWork& work) override {
    const ForwardPass forward = [&](const Batch& batch, const ForwardContext& pass) {
      Plan* const plan = plan_for(batch, pass);
      return plan != nullptr ? plan->forward(batch, pass) : bench.network().forward(batch, pass);
    };
    do
      for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i, forward);
    while (bench.update() == Update::repeat);
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

  /// Null where the pass is one that no plan makes.
  Plan* plan_for(const Batch& batch, const ForwardContext& pass) {
    if (network_ == nullptr || at::autocast::is_autocast_enabled(at::kCPU)) return nullptr;
    PlanKey key{.has_dropout = network_->has_dropout(), .threads = at::get_num_threads()};
    for (const at::Tensor& input : batch.inputs) {
      if (!input.is_cpu() || input.requires_grad() || input.layout() != at::kStrided) return nullptr;
      key.inputs.push_back(input.sizes().vec());
    }
    if (!network_->runs_by_nodes(pass)) return nullptr;
    const auto known =
        std::find_if(plans_.begin(), plans_.end(), [&](const auto& each) { return each.first == key; });
    if (known != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, known);
      return known->second->is_busy() ? nullptr : known->second.get();
    }
    if (!plans_.empty() && options_.on_new_shape == "eager") return nullptr;
    return compile(key);
  }

  Plan* compile(const PlanKey& key) {
    const auto start = std::chrono::steady_clock::now();
    auto plan = std::make_shared<Plan>(
        *network_, key, Choices{.fuses = options_.fuse == "all", .winograd = options_.winograd});
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    report(key, *plan, took.count());
    if (std::ssize(plans_) == options_.plans) plans_.pop_back();
    plans_.emplace_front(key, std::move(plan));
    return plans_.front().second.get();
  }

  void report(const PlanKey& key, const Plan& plan, double milliseconds) {
    std::string text = "compiled for ";
    for (const auto& shape : key.inputs) text += shape_text(shape) + " ";
    text += "in " + std::to_string(static_cast<int>(milliseconds)) +
            " ms: " + std::to_string(network_->graph()->nodes.size()) + " nodes in " +
            std::to_string(plan.steps()) + " steps, an arena of " + std::to_string(plan.arena_bytes() >> 10) +
            " KiB";
    const std::vector<std::string>& left = plan.by_libtorch();
    if (!left.empty()) text += "; by LibTorch:";
    for (std::size_t i = 0; i < left.size(); ++i) text += (i == 0 ? " " : ", ") + left[i];
    host().log(LogLevel::info, text);
  }

  Options options_;
  GraphNetwork* network_ = nullptr;
  std::list<std::pair<PlanKey, std::shared_ptr<Plan>>> plans_;  ///< the last used first
};

}  // namespace

TRAINYARD_PLUGIN(CompiledExecutor)
