// The reader against files that lie: whatever a header claims, it is refused with the path and the tensor.
#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>

#include "support/folder.hpp"

namespace safetensors_tests {

namespace {

using namespace trainyard;
using Catch::Matchers::Contains;

std::string file_of(const std::string& header, const std::string& data = "",
                    std::optional<std::uint64_t> length = std::nullopt) {
  const std::uint64_t claimed = length.value_or(header.size());
  return std::string(reinterpret_cast<const char*>(&claimed), sizeof claimed) + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         '}';
}

}  // namespace

TEST_CASE("safetensors: what was written is read, dtypes and shapes included") {
  const test::Folder folder;
  const std::string path = folder / "a.safetensors";
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                                    at::kShort, at::kChar, at::kByte, at::kBool})
    tensors.push_back({c10::toString(type), at::arange(6, at::kLong).fmod(2).to(type).view({2, 3}).t()});
  tensors.push_back({"nothing", at::empty({0, 4})});
  tensors.push_back({"scalar", at::scalar_tensor(3)});
  write_safetensors(path, tensors, {{"key", "value"}});
  const std::vector<NamedTensor> read = read_safetensors(path);
  REQUIRE(read.size() == tensors.size());
  for (const NamedTensor& each : read) {
    const auto same = std::find_if(tensors.begin(), tensors.end(),
                                   [&](const NamedTensor& other) { return other.name == each.name; });
    REQUIRE(same != tensors.end());
    CHECK(each.tensor.scalar_type() == same->tensor.scalar_type());
    CHECK(at::equal(each.tensor, same->tensor));
  }
}

TEST_CASE("safetensors: malicious headers are refused") {
  const std::string four(4, 'x'), eight(8, 'x');
  const struct {
    std::string bytes, reason;
  } files[] = {
      {"", "too short"},
      {"1234567", "too short"},
      {file_of("", "", 1), "claims 1 bytes"},
      {file_of("{}", "", ~std::uint64_t{0}), "claims 18446744073709551615 bytes"},
      {file_of("{}", "", 1ull << 40), "claims 1099511627776 bytes"},
      {file_of("{}", "", 3), "claims 3 bytes"},
      {file_of("[]"), "not a JSON object"},
      {file_of("{"), "not a JSON object"},
      {file_of(std::string(100'000, '[')), "not a JSON object"},
      {file_of("{\"a\":1}"), "needs exactly dtype, shape and data_offsets"},
      {file_of("{\"a\":{}}"), "needs exactly dtype, shape and data_offsets"},
      {file_of("{" + entry("a", "F32", "[1]", "[0]") + "}", four), "needs exactly"},
      {file_of("{" + entry("a", "F31", "[1]", "[0,4]") + "}", four), "unknown dtype \"F31\""},
      {file_of("{" + entry("a", "F32", "[1.0]", "[0,4]") + "}", four), "no natural number"},
      {file_of("{" + entry("a", "F32", "[-1]", "[0,4]") + "}", four), "no natural number"},
      {file_of("{" + entry("a", "F32", "[1]", "[-4,0]") + "}", four), "no natural numbers"},
      {file_of("{" + entry("a", "F32", "[1]", "[4,0]") + "}", four), "lie outside"},
      {file_of("{" + entry("a", "F32", "[2]", "[0,8]") + "}", four), "lie outside the 4 bytes"},
      {file_of("{" + entry("a", "F32", "[1]", "[18446744073709551612,18446744073709551615]") + "}", four),
       "lie outside"},
      {file_of("{" + entry("a", "F32", "[2]", "[0,4]") + "}", four), "need 8 bytes, data_offsets span 4"},
      {file_of("{" + entry("a", "F32", "[]", "[0,8]") + "}", eight), "need 4 bytes, data_offsets span 8"},
      {file_of("{" + entry("a", "F32", "[4611686018427387904,4]", "[0,4]") + "}", four), "overflows"},
      {file_of("{" + entry("a", "F64", "[2305843009213693952]", "[0,0]") + "}"), "overflows"},
      {file_of("{" + entry("a", "U8", "[9223372036854775808]", "[0,4]") + "}", four), "overflows"},
      {file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("a", "F32", "[1]", "[4,8]") + "}",
               eight),
       "\"a\" stands twice"},
      {file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[0,4]") + "}", four),
       "inside the one before"},
      {file_of("{" + entry("a", "F32", "[1]", "[4,8]") + "}", eight), "after a gap"},
      {file_of("{" + entry("a", "F32", "[1]", "[0,4]") + "}", eight), "belong to none"},
      {file_of("{}", four), "belong to none"},
  };
  const test::Folder folder;
  const std::string path = folder / "bad.safetensors";
  for (const auto& [bytes, reason] : files) {
    test::write_file(path, bytes);
    INFO(bytes.substr(0, 200));
    CHECK_THROWS_AS(read_safetensors(path), DataError);
    CHECK_THROWS_WITH(read_safetensors(path), Contains("bad.safetensors") && Contains(reason));
  }
  CHECK_THROWS_AS(read_safetensors(folder.path()), DataError);
  CHECK_THROWS_AS(read_safetensors(folder / "absent"), DataError);
}

}  // namespace safetensors_tests
