// Compiled for any rounding mode: every expression here that ends in a bound only grows when each of its
// operations is rounded up. A lower bound is therefore kept negated, and -(a b) is written (-a) b.
#include "bounds.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/cpu/interval_gemm.hpp"
#include "normalization.hpp"
#include "relaxation.hpp"
#include "threads.hpp"

namespace gpupoly {
namespace {

namespace kernels = trainyard::kernels;

using kernels::Upward;
constexpr double infinity = std::numeric_limits<double>::infinity();

/// The largest of -(a x) for a in [-low, up] and x in [-x_low, x_up]: at a corner. No number where one of these is none.
inline double worst(double low, double up, double x_low, double x_up) {
  const double at_low = low >= 0.0 ? low * x_up : (-low) * x_low;
  const double at_up = up >= 0.0 ? up * x_low : (-up) * x_up;
  return at_low > at_up || at_low != at_low ? at_low : at_up;
}

/// Sum of what `term` gives for 0 .. count - 1, in an order that vector units can keep.
template <class F>
double total(std::int64_t count, const F& term) {
  constexpr std::int64_t lanes = 8;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) sums[lane] += term(i + lane);
  for (; i < count; ++i) sums[0] += term(i);
  return std::accumulate(sums, sums + lanes, 0.0);
}

/// gamma(n) = n u / (1 - n u), n u small.
double gamma(std::int64_t n, double u) {
  const double nu = static_cast<double>(n) * u;
  return nu <= 0.25 ? nu * (1.0 + 2.0 * nu) : infinity;
}

/// Whether forms go through lines around the step.
bool bent(Step step) {
  return step == Step::relu || step == Step::max_pool || step == Step::norm;
}

/// The rounding of the program that a level is of; 0: of none.
double unit(int soundness) {
  return soundness < 3 ? 0.0 : soundness == 3 ? 0x1p-24 : 0x1p-23;
}

}  // namespace

/// One search for lower bounds of rows. Entry r of these lists is row r's.
struct Verifier::Search {
  std::vector<std::size_t> ids;        ///< entry in `best`
  std::vector<double> constants;       ///< negated
  std::vector<double>& best;           ///< lower bounds that are known, negated
  bool by_sign = true;                 ///< rows that are known to be above 0 have said all that is asked
  std::map<std::size_t, Rows> open{};  ///< terms that were not substituted yet, by their layer

  void put(std::size_t layer, Rows rows) {
    const auto [at, fresh] = open.try_emplace(layer, std::move(rows));
    if (!fresh) at->second.add(std::move(rows));
  }
};

Verifier::Verifier(const Layers& layers, const Settings& settings, std::function<bool()> stop,
                   std::unique_ptr<Products> products)
    : layers_(layers),
      settings_(settings),
      stop_(std::move(stop)),
      products_(std::move(products)),
      bounds_(layers.all.size()),
      errors_(layers.all.size()),
      relaxations_(layers.all.size()) {}

std::int64_t Verifier::chunk() const {
  std::int64_t most = 1;
  for (const Layer& layer : layers_.all) most = std::max(most, layer.map.size());
  return std::max<std::int64_t>(1, settings_.memory / (most * 2 * static_cast<std::int64_t>(sizeof(double))));
}

// Intervals

