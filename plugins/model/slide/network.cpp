#include "network.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace slide {
namespace {

using namespace trainyard;

constexpr const char* lower_name = "output.weight_lower";
constexpr double initial_deviation = 0.01;  // of weights and biases, as in the authors' code

at::Tensor drawn(const std::string& name, at::IntArrayRef shape, std::uint64_t seed) {
  at::Tensor tensor = at::empty(shape);
  fill_normal(tensor, RandomStream(seed, "model/" + name), 0.0, initial_deviation);
  return tensor.set_requires_grad(true);
}

/// The upper and the lower halves of weights.
std::pair<at::Tensor, at::Tensor> split(const at::Tensor& whole) {
  at::Tensor upper = at::empty(whole.sizes(), at::kBFloat16), lower = at::empty(whole.sizes(), at::kShort);
  const auto* const from = whole.const_data_ptr<float>();
  for (std::int64_t i = 0; i < whole.numel(); ++i) {
    bits_of(upper)[i] = upper_of(from[i]);
    bits_of(lower)[i] = lower_of(from[i]);
  }
  return {upper.set_requires_grad(true), lower};
}

void require_within(std::span<const std::int64_t> ids, std::int64_t low, std::int64_t count,
                    const char* what) {
  for (const std::int64_t id : ids)
    if (id < low || id >= count)
      throw DataError("the batch has " + std::string(what) + " " + std::to_string(id) + ", but there are " +
                      std::to_string(count) + " of them, counted from 0: look into the dataset");
}

}  // namespace

/// Where the schedule stands, by name of its places; and what the keys of the tables are of.
struct SlideNetwork::Schedule {
  std::int64_t made;      ///< how often tables were made
  std::int64_t next;      ///< step from which on they are made again
  std::int64_t draw;      ///< number of the draw of hash functions
  std::int64_t drawn_at;  ///< step of that draw
  std::int64_t family, k;
};

SlideNetwork::Schedule& SlideNetwork::schedule() const {
  return *reinterpret_cast<Schedule*>(schedule_.mutable_data_ptr<std::int64_t>());
}

SlideNetwork::SlideNetwork(const NetworkShape& shape, std::uint64_t seed)
    : shape_(shape),
      fill_(seed, "model/slide/active"),
      draws_(seed, "model/slide/functions"),
      reservoirs_(seed, "model/slide/reservoirs"),
      hidden_weight_(drawn("hidden.weight", {shape.features, shape.hidden}, seed)),
      hidden_bias_(drawn("hidden.bias", {shape.hidden}, seed)),
      output_weight_(drawn("output.weight", {shape.classes, shape.hidden}, seed)),
      output_bias_(drawn("output.bias", {shape.classes}, seed)) {
  if (shape_.halves) std::tie(output_weight_, output_lower_) = split(output_weight_);
  if (!shape_.sampled || shape_.hash.family == Family::random) return;
  tables_.emplace(TableShape{.tables = shape_.hash.l,
                             .buckets = shape_.hash.buckets(),
                             .rows = shape_.classes,
                             .bucket_size = shape_.bucket_size,
                             .policy = shape_.bucket});
  schedule_ = at::zeros({sizeof(Schedule) / sizeof(std::int64_t)}, at::kLong);
  schedule().family = static_cast<std::int64_t>(shape_.hash.family);
  schedule().k = shape_.hash.k;
}

at::Tensor SlideNetwork::forward(const Batch& batch, const ForwardContext& context) {
  const SparseRows input = sparse_rows_of(batch);
  const RowSets features = features_of(input);
  if (context.training && listener_) listener_(hidden_weight_, numbers(features.rows));
  const at::Tensor h =
      at::relu(weighted_rows(hidden_weight_, hidden_bias_, features, input.value, shape_.sums));
  if (!context.training || !shape_.sampled) return at::linear(h, output_weight_.to(at::kFloat), output_bias_);
  if (hashes()) make_tables(static_cast<std::int64_t>(context.step));
  const RowSets active = choose(h.detach(), batch.target, context);
  if (listener_) {
    listener_(output_weight_, numbers(active.rows));
    listener_(output_bias_, numbers(active.rows));
  }
  return active_logits(h, output_weight_, output_bias_, active, shape_.sums);
}

/// What is outside would be read outside of the matrix.
RowSets SlideNetwork::features_of(const SparseRows& rows) const {
  require_within(numbers(rows.index), 0, shape_.features, "feature");
  const auto offsets = numbers(rows.offsets);
  if (offsets.empty() || offsets.front() != 0 || offsets.back() != rows.index.numel() ||
      rows.value.numel() != rows.index.numel() || !std::is_sorted(offsets.begin(), offsets.end()))
    throw DataError("the offsets of the batch do not share out its " + std::to_string(rows.index.numel()) +
                    " features: look into the dataset");
  return {rows.offsets, rows.index};
}

void SlideNetwork::make_tables(std::int64_t step) {
  Schedule& schedule = this->schedule();
  const Rehash& rehash = shape_.rehash;
  const bool due = schedule.made == 0 || (rehash.every_steps > 0 && step >= schedule.next);
  if (due && schedule.made > 0 && rehash.new_functions_every > 0 &&
      step - schedule.drawn_at >= rehash.new_functions_every) {
    ++schedule.draw;
    schedule.drawn_at = step;
  }
  if (drawn_ != schedule.draw) {  // also where a checkpoint brought its own
    functions_.emplace(shape_.hash, draws_, static_cast<std::uint64_t>(schedule.draw));
    drawn_ = schedule.draw;
  }
  if (!due) return;
  if (listener_) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(shape_.classes));
    std::iota(all.begin(), all.end(), 0);
    listener_(output_weight_, all);
  }
  tables_->build(*functions_, output_weight_.detach().to(at::kFloat), reservoirs_,
                 static_cast<std::uint64_t>(schedule.made));
  const double gap = static_cast<double>(rehash.every_steps) *
                     std::exp(std::min(rehash.growth * static_cast<double>(schedule.made), 20.0));
  schedule.next = step + std::llround(gap);
  ++schedule.made;
}

