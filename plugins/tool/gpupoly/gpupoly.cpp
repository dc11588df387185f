// Proves what a network does for all inputs of a box: that a property in VNN-LIB holds, or that no input near a
// sample of the validation data is of another class. What it cannot prove it tries to refute first.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

#include "ball.hpp"
#include "bounds.hpp"
#include "cases.hpp"
#include "device.hpp"
#include "falsifier.hpp"
#include "lib/new_file.hpp"
#include "lib/printed.hpp"
#include "vnnlib.hpp"

namespace {

using namespace trainyard;
using namespace gpupoly;

enum class Device : std::uint8_t { cpu, cuda };

}  // namespace

template <>
struct trainyard::Words<Device> {
  static constexpr std::string_view words[] = {"cpu", "cuda"};
};

namespace {

class GpuPoly final : public Tool {
 public:
  struct Options {
    std::string property;
    double eps = 0.01;
    std::int64_t subset = 100;
    std::vector<double> mean, std, clip = {0.0, 1.0};
    Method method = Method::deeppoly;
    int soundness = 3;
    Device device = Device::cpu;
    bool area_heuristic = true, best_of_depth = true, early_termination = true, unstable_only = true,
         windows = true;
    std::int64_t memory_budget_mb = 1024, restarts = 32, steps = 40;
    double timeout = 300.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gpupoly").version("1.0.0").summary("Proves properties of a network for all inputs of a box.");
    m.needs("trainer.precision = fp32 where soundness = 3 | 4");
    m.option(
         "property", &Options::property,
         "VNN-LIB file that says what would violate it; empty: that no input within eps of a sample of the "
         "validation data is of another class")
        .file();
    m.option("eps", &Options::eps, "largest change of an input, before the data's mean and std").min(0);
    m.option("subset", &Options::subset, "samples, the first that the run validates on").min(1);
    m.option("mean", &Options::mean,
             "the data's, which it subtracts: one, one a channel or one an input; empty: 0");
    m.option("std", &Options::std, "the data's, by which it then divides; empty: 1");
    m.option("clip", &Options::clip,
             "smallest and largest input that there is, before mean and std; empty: any");
    m.option("method", &Options::method,
             "intervals, one substitution of the output's forms, or of all that need it");
    m.option("soundness", &Options::soundness,
             "what a proof is of: 1 nothing, bounds are rounded to nearest; 2 the real function of the "
             "weights; 3 "
             "also the single-precision program, sums in any order; 4 that in any rounding mode")
        .range(1, 4);
    m.option("device", &Options::device, "what multiplies forms: the processor's cores, or a CUDA device");
    m.option("area_heuristic", &Options::area_heuristic,
             "the lower line of an undecided neuron is x where that leaves less area; else always 0");
    m.option("best_of_depth", &Options::best_of_depth,
             "forms take the best bound of all layers on their way");
    m.option("early_termination", &Options::early_termination, "forms whose sign is known go no deeper");
    m.option("unstable_only", &Options::unstable_only, "only neurons of undecided sign are refined");
    m.option("windows", &Options::windows, "forms have coefficients for what they depend on only");
    m.option("memory_budget_mb", &Options::memory_budget_mb, "of coefficients at a time, in MiB")
        .range(1, 1 << 30);
    m.option("restarts", &Options::restarts, "points that the search for a counterexample begins at; 0: none")
        .min(0);
    m.option("steps", &Options::steps, "of gradient descent from each").min(0);
    m.option("timeout", &Options::timeout, "seconds for a property, or for each sample; 0: no limit").min(0);
  }
  explicit GpuPoly(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const Graph* const graph = shop.network().graph();
    if (graph == nullptr) throw ConfigError("gpupoly reads a model as a graph, and this one has none");
    const Layers layers = layers_of(*graph);
    require_single(shop.network(), options_.soundness);
    Verifier verifier(
        layers, settings(), [&] { return shop.stopping() || late(); },
        options_.device == Device::cuda ? cuda_products() : processor_products());
    return options_.property.empty() ? near_samples(shop, layers, verifier)
                                     : property(shop, layers, verifier);
  }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Verdict : std::uint8_t { unsat, sat, unknown, timeout };
  static constexpr const char* words[] = {"unsat", "sat", "unknown", "timeout"};
  struct Answer {
    Verdict verdict = Verdict::unknown;
    double margin = std::numeric_limits<double>::infinity();  ///< the least of what was proven of a case
    std::optional<Counterexample> found;
  };

  Settings settings() const {
    return {.method = options_.method,
            .soundness = options_.soundness,
            .area = options_.area_heuristic,
            .best_of_depth = options_.best_of_depth,
            .early_termination = options_.early_termination,
            .unstable_only = options_.unstable_only,
            .windows = options_.windows,
            .memory = options_.memory_budget_mb << 20};
  }

  bool late() const {
    return options_.timeout > 0 && Clock::now() - begun_ > std::chrono::duration<double>(options_.timeout);
  }

  // Cases

  /// Tries to refute, then to prove.
  Answer decide(Workshop& shop, const Layers& layers, Verifier& verifier, const std::vector<Case>& cases) {
    Answer answer;
    const auto stop = [&] { return shop.stopping() || late(); };
    const RandomStream random = host().random("falsifier");
    for (std::size_t i = 0; i < cases.size() && !stop(); ++i) {
      answer.found = falsify(shop.network(), layers.input_shape, cases[i],
                             {options_.restarts, options_.steps}, random.at(i), stop);
      if (answer.found) {
        answer.verdict = Verdict::sat;
        return answer;
      }
    }
    try {
      for (std::size_t i = 0; i < cases.size();) {
        if (stop()) throw Stopped{};
        std::size_t end = i + 1;
        while (end < cases.size() && cases[end].lower == cases[i].lower && cases[end].upper == cases[i].upper)
          ++end;
        answer.margin =
            std::min(answer.margin, margin(verifier, {cases.begin() + static_cast<std::ptrdiff_t>(i),
                                                      cases.begin() + static_cast<std::ptrdiff_t>(end)}));
        i = end;
        shop.progress(static_cast<std::int64_t>(i), static_cast<std::int64_t>(cases.size()));
      }
      answer.verdict = answer.margin > 0.0 ? Verdict::unsat : Verdict::unknown;
    } catch (const Stopped&) {
      answer.verdict = Verdict::timeout;
    }
    return answer;
  }

