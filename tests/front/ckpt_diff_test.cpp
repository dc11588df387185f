// trainyard ckpt diff --values: checkpoints written by hand, differences known by hand.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <sstream>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>
#include "core/programs/ckpt_diff.hpp"
#include "core/rundir/folder.hpp"
#include "lib/sha256.hpp"
#include "support/folder.hpp"

namespace ckpt_diff_tests {

using namespace trainyard;
using nlohmann::json;

namespace {

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <class T>
Tensor tensor(const std::string& dtype, const std::vector<T>& values) {
  return {dtype, {static_cast<std::int64_t>(values.size())}, bytes_of(values)};
}

std::string digest_of(const std::string& bytes) {
  lib::Sha256 hash;
  hash.update(bytes.data(), bytes.size());
  return hash.hex();
}

/// A checkpoint with one file, whose header is of no matter here.
std::string write(const test::Folder& folder, const std::string& name,
                  const std::map<std::string, Tensor>& tensors) {
  checkpoint::Manifest manifest;
  manifest.written = "2026-01-01T00:00:00Z";
  manifest.states.push_back({.owner = "model", .version = "1", .scalars = {}});
  std::string file = "header";
  manifest.files.push_back(
      {.name = "model.safetensors", .size = 0, .header = file.size(), .header_digest = digest_of(file)});
  for (const auto& [key, tensor] : tensors) {
    manifest.tensors.push_back({.owner = "model",
                                .name = key,
                                .dtype = tensor.dtype,
                                .shape = tensor.shape,
                                .file = "model.safetensors",
                                .offset = file.size(),
                                .length = tensor.bytes.size(),
                                .digest = digest_of(tensor.bytes)});
    file += tensor.bytes;
  }
  manifest.files[0].size = file.size();
  folder.write(name + "/model.safetensors", file);
  folder.write(name + "/manifest.json", checkpoint::to_text(manifest));
  return folder / name;
}

json diff_json(const std::string& a, const std::string& b) {
  std::ostringstream out;
  CHECK(cli::ckpt_diff(a, b, true, cli::Format::json, out) == ExitCode::done);
  CHECK_THAT(out.str(), Catch::StartsWith("{\n  \"a\": "));
  return json::parse(out.str());
}

/// The `values` of the one tensor that differs.
json values_of(const Tensor& a, const Tensor& b) {
  const test::Folder folder;
  const json report = diff_json(write(folder, "a", {{"w", a}}), write(folder, "b", {{"w", b}}));
  REQUIRE(report["differences"].size() == 1);
  return report["differences"][0]["values"];
}

json known(int elements, int differ, const json& absolute, const json& relative, const json& first) {
  return {{"elements", elements},
          {"differ", differ},
          {"largest_absolute", absolute},
          {"largest_relative", relative},
          {"first", first}};
}

constexpr float quiet = std::numeric_limits<float>::quiet_NaN(),
                infinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("values of each type are read from their bits", "[cli][ckpt]") {
  const auto half = [](std::vector<std::uint16_t> bits) { return tensor("F16", bits); };
  const auto bfloat = [](std::vector<std::uint16_t> bits) { return tensor("BF16", bits); };
  CHECK(values_of(tensor<float>("F32", {1, 2, 4}), tensor<float>("F32", {1, 2.5, 3})) ==
        known(3, 2, 1.0, 0.25, {1}));
  CHECK(values_of(tensor<double>("F64", {8, -1}), tensor<double>("F64", {8, 1})) ==
        known(2, 1, 2.0, 2.0, {1}));
  // 1 and 1.5; the smallest subnormal 2^-24 and twice it; the largest, 65504, and infinity.
  CHECK(values_of(half({0x3c00}), half({0x3e00})) == known(1, 1, 0.5, 0.5 / 1.5, {0}));
  CHECK(values_of(half({0x0001}), half({0x8002})) == known(1, 1, std::ldexp(3.0, -24), 1.5, {0}));
  CHECK(values_of(half({0x7bff}), half({0})) == known(1, 1, 65504.0, 1.0, {0}));
  CHECK(values_of(half({0x7bff}), half({0x7c00})) == known(1, 1, "inf", "inf", {0}));
  CHECK(values_of(half({0x7e00, 0x3c00}), half({0x7e00, 0x4000})) == known(2, 1, 1.0, 0.5, {1}));
  // Infinity is not what two numbers that are none have in common.
  CHECK(values_of(half({0x7c00}), half({0x7e00})) == known(1, 1, "inf", "inf", {0}));
  CHECK(values_of(half({0x7c01}), half({0x7e00})) == known(1, 1, 0.0, 0.0, {0}));
  // 1 and 2; 1 and the next, 1 + 2^-7.
  CHECK(values_of(bfloat({0x3f80}), bfloat({0x4000})) == known(1, 1, 1.0, 0.5, {0}));
  CHECK(values_of(bfloat({0x3f80}), bfloat({0x3f81})) == known(1, 1, 0.0078125, 0.0078125 / 1.0078125, {0}));
  CHECK(values_of(tensor<std::int32_t>("I32", {-3}), tensor<std::int32_t>("I32", {1})) ==
        known(1, 1, 4.0, 4.0 / 3.0, {0}));
  CHECK(values_of(tensor<std::int16_t>("I16", {10}), tensor<std::int16_t>("I16", {5})) ==
        known(1, 1, 5.0, 0.5, {0}));
  CHECK(values_of(tensor<std::int8_t>("I8", {-128}), tensor<std::int8_t>("I8", {127})) ==
        known(1, 1, 255.0, 255.0 / 128.0, {0}));
  CHECK(values_of(tensor<std::uint8_t>("U8", {200}), tensor<std::uint8_t>("U8", {100})) ==
        known(1, 1, 100.0, 0.5, {0}));
  CHECK(values_of(tensor<std::uint8_t>("BOOL", {0, 1, 1}), tensor<std::uint8_t>("BOOL", {0, 0, 1})) ==
        known(3, 1, 1.0, 1.0, {1}));
}

TEST_CASE("values at the edges of their types", "[cli][ckpt]") {
  const auto f32 = [](std::vector<float> values) { return tensor("F32", values); };
  const auto i64 = [](std::vector<std::int64_t> values) { return tensor("I64", values); };
  constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min(),
                         high = std::numeric_limits<std::int64_t>::max();
  // The same bits are equal, if they are no number; -0 and +0 differ, by nothing.
  CHECK(values_of(f32({quiet, infinity, 1}), f32({quiet, infinity, 2})) == known(3, 1, 1.0, 0.5, {2}));
  CHECK(values_of(f32({-0.0F, 1}), f32({0.0F, 1})) == known(2, 1, 0.0, 0.0, {0}));
  CHECK(values_of(f32({quiet}), f32({-quiet})) == known(1, 1, 0.0, 0.0, {0}));
  CHECK(values_of(f32({1, quiet}), f32({1, 3})) == known(2, 1, "inf", "inf", {1}));
  CHECK(values_of(f32({infinity}), f32({-infinity})) == known(1, 1, "inf", "inf", {0}));
  CHECK(values_of(f32({0, 0}), f32({0, 1e-30F})) == known(2, 1, double{1e-30F}, 1.0, {1}));
  // The difference overflows, the ratio does not.
  CHECK(values_of(tensor<double>("F64", {1e308}), tensor<double>("F64", {-1e308})) ==
        known(1, 1, "inf", 2.0, {0}));
  CHECK(values_of(i64({low}), i64({high})) == known(1, 1, std::ldexp(1.0, 64), 2.0, {0}));
  // One apart, where a double does not tell them apart.
  CHECK(values_of(i64({high}), i64({high - 1})) == known(1, 1, 1.0, std::ldexp(1.0, -63), {0}));
}

TEST_CASE("the first element that differs has an index in its shape", "[cli][ckpt]") {
  std::vector<float> values(24, 1.0F);
  const Tensor before{"F32", {2, 3, 4}, bytes_of(values)};
  values[17] = values[23] = 2.0F;  // 17 = 1 * 12 + 1 * 4 + 1
  CHECK(values_of(before, {"F32", {2, 3, 4}, bytes_of(values)}) == known(24, 2, 1.0, 0.5, {1, 1, 1}));
  CHECK(values_of({"F32", {}, bytes_of<float>({1})}, {"F32", {}, bytes_of<float>({2})}) ==
        known(1, 1, 1.0, 0.5, json::array()));
  // More than is read at once: 1 MiB is 262144 floats.
  std::vector<float> many(600000, 1.0F);
  const Tensor long_one = tensor("F32", many);
  many[262144] = many[599999] = 0.5F;
  CHECK(values_of(long_one, tensor("F32", many)) == known(600000, 2, 0.5, 0.5, {262144}));
}

TEST_CASE("what differs most stands first, and what cannot be compared before it", "[cli][ckpt]") {
  const test::Folder folder;
  const std::map<std::string, Tensor> before = {
      {"a", tensor<float>("F32", {10})},   {"b", tensor<float>("F32", {1})},
      {"c", tensor<float>("F32", {1, 2})}, {"d", tensor<float>("F32", {1})},
      {"gone", tensor<float>("F32", {1})}, {"same", tensor<float>("F32", {quiet})}};
  std::map<std::string, Tensor> after = before;
  after["a"] = tensor<float>("F32", {8});
  after["b"] = tensor<float>("F32", {2});
  after["c"].shape = {2, 1};
  after["d"] = tensor<std::int32_t>("I32", {1});
  after.erase("gone");
  const std::string a = write(folder, "a", before), b = write(folder, "b", after);

  const json report = diff_json(a, b);
  std::vector<std::string> order;
  for (const json& each : report["differences"]) order.push_back(each["what"]);
  CHECK(order == std::vector<std::string>{"tensor model:c", "tensor model:d", "tensor model:gone",
                                          "tensor model:b", "tensor model:a"});
  CHECK(report["of"] == 7);
  CHECK(report["differences"][0]["not_compared"] == "their shapes differ");
  CHECK(report["differences"][1]["not_compared"] == "their types differ");
  for (int i = 0; i < 3; ++i) CHECK_FALSE(report["differences"][i].contains("values"));
  CHECK_FALSE(report["differences"][2].contains("not_compared"));

  std::ostringstream out;
  CHECK(cli::ckpt_diff(a, b, true, cli::Format::text, out) == ExitCode::done);
  CHECK_THAT(out.str(), Catch::Contains("    values not compared: their shapes differ\n"));
  CHECK_THAT(
      out.str(),
      Catch::Contains(
          "    1 of 1 elements differ, by at most 2, relatively 0.2; the first at [0]\n5 of 7 differ\n"));
  std::ostringstream plain;
  CHECK(cli::ckpt_diff(a, b, false, cli::Format::text, plain) == ExitCode::done);
  CHECK_THAT(plain.str(), !Catch::Contains("elements") && !Catch::Contains("compared"));
}

TEST_CASE("values are those that were written, or none", "[cli][ckpt]") {
  const test::Folder folder;
  const std::string a = write(folder, "a", {{"w", tensor<float>("F32", {1, 2})}});
  const std::string b = write(folder, "b", {{"w", tensor<float>("F32", {1, 3})}});
  std::ostringstream out;
  // More elements than bytes, though manifest and digest agree.
  const std::string short_one = write(folder, "short", {{"w", {"F32", {2}, "abcd"}}});
  CHECK_THROWS_WITH(cli::ckpt_diff(a, short_one, true, cli::Format::text, out),
                    Catch::Contains("tensor \"w\" has 4 bytes"));
  folder.write("b/model.safetensors", "header" + bytes_of<float>({1, 4}));
  for (const auto& [first, second] : {std::pair(a, b), {b, a}})
    CHECK_THROWS_WITH(cli::ckpt_diff(first, second, true, cli::Format::text, out),
                      Catch::Contains("tensor \"w\" is not as it was written"));
}

}  // namespace ckpt_diff_tests
