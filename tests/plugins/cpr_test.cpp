// The parts of partial recovery: what they compute, against closed forms, integrals and simulations.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/checkpointer.hpp>
#include <trainyard/sharded.hpp>
#include <trainyard/testing/ranks.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/store.hpp>

#include "plugins/checkpointer/cpr/controller.hpp"
#include "plugins/checkpointer/cpr/overhead.hpp"
#include "plugins/checkpointer/cpr/row_priority.hpp"
#include "plugins/checkpointer/cpr/shard_image.hpp"
#include "support/files.hpp"
#include "support/plugin.hpp"

namespace cpr_tests {

using namespace cpr;

using Catch::Contains;
using trainyard::test::message_of;
using trainyard::test::TempFolder;
using Rows = std::vector<std::int64_t>;

namespace {

/// Hours.
constexpr Job job{.duration = 56.0, .mtbf = 28.0, .shards = 8.0};
constexpr Costs costs{.save = 0.05, .save_shard = 0.05, .load = 0.05, .load_shard = 0.05, .reschedule = 0.1};

struct Estimate {
  double mean = 0.0, error = 0.0;
};

template <class Draw>
Estimate simulate(int runs, Draw&& draw) {
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < runs; ++i) {
    const double value = draw();
    sum += value;
    squares += value * value;
  }
  const double mean = sum / runs;
  return {mean, std::sqrt((squares / runs - mean * mean) / (runs - 1))};
}

/// Samples that one run loses, failures drawn one after the other.
double lost_portion(const Job& of, double interval, std::mt19937_64& engine) {
  std::exponential_distribution<double> wait(1.0 / of.mtbf);
  double lost = 0.0;
  for (double at = wait(engine); at < of.duration; at += wait(engine))
    lost += std::fmod(at, interval) / (of.duration * of.shards);
  return lost;
}

/// What a run of full recovery takes beyond its duration, event by event: work is lost and done again, which
/// can fail, too; saves, loads and reschedules do not.
double full_recovery(const Job& of, double interval, std::mt19937_64& engine) {
  std::exponential_distribution<double> wait(1.0 / of.mtbf);
  double clock = 0.0, saved = 0.0, fails_in = wait(engine);
  while (saved < of.duration) {
    const double end = std::min(saved + interval, of.duration);
    if (fails_in < end - saved) {
      clock += fails_in + costs.load + costs.reschedule;
      fails_in = wait(engine);
      continue;
    }
    fails_in -= end - saved;
    clock += end - saved + (end < of.duration ? costs.save : 0.0);
    saved = end;
  }
  return clock / of.duration - 1.0;
}

}  // namespace

// overhead
// --------------------------------------------------------------------------------------------------------

TEST_CASE("cpr: the expected portion of lost samples is that of the formula and of a simulation") {
  struct Case {
    double duration, interval, mtbf, shards, expected;
  };
  std::mt19937_64 engine(1);
  for (const Case& c : {Case{56, 2, 28, 8, 1.0 / 224},
                        {56, 44.8, 28, 8, 0.085},
                        {10, 1, 5, 18, 1.0 / 180},
                        {100, 5.6, 28, 8, 556.16 / 44800},
                        {56, 70, 28, 8, 0.125}}) {
    INFO(c.duration << " " << c.interval);
    const Job of{.duration = c.duration, .mtbf = c.mtbf, .shards = c.shards};
    CHECK(expected_pls(of, c.interval) == Approx(c.expected).epsilon(1e-6));
    const Estimate found = simulate(200000, [&] { return lost_portion(of, c.interval, engine); });
    CHECK(std::abs(found.mean - c.expected) < 3.0 * found.error);
  }
  CHECK(expected_pls_first_order(job, 44.8) == Approx(0.1).epsilon(1e-6));
}

TEST_CASE("cpr: overheads of both modes") {
  const double best = full_interval(job, costs);
  CHECK(best == Approx(1.6733200530681511).epsilon(1e-6));
  CHECK(full_overhead(job, costs, best) == Approx(0.06511857332386255).epsilon(1e-6));
  CHECK(partial_overhead(job, costs, best) == Approx(0.0352378580905027).epsilon(1e-6));
  for (const double other : {0.999 * best, 1.001 * best})
    CHECK(full_overhead(job, costs, other) > full_overhead(job, costs, best));
  CHECK(partial_interval(job, 0.1) == Approx(44.8).epsilon(1e-6));
  CHECK(partial_overhead(job, costs, 44.8) == Approx(0.006473214285714286).epsilon(1e-6));
  CHECK(partial_interval(job, 0.05) == Approx(22.4).epsilon(1e-6));
  CHECK(partial_overhead(job, costs, 22.4) == Approx(0.007589285714285714).epsilon(1e-6));
  CHECK(partial_interval(job, 0.02) == Approx(8.96).epsilon(1e-6));
  CHECK(partial_overhead(job, costs, 8.96) == Approx(0.0109375).epsilon(1e-6));
  CHECK(partial_interval(job, 1.0) == 56.0);
}

