// PowerSGD (Vogels et al., NeurIPS 2019, algorithms 1 and 2): each matrix is sent as a product of two thin ones,
// found by one step of power iteration a step. Of rank i, with M = g + e of it:
//   P = sum of M_i Q;  P <- its columns made orthonormal;  Q_i = M_i' P;  Q = sum of Q_i
//   what stands for the sum is P Q';  e_i = M_i - P Q_i'
// A parameter of more dimensions is a matrix of its first by the rest.
#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include "bucket_compressor.hpp"
#include "residuals.hpp"

namespace {

using namespace compressors;

/// A parameter as a matrix of a bucket, and where its thin ones lie among those of the bucket.
struct Matrix {
  std::int64_t offset, rows, columns;
  std::int64_t p, q;

  at::Tensor of(const at::Tensor& flat) const {
    return flat.narrow(0, offset, rows * columns).view({rows, columns});
  }
};

/// Makes the columns orthonormal, the first one first (modified Gram-Schmidt, twice, in double). One that depends
/// on those before it becomes another, drawn from `stream`, so that a rank that is lost comes back.
void orthonormalize(const at::Tensor& matrix, const RandomStream& stream) {
  const std::int64_t rows = matrix.size(0), columns = matrix.size(1);
  float* const data = matrix.mutable_data_ptr<float>();
  const auto at = [&](std::int64_t row, std::int64_t column) -> float& {
    return data[row * columns + column];
  };
  const auto dot = [&](std::int64_t a, std::int64_t b) {
    double sum = 0.0;
    for (std::int64_t row = 0; row < rows; ++row) sum += static_cast<double>(at(row, a)) * at(row, b);
    return sum;
  };
  const auto scale = [&](std::int64_t column, double factor) {
    for (std::int64_t row = 0; row < rows; ++row)
      at(row, column) = static_cast<float>(at(row, column) * factor);
  };
  std::uint64_t drawn = 0;
  for (std::int64_t column = 0; column < columns; ++column)
    for (int tries = 0; tries < 3; ++tries) {
      const double before = std::sqrt(dot(column, column));
      if (before > 0.0) scale(column, 1.0 / before);
      for (int again = 0; again < 2; ++again)
        for (std::int64_t other = 0; other < column; ++other) {
          const double share = dot(column, other);
          for (std::int64_t row = 0; row < rows; ++row)
            at(row, column) = static_cast<float>(at(row, column) - share * at(row, other));
        }
      const double left = std::sqrt(dot(column, column));
      if (before > 0.0 && !(left < 1e-4)) {
        scale(column, 1.0 / left);
        break;
      }
      for (std::int64_t row = 0; row < rows; ++row)
        at(row, column) = static_cast<float>(2.0 * stream.uniform(drawn++) - 1.0);
    }
}

class PowerSgd final : public BucketCompressor {
 public:
  struct Options : BucketOptions {
    std::int64_t rank = 1;
    double min_compression_rate = 2.0;
    bool warm_start = true;
    bool error_feedback = true;
  };
  static void describe(Manifest<Options>& m) {
    m.name("powersgd").version("1.0.0").summary("Sums gradients as products of two thin matrices.");
    BucketOptions::describe(m);
    m.option("rank", &Options::rank, "columns of the thin matrices").range(1, 1024);
    m.option("min_compression_rate", &Options::min_compression_rate,
             "a parameter whose thin matrices are less than this many times smaller is summed as it is")
        .min(1.0);
    m.option("warm_start", &Options::warm_start,
             "begin with the Q of the step before, not with random numbers");
    m.option("error_feedback", &Options::error_feedback,
             "add to a gradient what was not sent of those before");
    m.hook<&PowerSgd::stepped>(Event::after_step);
    m.hook<&PowerSgd::saving>(Event::before_checkpoint).sink();
    m.hook<&PowerSgd::ended>(Event::fit_end).sink();
  }
  explicit PowerSgd(const Options& options) : BucketCompressor(options), options_(options) {}

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }

