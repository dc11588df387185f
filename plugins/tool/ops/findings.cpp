#include "findings.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include "curve.hpp"
#include "lib/printed.hpp"
#include "sweep.hpp"

namespace ops {
namespace {

using trainyard::lib::printed;

double microseconds(const Row* row) {
  return 1e6 * row->timing.least;
}
double rate(const Row* row) {
  return 2.0 * row->work.multiply_adds / row->timing.least;
}

/// Rows of a sweep of one pass and one thread.
std::vector<const Row*> rows_of(const Database& database, const std::string& sweep,
                                const std::string& phase = "forward") {
  std::vector<const Row*> rows = database.of_sweep(sweep);
  std::erase_if(rows, [&](const Row* row) { return row->point.phase != phase || row->point.threads != 1; });
  return rows;
}

const Row* named(const std::vector<const Row*>& rows, const std::string& op, std::int64_t groups = 1,
                 std::int64_t kernel = 3) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row* row) {
    return row->point.op == op && row->point.groups == groups && row->point.kernel == kernel;
  });
  return found == rows.end() ? nullptr : *found;
}

void decide(Finding& finding, double value) {
  finding.decided = std::isfinite(value);
  finding.value = value;
  finding.holds = finding.decided && value >= finding.bound;
}

Finding staircase(const Database& database) {
  Finding finding{
      "H1", "time over output channels is a staircase of the vector width",
      "time of the first channel of a step over that of the last channel before it, mean of the steps", 1.05};
  Sweep sweep{"cout", "cout", {}, {}};
  const Curve curve = curve_of(database, sweep);
  const Staircase fit = fit_staircase(curve);
  const std::int64_t w = fit.width();
  if (curve.empty()) return finding;
  if (w == 1) {
    decide(finding, 1.0);
    finding.numbers = "no width explains the times better than a line";
    finding.query = "SELECT 1.0";
    return finding;
  }
  double sum = 0.0;
  int steps = 0;
  for (std::size_t i = 1; i < curve.size(); ++i)
    if (curve[i].x % w == 1) sum += curve[i].seconds / curve[i - 1].seconds, ++steps;
  decide(finding, sum / std::max(1, steps));
  finding.numbers = printed("width %ld, %d steps, error of the fit %.1f %%", static_cast<long>(w), steps,
                            100.0 * fit.error);
  const std::string width = std::to_string(w);
  finding.query =
      "SELECT AVG(b.min_us / a.min_us) FROM rows a JOIN rows b ON b.cout = a.cout + 1 WHERE a.sweep = 'cout' "
      "AND "
      "b.sweep = 'cout' AND a.cout % " +
      width + " = 0";
  return finding;
}

Finding kernels(const Database& database) {
  Finding finding{"H2", "time does not grow as the square of the kernel",
                  "largest factor between the rates of 3x3 and of another dense kernel", 1.25};
  double most = 0.0;
  const auto rows = rows_of(database, "kernel");
  const Row* three = named(rows, "conv");
  if (three == nullptr) return finding;
  for (const Row* row : rows) {
    const double ratio = rate(three) / rate(row);
    most = std::max({most, ratio, 1.0 / ratio});
    finding.numbers += printed("%s%ld: %.0f GFLOP/s", finding.numbers.empty() ? "" : ", ",
                               static_cast<long>(row->point.kernel), 1e-9 * rate(row));
  }
  decide(finding, most);
  finding.query =
      "SELECT MAX(MAX(a.macs / a.min_us, b.macs / b.min_us) / MIN(a.macs / a.min_us, b.macs / b.min_us)) "
      "FROM rows a JOIN rows b "
      "WHERE a.sweep = 'kernel' AND b.sweep = 'kernel' AND a.kernel = 3";
  return finding;
}

