// What the models ask of the data, with one wording.
#pragma once

#include <string>

#include <trainyard/batch.hpp>
#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>

namespace models {

using namespace trainyard;

inline void require_equal(const std::string& option, std::int64_t given, const std::string& what,
                          std::int64_t expected) {
  if (given != expected)
    throw ConfigError(option + " is " + std::to_string(given) + ", but " + what + " are " +
                      std::to_string(expected) + ": set " + option + " = " + std::to_string(expected));
}

/// One output a class; one a number of the target where it is no class.
inline std::int64_t outputs(const BatchSchema& schema) {
  if (schema.classes > 0) return schema.classes;
  std::int64_t numbers = 1;
  for (const std::int64_t dim : schema.target.shape) numbers *= dim;
  return numbers;
}

/// Two classes may also have one output, a logit, and a number several: parameters of its distribution. What is
/// right then, the loss knows.
inline bool fits(std::int64_t given, const BatchSchema& schema) {
  if (schema.classes > 0) return given == schema.classes || (schema.classes == 2 && given == 1);
  return given > 0 && given % outputs(schema) == 0;
}

inline void require_outputs(const std::string& option, std::int64_t given, const BatchSchema& schema) {
  if (fits(given, schema)) return;
  require_equal(option, given, schema.classes > 0 ? "the classes of the data" : "the numbers of a target",
                outputs(schema));
}

inline void require_rows(const BatchSchema& schema) {
  if (schema.one_row_a_sample()) return;
  throw ConfigError(
      "the data gives free rows (\"" + schema.inputs.front().name +
      "\"), the model takes one row a sample: choose a model of such data, such as sage for graphs "
      "and slide for rows of few features");
}

inline void require_floating(const BatchSchema& schema) {
  if (schema.inputs.empty()) throw ConfigError("the data has no inputs, the model takes one");
  require_rows(schema);
  const FieldSchema& field = schema.inputs.front();
  if (!c10::isFloatingType(field.dtype))
    throw ConfigError("the data's input \"" + field.name + "\" holds " + c10::toString(field.dtype) +
                      ", the model takes floating-point numbers: choose a model of tokens, or other data");
}

inline void require_image(const BatchSchema& schema) {
  require_floating(schema);
  const FieldSchema& field = schema.inputs.front();
  if (field.shape.size() != 3)
    throw ConfigError("the data's input \"" + field.name + "\" has shape " + shape_text(field.shape) +
                      ", the model takes images: [channels, height, width]");
}

/// Tokens [time] and their number, the vocabulary; returns the time.
inline std::int64_t require_tokens(const BatchSchema& schema) {
  require_rows(schema);
  if (schema.inputs.empty() || schema.vocabulary <= 0 || schema.inputs.front().dtype != at::kLong ||
      schema.inputs.front().shape.size() != 1)
    throw ConfigError(
        "the model takes tokens: one input of integers, [time], with a vocabulary; the data gives " +
        (schema.inputs.empty()
             ? std::string("no input")
             : shape_text(schema.inputs.front().shape) + " of " + c10::toString(schema.inputs.front().dtype) +
                   ", vocabulary " + std::to_string(schema.vocabulary)) +
        ": use a text dataset");
  return schema.inputs.front().shape.front();
}

}  // namespace models
