#include <cmath>
#include <trainyard/detector.hpp>

using namespace trainyard;

/// The distance of a row from the mean of all.
class MyPlugin final : public Detector {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("my_plugin").version("0.1.0").summary("The distance of a row from the mean of all.");
  }
  explicit MyPlugin(const Options&) {}
  std::vector<double> fit(const RowTable& rows, const RandomStream&, const std::function<bool()>&) override {
    mean_.assign(rows.columns, 0.0);
    for (std::size_t i = 0; i < rows.values.size(); ++i)
      mean_[i % rows.columns] += rows.values[i] / static_cast<double>(rows.rows);
    return score(rows);
  }
  std::vector<double> score(const RowTable& rows) const override {
    std::vector<double> sums(rows.rows);  // hypot adds a side to a distance
    for (std::size_t i = 0; double& sum : sums)
      for (const double mean : mean_) sum = std::hypot(sum, rows.values[i++] - mean);
    return sums;
  }
  Learned learned() const override { return {{"mean", mean_}}; }
  void use(const Learned& learned) override { mean_ = learned.at("mean"); }
  std::vector<double> mean_;
};
TRAINYARD_PLUGIN(MyPlugin)
