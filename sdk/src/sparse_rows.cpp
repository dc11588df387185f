#include <trainyard/helpers/sparse_rows.hpp>

#include <string>

#include <trainyard/error.hpp>

namespace trainyard {

std::vector<FieldSchema> sparse_row_fields(std::int64_t features) {
  return {{.name = "index", .shape = {}, .dtype = at::kLong, .rows = Rows::free, .cardinality = features},
          {.name = "value", .shape = {}, .dtype = at::kFloat, .rows = Rows::free},
          {.name = "offsets", .shape = {}, .dtype = at::kLong, .rows = Rows::offsets}};
}

std::int64_t find_sparse_rows(const BatchSchema& schema) {
  const std::vector<FieldSchema>& inputs = schema.inputs;
  const bool fits = inputs.size() == 3 && inputs[0].name == "index" && inputs[0].cardinality > 0 &&
                    inputs[1].name == "value" && inputs[2].rows == Rows::offsets;
  if (fits) return inputs[0].cardinality;
  std::string names;
  for (const FieldSchema& field : inputs) names += (names.empty() ? "" : ", ") + field.name;
  throw ConfigError(
      "the model takes rows of few features out of many: index, value and offsets; the data gives " +
      (names.empty() ? "no input" : names) + ": use a dataset such as xc");
}

}  // namespace trainyard