  // A property

  Report property(Workshop& shop, const Layers& layers, Verifier& verifier) {
    begun_ = Clock::now();
    const Property property = read_property(options_.property);
    require_equal("inputs", property.inputs, layers.input().map.size());
    require_equal("outputs", property.outputs, layers.output().map.size());
    const Answer answer = decide(shop, layers, verifier, property.cases);
    if (shop.stopping()) return {};
    Report report;
    report.facts = {{"verdict", words[static_cast<int>(answer.verdict)]},
                    {"property", options_.property},
                    {"weights", shop.source()},
                    {"cases", static_cast<std::int64_t>(property.cases.size())}};
    if (answer.found) {
      const std::string path = shop.folder() + "/counterexample.txt";
      write(path, *answer.found);
      report.facts.emplace_back("counterexample", path);
    } else {
      report.facts.emplace_back("margin", answer.margin);
    }
    add_facts(report, verifier);
    return report;
  }

  void require_equal(const char* what, std::size_t declared, std::int64_t has) const {
    if (declared != static_cast<std::size_t>(has))
      throw ConfigError(options_.property + " declares " + std::to_string(declared) + " " + what +
                        ", and the network has " + std::to_string(has));
  }

  /// As the competition of verifiers has it: ((X_0 0.5) ... (Y_0 1.25) ...), with all digits.
  static void write(const std::string& path, const Counterexample& found) {
    std::string text;
    const auto add = [&](char kind, const std::vector<double>& values) {
      for (std::size_t i = 0; i < values.size(); ++i)
        text += (text.empty() ? "(" : "\n ") + lib::printed("(%c_%zu %.17g)", kind, i, values[i]);
    };
    add('X', found.inputs);
    add('Y', found.outputs);
    lib::NewFile made(path);
    std::ofstream file(made.temporary());
    file << text << ")\n";
    file.close();
    if (!file || made.put_in_place()) throw DataError(path + ": cannot be written");
  }

  void add_facts(Report& report, const Verifier& verifier) const {
    report.facts.emplace_back("soundness", static_cast<std::int64_t>(options_.soundness));
    report.facts.emplace_back("proofs hold of", holds_of(verifier.layers(), options_.soundness));
    report.facts.emplace_back("multiply-adds", verifier.counters().multiply_adds);
    report.facts.emplace_back("forms", verifier.counters().rows);
    report.facts.emplace_back("stopped early", verifier.counters().stopped);
    report.facts.emplace_back("seconds", std::chrono::duration<double>(Clock::now() - begun_).count());
  }

  // Samples

  /// A row a sample: what its network says of it, and whether that holds near it.
  Report near_samples(Workshop& shop, const Layers& layers, Verifier& verifier) {
    const auto started = Clock::now();
    const std::int64_t classes = layers.output().map.size();
    if (classes < 2)
      throw ConfigError("gpupoly compares classes, and the network has one output; give a property");
    const Ball ball(options_.eps, options_.mean, options_.std, options_.clip, layers.input_shape);
    Report report;
    report.columns = {"sample", "label", "class", "verdict", "margin"};
    std::int64_t counts[4] = {}, right = 0, seen = 0;
    for (const Batch& batch : shop.batches("val", options_.subset)) {
      if (!batch.target.defined() || batch.target.dim() != 1 ||
          at::isFloatingType(batch.target.scalar_type()))
        throw ConfigError("gpupoly certifies classes, and the data has no class a sample; give a property");
      const at::Tensor said = predictions(shop, batch);
      for (std::int64_t i = 0; i < batch.target.size(0) && seen < options_.subset; ++i, ++seen) {
        if (shop.stopping()) return {};
        const auto label = batch.target[i].item<std::int64_t>(), guess = said[i].item<std::int64_t>();
        Answer answer{.verdict = Verdict::sat, .margin = -std::numeric_limits<double>::infinity()};
        begun_ = Clock::now();
        if (guess == label)
          answer = decide(shop, layers, verifier, ball.around(batch.input()[i], label, classes));
        right += guess == label ? 1 : 0;
        ++counts[static_cast<int>(answer.verdict)];
        report.rows.push_back({batch.indices[static_cast<std::size_t>(i)], label, guess,
                               words[static_cast<int>(answer.verdict)], answer.margin});
        shop.progress(seen + 1, options_.subset);
      }
      if (seen == options_.subset) break;
    }
    if (shop.stopping()) return {};
    const auto share = [&](std::int64_t count) {
      return static_cast<double>(count) / static_cast<double>(seen);
    };
    begun_ = started;
    report.facts = {{"weights", shop.source()},     {"samples", seen},
                    {"eps", options_.eps},          {"accuracy", share(right)},
                    {"cert_acc", share(counts[0])}, {"cert_unknown", share(counts[2] + counts[3])}};
    add_facts(report, verifier);
    return report;
  }

  static at::Tensor predictions(Workshop& shop, const Batch& batch) {
    const at::NoGradGuard no_grad;
    return shop.network().forward(batch, {}).argmax(1);
  }

  Options options_;
  Clock::time_point begun_ = Clock::now();
};

}  // namespace

TRAINYARD_PLUGIN(GpuPoly)
