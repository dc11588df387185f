// Images that were not normalised: the mean of a channel is far from 0.
#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class CheckInputImages final : public Rule {
 public:
  struct Options {
    std::string tensors = "^input_0$";
    double threshold_mean = 0.2;
    std::int64_t threshold_samples = 500;
    std::int64_t channel = 1;
  };
  static void describe(Manifest<Options>& m) {
    m.name("check_input_images")
        .version("1.0.0")
        .summary("The mean of a channel of the images is not near 0.");
    m.option("tensors", &Options::tensors, "expression of the images");
    m.option("threshold_mean", &Options::threshold_mean, "highest |mean| of a channel").min(0.0);
    m.option("threshold_samples", &Options::threshold_samples, "images that are gathered before it looks")
        .min(1);
    m.option("channel", &Options::channel,
             "dimension of the channels; rows of numbers, which have none, are one channel")
        .min(1);
  }
  explicit CheckInputImages(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* images : trial.tensors(now, options_.tensors)) {
      const at::Tensor& values = values_of(*images);
      if (!values.is_floating_point() || values.numel() == 0) continue;  // tokens are no images
      add(images->name, values);
      if (samples_[images->name] >= options_.threshold_samples) weigh(images->name, offenders);
    }
    return offenders.finding({{"threshold_mean", options_.threshold_mean},
                              {"threshold_samples", static_cast<double>(options_.threshold_samples)}});
  }

  void remember(StateWriter& state) const override {
    rules::remember(state, "samples", samples_);
    rules::remember(state, "sums", sums_);
  }
  void recall(const StateReader& state) override {
    samples_ = recall_scalars<std::int64_t>(state, "samples");
    sums_ = recall_series<std::vector<double>>(state, "sums");
  }

 private:
  /// Sums the means of the channels of all images.
  void add(const std::string& name, const at::Tensor& values) {
    const std::int64_t axis = options_.channel;
    const at::Tensor by_channel = values.dim() > 2 && axis < values.dim()
                                      ? values.movedim(axis, 0).reshape({values.size(axis), -1})
                                      : values.reshape({1, -1});
    const at::Tensor means = by_channel.to(at::kDouble).mean(1).contiguous();
    const double* mean = means.const_data_ptr<double>();
    std::vector<double>& sums = sums_[name];
    if (std::ssize(sums) != means.numel()) {
      sums.assign(static_cast<std::size_t>(means.numel()), 0.0);
      samples_[name] = 0;
    }
    for (double& sum : sums) sum += *mean++ * static_cast<double>(values.size(0));
    samples_[name] += values.size(0);
  }
  void weigh(const std::string& name, Offenders& offenders) {
    const std::vector<double>& sums = sums_[name];
    const auto larger = [](double a, double b) { return std::abs(a) < std::abs(b); };
    const auto worst = std::max_element(sums.begin(), sums.end(), larger);
    const double mean = *worst / static_cast<double>(samples_[name]);
    if (!(std::abs(mean) > options_.threshold_mean)) return;
    offenders.add(name, std::abs(mean), mean,
                  "the mean of channel " + std::to_string(worst - sums.begin()) + " is " + five_digits(mean) +
                      " over " + std::to_string(samples_[name]) + " images, expected within " +
                      five_digits(options_.threshold_mean) + " of 0; normalise the images");
  }

  Options options_;
  ByTensor<std::int64_t> samples_;
  ByTensor<std::vector<double>> sums_;  ///< by channel
};

}  // namespace

TRAINYARD_PLUGIN(CheckInputImages)