TEST_CASE("cpr: simulated full recovery costs what the design simulated, more than the first order says") {
  struct Case {
    double interval, simulated, first_order;
  };
  std::mt19937_64 engine(2);
  for (const Case& c : {Case{1.67, 0.06475, 0.06512}, {5.0, 0.1097, 0.1046}, {10.0, 0.2007, 0.1889}}) {
    INFO(c.interval);
    CHECK(full_overhead(job, costs, c.interval) == Approx(c.first_order).epsilon(1e-3));
    const Estimate found = simulate(4000, [&] { return full_recovery(job, c.interval, engine); });
    INFO(found.mean << " +- " << found.error);
    CHECK(std::abs(found.mean - c.simulated) < 3.0 * found.error);
    // Exactly: a segment of length L takes (Tf + load + reschedule) (exp(L / Tf) - 1) on average.
    const double whole = std::floor(job.duration / c.interval);
    const auto segment = [](double length) { return (28.0 + 0.15) * std::expm1(length / 28.0); };
    const double exact =
        (whole * (segment(c.interval) + 0.05) + segment(56.0 - whole * c.interval)) / 56.0 - 1.0;
    CHECK(std::abs(found.mean - exact) < 3.0 * found.error);
  }
}

// controller
// --------------------------------------------------------------------------------------------------------

TEST_CASE("cpr: the plan is the paper's as long as nothing was measured") {
  for (const double target : {0.02, 0.05, 0.1})
    for (const double mtbf : {14.0, 28.0, 56.0}) {
      const Controller controller(
          {.target_pls = target, .job = {.duration = 1000.0, .mtbf = mtbf, .shards = 8.0}, .costs = costs});
      const Plan plan = controller.plan(0.0, 0.0, 0.0);
      CHECK(plan.mode == Mode::partial);
      CHECK(plan.interval == Approx(2.0 * target * 8.0 * mtbf));
      CHECK(plan.pls <= target);
    }
}

TEST_CASE("cpr: the cheaper mode is taken") {
  // One shard and hardly any loss: saves that often cost more than going back.
  const Controller strict(
      {.target_pls = 1e-4, .job = {.duration = 56.0, .mtbf = 28.0, .shards = 1.0}, .costs = costs});
  const Plan plan = strict.plan(0.0, 0.0, 0.0);
  CHECK(plan.mode == Mode::full);
  CHECK(plan.interval == Approx(full_interval({.duration = 56.0, .mtbf = 28.0}, costs)));
  CHECK(plan.overhead < partial_overhead(job, costs, 2.0 * 1e-4 * 28.0));
  // On the border of both, to either side.
  const Job of{.duration = 5600.0, .mtbf = 28.0, .shards = 8.0};
  const double border = full_overhead(of, costs, full_interval(of, costs));
  const double interval = costs.save / (border - partial_overhead(of, costs, 1e300));
  for (const double factor : {0.99, 1.01}) {
    const Controller near({.target_pls = factor * interval / (2.0 * 8.0 * 28.0), .job = of, .costs = costs});
    CHECK((near.plan(0.0, 0.0, 0.0).mode == Mode::partial) == (factor > 1.0));
  }
}

TEST_CASE("cpr: saves, loads and failures are measured") {
  Controller controller(
      {.target_pls = 0.1, .job = job, .costs = costs, .prior_failures = 2.0, .smoothing = 0.5});
  controller.saved(Mode::full, 0.25);
  CHECK(controller.costs().save == Approx(0.15));
  controller.saved(Mode::full, 0.25);
  CHECK(controller.costs().save == Approx(0.2));
  CHECK(controller.costs().save_shard == Approx(0.05));
  controller.saved(Mode::partial, 0.15);
  CHECK(controller.costs().save_shard == Approx(0.1));
  CHECK(controller.costs().save == Approx(0.2));
  CHECK(controller.mtbf(0.0) == Approx(28.0));
  CHECK(controller.mtbf(28.0) == Approx((56.0 + 28.0) / 2.0));  // nothing failed: it is believed to be longer
  controller.failed(Mode::partial, 0.15, 0.3);
  CHECK(controller.costs().load_shard == Approx(0.1));
  CHECK(controller.costs().load == Approx(0.05));
  CHECK(controller.costs().reschedule == Approx(0.2));
  controller.failed(Mode::full, 0.15, 0.2);
  CHECK(controller.costs().load == Approx(0.1));
  CHECK(controller.mtbf(28.0) == Approx((56.0 + 28.0) / 4.0));
  // Twice as many failures, half the interval.
  CHECK(controller.plan(0.1, 28.0, 0.0).interval == Approx(2.0 * 0.1 * 8.0 * 21.0));
}

