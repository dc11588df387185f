#include "core/programs/ckpt_text.hpp"

#include <nlohmann/json.hpp>

#include "lib/printed.hpp"

namespace trainyard::cli {

std::string text_of(double value) {
  return lib::shortest(value);
}

std::string text_of(const checkpoint::Scalar& value) {
  if (const auto* held = std::get_if<bool>(&value)) return *held ? "true" : "false";
  if (const auto* held = std::get_if<std::int64_t>(&value)) return std::to_string(*held);
  if (const auto* held = std::get_if<double>(&value)) return lib::float_text(*held);
  return nlohmann::json(std::get<std::string>(value))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const checkpoint::TensorEntry& tensor) {
  std::string text = tensor.dtype + " [";
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(tensor.shape[i]);
  return text + "]";
}

}  // namespace trainyard::cli