RowSets SlideNetwork::choose(const at::Tensor& hidden, const at::Tensor& target,
                             const ForwardContext& context) {
  const std::int64_t samples = hidden.size(0), width = hidden.size(1);
  const at::Tensor labels = target.reshape({samples, -1}).contiguous();
  require_within(numbers(labels), -1, shape_.classes, "class");
  const auto of_labels = static_cast<std::size_t>(labels.size(1));
  while (std::ssize(threads_) < at::get_num_threads()) threads_.emplace_back(shape_.active, shape_.classes);

  std::vector<std::vector<std::int64_t>> sets(static_cast<std::size_t>(samples));
  std::vector<std::int64_t> retrieved(sets.size());
  const std::int64_t first = context.part.count == samples ? context.part.first : context.micro * samples;
  at::parallel_for(0, samples, 1, [&](std::int64_t begin, std::int64_t end) {
    ActiveSet& active = threads_[static_cast<std::size_t>(at::get_thread_num())];
    std::vector<std::uint32_t> keys(hashes() ? static_cast<std::size_t>(shape_.hash.l) : 0);
    for (std::int64_t s = begin; s < end; ++s) {
      const auto at = static_cast<std::size_t>(s);
      if (hashes())
        functions_->keys({hidden.const_data_ptr<float>() + s * width, static_cast<std::size_t>(width)}, keys);
      active.select(numbers(labels).subspan(at * of_labels, of_labels), hashes() ? &*tables_ : nullptr, keys,
                    fill_.at(context.step, static_cast<std::uint32_t>(first + s)));
      retrieved[at] = active.retrieved();
      active.take(sets[at]);
    }
  });

  RowSets result{at::empty({samples + 1}, at::kLong), {}};
  auto* const offsets = result.offsets.mutable_data_ptr<std::int64_t>();
  offsets[0] = 0;
  for (std::size_t s = 0; s < sets.size(); ++s) offsets[s + 1] = offsets[s] + std::ssize(sets[s]);
  result.rows = at::empty({offsets[samples]}, at::kLong);
  auto* to = result.rows.mutable_data_ptr<std::int64_t>();
  for (const std::vector<std::int64_t>& set : sets) to = std::copy(set.begin(), set.end(), to);
  activity_.samples += samples;
  activity_.active += offsets[samples];
  activity_.retrieved += std::accumulate(retrieved.begin(), retrieved.end(), std::int64_t{0});
  return result;
}

Activity SlideNetwork::take_activity() {
  return std::exchange(activity_, {});
}

std::vector<NamedTensor> SlideNetwork::parameters() const {
  return {{"hidden.weight", hidden_weight_},
          {"hidden.bias", hidden_bias_},
          {"output.weight", output_weight_},
          {"output.bias", output_bias_}};
}

std::vector<NamedTensor> SlideNetwork::buffers() const {
  std::vector<NamedTensor> buffers;
  if (hashes())
    buffers = {
        {"tables.starts", tables_->starts()}, {"tables.ids", tables_->ids()}, {"tables.schedule", schedule_}};
  if (shape_.halves) buffers.push_back({lower_name, output_lower_});
  return buffers;
}

std::vector<Halves> SlideNetwork::halves() const {
  if (!shape_.halves) return {};
  return {{"output.weight", output_weight_, output_lower_}};
}

void SlideNetwork::to(at::Device device) {
  if (!device.is_cpu())
    throw ConfigError("run.device is " + device.str() + ", and model slide is for the CPU");
}

/// Tables are taken over where they are of the same functions; else they are made at the next pass.
void SlideNetwork::adopt(const std::vector<NamedTensor>& tensors) {
  std::map<std::string_view, at::Tensor> given;
  for (const NamedTensor& each : tensors) given.emplace(each.name, each.tensor);
  for (const NamedTensor& own : parameters()) {
    const auto found = given.find(own.name);
    if (found == given.end())
      throw ConfigError("the model that is replaced has no tensor \"" + own.name + "\"");
    if (found->second.sizes() != own.tensor.sizes())
      throw ConfigError("\"" + own.name + "\" is " + shape_text(own.tensor.sizes().vec()) +
                        ", in the model that is replaced it is " + shape_text(found->second.sizes().vec()));
    if (found->second.scalar_type() != own.tensor.scalar_type())
      throw ConfigError("\"" + own.name + "\" is " + own.tensor.toString() +
                        ", in the model that is replaced it is " + found->second.toString() +
                        ": a swap keeps model.precision");
  }
  hidden_weight_ = given["hidden.weight"];
  hidden_bias_ = given["hidden.bias"];
  output_weight_ = given["output.weight"];
  output_bias_ = given["output.bias"];
  if (shape_.halves) output_lower_ = given[lower_name];
  if (hashes() && given.contains("tables.schedule"))
    adopt_tables(given["tables.starts"], given["tables.ids"], given["tables.schedule"]);
}

void SlideNetwork::adopt_tables(const at::Tensor& starts, const at::Tensor& ids, const at::Tensor& schedule) {
  const auto* const given = reinterpret_cast<const Schedule*>(schedule.const_data_ptr<std::int64_t>());
  if (given->family != this->schedule().family || given->k != this->schedule().k) return;
  if (tables_->adopt(starts, ids)) schedule_ = schedule;
}

}  // namespace slide
