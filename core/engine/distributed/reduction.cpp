#include "core/engine/distributed/reduction.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

namespace trainyard::distributed {
namespace {

constexpr std::int64_t first_bytes = 1 << 20;  ///< size of the first bucket, so that something leaves soon
constexpr std::int64_t large_bytes = 4 << 20;  ///< a gradient this large is summed where it lies
constexpr int bits = 24;
enum Field : std::int64_t { loss, counted, weight, skipped, first_bit, fields = first_bit + bits };

/// Returns the type in which gradients are summed: double for double, else float, also for half precision.
at::ScalarType sums_of(const std::vector<NamedTensor>& parameters) {
  return !parameters.empty() && parameters.front().tensor.scalar_type() == at::kDouble ? at::kDouble
                                                                                       : at::kFloat;
}

}  // namespace

/// Called by autograd when the gradient of a parameter is whole.
class Reduction::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Reduction& owner, std::size_t parameter) : owner_(owner), parameter_(parameter) {}
  void operator()(const at::Tensor&) override { owner_.ready(parameter_); }

 private:
  Reduction& owner_;
  std::size_t parameter_;
};

Layout make_layout(const std::vector<NamedTensor>& parameters, std::int64_t bucket_bytes,
                   const Compressor* compressor) {
  Layout layout;
  Layout::Bucket open;
  std::int64_t room = std::min(first_bytes, bucket_bytes);
  const auto close = [&] {
    layout.buckets.push_back(std::exchange(open, {}));
    room = bucket_bytes;
  };
  const auto size = static_cast<std::int64_t>(c10::elementSize(sums_of(parameters)));
  const auto bytes = [&](std::size_t i) { return static_cast<std::int64_t>(parameters[i].tensor.nbytes()); };
  const auto add = [&](std::size_t i, Layout::Bucket& bucket) {
    BucketPlan& plan = bucket.plan;
    bucket.parameters.push_back(i);
    plan.parts.push_back({parameters[i].name, plan.elements, parameters[i].tensor.sizes().vec()});
    plan.elements += parameters[i].tensor.numel();
  };
  const auto add_where_it_fits = [&](std::size_t i, bool compressed) {
    const std::int64_t filled = open.plan.elements * size;
    if (filled > 0 && filled + bytes(i) > room) close();
    open.compressed = compressed;
    add(i, open);
  };
  std::vector<std::size_t> taken, rest;  // the last of the network first
  for (std::size_t i = parameters.size(); i-- > 0;)
    (compressor != nullptr && compressor->takes(parameters[i]) ? taken : rest).push_back(i);
  for (const std::size_t i : taken) add_where_it_fits(i, true);
  if (!taken.empty()) close();
  for (const std::size_t i : rest)
    if (bytes(i) < std::min(large_bytes, bucket_bytes))
      add_where_it_fits(i, false);
    else
      add(i, layout.buckets.emplace_back(Layout::Bucket{.in_place = true}));
  close();
  return layout;
}

Reduction::Reduction(Ranks& ranks, const std::vector<NamedTensor>& parameters, Layout layout,
                     Compressor* compressor, std::function<void()> settle)
    : ranks_(ranks),
      layout_(std::move(layout)),
      compressor_(compressor),
      settle_(std::move(settle)),
      places_(parameters.size()),
      put_(parameters.size(), false) {
  for (const NamedTensor& parameter : parameters) parameters_.push_back(parameter.tensor);
  const at::Device device = parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().device();
  const at::TensorOptions options = at::TensorOptions(device).dtype(sums_of(parameters));
  for (const Layout::Bucket& each : layout_.buckets) {
    Bucket& bucket = buckets_.emplace_back();
    const bool last = buckets_.size() == layout_.buckets.size();
    bucket.missing = each.parameters.size();
    for (std::size_t slot = 0; slot < each.parameters.size(); ++slot)
      places_[each.parameters[slot]] = {buckets_.size() - 1, slot};
    bucket.views.resize(each.parameters.size());
    if (each.in_place) continue;
    const std::int64_t tail = last ? fields + std::ssize(parameters_) : 0;
    bucket.flat = at::zeros({each.plan.elements + tail}, options);
    bucket.gradients = bucket.flat.narrow(0, 0, each.plan.elements);
    for (std::size_t slot = 0; slot < each.parameters.size(); ++slot) {
      const std::size_t i = each.parameters[slot];
      bucket.views[slot] = bucket.flat.narrow(0, each.plan.parts[slot].offset, parameters_[i].numel())
                               .view(parameters_[i].sizes());
    }
  }
  make_nodes();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
}

/// Prepares the sum by nodes of each bucket where it is faster. NCCL knows of nodes by itself.
void Reduction::make_nodes() {
  if (!tail().is_cpu()) return;
  const int local = ranks_.local_size();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const Layout::Bucket& plan = layout_.buckets[i];
    const std::int64_t elements = plan.in_place ? plan.plan.elements : bucket.flat.numel();
    const std::int64_t bytes = elements * tail().element_size();
    if (plan.compressed || !faster_by_nodes(bytes, ranks_.size() / local, local)) continue;
    if (!within_) within_ = group_within(ranks_, local);
    if (!between_) between_ = group_between(ranks_, local);
    bucket.by_nodes.emplace(*within_, elements, tail());
  }
}

