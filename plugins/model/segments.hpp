// What layers of graph networks do over the edges of a block, under autograd: sums, means and maxima over the
// neighbours of each target, and a softmax over them. On the CPU nothing of the size [edges, width] is made,
// and results are the same bits whatever the threads; on a device LibTorch's own operators do the same.
//
// x is [sources, ...], what is given is [targets, ...]; numbers of edges are [edges, heads]. A target without
// edges gets zeros. Numbers of half precision are cast to float first. Each is differentiated once.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/blocks.hpp>
#include "kernels/cpu/segments.hpp"
#include "kernels/cpu/threads.hpp"

namespace models {

using namespace trainyard;
using at::Tensor;

/// A block, and what its passes make of it as they need it. For one thread at a time.
class Edges {
 public:
  /// Throws DataError where indices do not fit; those on a device are left to the operators there.
  explicit Edges(const Block& block)
      : rowptr_(block.rowptr.contiguous()),
        col_(block.col.contiguous()),
        targets_(block.targets()),
        sources_(block.sources) {
    if (rowptr_.is_cpu()) check();
  }

  bool is_of(const Block& block) const { return rowptr_.is_same(block.rowptr) && col_.is_same(block.col); }

  std::int64_t targets() const { return targets_; }
  std::int64_t sources() const { return sources_; }
  std::int64_t count() const { return col_.size(0); }
  const Tensor& rowptr() const { return rowptr_; }
  const Tensor& col() const { return col_; }

  /// The number of edges of each target, [targets], and the target of each edge, [edges].
  const Tensor& degrees() {
    if (!degrees_.defined()) degrees_ = at::diff(rowptr_);
    return degrees_;
  }
  const Tensor& target() {
    if (!target_.defined()) target_ = at::repeat_interleave(degrees(), std::optional(count()));
    return target_;
  }

  /// On the CPU: the edges of each target, and those of each source with their numbers.
  kernels::Segments by_target() const {
    return {targets_, rowptr_.const_data_ptr<std::int64_t>(), col_.const_data_ptr<std::int64_t>()};
  }
  struct BySource {
    kernels::Segments targets, numbers;  ///< what an edge names: its target, its number
  };
  BySource by_source() {
    if (!offsets_.defined()) {
      offsets_ = at::empty({sources_ + 1}, at::kLong);
      row_ = at::empty({count()}, at::kLong);
      number_ = at::empty({count()}, at::kLong);
      kernels::transpose(by_target(), sources_, offsets_.mutable_data_ptr<std::int64_t>(),
                         row_.mutable_data_ptr<std::int64_t>(), number_.mutable_data_ptr<std::int64_t>());
    }
    const auto* const offsets = offsets_.const_data_ptr<std::int64_t>();
    return {{sources_, offsets, row_.const_data_ptr<std::int64_t>()},
            {sources_, offsets, number_.const_data_ptr<std::int64_t>()}};
  }

  /// The same with an edge of each target from itself, before its others; where there was one, there are two.
  std::shared_ptr<Edges> with_self_loops() {
    if (looped_) return looped_;
    const Tensor nodes = at::arange(targets_, rowptr_.options());
    const Tensor col = at::empty({count() + targets_}, col_.options());
    col.index_copy_(0, rowptr_.narrow(0, 0, targets_).add(nodes), nodes);
    col.index_copy_(0, at::arange(1, count() + 1, col_.options()).add(target()), col_);
    const Tensor rowptr = rowptr_.add(at::arange(targets_ + 1, rowptr_.options()));
    return looped_ = std::make_shared<Edges>(Block{rowptr, col, sources_});
  }

 private:
  void check() const {
    const auto* const offsets = rowptr_.const_data_ptr<std::int64_t>();
    const auto* const col = col_.const_data_ptr<std::int64_t>();
    const auto fail = [](const std::string& what) {
      throw DataError("a block of the batch has " + what + ": the dataset makes wrong blocks");
    };
    if (targets_ < 0 || targets_ > sources_)
      fail(std::to_string(targets_) + " targets, expected as many as its sources at most, " +
           std::to_string(sources_));
    for (std::int64_t t = 0; t < targets_; ++t)
      if (offsets[t + 1] < offsets[t])
        fail("rowptr[" + std::to_string(t + 1) + "] = " + std::to_string(offsets[t + 1]) + " after " +
             std::to_string(offsets[t]));
    if (offsets[0] != 0 || offsets[targets_] != count())
      fail("rowptr from " + std::to_string(offsets[0]) + " to " + std::to_string(offsets[targets_]) +
           ", expected from 0 to the edges, " + std::to_string(count()));
    if (count() > std::numeric_limits<std::int32_t>::max())
      fail(std::to_string(count()) + " edges, 2^31 - 1 at most are taken");
    for (std::int64_t e = 0; e < count(); ++e)
      if (col[e] < 0 || col[e] >= sources_)
        fail("col[" + std::to_string(e) + "] = " + std::to_string(col[e]) + ", expected a source in [0, " +
             std::to_string(sources_) + ")");
  }

