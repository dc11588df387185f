// A dataset that gets its samples in three stages, so that others can keep what lies between them: the
// dataset `cache` keeps what was fetched on a disk and what was decoded in memory. It is a dataset like any
// other, and found by its type: dynamic_cast<StagedDataset*>(dataset).
//
//   fetch     the bytes of a sample as they lie at the source: a file, say. Slow, and the same at every call.
//   decode    tensors from the bytes. Costs time, and gives the same at every call: nothing random.
//   assemble  a batch of decoded samples: augmented, normalised, with targets. Random numbers are drawn here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/dataset.hpp>

TRAINYARD_CONTRACT("staged_dataset.hpp");

namespace trainyard {

/// A decoded sample, on the CPU. Whoever has one only reads it: a cache may hold the same tensors.
using Sample = std::vector<at::Tensor>;

class StagedDataset : public Dataset {
 public:
  // Calls come after open(), from several threads at once. Errors are DataError that names the file.

  /// Identifies the bytes: returns another text wherever fetch() may give others for some index. May be long.
  virtual std::string source() const = 0;
  /// Identifies the decoding: another text wherever decode() may make another sample of the same bytes.
  virtual std::string decoding() const = 0;

  virtual std::vector<std::uint8_t> fetch(std::int64_t index) const = 0;
  virtual Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const = 0;
  /// Returns the batch of `indices`, whose samples are given in the same order.
  virtual Batch assemble(std::span<const std::int64_t> indices, std::span<const Sample> samples,
                         const ReadContext& context) const = 0;

  /// Runs one stage after the other.
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    std::vector<Sample> samples;
    samples.reserve(indices.size());
    for (const std::int64_t index : indices) samples.push_back(decode(index, fetch(index)));
    return assemble(indices, samples, context);
  }
};

}  // namespace trainyard
