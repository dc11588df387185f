#include "answers.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace predict {

using trainyard::Batch;
using trainyard::BatchSchema;

Meaning meaning_of(const std::vector<std::int64_t>& output, const BatchSchema& schema,
                   const std::vector<std::string>& class_names) {
  using Kind = Meaning::Kind;
  std::int64_t numbers = 1;
  for (const std::int64_t size : output) numbers *= size;
  if (output.size() == 2 && schema.vocabulary > 0 && output[1] == schema.vocabulary)
    return {Kind::tokens, {"loss", "perplexity"}};
  if (output.size() > 1 && numbers != output.back())
    throw trainyard::ConfigError(
        "the network gives " + trainyard::shape_text(output) +
        " numbers a sample, which make no row: --out FILE.safetensors takes them for a split");
  Meaning meaning;
  if (schema.classes > 0 && numbers == schema.classes)
    meaning.kind = Kind::classes;
  else if (schema.classes == 2 && numbers == 1)
    meaning.kind = Kind::binary;
  if (!meaning.has_classes()) {
    for (std::int64_t i = 0; i < numbers; ++i)
      meaning.columns.push_back(numbers == 1 ? "value" : "value_" + std::to_string(i));
    return meaning;
  }
  for (std::int64_t i = 0; i < schema.classes; ++i)
    meaning.columns.push_back(class_names.empty() ? std::to_string(i)
                                                  : class_names.at(static_cast<std::size_t>(i)));
  return meaning;
}

namespace {

/// Of the tokens of each window, from the second on.
at::Tensor scores(const at::Tensor& output, const at::Tensor& tokens) {
  const std::int64_t length = tokens.size(1);
  const at::Tensor said = at::log_softmax(output.narrow(1, 0, length - 1), -1);
  const at::Tensor next = tokens.narrow(1, 1, length - 1).unsqueeze(-1);
  const at::Tensor loss = said.gather(-1, next).squeeze(-1).mean(1).neg();
  return at::stack({loss, at::exp(loss)}, 1);
}

}  // namespace

at::Tensor answers(const Meaning& meaning, const at::Tensor& output, const Batch& batch) {
  using Kind = Meaning::Kind;
  at::Tensor logits = output.to(at::kFloat);
  if (meaning.kind != Kind::tokens) logits = logits.reshape({output.size(0), -1});
  if (meaning.kind == Kind::classes) logits = at::softmax(logits, 1);
  if (meaning.kind == Kind::binary) logits = at::cat({at::sigmoid(logits.neg()), at::sigmoid(logits)}, 1);
  if (meaning.kind == Kind::numbers && (meaning.factor != 1.0 || meaning.summand != 0.0))
    logits = logits.to(at::kDouble).mul(meaning.factor).add(meaning.summand).to(at::kFloat);
  if (meaning.kind == Kind::tokens) logits = scores(logits, batch.inputs.front());
  return logits.to(at::kCPU).contiguous();
}

}  // namespace predict
