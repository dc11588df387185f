// What was measured of a model on a device, and of links between ranks: JSON files with date and source.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "communication.hpp"
#include "fit.hpp"
#include "iteration.hpp"

namespace srifty {

/// Times of micro-batches of one size, in seconds: medians, and what lies between a tenth and nine tenths.
struct BatchProfile {
  std::int64_t samples = 0;
  double forward = 0.0, backward = 0.0;
  double spread = 0.0;  ///< (90th - 10th percentile) / median of forward and backward together
};

/// A model on a device.
struct Profile {
  std::string path;  ///< of the file; empty where it was just measured
  std::string device, as_of, source;
  std::string model;                  ///< digest of the names and shapes of its parameters
  bool estimated = false;             ///< calculated from another device, not measured
  std::vector<BatchProfile> batches;  ///< by samples
  std::vector<Gradient> gradients;    ///< in the network's order
  std::vector<double> steps;          ///< seconds of whole training steps over their median, sorted
  double rest = 0.0;            ///< seconds of a step that are neither forward, backward nor reading data
  double input = 0.0;           ///< seconds to read a sample
  bool input_overlaps = false;  ///< data is read beside the step, by loader threads
  double weight_bytes = 0.0;
  double sample_bytes = 0.0;  ///< activations of a sample; 0: not known

  double gradient_bytes() const;
  /// Returns the bytes that a micro-batch needs: weights, gradients, two moments, and activations.
  double memory(double samples) const { return 4.0 * weight_bytes + samples * sample_bytes; }
};

/// Sums of gradients that were measured over one kind of link, by number of ranks.
struct Links {
  std::string path, name, as_of, source;
  struct Measured {
    Curve typical, slow;  ///< medians and 90th percentiles
  };
  std::map<int, Measured> worlds;

  /// Returns the seconds of a sum at a quantile between 0.5 and 0.9 (what lies beyond counts as 0.9): of
  /// `ranks` ranks as measured, else by a ring that was fitted to the largest number of ranks measured.
  double seconds(int ranks, double bytes, double quantile) const;
};

/// Read and write a profile. Reading throws DataError with the file, the key and what it is to hold.
Profile read_profile(const std::string& text, const std::string& path);
std::string profile_text(const Profile& profile);

/// Reads a file of links.
Links read_links(const std::string& text, const std::string& path);

/// Returns a quantile of sorted numbers, linear between two of them.
double quantile_of(const std::vector<double>& sorted, double quantile);

}  // namespace srifty
