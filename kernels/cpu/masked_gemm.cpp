#include "kernels/cpu/masked_gemm.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "kernels/cpu/micro.hpp"

namespace trainyard::kernels {
namespace {

constexpr std::int64_t cache_floats = 327'680;  // floats of packed matrices that should stay in the L2 cache
constexpr std::int64_t unit_rows = 128;         // rows that a thread takes at a time
/// Packed strips are further apart than they are long by an odd number of cache lines; otherwise the same
/// rows of different strips would compete for the same places in the caches.
constexpr std::int64_t padding = 17;

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

/// Returns where part `part` begins if `count` is divided into `parts` near-equal ones.
constexpr std::int64_t part_begin(std::int64_t count, std::int64_t parts, std::int64_t part) {
  return count * part / parts;
}

/// Memory that grows, aligned to cache lines.
class Buffer {
 public:
  float* at_least(std::int64_t count) {
    if (count > capacity_) {
      memory_.reset();
      memory_.reset(
          static_cast<float*>(::operator new[](static_cast<std::size_t>(count) * sizeof(float), line)));
      capacity_ = count;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t line{64};
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, line); }
  };
  std::unique_ptr<float, Free> memory_;
  std::int64_t capacity_ = 0;
};

void append(std::vector<Run>& runs, std::int64_t begin, std::int64_t length) {
  if (!runs.empty() && runs.back().begin + runs.back().length == begin)
    runs.back().length += length;
  else
    runs.push_back({begin, length});
}

/// Returns the units of live blocks; adjacent blocks make one run.
std::vector<Run> runs_of(std::span<const std::int32_t> blocks, std::int64_t block, std::int64_t width) {
  std::vector<Run> runs;
  for (const std::int32_t number : blocks)
    append(runs, number * block, std::min(block, width - number * block));
  return runs;
}

/// Rows of a slice that a thread takes at a time.
struct RowUnit {
  std::size_t slice;
  std::int64_t begin, end;
};

std::vector<RowUnit> row_units(std::span<const Slice> slices) {
  std::vector<RowUnit> units;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const std::int64_t rows = slices[i].end - slices[i].begin, parts = divided_up(rows, unit_rows);
    for (std::int64_t part = 0; part < parts; ++part)
      units.push_back({i, slices[i].begin + part_begin(rows, parts, part),
                       slices[i].begin + part_begin(rows, parts, part + 1)});
  }
  return units;
}

/// Finds rows of the slices that are in both lists, ascending.
void rows_of_both(std::vector<Run>& runs, std::span<const Slice> slices, std::span<const std::size_t> a,
                  std::span<const std::size_t> b) {
  runs.clear();
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    if (*i == *j) append(runs, slices[*i].begin, slices[*i].end - slices[*i].begin);
    const bool next_i = *i <= *j, next_j = *j <= *i;
    i += next_i;
    j += next_j;
  }
}

std::int64_t total(std::span<const Run> runs) {
  std::int64_t sum = 0;
  for (const Run& run : runs) sum += run.length;
  return sum;
}

/// A strip of 16 columns of which some are live.
struct Strip {
  std::int64_t number;
  int lanes;                                   ///< columns that exist
  std::array<std::int32_t, strip_width> keep;  ///< -1 where live, else 0
};

int lanes_of(std::int64_t strip, std::int64_t width) {
  return static_cast<int>(std::min<std::int64_t>(strip_width, width - strip * strip_width));
}

std::vector<Strip> strips_of(std::span<const Run> runs, std::int64_t width) {
  std::vector<Strip> strips;
  for (const Run& run : runs)
    for (std::int64_t column = run.begin; column < run.begin + run.length; ++column) {
      const std::int64_t number = column / strip_width;
      if (strips.empty() || strips.back().number != number)
        strips.push_back({number, lanes_of(number, width), {}});
      strips.back().keep[static_cast<std::size_t>(column % strip_width)] = -1;
    }
  return strips;
}

/// Cuts runs into panels of near-equal depth. Returns one empty panel if there are no runs.
std::vector<std::vector<Run>> panels_of(std::span<const Run> runs) {
  const std::int64_t depth = total(runs);
  const std::int64_t count = std::max<std::int64_t>(1, divided_up(depth, ProductTile::depth));
  std::vector<std::vector<Run>> panels(static_cast<std::size_t>(count));
  std::int64_t done = 0, panel = 0;
  for (Run run : runs)
    while (run.length > 0) {
      while (done == part_begin(depth, count, panel + 1)) ++panel;
      const std::int64_t taken = std::min(run.length, part_begin(depth, count, panel + 1) - done);
      panels[static_cast<std::size_t>(panel)].push_back({run.begin, taken});
      run.begin += taken;
      run.length -= taken;
      done += taken;
    }
  return panels;
}