TEST_CASE("cpr: what was lost shortens the interval, and ends partial recovery where nothing is left") {
  const Controller controller(
      {.target_pls = 0.1, .job = {.duration = 560.0, .mtbf = 28.0, .shards = 8.0}, .costs = costs});
  const auto plan = [&](double pls) { return controller.plan(0.5, 0.0, pls); };
  CHECK(plan(0.0).interval == Approx(44.8));   // less was lost than planned: it stays
  CHECK(plan(0.05).interval == Approx(44.8));  // half the run, half the target
  CHECK(plan(0.075).interval == Approx(22.4));
  CHECK(plan(0.075).pls <= 0.1);
  CHECK(plan(0.0999).mode == Mode::full);  // it would have to save too often
  CHECK(plan(0.1).mode == Mode::full);
  CHECK(plan(0.2).mode == Mode::full);
  CHECK(plan(0.2).pls == Approx(0.2));
  CHECK(controller.plan(1.0, 0.0, 0.05).interval > 0.0);
  CHECK_THAT(message_of<ConfigError>([] { Controller({.target_pls = 0.0, .job = job, .costs = costs}); }),
             Contains("target_pls") && Contains("above 0"));
}

TEST_CASE("cpr: lost samples weigh by the rows of the shard") {
  const Rows rows = {100, 300};
  LossMeter meter(1000, rows);
  CHECK(meter.failed(0, 50) == 50);  // before its first save
  CHECK(meter.pls() == Approx(0.05 * 0.25));
  meter.saved(1, 200);
  CHECK(meter.failed(1, 300) == 100);
  CHECK(meter.pls() == Approx(0.05 * 0.25 + 0.1 * 0.75));
  CHECK(meter.failed(0, 300) == 300);  // its own last save counts
  CHECK_THROWS_AS(LossMeter(0, rows), ConfigError);
}

TEST_CASE("cpr: a controlled run keeps to the tolerated loss, whatever it believed of failures") {
  std::mt19937_64 engine(3);
  for (const double believed : {7.0, 28.0, 112.0}) {
    const Estimate found = simulate(400, [&] {
      const Job truth{.duration = 560.0, .mtbf = 28.0, .shards = 8.0};
      Controller controller(
          {.target_pls = 0.1, .job = {.duration = 560.0, .mtbf = believed, .shards = 8.0}, .costs = costs});
      std::exponential_distribution<double> wait(1.0 / truth.mtbf);
      double fails = wait(engine), saved = 0.0, pls = 0.0;
      for (double at = 0.0; at < truth.duration; at += 0.1) {
        const Plan plan = controller.plan(at / truth.duration, at, pls);
        if (at - saved >= plan.interval) saved = at;
        if (at < fails) continue;
        if (plan.mode == Mode::partial) pls += (at - saved) / (truth.duration * truth.shards);
        controller.failed(plan.mode, 0.05, 0.1);
        fails += wait(engine);
      }
      return pls;
    });
    INFO(believed << ": " << found.mean);
    CHECK(found.mean < 0.1);
    CHECK(found.mean > 0.05);  // and makes use of it
  }
}

// row_priority
// --------------------------------------------------------------------------------------------------------

namespace {

State saved(const RowPriority& priority) {
  State state{.owner = "priority", .version = {}, .scalars = {}, .tensors = {}};
  StateWriter writer(state);
  priority.save(writer);
  return state;
}

Rows repeated(std::int64_t row, int times) {
  return Rows(static_cast<std::size_t>(times), row);
}

/// One batch.
void look(RowPriority& priority, const Rows& rows) {
  priority.begin_batch();
  priority.tick(rows, 0);
}

}  // namespace

