// The loss between two records.
#include <ATen/ops/full.h>

#include <catch2/catch.hpp>

#include "core/engine/train/loss_meter.hpp"

namespace loss_meter_tests {

using namespace trainyard;
using train::LossMeter;

TEST_CASE("the mean loss goes on over a checkpoint, wherever its parts were computed") {
  LossMeter before, after;
  before.add(at::full({}, 2.0, at::kFloat), 1.0);
  before.add(at::full({}, 4.0, at::kDouble), 3.0);
  State state;
  StateWriter writer(state);
  before.save(writer);
  after.load(StateReader(state));
  after.add(at::full({}, 1.0, at::kFloat), 4.0);
  CHECK(after.take() == 18.0 / 8.0);
  CHECK_FALSE(after.take());
  CHECK(before.take() == 14.0 / 4.0);
}

}  // namespace loss_meter_tests
