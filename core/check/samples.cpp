#include "core/check/samples.hpp"

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <trainyard/error.hpp>

namespace trainyard::check {
namespace {

constexpr int rows = 24, classes = 10, features = 16;

std::string write(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw DataError(path + ": cannot be written; set TMPDIR to a folder that can");
  return path;
}

/// Returns the bytes of a number, most significant first.
std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string idx(const std::vector<int>& shape, int modulus) {
  std::string bytes = {0, 0, 8, static_cast<char>(shape.size())};
  std::size_t count = 1;
  for (const int length : shape) {
    bytes += big_endian(static_cast<std::uint32_t>(length));
    count *= static_cast<std::size_t>(length);
  }
  for (std::size_t i = 0; i < count; ++i)
    bytes += static_cast<char>(i * 7 % static_cast<std::size_t>(modulus));
  return bytes;
}

std::string png_chunk(const std::string& type, const std::string& content) {
  const std::string body = type + content;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big_endian(static_cast<std::uint32_t>(content.size())) + body +
         big_endian(static_cast<std::uint32_t>(sum));
}

/// Returns a PNG of 4 x 4 pixels with 8 bits each of red, green and blue.
std::string png(int row) {
  constexpr int side = 4;
  std::string lines;
  for (int y = 0; y < side; ++y) {
    lines += '\0';  // no filter
    for (int i = 0; i < side * 3; ++i) lines += static_cast<char>((y * side * 3 + i) * (row + 1) * 5 % 251);
  }
  uLongf size = compressBound(static_cast<uLong>(lines.size()));
  std::string packed(size, '\0');
  compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(lines.data()),
           static_cast<uLong>(lines.size()));
  packed.resize(size);
  const std::string header = big_endian(side) + big_endian(side) + std::string("\x08\x02\x00\x00\x00", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", packed) + png_chunk("IEND", "");
}

/// Writes images in folders of ten classes.
std::string image_folder(const std::string& folder) {
  for (int row = 0; row < rows; ++row)
    write(folder + "/" + std::to_string(row % classes) + "/" + std::to_string(row) + ".png", png(row));
  return folder;
}

/// Encodes a field of a protocol-buffer message that is a number.
std::string onnx_number(int field, std::uint64_t value) {
  std::string bytes(1, static_cast<char>(field << 3));
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

/// Encodes a field that is text, or a message.
std::string onnx_bytes(int field, const std::string& content) {
  std::string bytes = onnx_number(field, content.size());
  bytes[0] = static_cast<char>(bytes[0] | 2);
  return bytes + content;
}

std::string onnx_tensor(const std::string& name, const std::vector<int>& dims) {
  std::string bytes, raw;
  int count = 1;
  for (const int dim : dims) {
    bytes += onnx_number(1, static_cast<std::uint64_t>(dim));
    count *= dim;
  }
  for (int i = 0; i < count; ++i) {
    const float value = static_cast<float>(i * 7 % 11 - 5) / 40;
    char packed[sizeof value];
    std::memcpy(packed, &value, sizeof value);
    raw.append(packed, sizeof value);
  }
  return bytes + onnx_number(2, 1) + onnx_bytes(8, name) + onnx_bytes(9, raw);
}

std::string onnx_value(const std::string& name, int length) {
  const std::string dims = onnx_bytes(1, onnx_bytes(2, "batch")) +
                           onnx_bytes(1, onnx_number(1, static_cast<std::uint64_t>(length)));
  return onnx_bytes(1, name) + onnx_bytes(2, onnx_bytes(1, onnx_number(1, 1) + onnx_bytes(2, dims)));
}

/// Returns a network of opset 13: y [batch, out] = x [batch, in] weight + bias.
std::string onnx_gemm(int in, int out) {
  const std::string node = onnx_bytes(1, "x") + onnx_bytes(1, "weight") + onnx_bytes(1, "bias") +
                           onnx_bytes(2, "y") + onnx_bytes(3, "last") + onnx_bytes(4, "Gemm");
  const std::string graph = onnx_bytes(1, node) + onnx_bytes(5, onnx_tensor("weight", {in, out})) +
                            onnx_bytes(5, onnx_tensor("bias", {out})) + onnx_bytes(11, onnx_value("x", in)) +
                            onnx_bytes(12, onnx_value("y", out));
  return onnx_number(1, 8) + onnx_bytes(7, graph) + onnx_bytes(8, onnx_number(2, 13));
}

}  // namespace

std::vector<std::string> write_samples(const std::string& folder) {
  std::string csv, cifar, text, tokens, clicks, sparse = "24 40 10\n";
  for (int row = 0; row < rows; ++row) {
    const std::string label = std::to_string(row % classes);
    for (int column = 0; column < features; ++column)
      csv += std::to_string((row * 5 + column * 3) % 11) + ",";
    csv += label + "\n";
    clicks += std::to_string(row % 2);
    for (int i = 0; i < 13; ++i) clicks += "\t" + std::to_string(row * i % 7);
    for (int i = 0; i < 26; ++i) clicks += "\t" + std::to_string(row * i % 5);
    clicks += "\n";
    sparse += label + " " + label + ":1 " + std::to_string(classes + row) + ":0.5\n";
    cifar += static_cast<char>(row % classes);
    for (int i = 0; i < 3072; ++i) cifar += static_cast<char>(i * (row + 1) % 251);
  }
  for (int i = 0; i < 8000; ++i) {
    text += static_cast<char>('a' + i * i % 17);
    tokens += {static_cast<char>(i * i % 17), '\0'};  // 16 bits, low byte first
  }
  const auto file = [&](const char* name, const std::string& content) {
    return write(folder + "/" + name, content);
  };
  return {image_folder(folder + "/images"),
          file("rows.csv", csv),
          file("images.idx", idx({rows, 4, 4}, 251)),
          file("labels.idx", idx({rows}, classes)),
          file("records.bin", cifar),
          file("text.txt", text),
          file("tokens.bin", tokens),
          file("clicks.tsv", clicks),
          file("sparse.txt", sparse),
          file("network.onnx", onnx_gemm(features, classes))};
}

}  // namespace trainyard::check