  Tensor rowptr_, col_;
  std::int64_t targets_, sources_;
  Tensor degrees_, target_;
  Tensor offsets_, row_, number_;  ///< by source
  std::shared_ptr<Edges> looped_;
};
using EdgesPtr = std::shared_ptr<Edges>;

namespace segments {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// The node of autograd of all of these: `gradients` of the inputs from that of the output and what was
/// saved.
class Backward final : public torch::autograd::Node {
 public:
  using Gradients = std::function<variable_list(const Node&, const Tensor& dy, const variable_list& saved)>;

  Backward(std::string name, const variable_list& inputs, Gradients gradients)
      : name_(std::move(name)), gradients_(std::move(gradients)) {
    for (const Tensor& each : inputs) saved_.emplace_back(each, false);
  }
  void save_output(const Tensor& y) { saved_.emplace_back(y, true); }

  std::string name() const override { return name_; }
  variable_list apply(variable_list&& gradients) override {
    if (at::GradMode::is_enabled()) throw PluginError(name_ + " is differentiated once only");
    if (!gradients[0].defined()) return variable_list(num_outputs());
    variable_list saved;
    for (SavedVariable& each : saved_) saved.push_back(each.unpack(shared_from_this()));
    return gradients_(*this, gradients[0].contiguous(), saved);
  }
  void release_variables() override {
    for (SavedVariable& each : saved_) each.reset_data();
  }

 private:
  std::string name_;
  Gradients gradients_;
  std::vector<SavedVariable> saved_;
};

/// y as a function of `inputs`, of which backward sees those of `saved`.
template <class... Inputs>
std::shared_ptr<Backward> track(const Tensor& y, const char* name, const variable_list& saved,
                                Backward::Gradients gradients, const Inputs&... inputs) {
  if (!torch::autograd::compute_requires_grad(inputs...)) return nullptr;
  auto backward = std::make_shared<Backward>(name, saved, std::move(gradients));
  backward->set_next_edges(torch::autograd::collect_next_edges(inputs...));
  torch::autograd::set_history(y, backward);
  return backward;
}

/// x, which has so many rows, in float at least and without gaps.
inline Tensor wide(const Tensor& x, std::int64_t rows) {
  if (x.size(0) != rows)
    throw PluginError("an operation over edges is given " + std::to_string(x.size(0)) + " rows, expected " +
                      std::to_string(rows));
  const bool half = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return (half ? x.to(at::kFloat) : x).contiguous();
}

inline Tensor empty_like(const Tensor& x, at::IntArrayRef shape) {
  return at::empty(shape, x.options().requires_grad(false));
}

/// Calls f with a zero of the type of x.
template <class F>
void with_type(const Tensor& x, const F& f) {
  x.scalar_type() == at::kDouble ? f(double{}) : f(float{});
}

/// f(begin, end) for ranges of rows with about the same work.
template <class F>
void on_rows(const kernels::Segments& segments, const F& f) {
  kernels::in_parts(at::get_num_threads(), [&](int part, int parts) {
    f(kernels::balanced_row(segments, parts, part), kernels::balanced_row(segments, parts, part + 1));
  });
}

/// Sums of rows of x, [rows, ...], where there are weights times these, [rows, heads].
inline Tensor sum_rows(const kernels::Segments& segments, const Tensor& x, const Tensor& weight = {},
                       const std::int64_t* weight_row = nullptr) {
  std::vector<std::int64_t> shape = x.sizes().vec();
  shape.front() = segments.rows;
  Tensor y = empty_like(x, shape);
  const std::int64_t heads = weight.defined() ? weight.size(1) : 1;
  std::int64_t elements = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) elements *= shape[i];
  with_type(x, [&]<class T>(T) {
    const kernels::SegmentSum<T> what{.segments = segments,
                                      .heads = heads,
                                      .width = elements / heads,
                                      .x = x.const_data_ptr<T>(),
                                      .weight = weight.defined() ? weight.const_data_ptr<T>() : nullptr,
                                      .weight_row = weight_row,
                                      .y = y.mutable_data_ptr<T>()};
    on_rows(segments, [&](std::int64_t begin, std::int64_t end) {
      kernels::sum(kernels::fastest_isa(), what, begin, end);
    });
  });
  return y;
}

}  // namespace segments

