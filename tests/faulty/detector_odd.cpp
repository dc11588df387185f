// Scores rows by the sum of their numbers, or does what no detector may.
#include <numeric>

#include <trainyard/detector.hpp>
#include <trainyard/error.hpp>

namespace {

using namespace trainyard;

class Odd final : public Detector {
 public:
  struct Options {
    std::string fault;
    double factor = 1.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("odd").version("1.0.0").summary("Scores rows by the sum of their numbers.");
    m.option("fault", &Options::fault, "throws, throws_number, nan, short, or short_later");
    m.option("factor", &Options::factor, "of the scores");
  }
  explicit Odd(const Options& options) : options_(options) {}

  std::vector<double> fit(const RowTable& rows, const RandomStream&, const std::function<bool()>&) override {
    if (options_.fault == "throws") throw DataError("these rows will not do");
    if (options_.fault == "throws_number") throw 7;
    std::vector<double> scores = sums(rows);
    if (options_.fault == "nan") scores[0] = std::numeric_limits<double>::quiet_NaN();
    if (options_.fault == "short") scores.pop_back();
    return scores;
  }
  std::vector<double> score(const RowTable& rows) const override {
    std::vector<double> scores = sums(rows);
    if (options_.fault == "short_later") scores.pop_back();
    return scores;
  }
  Learned learned() const override { return {{"factor", {options_.factor}}}; }
  void use(const Learned& learned) override {
    if (learned.at("factor").at(0) != options_.factor) throw DataError("the factor is another one");
  }

 private:
  std::vector<double> sums(const RowTable& rows) const {
    std::vector<double> scores;
    for (std::size_t i = 0; i < rows.rows; ++i)
      scores.push_back(options_.factor * std::accumulate(rows.row(i).begin(), rows.row(i).end(), 0.0));
    return scores;
  }

  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Odd)
