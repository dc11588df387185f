// Doped weights (Thakker et al., "Doping: A technique for extreme compression of LSTM models using sparse structured
// additive matrices", MLSys 2021): W = K + S, K of few numbers, S with ever more zeros as the training goes on.
#include <cmath>
#include <mutex>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/host.hpp>
#include <trainyard/transform.hpp>

#include "../annealing.hpp"
#include "../masked.hpp"
#include "rewrite.hpp"

namespace {

using namespace trainyard;
using namespace doped;
using transforms::Annealed, transforms::Annealing, transforms::Masked;

class Doped final : public Transform {
 public:
  struct Options {
    Form structure = Form::kp;
    double target_cf = 10.0;
    std::vector<std::string> layers = {"*"};
    double share = 0.25;
    bool alone = false;
    std::string start;
    Annealing sparse;
  };
  static void describe(Manifest<Options>& m) {
    m.name("doped").version("1.0.0").summary(
        "Replaces weights by sums of a structured matrix and one that becomes sparse.");
    m.needs("graph").needs("no members").needs("no sharded_rows");
    m.needs("steps where alone = false").provides("summed_weights where alone = false");
    m.option("structure", &Options::structure,
             "kp: a Kronecker product; lmf: a product of low rank; hmd: free rows above rows of rank one");
    m.option("target_cf", &Options::target_cf,
             "rows x columns of a weight over the numbers that are left of it in the end")
        .above(1.0);
    m.option("layers", &Options::layers,
             "names of linear and recurrent layers, * and ? allowed; of those that a pattern fits the large "
             "enough");
    m.option("share", &Options::share,
             "of the numbers that are left, those of the structure at most, or the smallest that there is")
        .above(0.0)
        .max(1.0);
    m.option("alone", &Options::alone, "the structure alone, with all the numbers, and nothing sparse");
    m.option("start", &Options::start,
             "safetensors file with dense weights to begin with: the structure nearest to each, the rest as "
             "the other matrix")
        .file();
    m.option("sparse", &Options::sparse, "when the other matrix loses its elements, the smallest first");
    m.hook<&Doped::find>(Event::model_ready);
    m.hook<&Doped::find>(Event::swap_in);
    m.hook<&Doped::note>(Event::batch_start);
    m.hook<&Doped::shrink>(Event::after_step).writes(Region::model);
  }
  explicit Doped(const Options& options) : options_(options) {}

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network,
                                 const ModelContext& context) const override {
    const Request request = this->request(context.seed);
    std::vector<Replacement> made = replacements(*network->graph(), request);
    network = std::make_unique<GraphNetwork>(rewritten(*network->graph(), made, request));
    const std::scoped_lock lock(made_access_);
    made_ = std::move(made);
    return network;
  }

  /// Looks up the sparse terms in the run's network, and says what its weights are.
  void find(StepContext& context) {
    sparse_.clear();
    const std::scoped_lock lock(made_access_);
    for (const Replacement& made : made_) {
      host().log(LogLevel::info, made.text());
      if (options_.alone || !made.obstacle.empty()) continue;
      const double final =
          1.0 - static_cast<double>(made.nonzeros) / static_cast<double>(made.structure.elements());
      sparse_.push_back({Masked(context.network(), {made.weight + std::string(sparse_suffix)}),
                         Annealed(options_.sparse, final, context.scale())});
    }
  }

  void note(StepContext&) {
    for (Sparse& each : sparse_) each.masked.note();
  }

  void shrink(StepContext& context) {
    for (Sparse& each : sparse_) {
      each.masked.enforce();
      const double zeros = each.annealed.sparsity(context.step_number());
      each.masked.keep_largest(std::llround((1.0 - zeros) * static_cast<double>(each.masked.size())));
    }
  }

 private:
  struct Sparse {
    Masked masked;
    Annealed annealed;
  };

  Request request(std::uint64_t seed) const {
    return {.form = options_.structure,
            .target_cf = options_.target_cf,
            .share = options_.share,
            .alone = options_.alone,
            .layers = options_.layers,
            .seed = seed,
            .start = options_.start};
  }

  Options options_;
  mutable std::mutex made_access_;
  mutable std::vector<Replacement> made_;  ///< of the last network; all have the same
  std::vector<Sparse> sparse_;
};

}  // namespace

TRAINYARD_PLUGIN(Doped)