/// What the functions below come to on a device, and what they are tested against on the CPU.
namespace plain {

inline Tensor sum(const Tensor& values, Edges& edges) {
  std::vector<std::int64_t> shape = values.sizes().vec();
  shape.front() = edges.targets();
  return at::zeros(shape, values.options().requires_grad(false)).index_add(0, edges.target(), values);
}

/// Of each target with edges, without gradients: segment_reduce counts a negative gradient once for each of
/// several that are the largest.
inline Tensor largest(const Tensor& values, Edges& edges) {
  return at::segment_reduce(values.detach(), "max", {}, {}, edges.rowptr(), 0, true,
                            -std::numeric_limits<double>::infinity());
}

/// [edges, width]: the sum of the first of the largest, all others being 0.
inline Tensor maximum(const Tensor& values, Edges& edges) {
  if (edges.count() == 0) return sum(values, edges);
  constexpr double none = std::numeric_limits<double>::infinity();
  const Tensor is_largest = values.eq(largest(values, edges).index_select(0, edges.target()));
  const Tensor number = at::arange(edges.count(), edges.col().options().dtype(at::kDouble)).unsqueeze(1);
  const Tensor candidates =
      number.expand_as(values).masked_fill(is_largest.logical_or(values.isnan()).logical_not(), none);
  const Tensor first = at::segment_reduce(candidates, "min", {}, {}, edges.rowptr(), 0, true, none);
  return sum(values.masked_fill(number.ne(first.index_select(0, edges.target())), 0.0), edges);
}

inline Tensor softmax(const Tensor& scores, Edges& edges) {
  if (edges.count() == 0) return scores.exp();
  const Tensor powers = scores.sub(largest(scores, edges).index_select(0, edges.target())).exp();
  return powers.div(sum(powers, edges).index_select(0, edges.target()));
}

}  // namespace plain

/// x [sources, ...]: the sum over the sources of each target's edges.
inline Tensor sum_neighbours(const Tensor& given, const EdgesPtr& edges) {
  const Tensor x = segments::wide(given, edges->sources());
  if (!x.is_cpu()) return plain::sum(x.index_select(0, edges->col()), *edges);
  Tensor y = segments::sum_rows(edges->by_target(), x);
  segments::track(
      y, "SumNeighboursBackward", {},
      [edges](const auto&, const Tensor& dy, const auto&) {
        return segments::variable_list{segments::sum_rows(edges->by_source().targets, dy)};
      },
      x);
  return y;
}

/// The mean over the edges; of none: 0.
inline Tensor mean_neighbours(const Tensor& x, const EdgesPtr& edges) {
  const Tensor sum = sum_neighbours(x, edges);
  return sum.mul(edges->degrees().clamp_min(1).to(sum.scalar_type()).reciprocal_().unsqueeze(1));
}

/// x [sources, width]: element by element the largest over the edges; of none: 0. Its gradient goes to
/// the first edge that has it.
inline Tensor max_neighbours(const Tensor& given, const EdgesPtr& edges) {
  const Tensor x = segments::wide(given, edges->sources());
  if (!x.is_cpu()) return plain::maximum(x.index_select(0, edges->col()), *edges);
  const std::int64_t width = x.size(1);
  Tensor y = segments::empty_like(x, {edges->targets(), width});
  const Tensor entry = at::empty({edges->targets(), width}, at::kInt);
  segments::with_type(x, [&]<class T>(T) {
    const kernels::SegmentMax<T> what{.segments = edges->by_target(),
                                      .width = width,
                                      .x = x.const_data_ptr<T>(),
                                      .y = y.mutable_data_ptr<T>(),
                                      .entry = entry.mutable_data_ptr<std::int32_t>()};
    segments::on_rows(what.segments, [&](std::int64_t begin, std::int64_t end) {
      kernels::maximum(kernels::fastest_isa(), what, begin, end);
    });
  });
  segments::track(
      y, "MaxNeighboursBackward", {},
      [edges, entry, width](const auto&, const Tensor& dy, const auto&) {
        const Tensor dx = at::zeros({edges->sources(), width}, dy.options());
        segments::with_type(dy, [&]<class T>(T) {
          const kernels::SegmentMax<T> of{.segments = edges->by_target(),
                                          .width = width,
                                          .entry = entry.mutable_data_ptr<std::int32_t>()};
          kernels::in_parts(at::get_num_threads(), [&](std::int64_t part, std::int64_t parts) {
            kernels::add_maximum_gradient(of, dy.const_data_ptr<T>(), dx.mutable_data_ptr<T>(),
                                          width * part / parts, width * (part + 1) / parts);
          });
        });
        return segments::variable_list{dx};
      },
      x);
  return y;
}