Finding reuse(const Database& database) {
  Finding finding{"H3", "operators with little reuse of data have far lower rates",
                  "rate of a dense 3x3 layer over the best of depthwise and squeeze-excite", 2.0};
  const auto rows = rows_of(database, "block");
  const Row *dense = named(rows, "conv"), *depth = named(rows, "conv", 64),
            *excite = named(rows, "squeeze_excite");
  if (dense == nullptr || depth == nullptr || excite == nullptr) return finding;
  decide(finding, rate(dense) / std::max(rate(depth), rate(excite)));
  finding.numbers = printed("dense %.0f, depthwise %.1f, squeeze-excite %.1f GFLOP/s", 1e-9 * rate(dense),
                            1e-9 * rate(depth), 1e-9 * rate(excite));
  finding.query =
      "SELECT (SELECT macs / min_us FROM rows WHERE sweep = 'block' AND phase = 'forward' AND threads = 1 "
      "AND op = 'conv' AND groups = 1 AND kernel = 3) / "
      "MAX(macs / min_us) FROM rows WHERE sweep = 'block' AND phase = 'forward' AND threads = 1 AND (groups "
      "= 64 OR op = 'squeeze_excite')";
  return finding;
}

Finding activations_differ(const Database& database) {
  Finding finding{"H4", "activations differ by an order of magnitude", "slowest activation over the fastest",
                  10.0};
  auto rows = rows_of(database, "activation");
  if (rows.size() < 2) return finding;
  std::sort(rows.begin(), rows.end(),
            [](const Row* a, const Row* b) { return a->timing.least < b->timing.least; });
  decide(finding, rows.back()->timing.least / rows.front()->timing.least);
  for (const Row* row : rows)
    finding.numbers += printed("%s%s %.0f us", finding.numbers.empty() ? "" : ", ", row->point.op.c_str(),
                               microseconds(row));
  finding.query = "SELECT MAX(min_us) / MIN(min_us) FROM rows WHERE sweep = 'activation'";
  return finding;
}

Finding movement(const Database& database) {
  Finding finding{"H5", "operators that move data cost more than their arithmetic says",
                  "time of a shuffle, which computes nothing, over that of as much depthwise convolution",
                  0.1};
  const auto rows = rows_of(database, "block");
  const Row *depth = named(rows, "conv", 64), *shuffle = named(rows, "shuffle");
  if (depth == nullptr || shuffle == nullptr) return finding;
  decide(finding, shuffle->timing.least / depth->timing.least);
  for (const char* op : {"shuffle", "concat", "global_pool", "add"})
    if (const Row* row = named(rows, op))
      finding.numbers += printed("%s%s %.1f us, %.0f GB/s", finding.numbers.empty() ? "" : ", ", op,
                                 microseconds(row), 1e-9 * row->work.bytes / row->timing.least);
  finding.query =
      "SELECT (SELECT min_us FROM rows WHERE sweep = 'block' AND phase = 'forward' AND threads = 1 AND op = "
      "'shuffle') / min_us FROM rows "
      "WHERE sweep = 'block' AND phase = 'forward' AND threads = 1 AND groups = 64";
  return finding;
}

Finding formats_differ(const Database& database) {
  Finding finding{"H6", "the gain of a low precision varies by operator",
                  "largest gain of a format within a library over its smallest", 1.5};
  const auto rows = rows_of(database, "type");
  double most = 0.0;
  for (const char* library : {"libtorch", "onednn"})
    for (const char* type : {"bf16", "int8"}) {
      double high = 0.0, low = HUGE_VAL;
      for (const Row* row : rows) {
        if (row->point.type != type || row->point.library != library) continue;
        Operator plain = row->point;
        plain.type = "fp32";
        const Row* single = database.find("type", plain, row->conditions);
        if (single == nullptr) continue;
        const double gain = single->timing.least / row->timing.least;
        high = std::max(high, gain), low = std::min(low, gain);
        finding.numbers += printed("%s%s %s %s%s %.2f", finding.numbers.empty() ? "" : ", ", library, type,
                                   row->point.op.c_str(),
                                   row->point.depthwise()                              ? " depthwise"
                                   : row->point.op == "conv" && row->point.kernel == 1 ? " 1x1"
                                                                                       : "",
                                   gain);
      }
      if (high > 0.0) most = std::max(most, high / low);
    }
  decide(finding, most > 0.0 ? most : NAN);
  finding.query =
      "SELECT MAX(span) FROM (SELECT MAX(a.min_us / b.min_us) / MIN(a.min_us / b.min_us) AS span FROM rows a "
      "JOIN rows b ON a.op = b.op AND "
      "a.library = b.library AND a.kernel = b.kernel AND a.groups = b.groups WHERE a.sweep = 'type' AND "
      "b.sweep = 'type' AND a.type = 'fp32' AND "
      "b.type != 'fp32' GROUP BY b.library, b.type)";
  return finding;
}

