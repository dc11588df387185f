#include <toml++/toml.h>
#include <catch2/catch.hpp>
#include <limits>

#include <trainyard/error.hpp>

#include "core/plugins/plain_toml.hpp"

namespace plain_toml_tests {

using namespace trainyard;
using plugins::parse_plain_toml;
using plugins::to_plain_toml;

namespace {

Table example() {
  Table inner;
  inner.set("name", "größer \"quoted\" back\\slash\nline\ttab");
  inner.set("list", Array{Array{1, 2}, Array{}, true});
  Table table;
  table.set("flag", false);
  table.set("low", std::numeric_limits<std::int64_t>::min());
  table.set("tiny", 5e-324);
  table.set("huge", 1e300);
  table.set("whole", 3.0);
  table.set("infinite", -std::numeric_limits<double>::infinity());
  table.set("tables", Array{inner, inner});
  table.set("empty", Table{});
  return table;
}

std::string refusal(const std::string& text) {
  try {
    parse_plain_toml(text);
  } catch (const PluginError& error) {
    return error.what();
  }
  return "taken";
}

}  // namespace

TEST_CASE("plain TOML reads back what it wrote, types and bits included") {
  const std::string text = to_plain_toml(example());
  const Table read = parse_plain_toml(text);
  CHECK(to_plain_toml(read) == text);
  CHECK(read.find("whole")->as<double>() == 3.0);
  CHECK(read.find("tiny")->as<double>() == 5e-324);
  CHECK(read.find("low")->as<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  const Table& first = read.find("tables")->as<Array>().front().as<Table>();
  CHECK(first.find("name")->as<std::string>() == "größer \"quoted\" back\\slash\nline\ttab");
  CHECK(first.find("list")->as<Array>()[1].as<Array>().empty());
}

TEST_CASE("plain TOML is TOML") {
  const toml::table read = toml::parse(to_plain_toml(example()));
  CHECK(read["whole"].value_exact<double>() == 3.0);
  CHECK(read["infinite"].value_exact<double>() == -std::numeric_limits<double>::infinity());
  CHECK(read["low"].value_exact<std::int64_t>() == std::numeric_limits<std::int64_t>::min());
  CHECK(read["tables"][1]["name"].value_exact<std::string>() == "größer \"quoted\" back\\slash\nline\ttab");
  CHECK(read["tables"][1]["list"][0][1].value_exact<std::int64_t>() == 2);
}

TEST_CASE("plain TOML refuses the rest with the place and what was expected") {
  CHECK(refusal("a = 1\nb = \n") == "line 2: found `?`, expected a value");
  CHECK(refusal("a = 1 b = 2") == "line 1: found `b = 2`, expected the end of the line");
  CHECK(refusal("a = 1\na = 2") == "line 2: found ` = 2`, expected no second `a`");
  CHECK(refusal("a = \"x") == "line 1: found `the end of the text`, expected `\"`");
  CHECK(refusal("a = \"\\u0041\"") == "line 1: found `u0041\"`, expected one of \\n \\t \\\" \\\\");
  CHECK(refusal("a = [1, 2") == "line 1: found `the end of the text`, expected `,` or `]`");
  CHECK(refusal("a = {b = 1") == "line 1: found `the end of the text`, expected `,` or `}`");
  CHECK(refusal("a.b = 1") == "line 1: found `.b = 1`, expected `=`");
  CHECK(refusal("[a]") == "line 1: found `[a]`, expected a key");
  CHECK(refusal("a = 99999999999999999999x") == "line 1: found `999999999999`, expected a value");
  CHECK(refusal("a = " + std::string(100000, '[')).find("expected at most 16 levels") != std::string::npos);
  CHECK(refusal(std::string("a = \"\0\"", 7)).find("expected `\"`") != std::string::npos);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "k" + std::to_string(i) + " = 1\n";
  CHECK(refusal(many).find("expected at most 64 keys in a table") != std::string::npos);
  Table control;
  control.set("a", "bell\a");
  CHECK_THROWS_AS(to_plain_toml(control), PluginError);
}

}  // namespace plain_toml_tests
