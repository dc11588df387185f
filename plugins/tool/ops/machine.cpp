#include "machine.hpp"

#include <malloc.h>
#include <sys/sysinfo.h>
#include <time.h>

#include <fstream>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>

#include <trainyard/version.hpp>

#include "lib/fnv1a.hpp"
#include "lib/machine.hpp"
#include "primitives.hpp"

namespace ops {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string governor() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::string line;
  return std::getline(file, line) && !line.empty() ? line : "unknown";
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.facts = {{"processor", trainyard::lib::processor()}, {"vectors", at::get_cpu_capability()},
                   {"cores", std::to_string(get_nprocs())},    {"frequency governor", governor()},
                   {"libtorch", TRAINYARD_LIBTORCH_VERSION},   {"onednn", onednn_version()}};
  trainyard::lib::Fnv1a digest;
  for (const auto& [name, value] : machine.facts) digest.update(name + "=" + value + "\n");
  machine.id = digest.hex();
  return machine;
}

Clock process_clock() {
  return {[] { return seconds_of(CLOCK_MONOTONIC); }, [] { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }};
}

Threads::Threads(std::int64_t count) : before_(at::get_num_threads()) {
  at::set_num_threads(static_cast<int>(count));
}
Threads::~Threads() {
  at::set_num_threads(before_);
}

void keep_pages(bool keep) {
  // Bounds of a block that is mapped by itself, and of the free memory at the heap's end that is given back.
  mallopt(M_MMAP_THRESHOLD, keep ? 1 << 30 : 128 << 10);
  mallopt(M_TRIM_THRESHOLD, keep ? 1 << 30 : 128 << 10);
  mallopt(M_TOP_PAD, keep ? 64 << 20 : 128 << 10);
}

void flush_caches() {
  static std::vector<char> other(std::size_t{64} << 20);
  for (std::size_t i = 0; i < other.size(); i += 64) other[i] = static_cast<char>(other[i] + 1);
}

}  // namespace ops