TEST_CASE("cpr: vanilla writes all rows") {
  CHECK(Vanilla(4).take(at::zeros({4, 2})) == Rows{0, 1, 2, 3});
}

TEST_CASE("cpr: scar writes the rows that moved furthest since they were written") {
  at::Tensor table = at::zeros({8, 2});
  Scar scar(table, 0.25);
  table[3] = at::tensor({0.0f, 3.0f});
  table[5] = at::tensor({2.0f, 2.0f});  // further than (0, 2.5), by the Euclidean distance
  table[6] = at::tensor({0.0f, 2.5f});
  CHECK(scar.take(table) == Rows{3, 5});
  table[3] += 0.5;  // from where it was written
  CHECK(scar.take(table) == Rows{3, 6});
  CHECK(scar.take(table).empty());  // nothing moved
  table += 1.0;
  scar.take_all(table);
  CHECK(scar.take(table).empty());
  CHECK(scar.bytes() == 8 * 2 * 4);
}

TEST_CASE("cpr: mfu writes the rows used most since they were written, and none that was not") {
  Mfu mfu(8, 0.25);
  const at::Tensor table = at::zeros({8, 16});
  look(mfu, repeated(2, 5));
  look(mfu, repeated(7, 4));
  look(mfu, repeated(1, 3));
  CHECK(mfu.take(table) == Rows{2, 7});
  look(mfu, repeated(2, 2));
  CHECK(mfu.take(table) == Rows{1, 2});  // 3 against 2, and 7 counts from 0
  CHECK(mfu.take(table).empty());
  look(mfu, repeated(4, 1));
  mfu.take_all(table);
  CHECK(mfu.take(table).empty());
  CHECK(mfu.bytes() == 8 * 4);  // a share 1 / D of the table
}

TEST_CASE("cpr: every row that mfu saw is written within a bounded number of takes") {
  const std::int64_t rows = 64;
  Mfu mfu(rows, 0.125);
  const at::Tensor table = at::zeros({rows, 2});
  for (std::int64_t row = 0; row < rows; ++row) look(mfu, repeated(row, static_cast<int>(row) + 1));
  std::set<std::int64_t> written;
  for (int take = 0; take < 8; ++take)
    for (const std::int64_t row : mfu.take(table)) CHECK(written.insert(row).second);
  CHECK(written.size() == 64);
}

TEST_CASE("cpr: ssu looks at every second batch and empties what is taken") {
  Ssu ssu(16, 0.25, 1);
  const at::Tensor table = at::zeros({16, 2});
  look(ssu, Rows{3, 3, 9});
  look(ssu, Rows{5});
  look(ssu, Rows{1});
  CHECK(ssu.take(table) == Rows{1, 3, 9});
  look(ssu, Rows{6});
  CHECK(ssu.take(table).empty());
  look(ssu, Rows{6});
  ssu.take_all(table);
  CHECK(ssu.take(table).empty());
  Ssu always(16, 0.25, 1, 1);
  look(always, Rows{3});
  look(always, Rows{5});
  CHECK(always.take(table) == Rows{3, 5});
}

TEST_CASE("cpr: a full set of ssu gives up any member, each as likely") {
  const at::Tensor table = at::zeros({32, 2});
  const int trials = 4000;
  std::map<std::int64_t, int> kept;
  for (int seed = 0; seed < trials; ++seed) {
    Ssu ssu(32, 0.25, static_cast<std::uint64_t>(seed), 1);
    for (std::int64_t row = 0; row < 9; ++row) look(ssu, Rows{row});
    const Rows rows = ssu.take(table);
    REQUIRE(rows.size() == 8);
    CHECK(rows.back() == 8);  // the newest is in
    for (const std::int64_t row : rows) ++kept[row];
  }
  const double expected = trials * 7.0 / 8.0, error = std::sqrt(trials * 7.0 / 64.0);
  for (std::int64_t row = 0; row < 8; ++row) CHECK(std::abs(kept[row] - expected) < 4.5 * error);
  // Rows that came long ago go, first as last: no prefix stays.
  Ssu ssu(800, 0.01, 1, 1);
  for (std::int64_t row = 0; row < 800; ++row) look(ssu, Rows{row});
  CHECK(ssu.take(table).front() > 100);
}