/// The interval of each element from those of the parents; `sizes`: sum of the sizes of what is added up.
void Verifier::interval(std::size_t k, Bounds& out, std::vector<double>& sizes) const {
  const Layer& layer = layers_.all[k];
  const Bounds& x = bounds_[layer.parents.front()];
  const Map& map = layers_.all[layer.parents.front()].map;
  const auto n = static_cast<std::size_t>(layer.map.size());
  out.low.assign(n, 0.0);
  out.up.assign(n, 0.0);
  sizes = layer.constants.empty() ? std::vector<double>(n, 0.0) : layer.constants;
  std::vector<double> largest(x.up.size());
  for (std::size_t j = 0; j < largest.size(); ++j)
    largest[j] = std::max(std::abs(x.low[j]), std::abs(x.up[j]));
  const auto dot = [&](kernels::IntervalSum& sum, const double* weights, std::size_t from,
                       std::int64_t count) {
    kernels::interval_dot(kernels::fastest_isa(), count, weights, {x.low.data() + from, x.up.data() + from},
                          largest.data() + from, sum);
  };
  const auto put = [&](std::size_t i, const kernels::IntervalSum& sum) {
    out.low[i] += sum.low;
    out.up[i] += sum.up;
    sizes[i] += sum.size;
  };
  // What an element reads, at least; of convolutions many weights are shared.
  const std::size_t reads = std::max<std::size_t>(
      1, layer.weights.size() /
             static_cast<std::size_t>(layer.step == Step::conv ? layer.map.channels : layer.map.size()));
  const auto each = [&](const auto& f) { in_threads(settings_.soundness >= 2, n, n * reads, f); };
  const auto pixel = [&](std::size_t i) {
    const auto at = static_cast<std::int64_t>(i) / layer.map.channels;
    return std::pair(at / layer.map.width, at % layer.map.width);
  };
  switch (layer.step) {
    case Step::input: break;
    case Step::dense:
      each([&](std::size_t i) {
        kernels::IntervalSum sum;
        dot(sum, layer.weights.data() + i * x.up.size(), 0, map.size());
        put(i, sum);
      });
      break;
    case Step::conv:
      each([&](std::size_t i) {
        const Window& w = layer.window;
        const auto [row, column] = pixel(i);
        const std::int64_t left = column * w.stride_x - w.pad_x, skip = std::max<std::int64_t>(0, -left),
                           wide = std::min(w.width, map.width - left) - skip;
        const double* const weights = layer.weights.data() + static_cast<std::int64_t>(i) %
                                                                 layer.map.channels * w.height * w.width *
                                                                 map.channels;
        kernels::IntervalSum sum;
        for (std::int64_t ky = 0; ky < w.height && wide > 0; ++ky) {
          const std::int64_t y = row * w.stride_y - w.pad_y + ky;
          if (y < 0 || y >= map.height) continue;
          dot(sum, weights + (ky * w.width + skip) * map.channels,
              static_cast<std::size_t>((y * map.width + left + skip) * map.channels), wide * map.channels);
        }
        put(i, sum);
      });
      break;
    case Step::scale:
      each([&](std::size_t i) {
        const double w = layer.weights[i], size = std::abs(w);
        put(i, {size * (w >= 0.0 ? x.low[i] : x.up[i]), size * (w >= 0.0 ? x.up[i] : x.low[i]),
                size * largest[i]});
      });
      break;
    case Step::relu:
      for (std::size_t i = 0; i < n; ++i) {
        out.low[i] = std::min(x.low[i], 0.0);
        out.up[i] = std::max(x.up[i], 0.0);
      }
      break;
    case Step::max_pool:
      each([&](std::size_t i) {
        const auto channel = static_cast<std::int64_t>(i) % layer.map.channels;
        const auto [row, column] = pixel(i);
        out.low[i] = infinity;
        out.up[i] = -infinity;
        layer.window.each_tap(map, row, column, [&](std::int64_t from, std::int64_t) {
          out.low[i] = std::min(out.low[i], x.low[static_cast<std::size_t>(from + channel)]);
          out.up[i] = std::max(out.up[i], x.up[static_cast<std::size_t>(from + channel)]);
        });
      });
      break;
    case Step::norm: out = normalized(x, layer.group, layer.epsilon, unit(settings_.soundness)); break;
    case Step::sum:
      for (const std::size_t parent : layer.parents)
        for (std::size_t i = 0; i < n; ++i) {
          out.low[i] += bounds_[parent].low[i];
          out.up[i] += bounds_[parent].up[i];
          sizes[i] += std::max(std::abs(bounds_[parent].low[i]), std::abs(bounds_[parent].up[i]));
        }
      break;
    case Step::select:
      for (std::size_t i = 0; i < n; ++i)
        if (layer.from[i] >= 0) {
          out.low[i] = x.low[static_cast<std::size_t>(layer.from[i])];
          out.up[i] = x.up[static_cast<std::size_t>(layer.from[i])];
        }
  }
  for (std::size_t i = 0; i < layer.bias.size(); ++i) {
    out.low[i] += -layer.bias[i];
    out.up[i] += layer.bias[i];
  }
}

