#include "core/cli/ckpt_text.hpp"

#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

namespace trainyard::cli {

std::string text_of(double value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

std::string text_of(const checkpoint::Scalar& value) {
  if (const auto* held = std::get_if<bool>(&value)) return *held ? "true" : "false";
  if (const auto* held = std::get_if<std::int64_t>(&value)) return std::to_string(*held);
  if (const auto* held = std::get_if<double>(&value)) {
    const std::string text = text_of(*held);  // "1.0" is a number, "1" an integer
    return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
  }
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
