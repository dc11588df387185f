// Sequences that are full of one token: padding, or words that the vocabulary lacks.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class NlpSequenceRatio final : public Rule {
 public:
  struct Options {
    std::string tensors = "^input_0$";
    std::vector<std::int64_t> token_values = {0};
    std::vector<double> token_thresholds_percent = {50.0};
  };
  static void describe(Manifest<Options>& m) {
    m.name("nlp_sequence_ratio").version("1.0.0").summary("Too large a share of the sequences is one token.");
    m.option("tensors", &Options::tensors,
             "expression of the tokens; inputs that are no integers are let pass");
    m.option("token_values", &Options::token_values, "tokens whose share is taken");
    m.option("token_thresholds_percent", &Options::token_thresholds_percent,
             "highest share of each in a batch, percent")
        .range(0.0, 100.0);
  }
  explicit NlpSequenceRatio(const Options& options) : options_(options) {
    if (options_.token_values.size() != options_.token_thresholds_percent.size())
      throw ConfigError(
          "nlp_sequence_ratio: token_values has " + std::to_string(options_.token_values.size()) +
          " values and token_thresholds_percent " + std::to_string(options_.token_thresholds_percent.size()) +
          "; give one threshold for each token");
  }

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    std::vector<std::pair<std::string, double>> limits;
    for (std::size_t i = 0; i < options_.token_values.size(); ++i) {
      const std::int64_t token = options_.token_values[i];
      const double limit = options_.token_thresholds_percent[i];
      limits.emplace_back("token_thresholds_percent/" + std::to_string(token), limit);
      for (const TensorRecord* tokens : trial.tensors(now, options_.tensors)) {
        const at::Tensor& values = values_of(*tokens);
        if (values.is_floating_point() || values.numel() == 0) continue;
        const double share = 100.0 * values.eq(token).to(at::kDouble).mean().item<double>();
        if (!(share > limit)) continue;
        offenders.add(tokens->name, share - limit, share,
                      five_digits(share) + " % of the tokens are " + std::to_string(token) +
                          ", expected at most " + five_digits(limit) + " %");
      }
    }
    return offenders.finding(std::move(limits));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(NlpSequenceRatio)
