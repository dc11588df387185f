// The data loader: returns the micro-batches of one optimizer step after another, in the order of the
// sampler, with any number of worker threads. Every step is a pure function of (seed, epoch, step in the
// epoch), so a resume starts at its exact position without replaying anything.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include <trainyard/dataset.hpp>
#include <trainyard/random.hpp>
#include <trainyard/sampler.hpp>

#include "core/engine/train/view.hpp"

namespace trainyard::data {

/// Runs a call into a plugin; the host's says which plugin it was where one throws or crashes.
using Within = std::function<void(const std::function<void()>&)>;
inline void unguarded(const std::function<void()>& call) {
  call();
}

struct LoaderOptions {
  std::int64_t batch_size = 1;        ///< samples per step; the last step of an epoch may have fewer
  std::int64_t micro_batch_size = 1;  ///< samples per micro-batch, at most; the last of a step may have fewer
  int rank = 0;                       ///< it reads its part of each step
  int ranks = 1;  ///< batch_size is a multiple of micro_batch_size * ranks, unless there are shares
  std::vector<std::int64_t> shares;  ///< of each rank in a step; batch_size is a multiple of their sum
  bool drop_last = false;            ///< leaves out a last step with fewer than batch_size samples
  std::int64_t epochs = 0;           ///< next() ends after so many; 0: never
  int workers = 0;                   ///< threads; 0: next() reads on the caller's thread
  int prefetch = 2;                  ///< steps read ahead, per worker; at least 1
  bool pin_memory = false;           ///< returns page-locked tensors if LibTorch has a CUDA device
  RandomStream random;               ///< for datasets that augment, keyed by the run's seed
  std::optional<train::View> view;   ///< samples, also those that a sampler orders, are those of the view
  std::function<double(const Batch&)> weight;  ///< Loss::weight; called on the worker threads
  Within within_dataset = unguarded, within_sampler = unguarded;  ///< also called on the worker threads
};

/// The data of one optimizer step, or of one evaluation batch.
struct StepData {
  std::int64_t epoch = 0;        ///< from 0
  std::int64_t step = 0;         ///< in the epoch, from 0
  std::int64_t samples = 0;      ///< on all ranks
  std::int64_t first = 0;        ///< number of samples that precede this rank's
  std::int64_t first_micro = 0;  ///< number of this rank's first micro-batch in the step
  double weight = 0.0;           ///< sum over the micro-batches
  /// One per micro-batch, in the sampler's order. A rank for which nothing is left in a step has one with
  /// weight 0, which does not count.
  std::vector<Batch> batches;
};

class Loader {
 public:
  /// `dataset` is open and, like `sampler`, outlives the loader. Without a sampler the order is the dataset's
  /// own. Throws ConfigError if drop_last leaves no step at all.
  Loader(const Dataset& dataset, const Sampler* sampler, LoaderOptions options);
  /// Stops and joins the workers; waits at most for the reads they are in.
  ~Loader();

  std::int64_t samples_per_epoch() const;  ///< without those that drop_last leaves out
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }

  /// Makes `step` (in [0, steps_per_epoch]) of `epoch` the next one. Takes constant time, and drops what was
  /// read ahead.
  void seek(std::int64_t epoch, std::int64_t step);

  /// Returns the next step in order, across the ends of epochs; nothing after the last of `epochs`. Rethrows
  /// unchanged what the dataset, the sampler or `weight` threw for this step; the next call goes on with the
  /// step after it.
  std::optional<StepData> next();

 private:
  /// A place in the ring: empty, a step, or the error of reading it.
  struct Slot {
    std::optional<StepData> data;
    std::exception_ptr error;
  };

  /// This rank's part of a whole step.
  struct Part {
    std::int64_t first = 0, first_micro = 0, samples = 0;
  };
  static Part part_of(const LoaderOptions& options);
  StepData load(std::int64_t position) const;
  Batch read(std::int64_t epoch, std::int64_t step, std::int64_t first, std::int64_t count) const;
  std::vector<std::int64_t> order(std::int64_t epoch, std::int64_t first, std::int64_t count) const;
  void check(const Batch& batch, std::int64_t count) const;
  void work(const std::stop_token& stop);
  Slot& slot(std::int64_t position) { return ring_[static_cast<std::size_t>(position) % ring_.size()]; }

  const Dataset& dataset_;
  const Sampler* sampler_;
  const LoaderOptions options_;
  const bool pin_memory_;
  const BatchSchema schema_;
  const Part part_;
  const std::int64_t dataset_size_;  ///< size of its view
  const std::int64_t samples_;       ///< drawn per epoch, including those that drop_last leaves out
  const std::int64_t steps_per_epoch_;
  const std::int64_t end_;  ///< position after the last step

  // A position counts steps since epoch 0. Workers claim positions below next_ + ring size, in order.
  std::mutex mutex_;
  std::condition_variable_any room_;  ///< a position may be claimed
  std::condition_variable ready_;     ///< the slot of next_ was filled
  std::int64_t next_ = 0;             ///< the position that next() returns
  std::int64_t claimed_ = 0;          ///< the first position that no worker has claimed
  bool started_ = false;              ///< set by the first seek or next: workers read nothing before
  std::int64_t seeks_ = 0;            ///< a read that began before the last seek is dropped
  std::vector<Slot> ring_;
  std::vector<std::jthread> workers_;  ///< last member: joined before the others are destroyed
};

}  // namespace trainyard::data