  bool takes(const NamedTensor& parameter) const override {
    if (!BucketCompressor::takes(parameter) || parameter.tensor.dim() < 2) return false;
    const std::int64_t rows = parameter.tensor.size(0), columns = parameter.tensor.numel() / rows;
    return static_cast<double>((rows + columns) * options_.rank) * options_.min_compression_rate <
           static_cast<double>(rows * columns);
  }

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    BucketCompressor::open(ranks, buckets, scale);
    matrices_.clear();
    left_.clear();
    std::vector<std::int64_t> elements, thin;
    for (const BucketPlan& bucket : buckets) {
      std::vector<Matrix>& matrices = matrices_.emplace_back();
      std::int64_t p = 0, q = 0;
      for (const BucketPlan::Part& part : bucket.parts) {
        std::int64_t columns = 1;
        for (std::size_t i = 1; i < part.shape.size(); ++i) columns *= part.shape[i];
        matrices.push_back({part.offset, part.shape[0], columns, p, q});
        p += part.shape[0] * options_.rank;
        q += columns * options_.rank;
      }
      left_.push_back(at::empty({p}, at::TensorOptions(at::kFloat)));
      thin.push_back(q);
      elements.push_back(bucket.elements);
    }
    right_.open(thin);
    for (std::size_t bucket = 0; bucket < buckets.size(); ++bucket)
      fill_normal(right_[bucket], random(bucket, 0), 0.0, 1.0);
    residuals_.open(options_.error_feedback ? elements : std::vector<std::int64_t>());
    keep(right_);
    keep(residuals_);
  }

  void save(StateWriter& state) const override {
    residuals_.save(state);
    right_.save(state);
  }
  void load(const StateReader& state) override {
    residuals_.load(state.state());
    right_.load(state.state());
  }
  /// All ranks have the same Q.
  void load_all(std::span<const State> saved) override {
    residuals_.load_all(saved, ranks());
    right_.load(saved.front());
  }

 protected:
  std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                     std::int64_t step) override {
    const at::Tensor sum = options_.error_feedback ? residuals_.add(bucket, gradients) : gradients;
    at::Tensor right = right_.change(bucket);
    if (!options_.warm_start) fill_normal(right, random(bucket, step), 0.0, 1.0);
    for (const Matrix& matrix : matrices_[bucket])
      thin(left_[bucket], matrix.p, matrix.rows)
          .copy_(at::mm(matrix.of(sum), thin(right, matrix.q, matrix.columns)));
    return then(wire_->all_reduce(left_[bucket]),
                [this, bucket, gradients, sum, right, step] { finish(bucket, sum, right, gradients, step); });
  }

 private:
  at::Tensor thin(const at::Tensor& flat, std::int64_t offset, std::int64_t length) const {
    return flat.narrow(0, offset, length * options_.rank).view({length, options_.rank});
  }

  /// Once the ranks' P are summed.
  void finish(std::size_t bucket, const at::Tensor& sum, const at::Tensor& right, const at::Tensor& gradients,
              std::int64_t step) {
    const at::Tensor& left = left_[bucket];
    const RandomStream stream = random(bucket, step).at(static_cast<std::uint64_t>(step), 1);
    for (const Matrix& matrix : matrices_[bucket]) {
      const at::Tensor p = thin(left, matrix.p, matrix.rows), q = thin(right, matrix.q, matrix.columns);
      orthonormalize(p, stream);
      q.copy_(at::mm(matrix.of(sum).t(), p));
      if (options_.error_feedback) matrix.of(sum).sub_(at::mm(p, q.t()));
    }
    wire_->all_reduce(right)->wait();
    for (const Matrix& matrix : matrices_[bucket])
      multiply(thin(left, matrix.p, matrix.rows), thin(right, matrix.q, matrix.columns),
               matrix.of(gradients));
  }

  /// result = p q', in the same order on every machine: this is what all ranks must have the same.
  static void multiply(const at::Tensor& p, const at::Tensor& q, const at::Tensor& result) {
    const std::int64_t rows = p.size(0), columns = q.size(0), rank = p.size(1);
    const float *left = p.const_data_ptr<float>(), *right = q.const_data_ptr<float>();
    float* to = result.mutable_data_ptr<float>();
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        float sum = 0.0F;
        for (std::int64_t i = 0; i < rank; ++i) sum += left[row * rank + i] * right[column * rank + i];
        *to++ = sum;
      }
  }

  const Options options_;
  std::vector<std::vector<Matrix>> matrices_;  ///< by bucket
  std::vector<at::Tensor> left_;               ///< P, by bucket
  Residuals right_{"q"}, residuals_;
};

}  // namespace

TRAINYARD_PLUGIN(PowerSgd)