Finding ranks_differ(const Database& database) {
  Finding finding{"H7", "platforms rank networks differently: ranks by multiply-adds are not portable",
                  "1 - Kendall's correlation of ranks by multiply-adds and by time, of the blocks that "
                  "compute, forward on one thread",
                  0.1};
  const auto listed = [&](const std::string& phase, std::int64_t threads) {
    std::vector<double> times;
    for (const Row* row : database.of_sweep("block"))
      if (row->point.phase == phase && row->point.threads == threads && row->work.multiply_adds > 0.0)
        times.push_back(row->timing.least);
    return times;
  };
  std::vector<double> work;
  std::int64_t threads = 1;
  for (const Row* row : database.of_sweep("block")) {
    threads = std::max(threads, row->point.threads);
    if (row->point.phase == "forward" && row->point.threads == 1 && row->work.multiply_adds > 0.0)
      work.push_back(row->work.multiply_adds);
  }
  const std::vector<double> forward = listed("forward", 1), training = listed("training", 1),
                            many = listed("forward", threads);
  if (work.size() < 3 || training.size() != forward.size()) return finding;
  decide(finding, 1.0 - rank_correlation(work, forward));
  finding.numbers = printed(
      "correlation of multiply-adds with forward %.2f, with training %.2f; of forward with training %.2f, "
      "with %ld threads %.2f",
      rank_correlation(work, forward), rank_correlation(work, training), rank_correlation(forward, training),
      static_cast<long>(threads), rank_correlation(forward, many));
  finding.query =
      "SELECT 1.0 - AVG(((a.macs > b.macs) - (a.macs < b.macs)) * ((a.min_us > b.min_us) - (a.min_us < "
      "b.min_us))) FROM rows a JOIN rows b ON a.rowid < b.rowid "
      "WHERE a.sweep = 'block' AND b.sweep = 'block' AND a.phase = 'forward' AND b.phase = 'forward' AND "
      "a.threads = 1 AND b.threads = 1 AND a.macs > 0 AND b.macs > 0";
  return finding;
}

}  // namespace

std::string json_of(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& each : findings)
    list.push_back({{"name", each.name},
                    {"statement", each.statement},
                    {"statistic", each.statistic},
                    {"decided", each.decided},
                    {"holds", each.holds},
                    {"value", each.value},
                    {"bound", each.bound},
                    {"numbers", each.numbers},
                    {"query", each.query}});
  return list.dump(1) + "\n";
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto sign = [](double x) { return (x > 0.0) - (x < 0.0); };
  double sum = 0.0, pairs = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = i + 1; j < a.size(); ++j) {
      sum += sign(a[i] - a[j]) * sign(b[i] - b[j]);
      pairs += 1.0;
    }
  return pairs > 0.0 ? sum / pairs : 1.0;
}

std::vector<Finding> findings_of(const Database& database) {
  return {staircase(database), kernels(database),        reuse(database),       activations_differ(database),
          movement(database),  formats_differ(database), ranks_differ(database)};
}

}  // namespace ops