TEST_CASE("cpr: rows of all tables compete for one share") {
  const std::vector<at::Tensor> tables = {at::zeros({6, 2}), at::zeros({20, 2}), at::zeros({6, 2})};
  using Taken = std::vector<Rows>;
  const auto batch = [](Priorities& priorities, const Rows& a, const Rows& b, const Rows& c) {
    priorities.tick(0, a);
    priorities.tick(1, b);
    priorities.tick(2, c);
  };
  Priorities mfu("mfu", tables, 0.125);  // four rows
  batch(mfu, {0, 5, 5, 5}, {19, 19}, {0, 0, 0, 0, 3, 3});
  CHECK(mfu.take(tables) == Taken{{5}, {19}, {0, 3}});
  CHECK(mfu.take(tables) == Taken{{0}, {}, {}});
  Priorities ssu("ssu", tables, 0.125);
  batch(ssu, {1}, {2}, {3});
  batch(ssu, {4}, {}, {});  // every second batch is not looked at, whatever the table
  CHECK(ssu.take(tables) == Taken{{1}, {2}, {3}});
  Priorities scar("scar", tables, 0.125);
  tables[1][7].add_(1.0);
  CHECK(scar.take(tables) == Taken{{}, {7}, {}});
  scar.take_all(tables);
  tables[2][5].add_(1.0);
  CHECK(scar.take(tables) == Taken{{}, {}, {5}});
  CHECK(Priorities("vanilla", tables, 0.125).take(tables)[1].size() == 20);
}

TEST_CASE("cpr: priorities go on from their state") {
  const at::Tensor table = at::zeros({100, 2});
  const auto batch = [](int i) {
    Rows rows;
    const RandomStream random(7, "batch", static_cast<std::uint64_t>(i));
    for (std::uint64_t k = 0; k < 20; ++k) rows.push_back(static_cast<std::int64_t>(random.below(k, 100)));
    return rows;
  };
  const auto check = [&](auto whole, auto part) {
    for (int i = 0; i < 5; ++i) look(whole, batch(i));
    part.load(StateReader(saved(whole)));
    for (int i = 5; i < 12; ++i) {
      look(whole, batch(i));
      look(part, batch(i));
    }
    CHECK(whole.take(table) == part.take(table));
    CHECK(digest(saved(whole)) == digest(saved(part)));
  };
  check(Mfu(100, 0.125), Mfu(100, 0.125));
  check(Ssu(100, 0.125, 3), Ssu(100, 0.125, 3));
  Mfu full(100, 0.125);
  CHECK_THROWS_WITH(Mfu(90, 0.125).load(StateReader(saved(full))), Contains("100 rows, the table has 90"));
  Ssu set(100, 0.125, 3, 1);
  look(set, batch(0));
  CHECK_THROWS_WITH(Ssu(40, 0.125, 3).load(StateReader(saved(set))), Contains("table of 40"));
}

// shard_image
// --------------------------------------------------------------------------------------------------------

namespace {

/// Two tables, all of whose numbers tell step and row.
ShardTable table_at(const std::string& name, std::int64_t rows, std::int64_t step) {
  const at::Tensor row = at::arange(rows, at::kFloat);
  return {name,
          {{"weight", row.unsqueeze(1).repeat({1, 4}) + 1000.0 * static_cast<double>(step)},
           {"sum", row + 0.5 + 1000.0 * static_cast<double>(step)}},
          {}};
}
std::vector<ShardTable> tables_at(std::int64_t step) {
  return {table_at("tables.0.weight", 6, step), table_at("tables.1.weight", 40, step)};
}

RowRecords records_of(const std::string& name, std::int64_t all, const Rows& rows, std::int64_t step) {
  ShardTable now = table_at(name, all, step);
  const at::Tensor index = at::tensor(rows, at::kLong);
  RowRecords records{name, rows, {}};
  for (auto& [value, tensor] : now.values) records.values[value] = tensor.index_select(0, index);
  return records;
}

/// The rows of the second table that step `step` writes.
Rows written_at(std::int64_t step) {
  return {step % 40, (step * 7 + 3) % 40 == step % 40 ? (step + 1) % 40 : (step * 7 + 3) % 40};
}

void check_image(const ShardImage& image, const std::vector<std::int64_t>& steps_of_rows) {
  const std::vector<ShardTable> found = image.load();
  REQUIRE(found.size() == 2);
  for (std::size_t row = 0; row < 40; ++row) {
    const auto step = static_cast<double>(steps_of_rows[row]);
    const auto i = static_cast<std::int64_t>(row);
    CHECK(found[1].saved_at[i].item<std::int64_t>() == steps_of_rows[row]);
    CHECK(found[1].values.at("weight")[i][3].item<double>() == 1000.0 * step + static_cast<double>(row));
    CHECK(found[1].values.at("sum")[i].item<double>() == 1000.0 * step + static_cast<double>(row) + 0.5);
  }
}

std::string file_of(const std::string& folder, const std::string& prefix) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(prefix)) return entry.path().string();
  FAIL(prefix);
  return {};
}