/// A packed matrix: all its strips, one after another.
struct Packed {
  const float* data = nullptr;
  std::int64_t stride = 0;
  const float* strip(std::int64_t number) const { return data + number * stride; }
};

/// The left factor of a product with a packed matrix: rows, whose elements count as zeros where y <= 0, if
/// there is a y.
struct Factor {
  Rows<const float> rows, y;
  float scale = 1;
};

struct Finish {
  const float* bias = nullptr;
  bool relu = false;
  float scale = 1;
};

struct SliceUnits {
  std::vector<Run> depth;     ///< live units over which the sum runs
  std::vector<Strip> strips;  ///< of the result
};

/// Computes rows [begin, end) of c = a b with a panel of a few rows of `a` in the L1 cache and a group of
/// strips of b in the L2 cache.
void multiply(const Micro& micro, const Factor& a, const Packed& b, const SliceUnits& units,
              std::int64_t begin, std::int64_t end, const Finish& finish, Rows<float> c, std::int64_t width) {
  std::int64_t written = 0;
  const auto zeros_up_to = [&](std::int64_t column) {
    for (std::int64_t row = begin; row < end && written < column; ++row)
      std::fill(c.data + row * c.stride + written, c.data + row * c.stride + column, 0.0f);
  };
  for (const Strip& strip : units.strips) {
    zeros_up_to(strip.number * strip_width);
    written = strip.number * strip_width + strip.lanes;
  }
  zeros_up_to(width);

  alignas(64) float panel[ProductTile::stride * 16];
  const std::vector<std::vector<Run>> panels = panels_of(units.depth);
  const auto strip_count = static_cast<std::int64_t>(units.strips.size());
  const std::int64_t tiles = divided_up(end - begin, micro.rows);
  for (const std::vector<Run>& runs : panels) {
    const std::int64_t group_most =
        std::max<std::int64_t>(2, cache_floats / (strip_width * std::max<std::int64_t>(1, total(runs))) & ~1);
    const std::int64_t groups = divided_up(strip_count, group_most);
    for (std::int64_t group = 0; group < groups; ++group)
      for (std::int64_t part = 0; part < tiles; ++part) {
        const std::int64_t first = begin + part_begin(end - begin, tiles, part);
        const std::int64_t last = begin + part_begin(end - begin, tiles, part + 1);
        for (std::int64_t row = first; row < last; ++row) {
          float* to = panel + (row - first) * ProductTile::stride;
          for (const Run& run : runs) {
            const float* const y = a.y.data == nullptr ? nullptr : a.y.data + row * a.y.stride + run.begin;
            micro.scaled(to, a.rows.data + row * a.rows.stride + run.begin, y, a.scale, run.length);
            to += run.length;
          }
        }
        ProductTile tile{.a = panel,
                         .rows = static_cast<int>(last - first),
                         .runs = {runs.data(), static_cast<std::int64_t>(runs.size())},
                         .c_stride = c.stride,
                         .first = &runs == &panels.front(),
                         .last = &runs == &panels.back(),
                         .relu = finish.relu,
                         .scale = finish.scale};
        const std::int64_t stop = std::min(strip_count, (group + 1) * group_most);
        for (std::int64_t at = group * group_most; at < stop; at += tile.b.strips) {
          tile.b.strips = static_cast<int>(std::min<std::int64_t>(micro.strips, stop - at));
          for (int s = 0; s < tile.b.strips; ++s) {
            const Strip& strip = units.strips[static_cast<std::size_t>(at + s)];
            const std::int64_t next = std::min(stop - 1, at + s + tile.b.strips);
            const std::int64_t column = strip.number * strip_width;
            tile.b.packed[s] = b.strip(strip.number);
            tile.b.lanes[s] = strip.lanes;
            tile.next[s] = b.strip(units.strips[static_cast<std::size_t>(next)].number);
            tile.c[s] = c.data + first * c.stride + column;
            tile.bias[s] = finish.bias == nullptr ? nullptr : finish.bias + column;
            tile.keep[s] = strip.keep.data();
          }
          micro.product(tile);
        }
      }
  }
}

void check(const MaskedLinear& layer) {
  const auto demand = [](bool is_so, const char* what) {
    if (!is_so) throw std::invalid_argument(std::string("masked GEMM: ") + what);
  };
  demand(layer.in > 0 && layer.out > 0, "a layer has at least one unit on either side");
  demand(layer.block >= 8 && layer.block <= 128 && layer.block % 8 == 0,
         "the width of a block is a multiple of 8 from 8 to 128");
  std::int64_t row = 0;
  for (const Slice& slice : layer.slices) {
    demand(slice.begin >= row && slice.end >= slice.begin, "slices follow one another without overlap");
    row = slice.end;
    for (const auto& [blocks, width] : {std::pair(slice.in, layer.in), std::pair(slice.out, layer.out)}) {
      std::int64_t least = 0;
      for (const std::int32_t block : blocks) {
        demand(block >= least && block < divided_up(width, layer.block),
               "numbers of live blocks ascend, below the number of blocks");
        least = block + 1;
      }
    }
  }
}

