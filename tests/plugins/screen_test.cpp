// The tool screen: each detector against numbers of others, neighbours against brute force, what a score may not depend
// on, projections, forests, the schedule, and files.
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "plugins/tool/screen/pool_file.hpp"
#include "plugins/tool/screen/proximity.hpp"
#include "plugins/tool/screen/rates.hpp"
#include "plugins/tool/screen/share.hpp"
#include "plugins/tool/screen/table.hpp"
#include "tests/support/files.hpp"

namespace screen_tests {

using namespace screen;
using Catch::Contains;
using trainyard::test::message_of;
using Numbers = std::vector<double>;

namespace {

Matrix matrix(const std::vector<Numbers>& rows) {
  Matrix result(rows.size(), rows.front().size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), result.row(i).begin());
  return result;
}

/// The six rows of the project's card, whose scores are published there.
const Matrix six = matrix({{0, 0}, {1, 1}, {2, 1}, {3, 2}, {4, 3}, {10, -5}});

/// Twelve rows of sines, the eighth of which is three times as long.
Matrix sines() {
  Matrix rows(12, 3);
  for (std::size_t i = 0; i < 12; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      rows.row(i)[j] = std::sin(static_cast<double>(3 * i + 7 * j + i * j)) * (i == 7 ? 3.0 : 1.0);
  return rows;
}

/// Two clouds and a few rows far away, in columns of different sizes, with rows that stand twice.
Matrix clouds(std::size_t rows, std::size_t columns, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Matrix result(rows, columns);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      result.row(i)[j] =
          normal(random) * (i % 37 == 0 ? 6.0 : 1.0) * static_cast<double>(j + 1) + (i % 2 == 0 ? 3.0 : 0.0);
  for (std::size_t i = 50; i + 50 < rows; i += 50)
    std::copy_n(result.row(i).begin(), columns, result.row(i + 1).begin());
  return result;
}

std::unique_ptr<Detector> made(const std::string& text) {
  const Spec spec = parse_spec(text);
  return spec.family->make(spec.parameter);
}

void check_near(const Numbers& found, const Numbers& expected, double margin) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("row " << i);
    CHECK(found[i] == Approx(expected[i]).margin(margin).epsilon(0));
  }
}

double spearman(const Numbers& a, const Numbers& b) {
  const auto ranks = [](const Numbers& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t x, std::size_t y) { return values[x] < values[y]; });
    Numbers result(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<double>(i);
    return result;
  };
  const Numbers x = ranks(a), y = ranks(b);
  double squares = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  const auto n = static_cast<double>(x.size());
  return 1.0 - 6.0 * squares / (n * (n * n - 1.0));
}

}  // namespace

TEST_CASE("screen: detectors give the published scores of six rows", "[screen]") {
  const auto scores = [](const std::string& text) { return made(text)->fit(six, {}); };
  check_near(scores("knn:2"), {2.236068, 1.414214, 1.414214, 1.414214, 2.828427, 10}, 1e-6);
  check_near(scores("knn_mean:2"), {1.825141, 1.207107, 1.207107, 1.414214, 2.121320, 9.949747}, 1e-6);
  check_near(scores("lof:2"), {1.145285, 1.145285, .720759, 1.25, 1.25, 5.862945}, 1e-6);
  check_near(scores("hbos:3"), {4.358454, 3.251539, 3.251539, 3.251539, 4.251539, 5.358454}, 1e-6);
  check_near(scores("ecod"), {2.890372, 1.504077, 1.098612, 1.791759, 2.890372, 3.583519}, 1e-6);
  check_near(scores("copod"), {1.994492, 1.045932, .954771, 1.333614, 1.994492, 3.583519}, 1e-6);
  // By PyOD 3.6.0, whose fast ABOD counts the row itself among its neighbours: n_neighbors=4 is abod:3.
  check_near(scores("abod:3"),
             {-0.005299145299145293, -0.14888888888888882, -0.14888888888888882, -0.11555555555555545,
              -0.004026955950032868, -3.555555555555574e-08},
             1e-9);
  check_near(made("pca")->fit(sines(), {}),
             {18.118969739992032, 22.027823578653795, 19.80529080704043, 12.873258824165166,
              25.35092939129945, 17.894307740199118, 23.20166741962158, 48.18331818464675, 26.305242717042617,
              19.119110666518928, 25.880929219011755, 12.282867118330769},
             1e-6);
}