void Verifier::forward(std::size_t k) {
  const Layer& layer = layers_.all[k];
  Bounds fresh;
  std::vector<double> sizes;
  interval(k, fresh, sizes);
  double relative = settings_.soundness >= 2 ? gamma(layer.inexact, 0x1p-52) : 0.0, absolute = 0.0;
  if (settings_.soundness >= 3) {
    relative += gamma(layer.roundings, unit(settings_.soundness));
    absolute = static_cast<double>(layer.roundings) * FLT_MIN;  // of products that underflow, perhaps to 0
  }
  const bool program = relative > 0.0 || absolute > 0.0;
  errors_[k].assign(program ? sizes.size() : 0, 0.0);
  Bounds& known = bounds_[k];
  if (known.up.empty()) known = {std::vector(sizes.size(), infinity), std::vector(sizes.size(), infinity)};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (program) {
      double& error = errors_[k][i];
      error = relative * sizes[i] + absolute;
      if (settings_.soundness >= 3 && !(sizes[i] + error < FLT_MAX)) error = infinity;  // sums may overflow
      fresh.low[i] += error;
      fresh.up[i] += error;
    }
    // What is no number bounds nothing.
    if (fresh.low[i] < known.low[i]) known.low[i] = fresh.low[i];
    if (fresh.up[i] < known.up[i]) known.up[i] = fresh.up[i];
  }
}

void Verifier::relax(std::size_t k) {
  const Layer& layer = layers_.all[k];
  const Map& map = layers_.all[layer.parents.front()].map;
  const Bounds& x = bounds_[layer.parents.front()];
  std::vector<Line>& lines = relaxations_[k];
  lines.resize(static_cast<std::size_t>(layer.map.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (layer.step == Step::relu) {
      lines[i] = relu_line(x.low[i], x.up[i], settings_.area);
      lines[i].from = static_cast<std::int64_t>(i);
      continue;
    }
    if (layer.step == Step::norm) {
      lines[i] = {.kappa = bounds_[k].low[i], .mu = bounds_[k].up[i]};
      continue;
    }
    std::vector<std::int64_t> candidates;
    const std::int64_t at = static_cast<std::int64_t>(i) / layer.map.channels;
    layer.window.each_tap(map, at / layer.map.width, at % layer.map.width,
                          [&](std::int64_t from, std::int64_t) {
                            candidates.push_back(from + static_cast<std::int64_t>(i) % layer.map.channels);
                          });
    lines[i] = max_line(candidates, x.low, x.up, settings_.area);
  }
}

// Back-substitution

namespace {

/// Where the forms over `layer` go that have this window there.
Window below(const Rows& rows, const Layer& layer, const Map& parent) {
  const Window &w = rows.window, &c = layer.window;
  if (w == Rows::whole(rows.map)) return Rows::whole(parent);
  const Window composed{.height = (w.height - 1) * c.stride_y + c.height,
                        .width = (w.width - 1) * c.stride_x + c.width,
                        .stride_y = w.stride_y * c.stride_y,
                        .stride_x = w.stride_x * c.stride_x,
                        .pad_y = w.pad_y * c.stride_y + c.pad_y,
                        .pad_x = w.pad_x * c.stride_x + c.pad_x};
  return composed.height >= parent.height || composed.width >= parent.width ? Rows::whole(parent) : composed;
}

/// The coefficient of y, an element with this line, becomes one of x: a y is no less than
/// a+ (alpha x + kappa) + a- (lambda x + mu). Adds to the coefficient [-to_low, to_up]; gives the negated constant.
double through(const Line& line, double low, double up, double& to_low, double& to_up) {
  double constant = 0.0;
  to_low += low * (low > 0.0 ? line.lambda : line.alpha);
  to_up += up * (up > 0.0 ? line.alpha : line.lambda);
  if (low > 0.0) constant += line.mu > 0.0 ? low * line.mu : std::max(-up, 0.0) * line.mu;
  if (up > 0.0) constant += line.kappa > 0.0 ? up * line.kappa : std::max(-low, 0.0) * line.kappa;
  return constant;
}

/// f(coefficient, element of the map) for those of row r that are not 0.
template <class F>
void each_coefficient(const Rows& rows, std::size_t r, const F& f) {
  rows.stretches(r, [&](std::int64_t offset, std::int64_t element, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = static_cast<std::size_t>(offset + i);
      if (rows.low[at] != 0.0 || rows.up[at] != 0.0) f(at, static_cast<std::size_t>(element + i));
    }
  });
}

}  // namespace

