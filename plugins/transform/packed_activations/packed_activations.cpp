// Activations in 8 bits a value between forward and backward, packed by a codec: the use of "Boveda" (MLSys 2021) in
// training. README.md.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/printed.hpp"

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/host.hpp>
#include <trainyard/pattern.hpp>
#include <trainyard/transform.hpp>

#include "packer.hpp"

template <>
struct trainyard::Words<packed_activations::Scheme> {
  static constexpr std::string_view words[] = {"affine", "absmax"};
};

namespace packed_activations {

using namespace trainyard;

class PackedActivations final : public Transform {
 public:
  struct Options {
    std::vector<std::string> layers = {"*"};
    Scheme scheme = Scheme::affine;
    std::int64_t block = 4096;
    PluginList<Codec> codec;
  };
  static void describe(Manifest<Options>& m) {
    m.name("packed_activations")
        .version("1.0.0")
        .summary(
            "Keeps activations between forward and backward in 8 bits a value (lossy), packed by a codec.");
    m.needs("graph").needs("taps").needs("fp32").needs("run.device = cpu").needs("no members");
    m.needs("prefers executor.type != compiled");
    m.option("layers", &Options::layers,
             "names of nodes whose activations are packed, * and ? allowed: linear layers, convolutions, "
             "activation functions, normalisations, pooling");
    m.option(
        "scheme", &Options::scheme,
        "how a block of values is rounded, which loses bits. affine: to 256 steps between the smallest and "
        "the largest, 0 among them; absmax: to 255 steps as far below 0 as above");
    m.option("block", &Options::block, "neighbours in memory that share a scale").range(64, 1 << 16);
    m.option("codec", &Options::codec,
             "packs the rounded values, without loss; without one they take a byte each");
    m.hook<&PackedActivations::watch>(Event::model_ready);
    m.hook<&PackedActivations::watch>(Event::batch_start);
    m.hook<&PackedActivations::count>(Event::after_forward);
    m.hook<&PackedActivations::report>(Event::before_step);
    m.hook<&PackedActivations::sum_up>(Event::fit_end);
  }
  explicit PackedActivations(const Options& options) : options_(options) {}

  /// The graph stays as it is; it is seen here whether it has such nodes.
  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    chosen(*network->graph());
    return network;
  }

  /// Looks at the passes of the run's network, which may be another one since the last step: a swap of the model or of a
  /// transform makes one.
  void watch(StepContext& context) {
    Network& network = context.network();
    const std::shared_ptr<Packer> known = packer_.lock();
    if (known && known->watches(network)) return;
    const auto packer =
        std::make_shared<Packer>(network, chosen(*network.graph()),
                                 Quantiser{.scheme = options_.scheme, .block = options_.block}, codec());
    packer->watch(network, this);
    packer_ = packer;
  }

  /// Behind a forward pass, when nothing of it is left but what backward needs.
  void count(StepContext& context) {
    if (context.evaluating()) return;
    const std::shared_ptr<Packer> packer = packer_.lock();
    if (!packer) return;
    const Kept kept = packer->kept();
    for (const std::string& node : packer->take_unpacked())
      host().log(LogLevel::warning,
                 "nothing that " + node + " keeps for backward can be packed: it stays as it is");
    if (kept.tensors == 0) return;
    if (kept.packed + kept.held > most_.packed + most_.held || most_.tensors == 0) most_ = kept;
    if (!std::exchange(told_, true)) host().log(LogLevel::info, text(kept));
    if (kept.held > 0 && !std::exchange(told_held_, true))
      host().log(LogLevel::warning,
                 std::to_string(kept.held) +
                     " of these bytes are in memory whole as well, as nodes that `layers` does "
                     "not choose keep the same tensors, or something else does: those of " +
                     kept.holders);
  }

  void report(StepContext&) {
    if (most_.tensors == 0) return;
    host().metric("activations/bytes", static_cast<double>(most_.packed + most_.held));
    host().metric("activations/whole_bytes", static_cast<double>(most_.whole));
    bytes_ += static_cast<double>(most_.packed + most_.held);
    whole_ += static_cast<double>(most_.whole);
    most_ = {};
  }

  void sum_up(StepContext&) {
    if (whole_ == 0.0) return;
    host().log(LogLevel::info, "over the steps of this process activations took " +
                                   lib::printed("%.4f", bytes_ / whole_) +
                                   " of the bytes that they have whole");
  }

 private:
  std::shared_ptr<const Codec> codec() {
    std::vector<std::unique_ptr<Codec>> made = make_plugins(host(), options_.codec);
    if (made.size() > 1)
      throw ConfigError("codec: has " + std::to_string(made.size()) + " tables; one packs at a time");
    return made.empty() ? nullptr : std::shared_ptr<const Codec>(std::move(made.front()));
  }

  /// Returns the nodes that the patterns fit and that keep what can be packed.
  std::set<std::string, std::less<>> chosen(const Graph& graph) const {
    std::set<std::string, std::less<>> all;
    for (const std::string& layer : options_.layers) {
      bool fit = false;
      for (const Node& node : graph.nodes) {
        if (!keeps_activations(node.op) || !fits(layer, node.name)) continue;
        fit = true;
        all.insert(node.name);
      }
      if (!fit)
        throw ConfigError(
            "layers: \"" + layer +
            "\" fits no node whose activations can be packed: linear layers, convolutions, activation "
            "functions, normalisations, pooling (trainyard model show lists nodes)");
    }
    return all;
  }

  std::string text(const Kept& kept) const {
    const double share = static_cast<double>(kept.packed) / static_cast<double>(kept.whole);
    return std::to_string(kept.tensors) +
           " activations are kept for backward in 8 bits a value, which is lossy (" +
           (options_.scheme == Scheme::affine ? "affine" : "absmax") + ", blocks of " +
           std::to_string(options_.block) + ")" +
           (options_.codec.tables.empty() ? "" : ", and packed by a codec, which is not") + ": " +
           std::to_string(kept.packed) + " bytes in place of " + std::to_string(kept.whole) + " (" +
           lib::printed("%.3f", share) + ")";
  }

  Options options_;
  std::weak_ptr<Packer> packer_;      ///< the network's, which owns it
  Kept most_;                         ///< of the passes of this step
  double bytes_ = 0.0, whole_ = 0.0;  ///< sums over steps
  bool told_ = false, told_held_ = false;
};

}  // namespace packed_activations

TRAINYARD_PLUGIN(packed_activations::PackedActivations)