const Micro& micro_of(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("masked GEMM: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return micro_avx512;
  if (isa == Isa::avx2) return micro_avx2;
#endif
  return micro_portable;
}

}  // namespace

struct MaskedGemm::State {
  const Micro& micro;
  ParallelFor parallel;
  Buffer weight, gradient, input, sums;

  /// Computes c = a b with the live units of each slice.
  void multiply_slices(const MaskedLinear& layer, bool forward, const Factor& a, const Packed& b,
                       const Finish& finish, Rows<float> c) const {
    const std::int64_t depth = forward ? layer.in : layer.out, width = forward ? layer.out : layer.in;
    std::vector<SliceUnits> slices;
    for (const Slice& slice : layer.slices)
      slices.push_back({runs_of(forward ? slice.in : slice.out, layer.block, depth),
                        strips_of(runs_of(forward ? slice.out : slice.in, layer.block, width), width)});
    const std::vector<RowUnit> units = row_units(layer.slices);
    parallel(static_cast<std::int64_t>(units.size()), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const RowUnit& unit = units[static_cast<std::size_t>(i)];
        multiply(micro, a, b, slices[unit.slice], unit.begin, unit.end, finish, c, width);
      }
    });
  }
};

MaskedGemm::MaskedGemm(Isa isa, ParallelFor parallel)
    : state_(new State{micro_of(isa), std::move(parallel), {}, {}, {}, {}}) {
  if (!state_->parallel) state_->parallel = [](std::int64_t count, const auto& range) { range(0, count); };
}
MaskedGemm::~MaskedGemm() = default;
MaskedGemm::MaskedGemm(MaskedGemm&&) noexcept = default;
MaskedGemm& MaskedGemm::operator=(MaskedGemm&&) noexcept = default;

void MaskedGemm::forward(const MaskedLinear& layer, Rows<const float> x, Rows<const float> weight,
                         const float* bias, Rows<float> y) {
  check(layer);
  const std::int64_t strips = divided_up(layer.out, strip_width);
  const std::int64_t stride = (layer.in + padding) * strip_width;
  float* const packed = state_->weight.at_least(strips * stride);
  state_->parallel(strips, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t strip = begin; strip < end; ++strip) {
      const std::int64_t first = strip * strip_width;
      const auto lanes = static_cast<int>(std::min<std::int64_t>(strip_width, layer.out - first));
      state_->micro.transpose(packed + strip * stride, weight.data + first * weight.stride, weight.stride,
                              lanes, layer.in);
    }
  });
  state_->multiply_slices(layer, true, {.rows = x}, {packed, stride},
                          {.bias = bias, .relu = layer.relu, .scale = layer.scale}, y);
}

namespace {

/// to[row][column of a strip] = from[row][column].
void pack_strips(float* to, std::int64_t stride, Rows<const float> from, std::int64_t begin, std::int64_t end,
                 std::int64_t columns) {
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t column = 0; column < columns; column += strip_width) {
      float* const place = to + column / strip_width * stride + row * strip_width;
      const float* const source = from.data + row * from.stride + column;
      if (column + strip_width <= columns)
        std::memcpy(place, source, strip_width * sizeof(float));
      else
        for (int lane = 0; lane < strip_width; ++lane)
          place[lane] = column + lane < columns ? source[lane] : 0.0f;
    }
}

}  // namespace

void MaskedGemm::input_gradient(const MaskedLinear& layer, Rows<const float> dy, Rows<const float> y,
                                Rows<const float> weight, Rows<float> dx) {
  check(layer);
  const std::int64_t stride = (layer.out + padding) * strip_width;
  float* const packed = state_->weight.at_least(divided_up(layer.in, strip_width) * stride);
  state_->parallel(layer.out, [&](std::int64_t begin, std::int64_t end) {
    pack_strips(packed, stride, weight, begin, end, layer.in);
  });
  const Factor dz{dy, layer.relu ? y : Rows<const float>{}, layer.scale};
  state_->multiply_slices(layer, false, dz, {packed, stride}, {}, dx);
}

