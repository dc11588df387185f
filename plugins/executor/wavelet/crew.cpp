#include "crew.hpp"

#include <ATen/ops/lerp.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include <trainyard/network.hpp>

namespace wavelet {

using namespace trainyard;

Crew::Crew(Host& host, Workbench& bench, const Pace::Options& pace, int threads)
    : bench_(bench), pace_(pace) {
  for (const NamedTensor& each : bench.network().parameters()) parameters_.push_back(each.tensor);
  for (std::size_t i = 0; i < waves_.size(); ++i)
    waves_[i] = std::make_unique<Wave>(static_cast<int>(i), host, bench, pace_, threads);
}

/// What a wave still works on lives until here.
Crew::~Crew() {
  for (const auto& wave : waves_) wave->finish();
}

std::vector<std::size_t> Crew::counted(const StepWork& work) {
  std::vector<std::size_t> micros;
  for (std::size_t i = 0; i < work.micros.size(); ++i)
    if (work.micros[i].weight > 0.0) micros.push_back(i);
  return micros;
}

void Crew::report(const StepWork& work, std::initializer_list<const Wave*> waves) {
  std::vector<const Wave::Done*> all;
  for (const Wave* wave : waves)
    for (const Wave::Done& done : wave->done()) all.push_back(&done);
  std::ranges::sort(all, {}, [](const Wave::Done* done) { return done->micro; });
  for (const Wave::Done* done : all) bench_.report(done->graded, work.micros[done->micro]);
}

void Crew::finish(std::initializer_list<Wave*> waves) {
  std::exception_ptr first;
  for (Wave* wave : waves) {
    const std::exception_ptr thrown = wave->finish();
    if (!first) first = thrown;
    made_[wave == waves_.front().get() ? 0 : 1] += std::ssize(wave->done());
  }
  if (first) std::rethrow_exception(first);
}

void Crew::join_statistics() {
  const c10::NoGradGuard no_grad;
  const auto made = std::exchange(made_, {});
  const std::int64_t all = made[0] + made[1];
  if (all == 0) return;
  const double share = static_cast<double>(made[1]) / static_cast<double>(all);
  const std::vector<NamedTensor> network = bench_.network().buffers();
  for (std::size_t i = 0; i < network.size(); ++i) {
    at::Tensor mean = waves_[0]->statistics()[i];
    mean.lerp_(waves_[1]->statistics()[i], share);  // numbers that are equal stay what they are
    at::Tensor(waves_[1]->statistics()[i]).copy_(mean);
    at::Tensor(network[i].tensor).copy_(mean);
  }
}

}  // namespace wavelet