/// Puts the forms, which stand at layer k, over its parents.
void Verifier::expand(Rows rows, std::size_t k, Search& search) {
  const Layer& layer = layers_.all[k];
  const bool upward = settings_.soundness >= 2;
  const std::vector<double>& errors = errors_[k];
  const std::vector<Line>& lines = relaxations_[k];
  const auto each_row = [&](const auto& f) { in_threads(upward, rows.count(), rows.low.size(), f); };
  if (!layer.bias.empty() || !errors.empty())
    each_row([&](std::size_t r) {
      rows.stretches(r, [&](std::int64_t offset, std::int64_t element, std::int64_t size) {
        const double *low = rows.low.data() + offset, *up = rows.up.data() + offset;
        const double* const bias = layer.bias.empty() ? nullptr : layer.bias.data() + element;
        const double* const error = errors.empty() ? nullptr : errors.data() + element;
        search.constants[r] += total(size, [&](std::int64_t i) {
          double sum = 0.0;
          if (bias != nullptr) sum += bias[i] >= 0.0 ? low[i] * bias[i] : up[i] * (-bias[i]);
          const double most = std::max(low[i], up[i]);
          if (error != nullptr && most > 0.0) sum += error[i] * most;
          return sum;
        });
      });
    });
  const Map& parent = layers_.all[layer.parents.front()].map;
  Rows out;  // of the steps that do not work in place
  switch (layer.step) {
    case Step::input: return;
    case Step::sum: search.put(layer.parents[1], rows); break;
    case Step::dense:
      rows = std::move(rows).widened(Rows::whole(layer.map));
      out = Rows::over(parent, Rows::whole(parent), rows.pixels);
      counters_.multiply_adds += products_->add(rows, layer, upward, out);
      break;
    case Step::conv:
      out = Rows::over(parent, below(rows, layer, parent), rows.pixels);
      counters_.multiply_adds += products_->add(rows, layer, upward, out);
      break;
    case Step::scale:
      each_row([&](std::size_t r) {
        each_coefficient(rows, r, [&](std::size_t at, std::size_t element) {
          const double w = layer.weights[element], size = std::abs(w), low = rows.low[at], up = rows.up[at];
          rows.low[at] = (w >= 0.0 ? low : up) * size;
          rows.up[at] = (w >= 0.0 ? up : low) * size;
        });
      });
      break;
    case Step::norm:
    case Step::relu:
      each_row([&](std::size_t r) {
        double constant = 0.0;
        each_coefficient(rows, r, [&](std::size_t at, std::size_t element) {
          const double low = std::exchange(rows.low[at], 0.0), up = std::exchange(rows.up[at], 0.0);
          constant += through(lines[element], low, up, rows.low[at], rows.up[at]);
        });
        search.constants[r] += constant;
      });
      break;
    case Step::max_pool:
      out = Rows::over(parent, below(rows, layer, parent), rows.pixels);
      each_row([&](std::size_t r) {
        double constant = 0.0;
        each_coefficient(rows, r, [&](std::size_t at, std::size_t element) {
          const Line& line = lines[element];
          const std::int64_t pixel = line.from / parent.channels;
          const auto to = static_cast<std::size_t>(out.place(r, pixel / parent.width, pixel % parent.width) +
                                                   line.from % parent.channels);
          constant += through(line, rows.low[at], rows.up[at], out.low[to], out.up[to]);
        });
        search.constants[r] += constant;
      });
      break;
    case Step::select:
      rows = std::move(rows).widened(Rows::whole(layer.map));
      out = Rows::over(parent, Rows::whole(parent), rows.pixels);
      each_row([&](std::size_t r) {
        const std::size_t from = r * layer.from.size(), to = r * static_cast<std::size_t>(out.width());
        for (std::size_t i = 0; i < layer.from.size(); ++i) {
          if (layer.from[i] < 0) continue;
          const std::size_t at = to + static_cast<std::size_t>(layer.from[i]);
          out.low[at] += rows.low[from + i];
          out.up[at] += rows.up[from + i];
        }
      });
  }
  if (out.count() == 0) out = std::move(rows);
  counters_.coefficients += static_cast<std::int64_t>(out.low.size());
  search.put(layer.parents.front(), std::move(out));
}