TEST_CASE("screen: detectors give the scores of new rows that PyOD gives", "[screen]") {
  const auto scores = [](const std::string& text, const Matrix& rows, const Matrix& more) {
    const std::unique_ptr<Detector> detector = made(text);
    detector->fit(rows, {});
    return detector->score(more, {});
  };
  check_near(scores("lof:2", six, matrix({{1.5, 1}, {7, 7}, {3, 2}})),
             {0.887425886728961, 2.6877421582542538, 0.8333333333411901}, 1e-9);
  check_near(scores("hbos:3", six, matrix({{1.5, 1}, {11, 7}, {11.7, 2}})),
             {3.2515387669959646, 5.3584539709124765, 4.251538766995965}, 1e-9);
  const Matrix more = matrix({{.5, .5, -.5}, {2, 2, 2}});
  check_near(scores("pca", sines(), more), {11.339305667708452, 40.584098517390416}, 1e-6);
  check_near(scores("ocsvm:0.3", sines(), more), {-0.0865586233661999, 0.923123371289743}, 3e-4);
  check_near(made("ocsvm:0.3")->fit(sines(), {}),
             {-0.15922864874320175, -0.005837675508338469, 0, -0.03428721483013386, 0, 0,
              -0.08020764595810892, 0.07165517248234021, 0, 0, 0, 0},
             3e-4);
}

TEST_CASE("screen: the nearest rows are those of brute force", "[screen]") {
  struct Case {
    const char* name;
    double scale, offset;
  };
  for (const Case each :
       {Case{"plain", 1, 0}, Case{"far from 0", 1, 1e7}, Case{"large", 1e120, 0}, Case{"small", 1e-120, 0}}) {
    INFO(each.name);
    Matrix rows = clouds(700, 7, 3);
    for (double& value : rows.values) value = value * each.scale + each.offset;
    if (each.scale == 1.0) rows.row(13)[2] = 1e9;  // beside which the others differ by little
    const Neighbours found = NeighbourIndex(rows).nearest_others(6, {});
    for (std::size_t i = 0; i < rows.rows; ++i) {
      Numbers all;
      for (std::size_t k = 0; k < rows.rows; ++k) {
        if (k == i) continue;
        long double sum = 0.0;
        for (std::size_t j = 0; j < rows.columns; ++j) {
          const long double difference = static_cast<long double>(rows.at(i, j)) - rows.at(k, j);
          sum += difference * difference;
        }
        all.push_back(static_cast<double>(std::sqrt(sum)));
      }
      std::sort(all.begin(), all.end());
      for (std::size_t k = 0; k < 6; ++k) {
        if (std::abs(found.distances_of(i)[k] - all[k]) > 1e-12 * all[k])
          FAIL("row " << i << ", neighbour " << k);
        CHECK(static_cast<std::size_t>(found.places_of(i)[k]) != i);
      }
    }
  }
}

TEST_CASE("screen: rows that are all the same have finite scores", "[screen]") {
  Matrix rows(40, 3);
  rows.row(7)[1] = 1.0;
  for (const Family& family : families()) {
    INFO(family.name);
    for (const double score : made(std::string(family.name))->fit(rows, {})) CHECK(std::isfinite(score));
  }
}

TEST_CASE("screen: the score of a row does not depend on its batch, to the bit", "[screen]") {
  PoolOptions options;
  for (const Family& family : families()) options.detectors.emplace_back(family.name);
  options.approximate = {"lof"};
  options.trees = 10;
  const Matrix rows = clouds(400, 24, 1), more = clouds(230, 24, 2);
  Pool pool(options);
  Work work;
  work.workers = 2;
  REQUIRE(pool.fit(rows, work).failures.empty());
  const auto all = pool.score(more, work);
  for (const std::size_t size : {1U, 100U}) {
    for (std::size_t first = 0; first < more.rows; first += size == 1 ? 23 : size) {
      const std::size_t last = std::min(more.rows, first + size);
      const auto part = pool.score(more.slice(first, last), work);
      for (std::size_t m = 0; m < all.size(); ++m)
        for (std::size_t i = first; i < last; ++i) {
          INFO(pool.members()[m].name << ", row " << i << ", in a batch of " << size);
          CHECK(part[m][i - first] == all[m][i]);
        }
    }
  }
}