void write(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace

TEST_CASE("cpr: an image is its base and the newest record of each row") {
  const TempFolder folder;
  const std::string path = folder.path("shard-0");
  std::vector<std::int64_t> steps(40, 10);
  {
    ShardImage image(path);
    CHECK(image.empty());
    CHECK_THROWS_WITH(image.load(), Contains("no base"));
    CHECK_THROWS_WITH(image.write_records(1, {}), Contains("base"));
    image.write_base(10, tables_at(10));
    image.write_records(20, {records_of("tables.1.weight", 40, {5, 2, 39}, 20)});
    image.write_records(30, {records_of("tables.1.weight", 40, {2, 7}, 30)});
    image.write_records(40, {records_of("tables.1.weight", 40, {}, 40)});
    CHECK_THROWS_WITH(image.write_records(39, {}), Contains("step 39") && Contains("step 40"));
  }
  for (const int row : {5, 39}) steps[static_cast<std::size_t>(row)] = 20;
  for (const int row : {2, 7}) steps[static_cast<std::size_t>(row)] = 30;
  ShardImage image(path);
  CHECK(image.step() == 40);
  CHECK(image.records() == 3);
  check_image(image, steps);
  image.compact();
  CHECK(image.records() == 0);
  CHECK(image.step() == 40);
  check_image(image, steps);
  check_image(ShardImage(path), steps);
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(path), {}); };
  CHECK(files() == 7);  // this one and the one before, a manifest each
  image.write_records(50, {records_of("tables.1.weight", 40, {5}, 50)});
  steps[5] = 50;
  check_image(ShardImage(path), steps);
  image.write_base(60, tables_at(60));
  check_image(ShardImage(path), std::vector<std::int64_t>(40, 60));
  CHECK(files() == 5);
}

TEST_CASE("cpr: where a file of an image is damaged the image before it is loaded, and gone on from") {
  for (const std::string damaged : {"base-20-", "records-30-", "manifest"}) {
    const TempFolder folder;
    const std::string path = folder.path("shard");
    std::vector<std::int64_t> steps(40, 10);
    {
      ShardImage image(path);
      image.write_base(10, tables_at(10));
      image.write_records(20, {records_of("tables.1.weight", 40, {5}, 20)});
      image.compact();
      image.write_records(30, {records_of("tables.1.weight", 40, {7}, 30)});
    }
    steps[5] = 20;
    const std::string file = file_of(path, damaged);
    std::string content = test::read_file(file);
    content[content.size() / 2] ^= 1;
    write(file, content);
    ShardImage image(path);
    image.load_whole();
    INFO(damaged);
    CHECK_THAT(image.damage(), Contains(damaged));
    CHECK(image.base_step() == 10);
    check_image(image, steps);
    check_image(ShardImage(path), steps);
    write(path + "/manifest", "cut");
    write(path + "/manifest.before", "cut");
    CHECK_THAT(message_of<DataError>([&] { ShardImage(path).load_whole(); }), Contains("manifest.before"));
  }
}

TEST_CASE("cpr: an image that was loaded behind a damaged one is what the next base falls back to") {
  for (const std::string damaged : {"manifest", "base-20-"}) {
    const TempFolder folder;
    const std::string path = folder.path("shard-0");
    const auto damage = [&](const std::string& file) {
      std::string content = test::read_file(file);
      content[content.size() / 2] ^= 1;
      write(file, content);
    };
    {
      ShardImage image(path);
      image.write_base(10, tables_at(10));
      image.write_base(20, tables_at(20));
    }
    damage(damaged == "manifest" ? path + "/manifest" : file_of(path, damaged));
    ShardImage image(path);
    image.load_whole();
    CHECK_THAT(image.damage(), Contains(damaged));
    image.write_base(30, tables_at(30));
    CHECK(image.damage().empty());
    damage(file_of(path, "base-30-"));
    const auto fallen_back = [&](ShardImage& now) {
      INFO(damaged);
      now.load_whole();
      CHECK_THAT(now.damage(), Contains("base-30-"));
      check_image(now, std::vector<std::int64_t>(40, 10));
    };
    const TempFolder other;  // as another process finds it
    std::filesystem::copy(path, other.path("shard-0"));
    ShardImage later(other.path("shard-0"));
    fallen_back(later);
    fallen_back(image);
  }
}