/// Takes the forms from the last layer that has a term back to the input.
void Verifier::substitute(Search& search) {
  bool first = true;
  counters_.rows += static_cast<std::int64_t>(search.ids.size());
  while (true) {
    if (stop_ && stop_()) throw Stopped{};
    const auto last = std::prev(search.open.end());
    const std::size_t k = last->first;
    Rows rows = std::move(last->second);
    search.open.erase(last);
    if (search.open.empty() &&
        (settings_.best_of_depth || k == 0 || (first && settings_.method == Method::ibp))) {
      in_threads(settings_.soundness >= 2, rows.count(), rows.low.size(), [&](std::size_t r) {
        double value = search.constants[r];
        rows.stretches(r, [&](std::int64_t offset, std::int64_t element, std::int64_t size) {
          const double *low = rows.low.data() + offset, *up = rows.up.data() + offset;
          const double *x_low = bounds_[k].low.data() + element, *x_up = bounds_[k].up.data() + element;
          value += total(size, [&](std::int64_t i) { return worst(low[i], up[i], x_low[i], x_up[i]); });
        });
        double& best = search.best[search.ids[r]];
        if (value < best || (!settings_.best_of_depth && value == value)) best = value;
      });
      if (k == 0 || settings_.method == Method::ibp) return;
      if (!first && settings_.early_termination && search.by_sign && !drop(rows, search)) return;
    }
    first = false;
    expand(std::move(rows), k, search);
  }
}

/// Leaves out forms that are known to be above 0; whether any are left.
bool Verifier::drop(Rows& rows, Search& search) {
  std::vector<std::size_t> kept;
  for (std::size_t r = 0; r < search.ids.size(); ++r)
    if (!(search.best[search.ids[r]] < 0.0)) kept.push_back(r);
  if (kept.size() == search.ids.size()) return true;
  counters_.stopped += static_cast<std::int64_t>(search.ids.size() - kept.size());
  rows.keep(kept);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    search.ids[i] = search.ids[kept[i]];
    search.constants[i] = search.constants[kept[i]];
  }
  search.ids.resize(kept.size());
  search.constants.resize(kept.size());
  return !kept.empty();
}