TEST_CASE("screen: the pool is the same whatever the number of threads", "[screen]") {
  PoolOptions options;
  options.detectors = {"knn", "lof", "iforest:20", "cblof", "ocsvm", "pca"};
  options.approximate = {"knn"};
  const Matrix rows = clouds(300, 24, 4);
  const auto scores = [&](std::size_t workers) {
    Pool pool(options);
    Work work;
    work.workers = workers;
    pool.fit(rows, work);
    auto all = pool.fitted_scores();
    for (auto& more : pool.score(clouds(50, 24, 5), work)) all.push_back(std::move(more));
    return all;
  };
  CHECK((scores(1) == scores(3)));
}

TEST_CASE("screen: projections keep lengths", "[screen]") {
  constexpr std::size_t columns = 100, kept = 66, pairs = 1000, draws = 100;
  const Matrix rows = clouds(pairs, columns, 6);
  Matrix unit = rows;
  Numbers fourths(pairs, 0.0);
  for (std::size_t i = 0; i < pairs; ++i) {
    double square = 0.0;
    for (std::size_t j = 0; j < columns; ++j) square += rows.at(i, j) * rows.at(i, j);
    for (std::size_t j = 0; j < columns; ++j) {
      unit.row(i)[j] /= std::sqrt(square);
      fourths[i] += std::pow(unit.at(i, j), 4.0);
    }
  }
  for (const auto method : {ProjectionMethod::basic, ProjectionMethod::discrete, ProjectionMethod::circulant,
                            ProjectionMethod::toeplitz}) {
    double mean = 0.0, square = 0.0, expected = 0.0;
    for (std::size_t draw = 0; draw < draws; ++draw) {
      const Matrix seen =
          project(unit, projection_matrix(method, columns, kept, trainyard::RandomStream(9, "test", draw)));
      for (std::size_t i = 0; i < pairs; ++i) {
        double ratio = 0.0;
        for (std::size_t j = 0; j < kept; ++j) ratio += seen.at(i, j) * seen.at(i, j);
        mean += ratio / (pairs * draws);
        square += (ratio - 1.0) * (ratio - 1.0) / (pairs * draws);
        expected +=
            2.0 / kept * (method == ProjectionMethod::discrete ? 1.0 - fourths[i] : 1.0) / (pairs * draws);
      }
    }
    INFO("method " << static_cast<int>(method) << ": mean " << mean << ", rms " << std::sqrt(square)
                   << ", theory " << std::sqrt(expected));
    CHECK(mean == Approx(1.0).margin(0.02));
    if (method == ProjectionMethod::basic || method == ProjectionMethod::discrete)
      CHECK(std::sqrt(square) == Approx(std::sqrt(expected)).epsilon(0.1));
  }
}

TEST_CASE("screen: each detector has a projection of its own", "[screen]") {
  PoolOptions options;
  options.detectors = {"knn", "knn", "hbos", "hbos"};
  options.approximate = {};
  Pool pool(options);
  pool.fit(clouds(200, 24, 7), {});
  const auto scores = pool.fitted_scores();
  CHECK((scores[0] != scores[1]));
  CHECK((scores[2] == scores[3]));
  CHECK(pool.members()[0].columns == 16);
  CHECK(pool.members()[2].columns == 24);
  CHECK(pool.members()[1].name == "knn:5 (2)");
}

TEST_CASE("screen: a forest scores new rows about as the detector that it learned from", "[screen]") {
  const Matrix rows = clouds(1500, 8, 8), more = clouds(500, 8, 9);
  const auto scores = [&](std::vector<std::string> approximate) {
    Pool pool(PoolOptions{.detectors = {"knn", "lof", "ocsvm"}, .approximate = std::move(approximate)});
    pool.fit(rows, {});
    return pool.score(more, {});
  };
  const auto before = scores({}), after = scores({"knn", "lof", "ocsvm"});
  for (std::size_t m = 0; m < 3; ++m) {
    const double agreement = spearman(before[m], after[m]);
    INFO("detector " << m << ": Spearman " << agreement);
    CHECK(agreement > 0.78);
    CHECK(agreement < 1.0);
  }
}

