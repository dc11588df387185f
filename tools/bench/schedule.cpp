// What a schedule costs a step: factor and momentum of a step and both written into eight groups, of a budget
// of a million steps.
#include <cstring>

#include <trainyard/optimizer.hpp>
#include <trainyard/schedule.hpp>

#include "support/plugin.hpp"
#include "tools/bench/contest.hpp"

namespace trainyard::bench {
namespace {

constexpr std::int64_t budget = 1'000'000;

/// The part of the training loop that is about schedules.
class Steps {
 public:
  Steps(const std::string& type, const Table& options)
      : schedule_(test::make<Schedule>(type, options)),
        curve_(*schedule_, {.steps_per_epoch = 1000, .total_steps = budget}),
        groups_(8) {
    for (ParamGroup& group : groups_) group.base_lr = 0.1;
  }
  void take(int count) {
    for (int i = 0; i < count; ++i) {
      const double factor = curve_.factor(done_);
      const std::optional<double> momentum = curve_.momentum(done_);
      for (ParamGroup& group : groups_) {
        group.lr = group.base_lr * factor;
        group.momentum = momentum;
      }
      asm volatile("" : : "r"(groups_.data()) : "memory");
      done_ = (done_ + 1) % budget;
    }
  }

 private:
  std::unique_ptr<Schedule> schedule_;
  ScheduleCurve curve_;
  std::vector<ParamGroup> groups_;
  std::int64_t done_ = 0;
};

Value part(const char* type, const char* length = nullptr) {
  Table table = test::table({{"type", type}});
  if (length != nullptr) table.set("budget", length);
  return table;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard;
  using namespace trainyard::bench;
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const int rounds = quick ? 3 : 100, steps = 10'000;
  const std::pair<const char*, Table> schedules[] = {
      {"constant", {}},
      {"linear", {}},
      {"step", {}},
      {"multi_step", {}},
      {"exponential", {}},
      {"cosine", {}},
      {"warm_restarts", test::table({{"first", "10ba"}, {"mult", 2}})},
      {"polynomial", test::table({{"power", 2.0}})},
      {"one_cycle", {}},
      {"plateau", {}},
      {"cyclic", {}},
      {"inverse_sqrt", {}},
      {"wsd", {}},
      {"rex", test::table({{"warmup", "5%"}, {"floor", 0.01}})},
      {"sequence",
       test::table({{"parts", Array{part("linear", "5%"), part("one_cycle", "50%"), part("rex")}}})},
      {"chain", test::table({{"parts", Array{part("rex"), part("step")}}})},
  };
  std::vector<Contender> contenders = {{"an empty loop", [] {
                                          for (int i = 0; i < steps; ++i) asm volatile("" ::: "memory");
                                        }}};
  for (const auto& [type, options] : schedules) {
    const auto run = std::make_shared<Steps>(type, options);
    contenders.push_back({std::string(type) + " (bar 500)", [run] { run->take(steps); }});
  }
  print("The schedule of a step with eight groups", "ns", 1e-9, steps, contenders,
        contest(contenders, rounds));
}
