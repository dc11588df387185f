// What a network says of samples, in words: a class with probabilities, or numbers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>

namespace predict {

/// How outputs are to be read; the same for all samples of a run.
struct Meaning {
  enum class Kind : std::uint8_t {
    classes,  ///< one logit a class: softmax
    binary,   ///< one logit, of the second of two classes: the logistic function
    tokens,   ///< logits of the next token at every place
    numbers,  ///< as they are
  };
  Kind kind = Kind::numbers;
  std::vector<std::string> columns;    ///< of the numbers of an answer: classes, or "value"
  double factor = 1.0, summand = 0.0;  ///< what makes numbers of the network those of the files

  bool has_classes() const { return kind == Kind::classes || kind == Kind::binary; }
};

/// From the shape of an output without its batch dimension, what a sample is, and what classes are called (none:
/// numbers). Throws ConfigError where an output cannot be written as a row.
Meaning meaning_of(const std::vector<std::int64_t>& output, const trainyard::BatchSchema& schema,
                   const std::vector<std::string>& class_names);

/// Numbers [samples, columns], float32 on the CPU: probabilities, the network's numbers, or the loss and the
/// perplexity of each window of tokens.
at::Tensor answers(const Meaning& meaning, const at::Tensor& output, const trainyard::Batch& batch);

}  // namespace predict