TEST_CASE("screen: scores are combined as their rules say", "[screen]") {
  const std::vector<Numbers> scores = {{1}, {2}, {3}, {4}, {5}, {12}, {-2}};
  CHECK(combined(scores, Combination::average)[0] == Approx(25.0 / 7.0));
  CHECK(combined(scores, Combination::max)[0] == 12.0);
  // Groups: {1, 12}, {2, -2}, {3}, {4}, {5}.
  CHECK(combined(scores, Combination::aom)[0] == Approx((12.0 + 2 + 3 + 4 + 5) / 5.0));
  CHECK(combined(scores, Combination::moa)[0] == Approx(6.5));
  CHECK(combined({{-1}, {-2}}, Combination::max)[0] == -1.0);
  Numbers hundred(100);
  std::iota(hundred.begin(), hundred.end(), 0.0);
  CHECK(threshold_of(hundred, 0.1) == Approx(89.1));
  CHECK(area_under_curve({0.1, 0.4, 0.35, 0.8}, {0, 0, 1, 1}) == 0.75);
  CHECK(area_under_curve({1, 1, 1}, {0, 1, 0}) == 0.5);
}

TEST_CASE("screen: a schedule has every task once, for any number of tasks and workers", "[screen]") {
  std::mt19937 random(10);
  for (std::size_t tasks = 0; tasks <= 60; ++tasks)
    for (std::size_t workers = 1; workers <= 8; ++workers) {
      Numbers costs(tasks);
      for (double& cost : costs) cost = std::exponential_distribution<double>()(random);
      const auto plan = longest_first(costs, workers);
      REQUIRE(plan.size() == workers);
      std::vector<int> seen(tasks, 0);
      double longest = 0.0;
      for (const auto& of_worker : plan) {
        double load = 0.0;
        for (const std::size_t task : of_worker) {
          ++seen[task];
          load += costs[task];
        }
        longest = std::max(longest, load);
      }
      CHECK((seen == std::vector<int>(tasks, 1)));
      // No order can be faster than the mean load, nor than the longest task; LPT is at most a third behind the best.
      const double sum = std::accumulate(costs.begin(), costs.end(), 0.0);
      const double most = tasks == 0 ? 0.0 : *std::max_element(costs.begin(), costs.end());
      CHECK(longest <=
            sum / static_cast<double>(workers) + most * (1.0 - 1.0 / static_cast<double>(workers)) + 1e-9);
    }
}

TEST_CASE("screen: pools of the published timings are balanced by a law that has not seen their data set",
          "[screen]") {
  const std::string path = trainyard::test::real_data("golden/suod/summary_train.txt");
  if (path.empty()) return;
  std::vector<Numbers> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Numbers row;
    std::stringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(std::stod(cell));
    if (row.size() == 14) table.push_back(row);
  }
  REQUIRE(table.size() == 43);
  std::mt19937 random(11);
  struct Bar {
    std::size_t workers;
    double mean;
  };
  for (const Bar bar : {Bar{2, 1.05}, Bar{4, 1.10}, Bar{8, 1.18}}) {
    double mean = 0.0, worst = 0.0;
    constexpr int draws = 200;
    for (int draw = 0; draw < draws; ++draw) {
      const std::size_t left_out = random() % table.size(), each = draw % 2 == 0 ? 10 : 50;
      Numbers forecast, real;
      for (std::size_t detector = 0; detector < 10; ++detector) {
        std::vector<Timing> timings;
        for (std::size_t i = 0; i < table.size(); ++i)
          if (i != left_out)
            timings.push_back({table[i][0], table[i][1], std::max(table[i][4 + detector], 1e-6)});
        const double seconds = fit_power_law(timings).seconds(table[left_out][0], table[left_out][1]);
        for (std::size_t i = 0; i < each; ++i) {
          forecast.push_back(seconds);
          real.push_back(table[left_out][4 + detector] *
                         std::exp(std::normal_distribution<double>(0.0, 0.2)(random)));
        }
      }
      double makespan = 0.0;
      for (const auto& of_worker : longest_first(forecast, bar.workers)) {
        double load = 0.0;
        for (const std::size_t task : of_worker) load += real[task];
        makespan = std::max(makespan, load);
      }
      const double bound =
          std::max(std::accumulate(real.begin(), real.end(), 0.0) / static_cast<double>(bar.workers),
                   *std::max_element(real.begin(), real.end()));
      mean += makespan / bound / draws;
      worst = std::max(worst, makespan / bound);
    }
    INFO(bar.workers << " workers: makespan over bound " << mean << ", worst " << worst);
    CHECK(mean <= bar.mean);
  }
}