void MaskedGemm::weight_gradient(const MaskedLinear& layer, Rows<const float> dy, Rows<const float> y,
                                 Rows<const float> x, Rows<float> dw, float* db) {
  check(layer);
  const Micro& micro = state_->micro;
  const std::int64_t rows = layer.slices.empty() ? 0 : layer.slices.back().end;
  const std::int64_t blocks = divided_up(layer.out, layer.block);
  const std::int64_t strips = divided_up(layer.in, strip_width);
  const std::vector<RowUnit> units = row_units(layer.slices);
  if (!layer.relu) y = {};

  // Live strips of x in each slice, and the slices in which each strip of x and each block of dz is live.
  using Numbers = std::vector<std::size_t>;
  std::vector<std::vector<Strip>> live_strips;
  std::vector<Numbers> strip_slices(static_cast<std::size_t>(strips)),
      block_slices(static_cast<std::size_t>(blocks));
  for (std::size_t i = 0; i < layer.slices.size(); ++i) {
    const Slice& slice = layer.slices[i];
    live_strips.push_back(strips_of(runs_of(slice.in, layer.block, layer.in), layer.in));
    for (const Strip& strip : live_strips.back())
      strip_slices[static_cast<std::size_t>(strip.number)].push_back(i);
    for (const std::int32_t block : slice.out) block_slices[static_cast<std::size_t>(block)].push_back(i);
  }

  // dz: [block][row][unit]; x: [strip][row][lane], zeros where dead. Sums of dz: [row unit][unit].
  const auto unit_count = static_cast<std::int64_t>(units.size());
  const std::int64_t dz_stride = rows * layer.block + strip_width, x_stride = (rows + padding) * strip_width;
  float* const dz = state_->gradient.at_least(blocks * dz_stride);
  float* const packed = state_->input.at_least(strips * x_stride);
  float* const sums_of_dz = state_->sums.at_least(unit_count * layer.out);
  state_->parallel(unit_count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const RowUnit& unit = units[static_cast<std::size_t>(i)];
      float* const sums = sums_of_dz + i * layer.out;
      std::fill_n(sums, layer.out, 0.0f);
      for (std::int64_t row = unit.begin; row < unit.end; ++row) {
        for (const std::int32_t block : layer.slices[unit.slice].out) {
          const std::int64_t first = block * layer.block, width = std::min(layer.block, layer.out - first);
          float* const to = dz + block * dz_stride + row * layer.block;
          micro.scaled(to, dy.data + row * dy.stride + first,
                       y.data == nullptr ? nullptr : y.data + row * y.stride + first, layer.scale, width);
          micro.add(sums + first, to, width);
        }
        for (const Strip& strip : live_strips[unit.slice])
          micro.kept(packed + strip.number * x_stride + row * strip_width,
                     x.data + row * x.stride + strip.number * strip_width, strip.keep.data(), strip.lanes);
      }
    }
  });
  if (db != nullptr) std::fill_n(db, layer.out, 0.0f);
  for (std::int64_t i = 0; db != nullptr && i < unit_count; ++i)
    micro.add(db, sums_of_dz + i * layer.out, layer.out);

  // A group of strips of x stays in the L2 cache while the blocks of dz pass.
  const std::int64_t group_most =
      std::max<std::int64_t>(2, cache_floats / (strip_width * std::max<std::int64_t>(1, rows)) & ~1);
  const std::int64_t groups = divided_up(strips, group_most);
  state_->parallel(groups * blocks, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Run> runs;
    for (std::int64_t unit = begin; unit < end; ++unit) {
      const std::int64_t block = unit % blocks, first_row = block * layer.block;
      const std::int64_t height = std::min(layer.block, layer.out - first_row);
      const std::int64_t stop = std::min(strips, (unit / blocks + 1) * group_most);
      OuterTile tile{.a_stride = layer.block, .c_stride = dw.stride};
      for (std::int64_t strip = unit / blocks * group_most; strip < stop; strip += tile.b.strips) {
        const Numbers& slices = strip_slices[static_cast<std::size_t>(strip)];
        const bool paired = micro.strips > 1 && strip + 1 < stop &&
                            strip_slices[static_cast<std::size_t>(strip + 1)] == slices;
        tile.b.strips = paired ? 2 : 1;
        for (int s = 0; s < tile.b.strips; ++s) {
          tile.b.packed[s] = packed + (strip + s) * x_stride;
          tile.b.lanes[s] = lanes_of(strip + s, layer.in);
        }
        rows_of_both(runs, layer.slices, slices, block_slices[static_cast<std::size_t>(block)]);
        tile.runs = {runs.data(), static_cast<std::int64_t>(runs.size())};
        const std::int64_t tiles = divided_up(height, paired ? micro.rows : micro.outer_rows);
        for (std::int64_t part = 0; part < tiles; ++part) {
          const std::int64_t from = part_begin(height, tiles, part);
          tile.rows = static_cast<int>(part_begin(height, tiles, part + 1) - from);
          tile.a = dz + block * dz_stride + from;
          tile.c = dw.data + (first_row + from) * dw.stride + strip * strip_width;
          micro.outer(tile);
        }
      }
    }
  });
}

}  // namespace trainyard::kernels