TEST_CASE("cpr: a file that cannot be written leaves the one before") {
  const TempFolder folder;
  replace_file(folder.path(""), "losses.json", "one");
  std::filesystem::create_symlink("/dev/full", folder.path("losses.json.tmp"));
  CHECK_THROWS_AS(replace_file(folder.path(""), "losses.json", "another"), DataError);
  CHECK(test::read_file(folder.path("losses.json")) == "one");
}

TEST_CASE("cpr: what does not fit an image is refused") {
  const TempFolder folder;
  ShardImage image(folder.path("shard"));
  image.write_base(1, tables_at(1));
  RowRecords uneven = records_of("tables.1.weight", 40, {1, 2}, 2);
  uneven.rows = {1, 2, 3};
  CHECK_THROWS_WITH(image.write_records(2, {uneven}), Contains("values for 2 rows, and names 3"));
  RowRecords without = records_of("tables.1.weight", 40, {1}, 2);
  without.values.erase("sum");
  image.write_records(2, {without});
  CHECK_THROWS_WITH(image.load(), Contains("have no sum"));
  image.write_base(3, tables_at(3));
  image.write_records(4, {records_of("tables.9.weight", 40, {1}, 4)});
  CHECK_THROWS_WITH(image.load(), Contains("no table tables.9.weight"));
  image.write_base(5, tables_at(5));
  image.write_records(6, {records_of("tables.0.weight", 40, {33}, 6)});
  CHECK_THROWS_WITH(image.load(), Contains("of 6 rows"));
}

TEST_CASE("cpr: files of others stay in the folder") {
  const TempFolder folder;
  folder.write("mine.txt", "x");
  folder.write("base-7-0.safetensors.tmp", "cut short");
  ShardImage image(folder.path(""));
  CHECK(std::filesystem::exists(folder.path("mine.txt")));
  CHECK_FALSE(std::filesystem::exists(folder.path("base-7-0.safetensors.tmp")));
}

TEST_CASE("cpr: any flipped bit is found, and names the tensor where it lies in one") {
  const TempFolder folder;
  const std::string path = folder.path("shard");
  {
    ShardImage image(path);
    image.write_base(10, tables_at(10));
    image.write_records(20, {records_of("tables.1.weight", 40, {5, 2, 39}, 20)});
  }
  const std::vector<std::string> files = {file_of(path, "base-"), file_of(path, "records-"),
                                          path + "/manifest"};
  std::mt19937_64 engine(4);
  int named = 0;
  for (int flip = 0; flip < 500; ++flip) {
    const std::string& file = files[static_cast<std::size_t>(flip) % files.size()];
    const std::string good = test::read_file(file);
    std::string bad = good;
    const std::size_t bit = engine() % (8 * good.size());
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    write(file, bad);
    INFO(file << " bit " << bit);
    const std::string message = message_of<DataError>([&] { ShardImage(path).load(); });
    CHECK_THAT(message, Contains(file));
    named += message.find("bytes of tensor \"tables.") != std::string::npos;
    write(file, good);
  }
  CHECK(named > 100);
  CHECK_NOTHROW(ShardImage(path).load());
}

TEST_CASE("cpr: a file cut at any place is found") {
  const TempFolder folder;
  const std::string path = folder.path("shard");
  ShardImage image(path);
  const ShardTable large{"tables.0.weight", {{"weight", at::ones({3000, 8})}, {"sum", at::ones({3000})}}, {}};
  image.write_base(10, {large});
  const std::string file = file_of(path, "base-"), good = test::read_file(file);
  REQUIRE(good.size() > 20 * 4096);
  for (std::size_t size = 0; size < good.size(); size += 4096) {
    write(file, good.substr(0, size));
    CHECK_THAT(message_of<DataError>([&] { image.load(); }), Contains(file));
  }
}