Reduction::~Reduction() {
  for (const at::Tensor& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

at::Tensor Reduction::tail() const {
  const Bucket& last = buckets_.back();
  return last.flat.narrow(0, last.gradients.numel(), last.flat.numel() - last.gradients.numel());
}

void Reduction::ready(std::size_t parameter) {
  if (collecting_) give(parameter);
}

void Reduction::give(std::size_t parameter) {
  if (put_[parameter]) return;
  const at::NoGradGuard no_grad;
  put(parameter);
  // The last bucket waits for what is known only after backward.
  while (next_ + 1 < buckets_.size() && buckets_[next_].missing == 0) leave();
}

/// Starts the exchange of the next bucket, which is complete.
void Reduction::leave() {
  const std::size_t number = next_++;
  Bucket& bucket = buckets_[number];
  if (layout_.buckets[number].compressed)
    bucket.exchange = compressor_->reduce(number, bucket.gradients, step_);
  else if (bucket.by_nodes)
    bucket.exchange =
        bucket.by_nodes->sum(bucket.flat, [&] { between_->all_reduce(bucket.by_nodes->shard())->wait(); });
  else
    bucket.exchange = ranks_.all_reduce(bucket.flat);
}

void Reduction::put(std::size_t parameter) {
  put_[parameter] = true;
  Bucket& bucket = buckets_[places_[parameter].bucket];
  at::Tensor& view = bucket.views[places_[parameter].slot];
  --bucket.missing;
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();  // others have other rows
  if (layout_.buckets[places_[parameter].bucket].in_place) {
    view = gradient.defined() ? gradient.contiguous() : at::zeros_like(parameters_[parameter]);
    bucket.flat = bucket.gradients = view.view({-1});
    if (gradient.defined()) gradient = view;
    return;
  }
  if (!gradient.defined()) {
    view.zero_();
    return;
  }
  view.copy_(gradient);
  if (loss_scale_ != 1.0 && layout_.buckets[places_[parameter].bucket].compressed)
    view.mul_(1.0 / loss_scale_);
  gradient = view;
}

void Reduction::write(const Tail& own) {
  at::Tensor tail = at::zeros({fields + static_cast<std::int64_t>(parameters_.size())}, at::kDouble);
  double* to = tail.mutable_data_ptr<double>();
  to[loss] = own.loss;
  to[counted] = own.counted;
  to[weight] = own.weight;
  to[skipped] = static_cast<double>(own.skipped);
  for (int bit = 0; bit < bits; ++bit) to[first_bit + bit] = (own.bits >> bit & 1U) != 0 ? 1.0 : 0.0;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    to[fields + static_cast<std::int64_t>(i)] = parameters_[i].grad().defined() ? 1.0 : 0.0;
  this->tail().copy_(tail);
}

/// Returns the tail of all ranks; sets each gradient to its view, or undefined if no rank has one.
Tail Reduction::read() const {
  const at::Tensor tail = this->tail().to(at::kCPU, at::kDouble);
  const double* from = tail.const_data_ptr<double>();
  Tail all{.loss = from[loss],
           .counted = from[counted],
           .weight = from[weight],
           .skipped = static_cast<std::int64_t>(from[skipped])};
  for (int bit = 0; bit < bits; ++bit)
    if (from[first_bit + bit] > 0.0) all.bits |= 1U << bit;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto [bucket, slot] = places_[i];
    at::Tensor parameter = parameters_[i];
    parameter.mutable_grad() =
        from[fields + static_cast<std::int64_t>(i)] > 0.0 ? buckets_[bucket].views[slot] : at::Tensor();
  }
  return all;
}

Tail Reduction::finish(const Tail& own, double share) {
  const at::NoGradGuard no_grad;
  write(own);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (!put_[i]) put(i);
  while (next_ < buckets_.size()) leave();
  for (Bucket& bucket : buckets_) bucket.exchange->wait();
  if (settle_) settle_();  // what this rank is to do next lies in the tail
  const Tail all = read();
  const double factor = all.weight > 0.0 ? share / all.weight : 1.0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    Bucket& bucket = buckets_[i];
    const double own = layout_.buckets[i].compressed ? factor * loss_scale_ : factor;
    if (own != 1.0) bucket.gradients.mul_(own);
    bucket.exchange.reset();
    bucket.missing = bucket.views.size();
    if (layout_.buckets[i].in_place) bucket.flat = bucket.gradients = bucket.views.front() = at::Tensor();
  }
  std::fill(put_.begin(), put_.end(), false);
  collecting_ = false;
  next_ = 0;
  return all;
}

}  // namespace trainyard::distributed