/// weights [edges, heads], x [sources, heads, width]: sums of x times the weight of the edge.
inline Tensor weighted_sum(const Tensor& given_weights, const Tensor& given, const EdgesPtr& edges) {
  const Tensor weights = segments::wide(given_weights, edges->count());
  const Tensor x = segments::wide(given, edges->sources());
  if (!x.is_cpu()) return plain::sum(x.index_select(0, edges->col()).mul(weights.unsqueeze(2)), *edges);
  Tensor y = segments::sum_rows(edges->by_target(), x, weights);
  const auto gradients = [edges](const torch::autograd::Node& node, const Tensor& dy,
                                 const segments::variable_list& saved) {
    const Tensor &weights = saved[0], &x = saved[1];
    segments::variable_list result(2);
    if (node.task_should_compute_output(0)) {
      const Tensor dw = result[0] = segments::empty_like(weights, weights.sizes());
      segments::with_type(x, [&]<class T>(T) {
        const kernels::SegmentDots<T> what{.segments = edges->by_target(),
                                           .heads = x.size(1),
                                           .width = x.size(2),
                                           .g = dy.const_data_ptr<T>(),
                                           .x = x.const_data_ptr<T>(),
                                           .product = dw.mutable_data_ptr<T>()};
        segments::on_rows(what.segments, [&](std::int64_t begin, std::int64_t end) {
          kernels::dots(kernels::fastest_isa(), what, begin, end);
        });
      });
    }
    if (node.task_should_compute_output(1)) {
      const Edges::BySource by_source = edges->by_source();
      result[1] = segments::sum_rows(by_source.targets, dy, weights, by_source.numbers.column);
    }
    return result;
  };
  segments::track(y, "WeightedSumBackward", {weights, x}, gradients, weights, x);
  return y;
}

/// at_source [sources, heads], at_target [targets, heads]: of each edge, the sum of its two ends.
inline Tensor add_ends(const Tensor& at_source, const Tensor& at_target, const EdgesPtr& edges) {
  const Tensor a = segments::wide(at_source, edges->sources());
  const Tensor b = segments::wide(at_target, edges->targets());
  if (!a.is_cpu()) return a.index_select(0, edges->col()).add(b.index_select(0, edges->target()));
  Tensor y = segments::empty_like(a, {edges->count(), a.size(1)});
  segments::with_type(a, [&]<class T>(T) {
    segments::on_rows(edges->by_target(), [&](std::int64_t begin, std::int64_t end) {
      kernels::add_ends(edges->by_target(), a.size(1), a.const_data_ptr<T>(), b.const_data_ptr<T>(),
                        y.mutable_data_ptr<T>(), begin, end);
    });
  });
  segments::track(
      y, "AddEndsBackward", {},
      [edges](const auto&, const Tensor& dy, const auto&) {
        kernels::Segments own = edges->by_target();
        own.column = nullptr;
        return segments::variable_list{segments::sum_rows(edges->by_source().numbers, dy),
                                       segments::sum_rows(own, dy)};
      },
      a, b);
  return y;
}

/// scores [edges, heads]: the softmax over the edges of each target.
inline Tensor edge_softmax(const Tensor& given, const EdgesPtr& edges) {
  const Tensor scores = segments::wide(given, edges->count());
  if (!scores.is_cpu()) return plain::softmax(scores, *edges);
  Tensor y = segments::empty_like(scores, scores.sizes());
  const kernels::Segments by_target = edges->by_target();
  const std::int64_t heads = scores.size(1);
  segments::with_type(scores, [&]<class T>(T) {
    T* const to = y.mutable_data_ptr<T>();
    segments::on_rows(by_target, [&](std::int64_t begin, std::int64_t end) {
      kernels::subtract_maximum(by_target, heads, scores.const_data_ptr<T>(), to, begin, end);
    });
    y.exp_();
    segments::on_rows(by_target, [&](std::int64_t begin, std::int64_t end) {
      kernels::divide_by_sum(by_target, heads, to, begin, end);
    });
  });
  const auto gradients = [edges, heads](const auto&, const Tensor& dy, const segments::variable_list& saved) {
    const Tensor& y = saved[0];
    const Tensor dx = segments::empty_like(dy, dy.sizes());
    const kernels::Segments by_target = edges->by_target();
    segments::with_type(dy, [&]<class T>(T) {
      segments::on_rows(by_target, [&](std::int64_t begin, std::int64_t end) {
        kernels::softmax_gradient(by_target, heads, y.const_data_ptr<T>(), dy.const_data_ptr<T>(),
                                  dx.mutable_data_ptr<T>(), begin, end);
      });
    });
    return segments::variable_list{dx};
  };
  if (const auto backward = segments::track(y, "EdgeSoftmaxBackward", {}, gradients, scores))
    backward->save_output(y);
  return y;
}

}  // namespace models
