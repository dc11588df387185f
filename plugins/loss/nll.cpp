// The negative log likelihood of targets under a distribution whose parameters the network gives, the last dimension
// of its output: a regression that says how sure it is. Scales are given as logarithms, so that any output is one.
//   gaussian   location m, log s: log s + ((t - m) / s)^2 / 2 + log(2 pi) / 2     (Nix and Weigend, ICNN 1994)
//   laplace    location m, log b: log(2 b) + |t - m| / b
//   student    location m, log s, with `freedom` degrees: long tails, so that outliers do not rule
//   poisson    log rate l, of counts: e^l - t l + log t!
#include <cmath>
#include <numbers>

#include <trainyard/ad/loss.hpp>
#include <trainyard/helpers/labels.hpp>
#include <trainyard/helpers/shape_text.hpp>
#include <trainyard/loss.hpp>

namespace {

using namespace trainyard;

enum class Family : std::uint8_t { gaussian, laplace, student, poisson };

std::int64_t parameters(Family family) {
  return family == Family::poisson ? 1 : 2;
}

struct Likelihood {
  Family family;
  double freedom;

  template <class T>
  T operator()(std::span<const T> output, std::span<const double> target) const {
    using std::abs, std::exp, std::log1p, std::lgamma;
    const double t = target[0];
    if (family == Family::poisson) return exp(output[0]) - t * output[0] + lgamma(t + 1.0);
    const T& log_scale = output[1];
    const T distance = (t - output[0]) * exp(-log_scale);
    if (family == Family::laplace) return abs(distance) + log_scale + std::numbers::ln2;
    if (family == Family::gaussian)
      return 0.5 * distance * distance + log_scale + 0.5 * std::log(2.0 * std::numbers::pi);
    return 0.5 * (freedom + 1.0) * log1p(distance * distance / freedom) + log_scale + lgamma(0.5 * freedom) -
           lgamma(0.5 * (freedom + 1.0)) + 0.5 * std::log(freedom * std::numbers::pi);
  }
};

}  // namespace

template <>
struct trainyard::Words<Family> {
  static constexpr std::string_view words[] = {"gaussian", "laplace", "student", "poisson"};
};

namespace {

class Nll final : public Loss {
 public:
  struct Options {
    Family family = Family::gaussian;
    double freedom = 4.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("nll").version("1.0.0").summary(
        "Negative log likelihood of a distribution that the network gives.");
    m.option(
        "family", &Options::family,
        "gaussian, laplace and student: location and logarithm of the scale; poisson: logarithm of the rate");
    m.option("freedom", &Options::freedom, "degrees of freedom of student: few are long tails").above(0.0);
  }
  explicit Nll(const Options& options)
      : likelihood_{options.family, options.freedom}, parameters_(parameters(options.family)) {}

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    refuse_several_labels("loss nll", schema, "take loss cross_entropy with multi_label = true");
    if (schema.classes > 0)
      throw ConfigError("loss nll is of numbers, but the data has classes; take loss cross_entropy");
    std::vector<std::int64_t> expected = schema.target.shape, flat(1, parameters_);
    for (const std::int64_t dim : expected) flat.front() *= dim;
    expected.push_back(parameters_);
    if (output != expected && output != flat)  // a layer before it gives a row
      throw ConfigError(
          "loss nll needs a model output of shape " + shape_text(expected) +
          " for each sample (the last number: parameters of the distribution of a target), but the "
          "model gives " +
          shape_text(output));
  }

  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    const at::Tensor target = batch.target.reshape({-1, 1});
    if (likelihood_.family == Family::poisson && target.lt(0).any().item<bool>())
      throw DataError("loss nll: a target is below 0, which no count of family = \"poisson\" is");
    const at::ScalarType dtype = output.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return ad::mean_loss(likelihood_, output.to(dtype).reshape({-1, parameters_}), target);
  }

 private:
  Likelihood likelihood_;
  std::int64_t parameters_;
};

}  // namespace

TRAINYARD_PLUGIN(Nll)
