// Rules over samples of the machine and over the times of steps.
#include <cmath>

#include <ATen/ATen.h>

#include "tests/support/rule_run.hpp"

namespace rule_profile_tests {

using namespace trainyard;
using test::no_number;
using test::raw;
using test::Shown;
using test::steps;
using test::table;
using test::watch;

namespace {

using Steps = std::vector<std::int64_t>;
using Numbers = std::vector<double>;

/// A record of the machine; `step` counts them.
Shown sample(std::int64_t step, const std::vector<std::pair<const char*, Numbers>>& tensors) {
  Shown shown{.step = step, .mode = Mode::global, .seconds = 0.5 * static_cast<double>(step)};
  for (const auto& [name, values] : tensors)
    shown.tensors.push_back(raw(name, at::tensor(values, at::kDouble)));
  return shown;
}

template <class Tensors>
std::vector<Shown> samples(std::int64_t count, Tensors&& tensors) {
  std::vector<Shown> run;
  for (std::int64_t i = 0; i < count; ++i) run.push_back(sample(i, tensors(i)));
  return run;
}

Numbers step_seconds(std::int64_t count, double first, std::int64_t outliers) {
  Numbers seconds(static_cast<std::size_t>(count), first);
  for (std::int64_t i = 0; i < outliers; ++i) seconds[static_cast<std::size_t>(i * 7 % count)] = 10.0 * first;
  return seconds;
}

}  // namespace

TEST_CASE("step_outlier: one among n is (n - 1) / sqrt(n) deviations above the mean") {
  for (const auto& [count, most] : {std::pair{10, 2.846}, {11, 3.015}, {101, 9.950}}) {
    const auto run = std::vector<Shown>{sample(0, {{"profile/step_seconds", step_seconds(count, 1.0, 1)}})};
    const auto fires = [&](double stddev) {
      return !watch("step_outlier", table({{"stddev", stddev}, {"n_outliers", 0}, {"steps", 0}}), run)
                  .empty();
    };
    CHECK(most == Approx((count - 1) / std::sqrt(count)).epsilon(2e-4));
    CHECK(fires((count - 1) / std::sqrt(count) - 1e-9));
    CHECK_FALSE(fires((count - 1) / std::sqrt(count) + 1e-9));
    CHECK(fires(3.0) == (count > 10));
  }
}

TEST_CASE("step_outlier looks after more than 100 steps, for more than 10 outliers among them") {
  const auto one = [](const Numbers& seconds, const Table& options = {}) {
    return steps("step_outlier", options, {sample(0, {{"profile/step_seconds", seconds}})});
  };
  CHECK(one(step_seconds(600, 0.1, 11)) == Steps{0});
  CHECK(one(step_seconds(600, 0.1, 10)) == Steps{});
  CHECK(one(step_seconds(600, 0.1, 0)) == Steps{});
  const Table one_is_enough = table({{"n_outliers", 0}});
  CHECK(one(step_seconds(100, 0.1, 1), one_is_enough) == Steps{});
  CHECK(one(step_seconds(101, 0.1, 1), one_is_enough) == Steps{0});
  CHECK(one(Numbers(200, no_number)) == Steps{});
  // Over several records; a step of another pace than the newest ones is forgotten with the window.
  const auto run = samples(8, [](std::int64_t i) {
    return std::vector<std::pair<const char*, Numbers>>{
        {"profile/step_seconds", step_seconds(100, 0.1, i < 3 ? 4 : 0)}};
  });
  CHECK(steps("step_outlier", {}, run) == Steps{2, 3, 4, 5, 6, 7});
  CHECK(steps("step_outlier", table({{"window", 400}}), run) == Steps{2, 3});
  const auto fired = watch("step_outlier", {}, run);
  CHECK(test::evidence(fired.at(0).finding, "outliers") == 12.0);
  CHECK(test::evidence(fired.at(0).finding, "longest_seconds") == Approx(1.0));
}

TEST_CASE("max_initialization_time fires for a first step that was late, and for one that does not come") {
  const auto started = [](double seconds) {
    return std::vector<Shown>{sample(0, {{"system/cpu", {50}}, {"profile/initialization", {0}}}),
                              sample(9, {{"profile/initialization", {seconds}}}),
                              sample(9000, {{"system/cpu", {50}}})};
  };
  CHECK(steps("max_initialization_time", {}, started(1200.0)) == Steps{});
  CHECK(steps("max_initialization_time", {}, started(1200.1)) == Steps{9});
  CHECK(steps("max_initialization_time", table({{"threshold", 0.5}}), started(29.0)) == Steps{});
  CHECK(steps("max_initialization_time", {},
              {sample(2400, {{"system/cpu", {5}}}), sample(2401, {{"system/cpu", {5}}})}) == Steps{2401});
}

TEST_CASE("batch_size fires where CPU, GPU and memory are all used too little") {
  const auto run = [](double cpu, double gpu, double memory) {
    return samples(12, [&](std::int64_t) {
      return std::vector<std::pair<const char*, Numbers>>{
          {"system/cpu", {cpu - 5, cpu + 5}}, {"system/gpu", {gpu, 20}}, {"system/gpu_memory", {memory, 20}}};
    });
  };
  const Table soon = table({{"patience", 10}});
  CHECK(steps("batch_size", soon, run(69.9, 69.9, 69.9)) == Steps{9, 10, 11});
  CHECK(steps("batch_size", soon, run(70, 50, 50)) == Steps{});
  CHECK(steps("batch_size", soon, run(50, 70, 50)) == Steps{});
  CHECK(steps("batch_size", soon, run(50, 50, 70)) == Steps{});
  CHECK(steps("batch_size", soon, run(50, no_number, 50)) == Steps{});
  CHECK(steps("batch_size", {}, run(10, 10, 10)) == Steps{});
  CHECK(steps("batch_size", table({{"patience", 1}}), {sample(0, {{"system/cpu", {1}}})}) == Steps{});
  // Percentile 95 of a window: one sample of ten that is high is enough, until it leaves.
  auto spike = run(20, 20, 20);
  spike[3].tensors[1] = raw("system/gpu", at::tensor({20.0, 99.0}, at::kDouble));
  CHECK(steps("batch_size", table({{"patience", 5}, {"window", 5}}), spike) == Steps{8, 9, 10, 11});
}

TEST_CASE("bottlenecks: a GPU idles while the CPU, or the disk, is busy, in more than half of the samples") {
  const auto run = [](const char* other, double busy, double gpu, int share) {
    return samples(10, [=](std::int64_t i) {
      return std::vector<std::pair<const char*, Numbers>>{{other, {busy}},
                                                          {"system/gpu", {90.0, i < share ? gpu : 90.0}}};
    });
  };
  const Table soon = table({{"patience", 10}});
  for (const auto& [rule, other, limit] :
       {std::tuple{"cpu_bottleneck", "system/cpu", 90.0}, {"io_bottleneck", "system/iowait", 50.0}}) {
    INFO(rule);
    CHECK(steps(rule, soon, run(other, limit + 1, 9.9, 6)) == Steps{9});
    CHECK(steps(rule, soon, run(other, limit + 1, 9.9, 5)) == Steps{});
    CHECK(steps(rule, soon, run(other, limit, 9.9, 10)) == Steps{});
    CHECK(steps(rule, soon, run(other, limit + 1, 10.0, 10)) == Steps{});
    CHECK(steps(rule, soon, run(other, no_number, 0.0, 10)) == Steps{});
    CHECK(steps(rule, {}, run(other, 100.0, 0.0, 10)) == Steps{});
    CHECK(steps(rule, table({{"patience", 1}}), samples(9, [&](std::int64_t) {
                  return std::vector<std::pair<const char*, Numbers>>{{other, {100.0}}};
                })) == Steps{});  // no GPU
  }
}

TEST_CASE("low_gpu_utilization tells too little use from unsteady use") {
  const auto run = [](double high, double low) {
    return samples(20, [=](std::int64_t i) {
      return std::vector<std::pair<const char*, Numbers>>{{"system/gpu", {95.0, i % 2 == 0 ? high : low}}};
    });
  };
  const Table soon = table({{"patience", 20}});
  CHECK(watch("low_gpu_utilization", soon, run(90, 80)).empty());
  const auto little = watch("low_gpu_utilization", soon, run(60, 60));
  REQUIRE(little.size() == 1);
  CHECK(little[0].finding.message ==
        "system/gpu/1: it is used too little: percentile 95 is 60 %, expected at least 70 %");
  const auto unsteady = watch("low_gpu_utilization", soon, run(90, 5));
  REQUIRE(unsteady.size() == 1);
  CHECK(unsteady[0].finding.message ==
        "system/gpu/1: it is used unsteadily: percentile 5 is 5 %, expected at least 10 %");
  CHECK(watch("low_gpu_utilization", soon, run(70, 10)).empty());
  CHECK(watch("low_gpu_utilization", {}, run(0, 0)).empty());
}

TEST_CASE("gpu_memory_increase holds ten samples against the ten before them") {
  const auto run = [](double before, double after) {
    return samples(25, [=](std::int64_t i) {
      return std::vector<std::pair<const char*, Numbers>>{
          {"system/gpu_memory", {30.0, i < 10 ? before : after}}};
    });
  };
  const Table soon = table({{"patience", 1}});
  // At sample 19 the ten of 40 follow the ten of 30; at 15 six of them do.
  CHECK(steps("gpu_memory_increase", soon, run(30, 40)) == Steps{19, 20, 21, 22, 23});
  CHECK(steps("gpu_memory_increase", soon, run(30, 35)) == Steps{});
  CHECK(steps("gpu_memory_increase", soon, run(30, 35.1)) == Steps{19});
  CHECK(steps("gpu_memory_increase", soon, run(40, 30)) == Steps{});
  CHECK(steps("gpu_memory_increase", soon, run(30, no_number)) == Steps{});
  CHECK(steps("gpu_memory_increase", {}, run(30, 90)) == Steps{});
  // The first GPU, too.
  const auto alone = samples(25, [](std::int64_t i) {
    return std::vector<std::pair<const char*, Numbers>>{{"system/gpu_memory", {i < 10 ? 30.0 : 40.0}}};
  });
  CHECK(steps("gpu_memory_increase", soon, alone) == Steps{19, 20, 21, 22, 23});
}

TEST_CASE("load_balancing is the Jensen-Shannon distance of histograms, 100 percent included") {
  const auto run = [](const Numbers& a, const Numbers& b) {
    return samples(static_cast<std::int64_t>(a.size()), [&](std::int64_t i) {
      return std::vector<std::pair<const char*, Numbers>>{
          {"system/gpu", {a[static_cast<std::size_t>(i)], b[static_cast<std::size_t>(i)]}}};
    });
  };
  const Table soon = table({{"patience", 4}});
  CHECK(watch("load_balancing", soon, run({90, 80, 90, 80}, {80, 90, 80, 90})).empty());
  const auto apart = watch("load_balancing", soon, run({100, 100, 100, 99}, {5, 0, 2, 7}));
  REQUIRE(apart.size() == 1);
  CHECK(test::evidence(apart[0].finding, "system/gpu/1") == Approx(std::sqrt(std::log(2.0))));
  // Half of the samples agree: sqrt(ln 2 / 2) = 0.5887.
  const auto half = run({100, 100, 50, 50}, {100, 100, 20, 20});
  CHECK(test::evidence(watch("load_balancing", soon, half).at(0).finding, "system/gpu/1") ==
        Approx(0.588705));
  CHECK(watch("load_balancing", table({{"patience", 4}, {"threshold", 0.589}}), half).empty());
  CHECK(watch("load_balancing", {}, half).empty());
  CHECK(watch("load_balancing", soon, run({no_number, 90, 90, 90}, {90, 90, 90, 90})).empty());
}

TEST_CASE("dataloader holds the loader's threads against the cores") {
  const auto one = [](double workers, std::size_t cores) {
    return !steps("dataloader", {},
                  {sample(0, {{"profile/loader_workers", {workers}}, {"system/cpu", Numbers(cores, 50.0)}})})
                .empty();
  };
  CHECK_FALSE(one(7, 10));
  CHECK_FALSE(one(20, 10));
  CHECK_FALSE(one(0, 10));  // the loop loads by itself
  CHECK(one(6, 10));
  CHECK(one(21, 10));
  CHECK(steps("dataloader", {}, {sample(0, {{"system/cpu", {50}}})}) == Steps{});
}

TEST_CASE("overall_report never fires") {
  CHECK(steps("overall_report", table({{"interval", 1.0}}), samples(9, [](std::int64_t i) {
                return std::vector<std::pair<const char*, Numbers>>{
                    {"system/cpu", {no_number, 5.0}}, {"profile/step_seconds", step_seconds(i, 0.1, 0)}};
              })) == Steps{});
}

}  // namespace rule_profile_tests
