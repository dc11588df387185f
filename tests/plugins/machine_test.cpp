// What the recorder reads of the machine, against files whose figures are known.
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include <catch2/catch.hpp>

#include "plugins/recorder/trial/machine.hpp"
#include "support/folder.hpp"

namespace machine_tests {

using namespace trainyard;
namespace fs = std::filesystem;

namespace {

using Figures = std::map<std::string, std::vector<double>>;

Figures sample(trial::Machine& machine) {
  Figures figures;
  for (const TensorRecord& record : machine.sample()) {
    const at::Tensor flat = record.value.reshape({-1});
    for (std::int64_t i = 0; i < flat.numel(); ++i) figures[record.name].push_back(flat[i].item<double>());
  }
  return figures;
}

}  // namespace

TEST_CASE("the machine's figures are those of /proc since the call before") {
  const test::Folder root;
  fs::create_directories(root / "proc");
  fs::create_directories(root / "sys/block/sda");
  fs::create_directories(root / "sys/block/loop0");
  const auto write = [&](const std::string& stat, const std::string& memory, const std::string& disks) {
    test::write_file(root / "proc/stat", stat);
    test::write_file(root / "proc/meminfo", memory);
    test::write_file(root / "proc/diskstats", disks);
  };
  trial::Machine machine(root.path());

  // user nice system idle iowait irq softirq steal guest
  write("cpu 9 9 9 9 9 9 9 9 9\ncpu0 10 0 10 100 20 0 0 0 7\ncpu1 0 0 0 50 0 0 0 0 0\nintr 1\n",
        "MemTotal: 1000 kB\nMemFree: 5 kB\nMemAvailable: 400 kB\nHugePages_Total: 0\n",
        "8 0 sda 1 1 1000 1 1 1 3000 1\n8 1 sda1 1 1 1000 1 1 1 3000 1\n7 0 loop0 1 1 64 1 1 1 64 1\n");
  const Figures first = sample(machine);
  CHECK(first.at("system/memory") == std::vector{60.0});
  CHECK_FALSE(first.contains("system/cpu"));
  CHECK_FALSE(first.contains("system/disk_read"));

  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  // Of 100 ticks of the first core 30 were idle and 20 waited; the second has not moved.
  write("cpu 9 9 9 9 9 9 9 9 9\ncpu0 40 10 20 130 40 0 0 0 7\ncpu1 0 0 0 50 0 0 0 0 0\nintr 1\n",
        "MemTotal: 1000 kB\nMemAvailable: 1000 kB\n",
        "8 0 sda 1 1 1100 1 1 1 3300 1\n8 1 sda1 1 1 9000 1 1 1 9000 1\n7 0 loop0 1 1 9000 1 1 1 9000 1\n");
  const Figures second = sample(machine);
  CHECK(second.at("system/cpu") == std::vector{50.0, 100.0});
  CHECK(second.at("system/iowait") == std::vector{20.0, 0.0});
  CHECK(second.at("system/memory") == std::vector{0.0});
  const double read = second.at("system/disk_read").at(0), written = second.at("system/disk_write").at(0);
  CHECK(written == Approx(3.0 * read));
  CHECK(read > 0.0);
  CHECK(read <= 100 * 512 / 0.02);

  write("", "", "");
  CHECK(sample(machine).empty());
}

}  // namespace machine_tests
