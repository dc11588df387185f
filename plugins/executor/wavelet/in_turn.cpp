#include "in_turn.hpp"

#include <ATen/ops/lerp.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

#include <trainyard/optimizer.hpp>

namespace wavelet {

using namespace trainyard;

InTurn::InTurn(Crew& crew) : crew_(crew) {
  first_ = last_ = {-2, -1};  // tick has the even numbers
}

void InTurn::step(StepWork& work) {
  const int wave = next_, other = 1 - wave;
  next_ = other;
  launch(wave, work);
  if (flights_[static_cast<std::size_t>(other)]) land(other);
  if (!joins(wave)) return;
  land(wave);
  join();
}

bool InTurn::in_flight() const {
  return flights_[0] || flights_[1];
}

void InTurn::settle() {
  for (const int wave : {next_, 1 - next_})
    if (flights_[static_cast<std::size_t>(wave)]) land(wave);
  join();
  next_ = 0;
}

void InTurn::launch(int wave, const StepWork& work) {
  Flight& flight = flights_[static_cast<std::size_t>(wave)].emplace();
  flight.micros.assign(work.micros.begin(), work.micros.end());
  flight.work = work;
  flight.work.micros = flight.micros;
  begin(wave);
}

/// Its first pass follows the middle one of the other wave's step.
void InTurn::begin(int wave) {
  const auto own = static_cast<std::size_t>(wave), other = 1 - own;
  const std::int64_t passes = (last_[other] - first_[other]) / 2 + 1;
  first_[own] = std::max(last_[own] + 2, first_[other] + passes / 2 * 2 + 1);
  std::vector<MicroPass> places;
  last_[own] = first_[own];
  for (const std::size_t micro : Crew::counted(flights_[own]->work)) {
    last_[own] = first_[own] + 2 * std::ssize(places);
    places.push_back({micro, last_[own]});
  }
  read(wave);
  crew_.wave(wave).start(flights_[own]->work, std::move(places), crew_.bench().loss_scale());
}

void InTurn::land(int wave) {
  std::optional<Flight>& flight = flights_[static_cast<std::size_t>(wave)];
  Wave& own = crew_.wave(wave);
  crew_.finish({&own});
  crew_.report(flight->work, {&own});
  crew_.bench().update_is_of(flight->work);
  while (update(wave) == Update::repeat) {
    begin(wave);
    crew_.finish({&own});
  }
  flight.reset();
}

Stale::Stale(Crew& crew) : InTurn(crew) {
  for (const int wave : {0, 1}) crew.wave(wave).own_weights();
}

void Stale::read(int wave) {
  const c10::NoGradGuard no_grad;
  version_[static_cast<std::size_t>(wave)] = crew_.bench().updates();
  const std::vector<at::Tensor> copies = crew_.wave(wave).weights();
  for (std::size_t i = 0; i < copies.size(); ++i) copies[i].copy_(crew_.parameters()[i]);
}

Update Stale::update(int wave) {
  most_behind_ = std::max(most_behind_, crew_.bench().updates() - version_[static_cast<std::size_t>(wave)]);
  const std::vector<at::Tensor> gradients = crew_.wave(wave).take_gradients();
  for (std::size_t i = 0; i < gradients.size(); ++i) crew_.parameters()[i].mutable_grad() = gradients[i];
  return crew_.bench().update();
}

Replicas::Replicas(Crew& crew, std::int64_t sync_every) : InTurn(crew), sync_every_(sync_every) {
  crew.wave(1).own_weights();
  weights_ = crew.wave(1).weights();
  StateWriter writer(state_);
  crew.bench().optimizer().save(writer);
  for (auto& [name, tensor] : state_.tensors) tensor = tensor.clone();
}

Update Replicas::update(int wave) {
  const std::vector<at::Tensor> gradients = crew_.wave(wave).take_gradients();
  const auto set = [&] {
    for (std::size_t i = 0; i < gradients.size(); ++i) crew_.parameters()[i].mutable_grad() = gradients[i];
    return crew_.bench().update();
  };
  if (wave == 0) return set();
  struct Exchanged {
    explicit Exchanged(Replicas& of) : of_(of) { of_.exchange(); }
    ~Exchanged() { of_.exchange(); }
    Replicas& of_;
  };
  const Exchanged exchanged(*this);
  return set();
}

/// Weights and state of the one wave for those of the other, by handle. Passes under way read their twins'.
void Replicas::exchange() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    at::Tensor own = crew_.parameters()[i].variable_data();
    crew_.parameters()[i].set_data(weights_[i]);
    weights_[i] = std::move(own);
  }
  Optimizer& optimizer = crew_.bench().optimizer();
  State own;
  StateWriter writer(own);
  optimizer.save(writer);
  optimizer.load(StateReader(state_));
  state_ = std::move(own);
}

bool Replicas::joins(int wave) {
  return wave == 1 && ++pairs_ % sync_every_ == 0;
}

void Replicas::join() {
  const c10::NoGradGuard no_grad;
  pairs_ = 0;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    at::Tensor mean = crew_.parameters()[i];
    mean.lerp_(weights_[i], 0.5);
    weights_[i].copy_(mean);
  }
  Optimizer& optimizer = crew_.bench().optimizer();
  State mean;
  StateWriter writer(mean);
  optimizer.save(writer);
  for (auto& [name, tensor] : mean.tensors) {
    at::Tensor& other = state_.tensors.at(name);
    if (!tensor.is_floating_point()) {
      other = tensor.clone();
      continue;
    }
    tensor.lerp_(other, 0.5);
    other.copy_(tensor);
  }
  optimizer.load(StateReader(mean));
  state_.scalars = mean.scalars;
}

}  // namespace wavelet
