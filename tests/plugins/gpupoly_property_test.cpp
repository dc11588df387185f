// Properties in VNN-LIB: what gpupoly reads of them, and that no text makes it stumble.
#include <cfenv>
#include <random>
#include <string>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>

#include "plugins/tool/gpupoly/vnnlib.hpp"

namespace gpupoly_property_tests {

using namespace trainyard;
using namespace gpupoly;
using Catch::Contains;

namespace {

const std::string declared =
    "; of two inputs\n(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n"
    "(declare-const Y_1 Real)\n";
const std::string box =
    "(assert (<= X_0 1)) (assert (>= X_0 -1.5)) (assert (<= 0 X_1)) (assert (>= 0.5 X_1))\n";

Property read(const std::string& text) {
  return parse_property(text, "p.vnnlib");
}

}  // namespace

TEST_CASE("gpupoly reads boxes, and outputs that violate a property", "[gpupoly]") {
  const Property p = read(declared + box + "(assert (<= Y_0 Y_1))\n(assert (>= (+ (* 2 Y_0) (- Y_1) 3) 1))");
  REQUIRE((p.inputs == 2 && p.outputs == 2 && p.cases.size() == 1));
  CHECK(p.cases[0].lower == std::vector<double>{-1.5, 0});
  CHECK(p.cases[0].upper == std::vector<double>{1, 0.5});
  REQUIRE(p.cases[0].atoms.size() == 2);
  CHECK(p.cases[0].atoms[0].lower == std::vector<double>{1, -1});
  CHECK(p.cases[0].atoms[1].upper == std::vector<double>{-2, 1});  // 1 - (2 Y_0 - Y_1 + 3) <= 0
  CHECK(p.cases[0].atoms[1].constant_lower == -2);
  CHECK(at_most(p.cases[0].atoms[1], {1, 2}) == -2);
}

TEST_CASE("gpupoly multiplies ands of ors out", "[gpupoly]") {
  const Property p =
      read(declared + box +
           "(assert (or (and (<= X_0 0) (<= Y_0 1)) (and (>= X_0 0) (<= Y_1 1) (>= Y_1 -1))))\n"
           "(assert (or (<= Y_0 Y_1) (>= Y_0 4) (and (<= X_0 -2) (<= Y_0 0))))");
  REQUIRE(p.cases.size() == 4);  // X_0 is never below -2
  CHECK(p.cases[0].upper[0] == 0);
  CHECK(p.cases[3].lower[0] == 0);
  CHECK(p.cases[3].atoms.size() == 3);
}

TEST_CASE("gpupoly reads decimals outward", "[gpupoly]") {
  const Property p =
      read(declared +
           "(assert (<= X_0 0.1)) (assert (>= X_0 0.1)) (assert (<= X_1 1e-400)) (assert (>= X_1 "
           "-0.3))(assert (<= (* 0.1 Y_0) 0.3))");
  CHECK(p.cases[0].lower[0] < p.cases[0].upper[0]);
  CHECK(p.cases[0].upper[0] == 0.1);  // the double nearest to 0.1 is above it
  CHECK(p.cases[0].upper[1] > 0);
  CHECK(p.cases[0].lower[1] < -0.29999999999999998);
  CHECK(p.cases[0].atoms[0].lower[0] < p.cases[0].atoms[0].upper[0]);
  CHECK(p.cases[0].atoms[0].constant_lower < p.cases[0].atoms[0].constant_upper);
  CHECK(std::fegetround() == FE_TONEAREST);
}

TEST_CASE("gpupoly says where a property is wrong", "[gpupoly]") {
  const std::pair<std::string, const char*> wrong[] = {
      {"(declare-const Z_0 Real)", "p.vnnlib:1:16: found \"Z_0\", expected an input"},
      {"(declare-const X_0 Int)", "1:20: found \"Int\", expected \"Real\""},
      {"(declare-const X_0 Real)\n(declare-const X_0 Real)", "2:16: \"X_0\" is declared twice"},
      {"(declare-const X_1 Real)(declare-const Y_0 Real)", "X_0 is not declared"},
      {"(declare-const X_0 Real)", "0 outputs"},
      {"", "0 inputs"},
      {"(declare-const X_999999999 Real)", "found"},
      {"(check-sat)", "1:2: found \"check-sat\", expected declare-const or assert"},
      {"(assert (<= X_0 1))", "\"X_0\" was not declared"},
      {declared + "(assert (<= X_0 1))", "X_0 has no lower bound"},
      {declared + box + "(assert (<= Y_0 one))", "7:17: found \"one\", expected a number or a variable"},
      {declared + box + "(assert (<= Y_0 0x10))", "expected a number"},
      {declared + box + "(assert (<= Y_0 nan))", "expected a number"},
      {declared + box + "(assert (<= Y_0 1e999))", "expected a number"},
      {declared + box + "(assert (<= Y_0 X_0))", "expected a bound of one input"},
      {declared + box + "(assert (<= (* 2 X_0) 1))", "expected a bound of one input"},
      {declared + box + "(assert (<= 1 2))", "7:10: compares numbers only"},
      {declared + box + "(assert (<= (* Y_0 Y_1) 2))", "multiplies variables"},
      {declared + box + "(assert (= Y_0 1))", "found \"=\", expected and, or"},
      {declared + box + "(assert (or))", "\"or\" of nothing"},
      {declared + box + "(assert (<= Y_0 1)", "found the end of the file, expected \")\""},
      {declared + box + "(assert (<= Y_0 1)))", "found \")\", expected \"(\""},
      {declared + box + "(assert " + std::string(100000, '('), "found \"(\""},
      {declared + box + "(assert (<= Y_0 " + std::string(100, '-') + "1))", "expected a number"},
  };
  for (const auto& [text, message] : wrong) {
    INFO(text.substr(0, 300));
    CHECK_THROWS_WITH(read(text), Contains(message));
    CHECK_THROWS_AS(read(text), DataError);
  }
  std::string deep, many = declared + box;
  for (int i = 0; i < 1000; ++i) deep += "(and ";
  CHECK_THROWS_WITH(read(declared + box + "(assert " + deep), Contains("nested deeper"));
  for (int i = 0; i < 60; ++i) many += "(assert (or (<= Y_0 1) (<= Y_1 1)))";
  CHECK_THROWS_WITH(read(many), Contains("multiplied out"));
  CHECK_THROWS_WITH(read_property("/dev/zero"), Contains("no regular file"));
}

TEST_CASE("gpupoly reads or refuses any text that a property was changed to", "[gpupoly]") {
  const std::string text =
      declared + box + "(assert (or (and (<= Y_0 Y_1) (>= (+ Y_0 -1.5e-2) 4)) (<= (- Y_1) 2)))";
  const std::string pieces[] = {"(",    ")",           "X_0", "Y_", "1e", "-",
                                "or",   "(assert",     "\n",  ";",  " ",  std::string(1, '\0'),
                                "\xff", "999999999999"};
  std::mt19937 random(5);
  int good = 0, bad = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::string changed = text;
    for (unsigned change = 0; change <= random() % 4; ++change) {
      const std::size_t at = random() % changed.size(), size = random() % 6;
      changed.replace(at, std::min(size, changed.size() - at), pieces[random() % std::size(pieces)]);
    }
    try {
      const Property p = read(changed);
      for (const Case& each : p.cases)
        CHECK((each.lower.size() == p.inputs && each.upper.size() == p.inputs));
      ++good;
    } catch (const DataError& error) {
      CHECK_THAT(error.what(), Catch::StartsWith("p.vnnlib:"));
      ++bad;
    }
  }
  CHECK(good > 50);
  CHECK(bad > 500);
}

}  // namespace gpupoly_property_tests
