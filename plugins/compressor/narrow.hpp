// Gradients summed in a type of 16 bits. A rank sends its share of the mean, g / P, so that the sums on the
// way are no larger than gradients are; what comes is multiplied by P. Every sum on the way is rounded.
#pragma once

#include <memory>

#include "bucket_compressor.hpp"

namespace compressors {

class NarrowCompressor : public BucketCompressor {
 public:
  NarrowCompressor(const BucketOptions& options, at::ScalarType type)
      : BucketCompressor(options), type_(type) {}

 protected:
  std::unique_ptr<Exchange> compress(std::size_t, const at::Tensor& gradients, std::int64_t) override {
    const auto count = static_cast<double>(ranks().size());
    const at::Tensor narrow = gradients.mul_(1.0 / count).to(type_);
    return then(wire_->all_reduce(narrow), [narrow, gradients, count] {
      gradients.copy_(narrow);
      gradients.mul_(count);
    });
  }

 private:
  const at::ScalarType type_;
};

}  // namespace compressors
