// What the datasets of clicks share: numbers, categories as rows of embedding tables, and whether somebody
// clicked.
#pragma once

#include <cstdint>

#include <trainyard/dataset.hpp>

namespace datasets {

using namespace trainyard;

/// "features" where there are any; "ids", one for each table, below `rows`, the number of the largest table.
inline BatchSchema click_schema(std::int64_t features, std::int64_t tables, std::int64_t rows) {
  BatchSchema schema;
  if (features > 0) schema.inputs.push_back({"features", {features}, at::kFloat});
  schema.inputs.push_back({"ids", {tables}, at::kLong});
  schema.target = {"click", {}, at::kLong};
  schema.classes = 2;
  schema.vocabulary = rows;
  return schema;
}

}  // namespace datasets
