// Every type of option, a hook of every sort.
#include <trainyard/schedule.hpp>

class Everything final : public trainyard::Schedule {
 public:
  struct Group {
    std::vector<std::string> match;
    double scale = 1.0;
    static void describe(trainyard::Fields<Group>& m) {
      m.option("match", &Group::match, "patterns \"quoted\" and back\\slashed").required();
      m.option("scale", &Group::scale, "of the rate\nin two lines").above(0.0);
    }
  };
  struct Options {
    bool flag = true;
    int count = -3;
    double rate = 1e-8;
    double infinite = std::numeric_limits<double>::infinity();
    std::string mode = "fast";
    trainyard::Duration length{2.5, trainyard::Duration::Unit::epochs};
    std::vector<double> betas = {0.9, 0.999};
    std::optional<std::int64_t> seed;
    std::vector<Group> groups;
  };
  static void describe(trainyard::Manifest<Options>& m) {
    m.name("options").version("1.2.3").summary("Every type of option.").needs("graph").conflicts("other");
    m.option("flag", &Options::flag, "a flag");
    m.option("count", &Options::count, "an integer").range(-5, 5);
    m.option("rate", &Options::rate, "a float").above(0.0).below(1.0);
    m.option("infinite", &Options::infinite, "no bound");
    m.option("mode", &Options::mode, "a string: größer").one_of({"fast", "exact"});
    m.option("length", &Options::length, "a duration");
    m.option("betas", &Options::betas, "a list").range(0.0, 1.0);
    m.option("seed", &Options::seed, "an optional");
    m.option("groups", &Options::groups, "a list of tables");
    m.common_default("floor", 0.25);
    using trainyard::Event;
    using trainyard::Region;
    m.hook<&Everything::called>(Event::after_step)
        .writes(Region::model | Region::plugin_own)
        .priority(10)
        .before("a")
        .after("b")
        .after("c");
    m.hook<&Everything::called>(Event::batch_end).every("100ba");
    m.hook<&Everything::called>(Event::eval_end).sink();
  }
  explicit Everything(const Options& options) : options_(options) {}
  double factor(const trainyard::SchedulePoint&) const override {
    return options_.count + options_.betas.back() + options_.groups.size() + (options_.seed ? 1000.0 : 0.0) +
           calls_;
  }
  void called(trainyard::StepContext&) { calls_ += 10000; }

 private:
  Options options_;
  int calls_ = 0;
};
TRAINYARD_PLUGIN(Everything)