/// Tightens upper or lower bounds of the neurons of layer k: of those whose sign a relu needs, or of all for a step of
/// which no sign decides.
void Verifier::refine(std::size_t k, bool for_relu, bool upper) {
  Bounds& known = bounds_[k];
  const Map& map = layers_.all[k].map;
  const bool all = !for_relu || !settings_.unstable_only;
  std::vector<std::size_t> neurons;
  for (std::size_t i = 0; i < known.up.size(); ++i)
    if (all || (known.low[i] > 0.0 && known.up[i] > 0.0)) neurons.push_back(i);
  const auto most = static_cast<std::size_t>(chunk());
  for (std::size_t begin = 0; begin < neurons.size(); begin += most) {
    const std::size_t count = std::min(most, neurons.size() - begin);
    Search search{.ids = {neurons.begin() + static_cast<std::ptrdiff_t>(begin),
                          neurons.begin() + static_cast<std::ptrdiff_t>(begin + count)},
                  .constants = std::vector<double>(count, 0.0),
                  .best = upper ? known.up : known.low,
                  .by_sign = for_relu};
    std::vector<std::array<std::int64_t, 2>> pixels;
    for (const std::size_t i : search.ids) {
      const std::int64_t at = static_cast<std::int64_t>(i) / map.channels;
      pixels.push_back({at / map.width, at % map.width});
    }
    Rows rows = Rows::over(map, settings_.windows ? Window{} : Rows::whole(map), std::move(pixels));
    for (std::size_t r = 0; r < count; ++r) {
      const auto at = static_cast<std::size_t>(rows.place(r, rows.pixels[r][0], rows.pixels[r][1]) +
                                               static_cast<std::int64_t>(search.ids[r]) % map.channels);
      rows.low[at] = upper ? 1.0 : -1.0;  // the lower bound of -x is the upper one of x, negated
      rows.up[at] = upper ? -1.0 : 1.0;
    }
    search.put(k, std::move(rows));
    substitute(search);
  }
}

bool Forms::proven(const std::vector<double>& bounds) const {
  std::vector<bool> done;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const std::size_t group = groups.empty() ? i : groups[i];
    if (done.size() <= group) done.resize(group + 1, false);
    if (bounds[i] > 0.0) done[group] = true;
  }
  return std::find(done.begin(), done.end(), false) == done.end();
}

void Verifier::bound(const Forms& forms, std::vector<double>& best) {
  std::vector<std::size_t> wanted;
  for (std::size_t i = 0; i < forms.count(); ++i)
    if (!(best[i] < 0.0) || !settings_.early_termination) wanted.push_back(i);
  const std::size_t last = layers_.all.size() - 1, columns = bounds_[last].up.size();
  const auto most = static_cast<std::size_t>(chunk());
  for (std::size_t begin = 0; begin < wanted.size(); begin += most) {
    const std::size_t count = std::min(most, wanted.size() - begin);
    Search search{.ids = {wanted.begin() + static_cast<std::ptrdiff_t>(begin),
                          wanted.begin() + static_cast<std::ptrdiff_t>(begin + count)},
                  .constants = {},
                  .best = best};
    Rows rows = Rows::over(layers_.output().map, Rows::whole(layers_.output().map),
                           std::vector<std::array<std::int64_t, 2>>(count, {0, 0}));
    for (std::size_t r = 0; r < count; ++r) {
      search.constants.push_back(-forms.constants[search.ids[r]]);
      for (std::size_t i = 0; i < columns; ++i) {
        rows.up[r * columns + i] = forms.upper[search.ids[r] * columns + i];
        rows.low[r * columns + i] = -forms.lower[search.ids[r] * columns + i];
      }
    }
    search.put(last, std::move(rows));
    substitute(search);
  }
}

std::vector<double> Verifier::lower_bounds(const std::vector<double>& lower, const std::vector<double>& upper,
                                           const Forms& forms) {
  const Upward rounding(settings_.soundness >= 2);
  for (Bounds& each : bounds_) each = {};
  bounds_[0] = {lower, upper};
  for (double& low : bounds_[0].low) low = -low;
  for (std::size_t k = 1; k < bounds_.size(); ++k) {
    forward(k);
    if (bent(layers_.all[k].step)) relax(k);
  }
  std::vector<double> best(forms.count(), infinity);
  bound(forms, best);
  const auto bounds = [&] {
    std::vector<double> result = best;
    for (double& each : result) each = -each;
    return result;
  };
  if (settings_.method == Method::deeppoly && !forms.proven(bounds())) {
    for (std::size_t k = 1; k < bounds_.size(); ++k) {
      const Layer& layer = layers_.all[k];
      if (bent(layer.step))
        for (const bool up : {true, false}) refine(layer.parents.front(), layer.step == Step::relu, up);
      forward(k);
      if (bent(layer.step)) relax(k);
    }
    bound(forms, best);
  }
  return bounds();
}

}  // namespace gpupoly
