#include "machine.hpp"

#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

namespace trial {

TensorRecord numbers(std::string name, const std::vector<double>& values) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
  return {std::move(name), tensor.sizes().vec(), statistics(tensor), tensor};
}

TensorRecord number(std::string name, double value) {
  const at::Tensor tensor = at::full({}, value, at::kDouble);
  return {std::move(name), {}, statistics(tensor), tensor};
}

std::vector<TensorRecord> Machine::sample() {
  std::vector<TensorRecord> records;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(last_, now)).count();

  // cpuN user nice system idle iowait irq softirq steal ...
  std::vector<Core> cores;
  std::ifstream stat(root_ + "/proc/stat");
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    if (line.starts_with("cpu ")) continue;
    std::istringstream words(line.substr(line.find(' ')));
    std::int64_t times[8] = {};
    for (std::int64_t& time : times) words >> time;
    cores.push_back(
        {std::accumulate(std::begin(times), std::end(times), std::int64_t{0}), times[3], times[4]});
  }
  if (!cores.empty() && cores.size() == cores_.size()) {
    std::vector<double> busy, waiting;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      const auto total = static_cast<double>(std::max<std::int64_t>(1, cores[i].total - cores_[i].total));
      const auto wait = static_cast<double>(cores[i].waiting - cores_[i].waiting);
      const auto idle = static_cast<double>(cores[i].idle - cores_[i].idle);
      busy.push_back(100.0 * std::max(0.0, total - idle - wait) / total);
      waiting.push_back(100.0 * std::max(0.0, wait) / total);
    }
    records.push_back(numbers("system/cpu", busy));
    records.push_back(numbers("system/iowait", waiting));
  }
  cores_ = std::move(cores);

  std::ifstream memory(root_ + "/proc/meminfo");
  double all = 0.0, available = -1.0;
  for (std::string name, unit; memory >> name;) {
    double kilobytes = 0.0;
    memory >> kilobytes;
    std::getline(memory, unit);
    if (name == "MemTotal:") all = kilobytes;
    if (name == "MemAvailable:") available = kilobytes;
  }
  if (all > 0.0 && available >= 0.0)
    records.push_back(number("system/memory", 100.0 * (all - available) / all));

  // major minor name reads merged SECTORS_READ ms writes merged SECTORS_WRITTEN ...; of whole disks
  constexpr std::int64_t sector = 512;
  std::ifstream disks(root_ + "/proc/diskstats");
  std::int64_t read = 0, written = 0;
  bool any = false;
  for (std::string line; std::getline(disks, line);) {
    std::istringstream words(line);
    std::string skip, name;
    std::int64_t values[7] = {};
    words >> skip >> skip >> name;
    for (std::int64_t& value : values) words >> value;
    std::error_code none;
    if (!words || !std::filesystem::exists(root_ + "/sys/block/" + name, none) || name.starts_with("loop"))
      continue;
    any = true;
    read += values[2] * sector;
    written += values[6] * sector;
  }
  if (any && bytes_read_ >= 0 && seconds > 0.0) {
    records.push_back(number("system/disk_read", static_cast<double>(read - bytes_read_) / seconds));
    records.push_back(number("system/disk_write", static_cast<double>(written - bytes_written_) / seconds));
  }
  if (any) {
    bytes_read_ = read;
    bytes_written_ = written;
  }

  for (TensorRecord& record : gpus_.sample()) records.push_back(std::move(record));
  return records;
}

}  // namespace trial
