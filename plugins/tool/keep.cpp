// Has the data of a run in the form in which it lies in memory, so that runs to come map it in place of reading
// its files: what the option keep_in of a dataset does at the first opening, with a bar, and with a digest to
// compare copies by.
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/data_tool.hpp>
#include <trainyard/keeps_data.hpp>

#include "lib/sha256.hpp"

namespace {

using namespace trainyard;

/// SHA-256 of the file's bytes, as sha256sum tells it.
std::string digest_of(const std::string& path) {
  lib::Sha256 hash;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(std::size_t{1} << 20);
  do {
    file.read(block.data(), std::ssize(block));
    hash.update(block.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  if (!file.eof()) throw DataError(path + ": cannot be read");
  return hash.hex();
}

class Keep final : public DataTool {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("keep").version("1.0.0").summary(
        "Writes the data of a run as it lies in memory, for later runs to map.");
  }
  explicit Keep(const Options&) {}

  Report run_on_data(DataWorkshop& shop) override {
    Report report;
    report.columns = {"split", "file", "bytes", "made", "sha256"};
    std::map<std::string, std::pair<std::string, bool>> digests;  // by file: that, and whether it was made
    for (const std::string& split : shop.splits()) {
      Dataset& dataset = shop.dataset(split);
      auto* const keeps = dynamic_cast<KeepsData*>(&dataset);
      if (keeps == nullptr)
        throw ConfigError("the dataset of [data." + split +
                          "] has no form to be kept in: its files are read at every "
                          "start");
      const KeptFacts kept =
          keeps->keep(split, [&](std::int64_t done, std::int64_t total) { shop.progress(done, total); });
      if (shop.stopping()) return {};
      const auto [known, added] = digests.try_emplace(kept.file, "", kept.made);
      if (added) known->second.first = digest_of(kept.file);
      report.rows.push_back({split, kept.file,
                             static_cast<std::int64_t>(std::filesystem::file_size(kept.file)),
                             known->second.second ? "now" : "before", known->second.first});
    }
    return report;
  }
};

}  // namespace

TRAINYARD_PLUGIN(Keep)
