// TensorBoard's event files: records framed as TFRecords, each an Event protobuf.
//
//   record:  length (u64) | masked CRC32C of length (u32) | bytes | masked CRC32C of bytes (u32)
//   all little-endian
//   Event:   1 wall_time (double) | 2 step (int64) | 3 file_version (string) | 5 summary (Summary)
//   Summary: 1 value (repeated Value)
//   Value:   1 tag (string) | 2 simple_value (float) | 5 histo (HistogramProto) | 8 tensor (TensorProto) |
//            9 metadata (SummaryMetadata)
//
// Functions without state; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainyard::event_file {

/// Computes it with Castagnoli's polynomial, reflected: 0xe3069283 for "123456789".
std::uint32_t crc32c(std::string_view bytes);
/// Returns TFRecord's CRC: one that may stand inside checked bytes itself.
std::uint32_t masked_crc(std::string_view bytes);

std::string framed(std::string_view record);

/// Returns the current time in seconds since 1970, as events have it.
double wall_time();

/// Returns the record that every file begins with.
std::string version_record(double wall_time);
std::string scalars_record(double wall_time, std::int64_t step,
                           const std::vector<std::pair<std::string, double>>& values);

/// Counts of values up to each limit, the first from -infinity on.
struct Histogram {
  double minimum = 0.0, maximum = 0.0, count = 0.0, sum = 0.0, squares = 0.0;
  std::vector<double> limits, counts;
};
/// Counts the finite values of a CPU tensor in TensorBoard's own buckets, 10 % apart. Throws PluginError
/// where there are none.
Histogram histogram(const at::Tensor& values);
std::string histograms_record(double wall_time, std::int64_t step,
                              const std::vector<std::pair<std::string, Histogram>>& values);

/// Writes a tensor as SageMaker Debugger saves it: `mode` (1 train, 2 eval, 3 predict, 4 global) and
/// `mode_step` are metadata of plug-ins of these names. bfloat16, which its reader has not, becomes float32.
/// The record ends in a field that readers skip and that gives it the one CRC that Debugger's reader takes;
/// that is its true CRC, too.
std::string tensor_record(double wall_time, std::int64_t step, const std::string& name,
                          const at::Tensor& value, int mode, std::int64_t mode_step);

/// Returns the tensor of a framed `tensor_record`. Throws DataError, which says what is wrong with it, where
/// the record is damaged or another thing.
at::Tensor tensor_of(std::string_view framed_record);

/// Returns the step of an Event written by this file: wall_time and step come first; 0 where it has none.
std::int64_t step_of(std::string_view event);
/// Returns the tags of an Event written by this file.
std::vector<std::string> tags_of(std::string_view event);

/// Returns the undamaged record at the front of `file`, without its frame; nothing where there is none.
std::optional<std::string_view> front(std::string_view file);
/// Bytes of a frame beside its record.
inline constexpr std::size_t frame_size = 16;

/// Returns the length of the leading undamaged records of steps up to `last_step`. `take` gets each event.
template <class Take>
std::size_t length_through(std::string_view file, std::int64_t last_step, Take&& take) {
  std::size_t kept = 0;
  while (const auto record = front(file.substr(kept))) {
    if (step_of(*record) > last_step) break;
    take(*record);
    kept += record->size() + frame_size;
  }
  return kept;
}
inline std::size_t length_through(std::string_view file, std::int64_t last_step) {
  return length_through(file, last_step, [](std::string_view) {});
}

}  // namespace trainyard::event_file
