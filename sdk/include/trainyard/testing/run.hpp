// A training small enough to look into: a network of 67 weights, eight samples a step, on this thread. It fires the
// events of a step in their order (trainyard/event.hpp), lends hooks a context as the host does, and keeps what
// happened.
//
//   trainyard::testing::Made<trainyard::Hook> hook(PLUGIN_FILE);
//   trainyard::testing::TinyRun run;
//   run.add(hook);
//   run.step();
//   run.gradients();  // as the optimizer got them
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/context.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/executor.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/named_tensor.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>

#include <trainyard/testing/plugin.hpp>

namespace trainyard::testing {

/// Returns a schema of four features and a class of three; with `classes` 0 of four features and a number.
BatchSchema tiny_schema(std::int64_t classes = 3);
/// Builds fc1 [8, 4], ReLU, the dropout site fc1.dropout, fc2 [classes, 8], with weights of the seed.
std::unique_ptr<Network> tiny_network(const BatchSchema& schema, std::uint64_t seed = 1);
/// Makes normal features and a class, or their sum. Fields have to be floats, the target a class or float.
Batch tiny_batch(const BatchSchema& schema, std::int64_t size, std::uint64_t seed = 1);

class TinyRun {
 public:
  struct Setup {
    std::int64_t classes = 3;
    int micros = 1;            ///< micro-batches a step
    std::int64_t samples = 8;  ///< samples of each micro-batch
    std::int64_t steps = 10;   ///< budget of the run; it has two epochs
    double lr = 0.1;
    std::uint64_t seed = 1;
  };
  struct Request {
    std::string plugin;
    Control control;
    std::string reason;
  };

  TinyRun() : TinyRun(Setup()) {}
  explicit TinyRun(const Setup& setup);
  ~TinyRun();

  // Call these before the first step. Borrowed objects outlive the run; plain SGD, cross entropy (or squared
  // errors), and one pass a micro-batch are the defaults.

  /// Adds a plugin whose hooks are called: by phase, priority, then in the order of the calls of add.
  void add(MadePlugin& plugin);
  void use(std::unique_ptr<Network> network);
  void use(Loss& loss);
  void use(Dropout& dropout);
  void use(Executor& executor);
  /// Opens the optimizer with the weights of the network.
  void use(Optimizer& optimizer);

  /// Fires the events of a beginning, once, then those of so many steps. An exception of a hook comes out; a
  /// hook that changed weights or gradients that it did not declare is a PluginError.
  void step(int count = 1);
  /// Evaluates four batches of "val": the loss is a metric at eval_end.
  void evaluate();
  /// Fires the events of an end.
  void finish();
  /// Fires one event as it stands, such as swap_in or after_load.
  void fire(Event event);

  const RunScale& scale() const;
  const Clock& clock() const;
  Network& network();
  Optimizer& optimizer();
  /// Returns copies.
  std::vector<NamedTensor> weights() const;
  /// Returns copies of the gradients that the optimizer got last.
  const std::vector<NamedTensor>& gradients() const;
  double loss() const;                       ///< loss of the last micro-batch
  const std::vector<Event>& events() const;  ///< all events that were fired
  const std::vector<Request>& requests() const;
  std::map<std::string, double, std::less<>>& metrics();  ///< metrics that hooks read

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace trainyard::testing
