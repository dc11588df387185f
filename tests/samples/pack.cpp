// Three plugins in one object: two schedules, and a hook with the name of one of them. They share a static.
#include <trainyard/hook.hpp>
#include <trainyard/pack.hpp>
#include <trainyard/schedule.hpp>

namespace {

using namespace trainyard;

int calls = 0;

class Rising final : public Schedule {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("rising").version("1.0.0").summary("Counts the calls of all plugins of its object.");
  }
  explicit Rising(const Options&) {}
  double factor(const SchedulePoint&) const override { return ++calls; }
};

class Level final : public Schedule {
 public:
  struct Options {
    double high = 100.0;
  };
  static void describe(Manifest<Options>& m) {
#ifdef TWINS
    m.name("rising").version("1.0.0").summary("Another one of that name.");
#else
    m.name("level").version("2.0.0").summary("The same, and a hundred.");
#endif
#ifdef WRONG
    m.option("high", &Options::high, "what is added").range(0.0, 1.0);
#else
    m.option("high", &Options::high, "what is added");
#endif
  }
  explicit Level(const Options& options) : options_(options) {}
  double factor(const SchedulePoint&) const override {
    return options_.high + ++calls;
  }

 private:
  Options options_;
};

class Rose final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("rising").version("3.0.0").summary("A hook of the same name.");
    m.hook<&Rose::called>(Event::batch_end);
  }
  explicit Rose(const Options&) {}
  void called(StepContext&) { ++calls; }
};

}  // namespace

TRAINYARD_PACK(Rising, Level, Rose)
