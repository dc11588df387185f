// A small ONNX file: y = x weight + bias.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace trainyard::test {

inline std::string onnx_number(int field, std::uint64_t value) {
  std::string bytes(1, static_cast<char>(field << 3));
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

inline std::string onnx_bytes(int field, const std::string& content) {
  std::string bytes = onnx_number(field, content.size());
  bytes[0] = static_cast<char>(bytes[0] | 2);
  return bytes + content;
}

/// Opset 13; x is [batch, in], weight [in, out] of small numbers, y [batch, out].
inline std::string onnx_gemm(int in, int out) {
  const auto tensor = [](const std::string& name, const std::vector<int>& dims) {
    std::string bytes;
    int count = 1;
    for (const int dim : dims) {
      bytes += onnx_number(1, static_cast<std::uint64_t>(dim));
      count *= dim;
    }
    std::string raw;
    for (int i = 0; i < count; ++i) {
      const float value = static_cast<float>(i * 7 % 11 - 5) / 40;
      char packed[sizeof value];
      std::memcpy(packed, &value, sizeof value);
      raw.append(packed, sizeof value);
    }
    return bytes + onnx_number(2, 1) + onnx_bytes(8, name) + onnx_bytes(9, raw);
  };
  const auto value = [](const std::string& name, int length) {
    const std::string dims = onnx_bytes(1, onnx_bytes(2, "batch")) +
                             onnx_bytes(1, onnx_number(1, static_cast<std::uint64_t>(length)));
    return onnx_bytes(1, name) + onnx_bytes(2, onnx_bytes(1, onnx_number(1, 1) + onnx_bytes(2, dims)));
  };
  const std::string node = onnx_bytes(1, "x") + onnx_bytes(1, "weight") + onnx_bytes(1, "bias") +
                           onnx_bytes(2, "y") + onnx_bytes(3, "last") + onnx_bytes(4, "Gemm");
  const std::string graph = onnx_bytes(1, node) + onnx_bytes(5, tensor("weight", {in, out})) +
                            onnx_bytes(5, tensor("bias", {out})) + onnx_bytes(11, value("x", in)) +
                            onnx_bytes(12, value("y", out));
  return onnx_number(1, 8) + onnx_bytes(7, graph) + onnx_bytes(8, onnx_number(2, 13));
}

}  // namespace trainyard::test
