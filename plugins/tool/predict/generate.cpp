#include "generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/forward_context.hpp>

namespace predict {

std::int64_t draw_token(const std::vector<float>& logits, const Sampling& sampling, double draw) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (sampling.left_out && order.size() > 1)
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(*sampling.left_out));
  // Of equal ones the first comes first, so that the same seed gives the same text.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  if (!std::isfinite(logits[order.front()]))
    throw trainyard::NumericError("the network gives logits that are not finite: the weights are damaged");
  if (sampling.temperature == 0.0) return static_cast<std::int64_t>(order.front());
  if (sampling.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(sampling.top_k)));
  std::vector<double> sums;
  double sum = 0.0;
  for (const std::size_t token : order)
    sums.push_back(
        sum += std::exp((static_cast<double>(logits[token]) - static_cast<double>(logits[order.front()])) /
                        sampling.temperature));
  const auto found = std::upper_bound(sums.begin(), sums.end(), draw * sum);
  return static_cast<std::int64_t>(
      order[std::min<std::size_t>(static_cast<std::size_t>(found - sums.begin()), order.size() - 1)]);
}

void generate(trainyard::Network& network, at::Device device, std::int64_t window,
              std::vector<std::int64_t> context, const Sampling& sampling,
              const trainyard::RandomStream& draws, const std::function<bool(std::int64_t)>& take) {
  for (std::int64_t step = 0; step < sampling.tokens; ++step) {
    const auto seen = std::min<std::int64_t>(window, std::ssize(context));
    trainyard::Batch batch;
    at::Tensor tokens = at::zeros({1, window}, at::kLong);
    std::copy(context.end() - seen, context.end(), tokens.mutable_data_ptr<std::int64_t>());
    batch.inputs.push_back(tokens.to(device));
    const at::Tensor said =
        network.forward(batch, {}).select(0, 0).select(0, seen - 1).to(at::kFloat).to(at::kCPU);
    const at::Tensor row = said.contiguous();
    const std::vector<float> logits(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
    const std::int64_t next = draw_token(logits, sampling, draws.uniform(static_cast<std::uint64_t>(step)));
    if (!take(next)) return;
    context.push_back(next);
    if (std::ssize(context) > 2 * window) context.erase(context.begin(), context.end() - window);
  }
}

}  // namespace predict
