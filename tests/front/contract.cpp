#include "core/plugins/contract.hpp"

#include <filesystem>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/plugins/fingerprint.hpp"
#include "core/plugins/registry.hpp"
#include "core/seal/headers.hpp"
#include "support/folder.hpp"

namespace contract_tests {

using namespace trainyard;
using namespace trainyard::plugins;

namespace {

const Contract host = {
    {"batch.hpp", "0123456789ab"}, {"graph/graph.hpp", "aaaaaaaaaaaa"}, {"loss.hpp", "bbbbbbbbbbbb"}};

std::string verdict(const std::string& headers) {
  try {
    return mismatch({{"sdk", TRAINYARD_SDK_VERSION}, {"headers", headers}}, host);
  } catch (const PluginError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("a plugin is held to the headers that it saw, and to no other") {
  CHECK(verdict(to_text(host)).empty());
  CHECK(verdict("loss.hpp=bbbbbbbbbbbb").empty());
  CHECK(verdict("batch.hpp=0123456789ab loss.hpp=cccccccccccc") ==
        "header trainyard/loss.hpp is cccccccccccc, the host has bbbbbbbbbbbb: both say "
        "SDK " TRAINYARD_SDK_VERSION
        ", yet their headers differ; rebuild it against this host's installation "
        "(find_package(Trainyard), then cmake --build)");
  const std::string both =
      verdict("batch.hpp=dddddddddddd graph/old.hpp=cccccccccccc loss.hpp=bbbbbbbbbbbb zoo.hpp=eeeeeeeeeeee");
  CHECK_THAT(
      both,
      Catch::Contains("header trainyard/batch.hpp is dddddddddddd, the host has 0123456789ab") &&
          Catch::Contains("header trainyard/graph/old.hpp is cccccccccccc, the host has none of that name") &&
          Catch::Contains("trainyard/zoo.hpp") && !Catch::Contains("loss.hpp"));
}

TEST_CASE("of many headers that differ a few are named, and the rest counted") {
  std::string headers;
  for (char letter = 'a'; letter <= 'z'; ++letter)
    headers += std::string(headers.empty() ? "" : " ") + letter + ".hpp=000000000000";
  const std::string message = verdict(headers);
  CHECK_THAT(message, Catch::Contains("trainyard/d.hpp is ") && !Catch::Contains("e.hpp") &&
                          Catch::Contains(", and 22 more: both say SDK " TRAINYARD_SDK_VERSION));
}

TEST_CASE("a damaged list of headers is one clear message, whatever is wrong with it") {
  const std::string good = to_text(host);
  const std::string wrong = "its seal lists the headers of its SDK wrongly: found `";
  const std::vector<std::string> lists = {"",
                                          " ",
                                          good + " ",
                                          " " + good,
                                          good + "=",
                                          "batch.hpp",
                                          "=0123456789ab",
                                          "batch.hpp=",
                                          "batch.hpp=0123456789AB",
                                          "batch.hpp=0123456789abc",
                                          "Batch.hpp=0123456789ab",
                                          "batch.hpp=0123456789ab\nloss.hpp=",
                                          "batch.hpp=0123456789ab batch.hpp=0123456789ab",
                                          "loss.hpp=bbbbbbbbbbbb batch.hpp=0123456789ab",
                                          "batch.hpp=0123456789ab,loss.hpp=bbbbbbbbbbbb",
                                          std::string(100'000, ' '),
                                          std::string(100'000, '='),
                                          std::string("\0\x01\xff", 3)};
  for (const std::string& damaged : lists) {
    INFO(damaged.substr(0, 80));
    const std::string message = verdict(damaged);
    CHECK_THAT(message, Catch::StartsWith(wrong));
    CHECK_THAT(message,
               Catch::EndsWith("`, expected NAME=DIGEST in the order of the names; build the plugin again"));
    CHECK(message.size() < 200);
    CHECK(message.find('\n') == std::string::npos);
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    const bool whole = good[size] == ' ';  // what is left is a list, of fewer headers
    CHECK(verdict(good.substr(0, size)).empty() == whole);
  }
  CHECK_THROWS_WITH(mismatch(host_facts(), host),
                    "its seal lists no headers of its SDK; build the plugin again");
}

TEST_CASE("the host's table is of the SDK that it was built with") {
  CHECK(host_contract() == seal::read_headers(TRAINYARD_SOURCE_DIR "/sdk/include").contract);
  CHECK(host_contract().size() > 30);
  CHECK(host_contract().count("plugin.hpp") == 1);
  CHECK(host_contract().count("graph/graph.hpp") == 1);
  CHECK(host_contract().count("mixins/reads_rows.hpp") == 1);
  CHECK_THROWS_AS(seal::read_headers(TRAINYARD_SOURCE_DIR "/docs"), PluginError);
}

TEST_CASE("a header of helpers/ is of the contract where it names itself, one of mixins/ in any case") {
  const test::Folder folder;
  for (const char* part : {"helpers", "mixins", "testing"}) {
    const std::string below = std::string("trainyard/") + part + "/";
    std::filesystem::create_directories(folder / below);
    test::write_file(folder / (below + "silent.hpp"), "struct A {};\n");
    test::write_file(folder / (below + "named.hpp"),
                     std::string("TRAINYARD_CONTRACT(\"") + part + "/named.hpp\");\n");
  }
  const seal::Headers headers = seal::read_headers(folder.path());
  CHECK(headers.contract.size() == 4);
  CHECK(headers.contract.count("helpers/silent.hpp") + headers.contract.count("testing/silent.hpp") == 0);
  CHECK((headers.unnamed.size() == 1 && headers.unnamed.count("mixins/silent.hpp") == 1));
}

TEST_CASE("a light plugin states what it includes, also through others, and not the rest") {
  const std::string headers = read(TRAINYARD_SAMPLES "/sealed/libone.so").front().build.at("headers");
  CHECK_THAT(headers, Catch::Contains("schedule.hpp=") && Catch::Contains("plugin.hpp=") &&
                          Catch::Contains("duration.hpp="));
  CHECK_THAT(headers, !Catch::Contains("loss.hpp=") && !Catch::Contains("batch.hpp="));
}

TEST_CASE("comments and blanks are no part of a header's digest, everything else is") {
  using seal::without_comments;
  const std::string plain = "#include<string>struct A{virtual int f(int a)=0;};";
  CHECK(without_comments("// About.\n#include <string>  // text\n\nstruct  A {\n  /* one */ virtual int "
                         "f(int a) = 0;  ///< two\n};\n") == plain);
  CHECK(without_comments("int/**/a") == "int a");
  CHECK(without_comments("a = \"http://b  /* c */\";  // d") == "a=\"http://b  /* c */\";");
  CHECK(without_comments("a = '\"';  // b\nc = '\\'';  // d") == "a='\"';c='\\'';");
  CHECK(without_comments("a = 1'000'000;  // it's\nb") == "a=1'000'000;b");
  CHECK(without_comments("a = R\"x( // \" )\" )x\";  // b") == "a=R\"x( // \" )\" )x\";");
  for (const char* open : {"/* a", "\"a", "'", "\"\\", "R\"(a", "R\"", "//"}) without_comments(open);
  CHECK(without_comments("virtual int f();") != without_comments("virtual int g();"));
}

}  // namespace contract_tests
