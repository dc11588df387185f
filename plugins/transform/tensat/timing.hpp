// Times of passes, as the run's executor computes them: forward, and in training backward to parameters.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace tensat {

/// How passes are computed.
struct Way {
  bool training = true;
  bool compiled = false;  ///< by the executor `compiled`; else as `eager` does
  bool fuses = true, winograd = true;
  std::int64_t samples = 1;  ///< of a pass
  std::string text() const;
};

/// A network with a batch, ready to be computed again and again.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual void run() = 0;
};
/// Makes a pass over tensors of its own. `wants` names inputs that get a gradient, as those within a network do. Throws where the graph cannot be
/// computed so.
std::unique_ptr<Pass> make_pass(const trainyard::Graph& graph, const Way& way,
                                const std::vector<std::string>& wants = {});

/// Seconds of one call.
struct Seconds {
  double least = 0.0, quartile = 0.0, median = 0.0;
};
/// Times passes in turn: each round has each of them, as often as `inner` seconds take, and the least of its calls counts: some calls wait for a thread
/// that the scheduler put aside. Ends early where `stop` says so, with what it has.
std::vector<Seconds> seconds_of(std::span<Pass* const> passes, int rounds, double inner,
                                const std::function<bool()>& stop = {});

/// Two passes, in turn: the least of each, and the median of the ratios of the second to the first, of rounds, which what else the machine does
/// changes little.
struct Compared {
  double first = 0.0, second = 0.0, ratio = 1.0;
};
Compared compared(Pass& first, Pass& second, int rounds, double inner,
                  const std::function<bool()>& stop = {});

}  // namespace tensat