TEST_CASE("screen: workers take over what the forecast got wrong", "[screen]") {
  using namespace std::chrono_literals;
  std::vector<std::function<void()>> tasks;
  std::atomic<int> done = 0;
  // By the forecast the first task is as long as all others; in truth it is over at once.
  Numbers costs = {20.0};
  tasks.emplace_back([&] { ++done; });
  for (int i = 0; i < 20; ++i) {
    costs.push_back(1.0);
    tasks.emplace_back([&] {
      std::this_thread::sleep_for(5ms);
      ++done;
    });
  }
  Work work;
  work.workers = 2;
  const Shift shift = run_balanced(tasks, costs, work);
  CHECK(done == 21);
  CHECK(shift.taken_over >= 5);
  for (const double each : shift.seconds) CHECK(each >= 0.0);
}

TEST_CASE("screen: after a stop no task is begun, and the pool has what was finished", "[screen]") {
  std::atomic<int> done = 0;
  std::vector<std::function<void()>> tasks(10, [&] { ++done; });
  Work work;
  work.stopping = [&] { return done >= 3; };
  const Shift shift = run_balanced(tasks, Numbers(10, 1.0), work);
  CHECK(done == 3);
  CHECK(std::ranges::count(shift.seconds, -1.0) == 7);

  PoolOptions options;
  options.detectors = {"hbos", "copod", "iforest:100000"};
  Pool pool(options);
  const auto begin = std::chrono::steady_clock::now();
  Work brief;
  brief.workers = 2;
  brief.stopping = [&] { return std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(300); };
  const Pool::Outcome outcome = pool.fit(clouds(300, 5, 12), brief);
  CHECK((outcome.unfinished == std::vector<std::string>{"iforest:100000"}));
  CHECK(pool.members().size() == 2);
}

TEST_CASE("screen: a saved pool gives the same scores, by any rule", "[screen]") {
  const trainyard::test::TempFolder folder;
  SavedPool saved;
  PoolOptions options;
  for (const Family& family : families()) options.detectors.emplace_back(family.name);
  options.detectors.emplace_back("knn:7");
  options.approximate = {"knn_mean"};
  saved.pool = Pool(options);
  saved.pool.fit(clouds(300, 22, 13), {});
  for (std::size_t j = 0; j < 22; ++j) saved.columns.push_back("c" + std::to_string(j));
  const std::string path = folder.path("pool.safetensors");
  save_pool(path, saved);
  const SavedPool loaded = load_pool(path);
  const Matrix more = clouds(80, 22, 14);
  const auto before = saved.pool.score(more, {}), after = loaded.pool.score(more, {});
  CHECK((before == after));
  CHECK((saved.pool.fitted_scores() == loaded.pool.fitted_scores()));
  CHECK((loaded.columns == saved.columns));
  for (const auto rule : {Combination::average, Combination::max, Combination::aom, Combination::moa})
    CHECK((combined(before, rule) == combined(after, rule)));
  CHECK_THAT(message_of<trainyard::DataError>([&] { loaded.pool.score(clouds(5, 21, 1), {}); }),
             Contains("21 columns") && Contains("22"));

  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  bytes[bytes.size() - 3] ^= 1;
  std::ofstream(folder.path("damaged.safetensors"), std::ios::binary) << bytes;
  CHECK_THAT(message_of<trainyard::DataError>([&] { load_pool(folder.path("damaged.safetensors")); }),
             Contains("damaged"));
}

TEST_CASE("screen: what it cannot do it says in one message", "[screen]") {
  const auto pool_message = [](std::vector<std::string> detectors) {
    return message_of<trainyard::ConfigError>([&] { Pool(PoolOptions{.detectors = std::move(detectors)}); });
  };
  CHECK_THAT(pool_message({"kmm"}), Contains("no detector \"kmm\"") && Contains("knn, "));
  CHECK_THAT(pool_message({"knn:0"}), Contains("from 1 to"));
  CHECK_THAT(pool_message({"knn:2.5"}), Contains("a whole number"));
  CHECK_THAT(pool_message({"knn:"}), Contains("knn:"));
  CHECK_THAT(pool_message({"copod:3"}), Contains("has no number"));
  CHECK_THAT(pool_message({"ocsvm:2"}), Contains("from 1e-06 to 1"));
  CHECK_THAT(pool_message({}), Contains("no detector"));
  Pool pool(PoolOptions{.detectors = {"knn:5", "lof:20", "hbos"}});
  CHECK_THAT(message_of<trainyard::DataError>([&] { pool.fit(six, {}); }),
             Contains("6 rows") && Contains("lof:20 needs 21"));
}

