// FolderWatch: what `plugins dev` sees of a folder, and what it passes over.
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>

#include "core/programs/folder_watch.hpp"
#include "support/folder.hpp"

namespace folder_watch_tests {

using namespace trainyard;
using namespace std::chrono_literals;

TEST_CASE("a change of a folder is seen, but for temporary files of editors and the folders left out") {
  const test::Folder folder;
  std::filesystem::create_directories(folder / "build");
  cli::FolderWatch watch(folder.path(), {"build"});
  for (const char* name : {".plugin.cpp.swx", "plugin.cpp~", "plugin.swp", "4913", "build/plugin.o"})
    folder.write(name, "");
  std::filesystem::remove(folder / "build/plugin.o");
  std::filesystem::remove_all(folder / "build");  // a name that is left out, of the folder itself
  CHECK_FALSE(watch.changed(300ms));
  folder.write("plugin.cpp", "");
  CHECK(watch.changed(10s));
  CHECK_FALSE(watch.changed(200ms));
  std::filesystem::rename(folder / "plugin.cpp", folder / "other.cpp");
  CHECK(watch.changed(10s));
  std::filesystem::create_directory(folder / "parts");
  CHECK(watch.changed(10s));
  folder.write("parts/part.cpp", "");
  CHECK(watch.changed(10s));
  std::filesystem::remove(folder / "parts/part.cpp");
  CHECK(watch.changed(10s));
}

}  // namespace folder_watch_tests
