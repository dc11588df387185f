// torch's SequentialLR: one schedule after the other, each on a clock of its own that begins at 0. The length
// of a part is its `budget`; the last may go without and has the rest.
#include <algorithm>

#include "parts.hpp"

namespace {

using namespace trainyard;
using namespace schedules;

class Sequence final : public ScheduleOfParts {
 public:
  static void describe(Manifest<Options>& m) {
    m.name("sequence").version("1.0.0").summary("Several schedules, one after the other.");
    m.option("parts", &Options::parts,
             "the schedules, with operators of their own; the budget of one is its length, in % of the whole")
        .required();
  }
  explicit Sequence(const Options& options) : ScheduleOfParts(options) {}

  void open(const RunScale& scale) override {
    curves_.clear();
    std::int64_t start = 0;
    for (std::size_t i = 0; i < parts().size(); ++i) {
      if (scale.total_steps > 0 && start >= scale.total_steps) return;  // the budget ends before it
      Schedule& part = *parts()[i];
      const bool last = i + 1 == parts().size();
      if (!part.common.budget && !last)
        throw ConfigError("schedule.parts[" + std::to_string(i) +
                          "] has no `budget`, its length, and others come after it");
      RunScale rest = scale;
      if (!part.common.budget && scale.total_steps > 0) rest.total_steps -= start;
      ScheduleCurve curve(part, rest);
      const std::int64_t length = curve.end();
      if (length == 0 && !last) continue;
      curves_.push_back({start, std::move(curve)});
      start += length;
    }
  }
  double factor(const SchedulePoint& at) const override {
    const Placed& part = *place(at.step);
    return part.curve.factor(at.step - part.start);
  }
  /// Where the part at hand does not cycle it: as the one before left it, else as the next will find it.
  std::optional<double> momentum(const SchedulePoint& at) const override {
    const auto here = place(at.step);
    for (auto part = here + 1; part != curves_.begin();)
      if (const auto momentum = (--part)->curve.momentum(at.step - part->start)) return momentum;
    for (auto part = here + 1; part != curves_.end(); ++part)
      if (const auto momentum = part->curve.momentum(0)) return momentum;
    return std::nullopt;
  }

 private:
  struct Placed {
    std::int64_t start;
    ScheduleCurve curve;
  };
  std::vector<Placed>::const_iterator place(std::int64_t step) const {
    return std::prev(std::upper_bound(curves_.begin() + 1, curves_.end(), step,
                                      [](std::int64_t at, const Placed& part) { return at < part.start; }));
  }

  std::vector<Placed> curves_;
};

}  // namespace

TRAINYARD_PLUGIN(Sequence)