TEST_CASE("screen: shares have each detector once, and about as much work each", "[screen]") {
  std::vector<std::string> detectors(12, "iforest:100");
  for (const char* each : {"ocsvm", "copod", "hbos", "knn:5"}) detectors.emplace_back(each);
  const Matrix rows = clouds(300, 6, 1);
  for (const std::size_t of : {1U, 2U, 5U, 16U, 40U}) {
    std::vector<std::size_t> numbers;
    Numbers loads;
    for (std::size_t number = 1; number <= of; ++number) {
      Pool pool(PoolOptions{.detectors = detectors});
      const std::size_t own = pool.keep_share(number, of, rows);
      CHECK(own == pool.members().size());
      double load = 0.0;
      for (const Pool::Member& each : pool.members()) {
        numbers.push_back(each.number);
        load += each.spec.family->cost.seconds(300, 6);
      }
      loads.push_back(load);
    }
    std::sort(numbers.begin(), numbers.end());
    std::vector<std::size_t> all(detectors.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    CHECK(numbers == all);
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    if (of == 2) CHECK(*most < 1.2 * *least);
    if (of == 16) CHECK(*least > 0.0);
  }
  const Share share = parse_share("2/4");
  CHECK((share.number == 2 && share.of == 4 && share.text() == "2/4"));
  for (const char* text : {"", "2", "/4", "2/", "0/4", "5/4", "2/0", "x/4", "2/4 ", "-1/4", "+2/4", "2/1025",
                           "1/2/3", "99999999999999999999/4"})
    CHECK_THAT(message_of<trainyard::ConfigError>([&] { parse_share(text); }), Contains("expected K/N"));
}

TEST_CASE("screen: tables", "[screen]") {
  const trainyard::test::TempFolder folder;
  const auto read = [&](const std::string& text, const TableOptions& options = {}) {
    const std::string path = folder.path("rows.csv");
    std::ofstream(path) << text;
    return read_table(path, options, [] { return false; });
  };
  const NumberTable table = read("a,name,b,y\n1,x,+2,0\n3,\"y,z\",4e0,1\n", {.ignore = {}, .label = "y"});
  CHECK((table.names == std::vector<std::string>{"a", "b"}));
  CHECK((table.texts == std::vector<std::string>{"name"}));
  CHECK((table.numbers.values == Numbers{1, 2, 3, 4}));
  CHECK((table.labels == Numbers{0, 1}));
  CHECK((read("1,2\n3,4\n").names == std::vector<std::string>{"column 1", "column 2"}));
  CHECK((read("1,2\n3,4\n", {.ignore = {"1"}, .label = ""}).numbers.values == Numbers{2, 4}));
  CHECK((pick_columns(table, {"b", "a"}, "rows.csv").values == Numbers{2, 1, 4, 3}));

  const auto message = [&](const std::string& text, const TableOptions& options = {}) {
    return message_of<trainyard::DataError>([&] { read(text, options); });
  };
  CHECK_THAT(message(""), Contains("empty"));
  CHECK_THAT(message("a,b\n"), Contains("no row"));
  CHECK_THAT(message("a,b\n1,2\n3,\n"), Contains(":3: column \"b\" has no value"));
  CHECK_THAT(message("a,b\n1,2\nx,4\n"), Contains(":3: column \"a\" has the text \"x\""));
  CHECK_THAT(message("a,b\n1,nan\n"), Contains(":2: column \"b\" has the value \"nan\""));
  CHECK_THAT(message("a,b\n1,2\n1,-inf\n"), Contains("-inf"));
  CHECK_THAT(message("a\n1e999\n"), Contains("1e999"));
  CHECK_THAT(message("a\nx\n"), Contains("no column holds numbers"));
  CHECK_THAT(message("a,y\n1,2\n", {.ignore = {}, .label = "y"}), Contains("other numbers than 0 and 1"));
  CHECK_THAT(message_of<trainyard::DataError>([&] {
               pick_columns(table, {"a", "c"}, "rows.csv");
             }),
             Contains("no \"c\""));
  CHECK_THAT(message_of<trainyard::ConfigError>([&] { read("a\n1\n", {.ignore = {"z"}, .label = ""}); }),
             Contains("\"z\""));
}

}  // namespace screen_tests
