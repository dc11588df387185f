#include "core/engine/train/data_loader.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Context.h>
#include <pthread.h>

#include "core/engine/events/signal_stack.hpp"

namespace trainyard::data {
namespace {

std::int64_t count_steps(std::int64_t samples, const LoaderOptions& options) {
  const std::int64_t rounding = options.drop_last ? 0 : options.batch_size - 1;
  const std::int64_t steps = (samples + rounding) / options.batch_size;
  if (steps > 0) return steps;
  throw ConfigError("batch_size = " + std::to_string(options.batch_size) +
                    " with drop_last = true leaves no batch of the " + std::to_string(samples) +
                    " samples an epoch: make batch_size " + std::to_string(samples) +
                    " or less, or set drop_last = false");
}

/// Returns the number of samples that an epoch draws of a dataset with `size` of them.
std::int64_t count_samples(std::int64_t size, const Sampler* sampler, const LoaderOptions& options) {
  if (sampler != nullptr) options.within_sampler([&] { size = sampler->size(); });
  return size;
}

/// Checks that a field has the rows that its schema requires for `count` samples.
void check_rows(const at::Tensor& tensor, const FieldSchema& field, std::int64_t count) {
  const bool has_rows = tensor.defined() && tensor.dim() > 0;
  const std::int64_t rows = has_rows ? tensor.size(0) : -1;
  const std::int64_t expected = field.rows == Rows::offsets ? count + 1 : count;
  if (has_rows && (field.rows == Rows::free || rows == expected)) return;
  throw PluginError("the dataset was asked for " + std::to_string(count) + " samples and gave " +
                    (has_rows ? std::to_string(rows) + " rows of " : "no rows of ") + "\"" + field.name +
                    "\"" + (field.rows == Rows::free ? "" : ", not " + std::to_string(expected)));
}

}  // namespace

Loader::Loader(const Dataset& dataset, const Sampler* sampler, LoaderOptions options)
    : dataset_(dataset),
      sampler_(sampler),
      options_(std::move(options)),
      pin_memory_(options_.pin_memory && at::hasCUDA()),
      schema_(dataset.schema()),
      part_(part_of(options_)),
      dataset_size_(options_.view ? options_.view->size() : dataset.size()),
      samples_(count_samples(dataset_size_, sampler, options_)),
      steps_per_epoch_(count_steps(samples_, options_)),
      end_(options_.epochs > 0 ? options_.epochs * steps_per_epoch_
                               : std::numeric_limits<std::int64_t>::max()),
      ring_(static_cast<std::size_t>(options_.workers * std::max(options_.prefetch, 1))) {
  for (int i = 0; i < options_.workers; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

Loader::~Loader() {
  for (std::jthread& worker : workers_) worker.request_stop();  // all of them before the first is joined
}

std::int64_t Loader::samples_per_epoch() const {
  return options_.drop_last ? steps_per_epoch_ * options_.batch_size : samples_;
}

void Loader::seek(std::int64_t epoch, std::int64_t step) {
  const std::int64_t position = epoch * steps_per_epoch_ + step;
  if (started_ && position == next_) return;  // what is read ahead stays
  {
    const std::lock_guard lock(mutex_);
    next_ = claimed_ = position;
    started_ = true;
    ++seeks_;
    std::fill(ring_.begin(), ring_.end(), Slot{});
  }
  room_.notify_all();
}

std::optional<StepData> Loader::next() {
  if (next_ >= end_) return std::nullopt;
  if (workers_.empty()) return load(next_++);
  if (!started_) seek(next_ / steps_per_epoch_, next_ % steps_per_epoch_);
  std::unique_lock lock(mutex_);
  Slot& place = slot(next_);
  ready_.wait(lock, [&] { return place.data || place.error; });
  Slot taken = std::exchange(place, {});
  ++next_;
  lock.unlock();
  room_.notify_one();
  if (taken.error) std::rethrow_exception(taken.error);
  return std::move(taken.data);
}

void Loader::work(const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), "loader");
  const report::SignalStack signal_stack;
  std::unique_lock lock(mutex_);
  const auto may_claim = [&] {
    return started_ && claimed_ < end_ && claimed_ < next_ + static_cast<std::int64_t>(ring_.size());
  };
  while (room_.wait(lock, stop, may_claim) && !stop.stop_requested()) {
    const std::int64_t position = claimed_++;
    const std::int64_t seeks = seeks_;
    lock.unlock();
    Slot read;
    try {
      read.data = load(position);
    } catch (...) {
      read.error = std::current_exception();
    }
    lock.lock();
    if (seeks != seeks_) continue;
    slot(position) = std::move(read);
    if (position == next_) ready_.notify_one();
  }
}

Loader::Part Loader::part_of(const LoaderOptions& options) {
  const std::vector<std::int64_t>& shares = options.shares;
  const std::int64_t unit =
      options.batch_size /
      (shares.empty() ? options.ranks : std::accumulate(shares.begin(), shares.end(), std::int64_t{0}));
  Part part;
  for (int rank = 0; rank <= options.rank; ++rank) {
    part.first += part.samples;
    part.first_micro += (part.samples + options.micro_batch_size - 1) / options.micro_batch_size;
    part.samples = unit * (shares.empty() ? 1 : shares[static_cast<std::size_t>(rank)]);
  }
  return part;
}

StepData Loader::load(std::int64_t position) const {
  StepData data{.epoch = position / steps_per_epoch_, .step = position % steps_per_epoch_};
  const std::int64_t first = data.step * options_.batch_size;
  data.samples = std::min(options_.batch_size, samples_ - first);
  data.first = std::min(part_.first, data.samples);
  data.first_micro = part_.first_micro;
  const std::int64_t end = std::min(data.first + part_.samples, data.samples);
  for (std::int64_t next = data.first; next < end; next += options_.micro_batch_size) {
    const std::int64_t count = std::min(options_.micro_batch_size, end - next);
    data.batches.push_back(read(data.epoch, data.step, first + next, count));
    data.weight += data.batches.back().weight;
  }
  if (!data.batches.empty()) return data;
  data.batches.push_back(
      read(data.epoch, data.step, first, std::min(options_.micro_batch_size, data.samples)));
  data.batches.back().weight = 0.0;
  return data;
}

/// Returns the samples at some positions, by their numbers in the dataset.
std::vector<std::int64_t> Loader::order(std::int64_t epoch, std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  if (sampler_)
    options_.within_sampler([&] { sampler_->order(epoch, first, indices); });
  else
    std::iota(indices.begin(), indices.end(), first);
  for (std::int64_t& index : indices) {
    if (index < 0 || index >= dataset_size_)
      throw PluginError("the sampler gave sample " + std::to_string(index) + " in epoch " +
                        std::to_string(epoch) + "; the dataset has " + std::to_string(dataset_size_));
    if (options_.view) index = (*options_.view)[index];
  }
  return indices;
}

void Loader::check(const Batch& batch, std::int64_t count) const {
  if (batch.inputs.empty() || batch.inputs.size() != schema_.inputs.size())
    throw PluginError("the dataset gave a batch of " + std::to_string(batch.inputs.size()) +
                      " inputs, its schema says " + std::to_string(schema_.inputs.size()));
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) check_rows(batch.inputs[i], schema_.inputs[i], count);
  if (schema_.has_target) check_rows(batch.target, schema_.target, count);
}

Batch Loader::read(std::int64_t epoch, std::int64_t step, std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> indices = order(epoch, first, count);
  const RandomStream random = options_.random.at(static_cast<std::uint64_t>(epoch));
  Batch batch;
  options_.within_dataset([&] { batch = dataset_.read(indices, {random, first, step}); });
  check(batch, count);
  batch.indices = std::move(indices);
  batch.weight = options_.weight ? options_.weight(batch) : static_cast<double>(count);
  if (!pin_memory_) return batch;
  for (at::Tensor& input : batch.inputs) input = input.pin_memory();
  if (batch.target.defined()) batch.target = batch.target.pin_memory();
  return batch;
}

}  // namespace trainyard::data