TEST_CASE("cpr: a writer killed at any moment leaves a whole image, never a mixed one") {
  std::mt19937_64 engine(5);
  std::set<std::int64_t> reached;
  void* const shared = ::mmap(nullptr, sizeof(std::atomic<std::int64_t>), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED);
  auto& begun = *new (shared) std::atomic<std::int64_t>;
  for (int kill = 0; kill < 200; ++kill) {
    begun = 0;
    const TempFolder folder;
    const std::string path = folder.path("shard");
    { ShardImage(path).write_base(0, tables_at(0)); }
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ShardImage image(path);
      for (std::int64_t step = 1;; ++step) {
        begun = step;
        image.write_records(step, {records_of("tables.1.weight", 40, written_at(step), step)});
        if (step % 4 == 0) image.compact();
      }
    }
    // However slow the machine: inside any of the first steps.
    const auto step_killed = static_cast<std::int64_t>(engine() % 10);
    while (begun < step_killed && ::waitpid(child, nullptr, WNOHANG) == 0) ::usleep(20);
    ::usleep(static_cast<useconds_t>(engine() % 2000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);

    const ShardImage image(path);
    std::vector<std::int64_t> steps(40, 0);
    for (std::int64_t step = 1; step <= image.step(); ++step)
      for (const std::int64_t row : written_at(step)) steps[static_cast<std::size_t>(row)] = step;
    check_image(image, steps);
    reached.insert(image.step());
  }
  ::munmap(shared, sizeof begun);
  CHECK(reached.size() > 3);
}

// ranks
// --------------------------------------------------------------------------------------------------------

namespace {

/// A network one of whose parameters passes for the rows of a table that a rank owns.
class Sharded final : public Network, public ShardsTables {
 public:
  at::Tensor forward(const Batch& batch, const ForwardContext& context) override {
    return inner_->forward(batch, context);
  }
  std::vector<NamedTensor> parameters() const override { return inner_->parameters(); }
  std::vector<NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return inner_->output_shape(); }
  void to(at::Device) override {}
  std::vector<ShardedTable> sharded() const override { return {{"fc1.weight", 16}}; }
  void begin_evaluation() override {}
  void end_evaluation() override {}
  void on_lookup(std::function<void(std::size_t, std::span<const std::int64_t>)>) override {}

 private:
  std::unique_ptr<Network> inner_ = testing::tiny_network(testing::tiny_schema());
};

/// The process of a rank.
struct Process {
  Process(const std::string& folder, Ranks& ranks)
      : cpr(trainyard::test::shipped_file("checkpointer", "cpr"),
            {{"target_pls", 0.5}, {"mtbf", 4.0}, {"priority", "vanilla"}}),
        run({.steps = 40}) {
    std::filesystem::create_directories(folder);
    cpr.host().facts.directory = folder;
    cpr.host().facts.ranks = &ranks;
    cpr->open(store);
    run.use(std::make_unique<Sharded>());
    run.add(cpr);
  }
  void replaced(const Replacement& what) {
    cpr->replaces_ranks()->replaced(what, run.network(), run.optimizer());
  }

  testing::FakeStore store;
  testing::Made<Checkpointer> cpr;
  testing::TinyRun run;
};

}  // namespace

TEST_CASE("cpr: ranks plan by the same figures whatever their clocks say, and lose what the image lacks") {
  const TempFolder folder;
  std::map<std::string, std::vector<double>, std::less<>> before[2], after[2];
  std::string told[2];
  testing::on_ranks(2, [&](Ranks& ranks) {
    const int rank = ranks.rank();
    const std::string own = folder.path(rank == 0 ? "run" : "run/ranks/1"), tables = own + "/tables";
    auto process = std::make_unique<Process>(own, ranks);
    for (int step = 1; step <= 20; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 5 : 20));
      process->run.step();
      if (rank == 0 && step == 5) process->cpr->take(testing::tiny_snapshot(step));
    }
    before[rank] = process->cpr.host().metrics;
    if (rank == 1) {  // lost, and what it wrote last is damaged
      process = std::make_unique<Process>(own, ranks);
      process->run.step(0);
      const std::string file = file_of(tables, "base-" + std::to_string(ShardImage(tables).base_step()));
      write(file, test::read_file(file) + "x");
    }
    process->cpr.host().metrics.clear();
    process->replaced({.ranks = {1}, .step = 20, .samples = 160, .seconds = 0.1 + rank});
    after[rank] = process->cpr.host().metrics;
    told[rank] = process->cpr.host().journal_entries.back().second;
  });
  CHECK(before[0]["cpr/save"].size() == 2);  // at the beginning, and once behind it
  CHECK((before[0] == before[1]));
  CHECK((after[0] == after[1]));
  CHECK(after[0]["cpr/pls"] == std::vector<double>{0.25});  // all of 160 of 320 samples, of half the rows
  for (const std::string& each : told)
    CHECK_THAT(each, Contains("160 samples lost by the rows of 1 of 2 ranks"));
}

}  // namespace cpr_tests
