// Which channels of a network stand or fall together. Each output of a layer is a channel; where channels are added, are in
// one place of several values, or go through a depthwise convolution, they are one, and all weights that make or read it are
// cut together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace filters {

using namespace trainyard;

using Channel = int;

/// A dimension of a value whose elements are channels.
struct Track {
  int axis = -1;  ///< below 0: none of its dimensions
  std::vector<Channel> channels;

  explicit operator bool() const { return axis >= 0; }
};

/// A layer of weights: what it makes and what it reads; either may be empty, where nothing can be cut.
struct Layer {
  std::size_t node = 0;
  std::string name;
  ValueId weight = no_value;
  std::vector<Channel> outputs, inputs;
};

/// A dimension of a tensor of the graph, with an element for each of these channels, in their order.
struct Slice {
  ValueId value = no_value;
  int axis = 0;
  std::vector<Channel> channels;
};

/// Reads a graph whose shapes are inferred.
class Channels {
 public:
  explicit Channels(const Graph& graph);

  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Slice>& slices() const { return slices_; }
  const Track& track(ValueId value) const { return tracks_[static_cast<std::size_t>(value)]; }

  /// Returns the channel that stands for all that go together with it.
  Channel root(Channel channel) const;
  /// Returns why a channel cannot be cut: the node that needs all of them, and what for; empty where it can.
  const std::string& obstacle(Channel channel) const;

 private:
  friend class Reading;

  std::vector<Track> tracks_;  ///< of each value
  std::vector<Layer> layers_;
  std::vector<Slice> slices_;
  mutable std::vector<Channel> parents_;
  std::map<Channel, std::string> obstacles_;  ///< by root
};

/// Returns the integers of a constant input of a node; `fallback` where it is not given or not a constant.
std::vector<std::int64_t> constant_integers(const Graph& graph, const Node& node, std::size_t input,
                                            std::vector<std::int64_t> fallback);

/// What a Pad adds to a dimension.
struct Padding {
  std::int64_t before = 0, after = 0;
};
Padding padding_of(const Graph& graph, const Node& node, int axis);

/// The channels that a Slice takes: from the first to before the last; nothing where they cannot be told.
struct Taken {
  std::ptrdiff_t first = 0, last = 0;
};
std::optional<Taken> taken_of(const Graph& graph, const Node& node, const Track& read);

}  // namespace filters
