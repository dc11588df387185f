// Gives a network that was pruned other weights: those that it had early in its training, or new ones, with the zeros of the
// pruned one, to train from there (Frankle and Carbin, "The Lottery Ticket Hypothesis", ICLR 2019; Frankle et al.,
// "Linear Mode Connectivity and the Lottery Ticket Hypothesis", ICML 2020: rewinding).
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <trainyard/duration.hpp>
#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>
#include <trainyard/tool.hpp>

namespace {

using namespace trainyard;

/// A parameter that is 0 counts as gone. One that is kept, and happens to be 0 in the weights that it gets, gets this
/// in its place, and trains on.
constexpr float next_to_zero = std::numeric_limits<float>::min();

class Rewind final : public Tool {
 public:
  struct Options {
    std::string zeros_of;
    std::optional<Duration> at;
    std::string out;
  };
  static void describe(Manifest<Options>& m) {
    m.name("rewind").version("1.0.0").summary(
        "Gives a pruned network weights of an earlier time, or new ones; its zeros stay.");
    m.needs("no members").needs("no sharded_rows");
    m.option(
        "zeros_of", &Options::zeros_of,
        "model.safetensors of the pruned network, as trainyard prune --cut false writes it: a parameter "
        "that is 0 there is 0 in what is written, the others are those of --weights; empty: what the run "
        "ended with");
    m.option("at", &Options::at,
             "refuses weights of a checkpoint that is not of this time: whole epochs, or steps (ba)");
    m.option("out", &Options::out,
             "folder to write model.safetensors to; empty: the tool's folder below the run");
  }
  explicit Rewind(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const at::NoGradGuard untracked;
    if (options_.at) require_time(shop);
    std::map<std::string, at::Tensor> pruned;
    const std::string zeros =
        options_.zeros_of.empty() ? host().run().directory + "/model.safetensors" : options_.zeros_of;
    for (NamedTensor& each : read_safetensors(zeros)) pruned.emplace(each.name, each.tensor);
    std::int64_t all = 0, left = 0, lifted = 0;
    for (const NamedTensor& each : shop.network().parameters()) {
      at::Tensor values = each.tensor.detach();
      const at::Tensor gone = zeros_of(pruned, each).to(values.device());
      const at::Tensor idle = values.eq(0).logical_and(gone.logical_not());
      lifted += idle.sum().item<std::int64_t>();
      values.masked_fill_(idle, next_to_zero).masked_fill_(gone, 0);
      all += values.numel();
      left += values.count_nonzero().item<std::int64_t>();
    }
    const std::string file = place(shop) + "/model.safetensors";
    write_safetensors(file, shop.weights());
    Report report;
    report.facts = {{"weights", shop.source()},
                    {"zeros of", zeros},
                    {"parameters", all},
                    {"left", left},
                    {"ratio", 1.0 - static_cast<double>(left) / static_cast<double>(all)},
                    {"kept ones that were 0", lifted},
                    {"wrote model.safetensors", file}};
    return report;
  }

 private:
  static at::Tensor zeros_of(const std::map<std::string, at::Tensor>& pruned, const NamedTensor& parameter) {
    const auto found = pruned.find(parameter.name);
    if (found != pruned.end() && found->second.sizes() == parameter.tensor.sizes())
      return found->second.eq(0);
    throw ConfigError("zeros_of: " +
                      (found == pruned.end() ? "there is no \"" + parameter.name + "\""
                                             : "\"" + parameter.name + "\" has another shape") +
                      ": give a network that was pruned from this one, its filters left in it as zeros "
                      "(trainyard prune --cut false)");
  }

  void require_time(Workshop& shop) const {
    const bool epochs = options_.at->unit == Duration::Unit::epochs;
    if ((!epochs && options_.at->unit != Duration::Unit::steps) ||
        std::floor(options_.at->count) != options_.at->count)
      throw ConfigError("at = \"" + options_.at->text() +
                        "\": give whole epochs (\"2ep\") or steps (\"500ba\")");
    const State* const state = shop.state("run");
    if (state == nullptr || std::filesystem::is_regular_file(shop.source()))
      throw ConfigError(
          "at: " + shop.source() +
          " is no checkpoint, which says of what time it is: name one with --weights, or leave at out");
    const StateReader run(*state);
    const bool under_way = run.boolean("in_epoch") && run.integer("step_in_epoch") > 0;
    const std::int64_t is = epochs ? run.integer("epoch") + (under_way ? 1 : 0) : run.integer("step");
    if (static_cast<double>(is) != options_.at->count)
      throw ConfigError("at: " + shop.source() + " is of " + (epochs ? "epoch " : "step ") +
                        std::to_string(is) + ", not of " + options_.at->text() +
                        ": name another checkpoint with --weights");
  }

  std::string place(Workshop& shop) const {
    if (options_.out.empty()) return shop.folder();
    std::error_code error;
    std::filesystem::create_directories(options_.out, error);
    if (error) throw DataError(options_.out + ": cannot be made: " + error.message());
    return std::filesystem::absolute(options_.out).lexically_normal().string();
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Rewind)
