#include "wave.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include <trainyard/forward_context.hpp>

#include "meter.hpp"

namespace wavelet {

using namespace trainyard;

/// Called by autograd behind a backward that has added to the gradient of a parameter.
class Wave::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(const Wave& owner, std::size_t parameter) : owner_(owner), parameter_(parameter) {}
  void operator()(const at::Tensor&) override {
    if (owner_.whole_) owner_.whole_(parameter_);
  }

 private:
  const Wave& owner_;
  std::size_t parameter_;
};

Wave::Wave(int number, Host& host, Workbench& bench, Pace& pace, int threads)
    : number_(number), bench_(bench), pace_(pace), threads_(threads), network_(bench.twin()) {
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& each : network_->parameters()) parameters_.push_back(each.tensor);
  for (const NamedTensor& each : network_->buffers()) {
    statistics_.push_back(each.tensor);
    statistics_.back().set_data(each.tensor.clone());
  }
  lay_out_kernels();
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i], std::make_unique<Hook>(*this, i));
  network_->add_tap(this, [this](const NodeActivity& activity) { watch(activity); });
  thread_ = host.thread(number == 0 ? "tick" : "tock", [this](const std::stop_token& stop) { run(stop); });
}

Wave::~Wave() = default;

void Wave::lay_out_kernels() {
  originals_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i];
    if (parameter.dim() != 4) continue;
    originals_[i] = parameter.variable_data();
    parameter.set_data(originals_[i].clone(at::MemoryFormat::ChannelsLast));
  }
}

void Wave::own_weights() {
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (originals_[i].defined())
      originals_[i] = originals_[i].clone();
    else
      parameters_[i].set_data(parameters_[i].detach().clone());
  }
}

std::vector<at::Tensor> Wave::weights() const {
  std::vector<at::Tensor> weights;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    weights.push_back(originals_[i].defined() ? originals_[i] : parameters_[i].variable_data());
  return weights;
}

void Wave::start(const StepWork& work, std::vector<MicroPass> places, double loss_scale, Whole whole) {
  done_.clear();
  thrown_ = nullptr;
  if (places.empty()) return;
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (originals_[i].defined()) parameters_[i].copy_(originals_[i]);
  pace_.announce(number_, places.back().pass);
  const std::lock_guard lock(mutex_);
  job_ = {&work, std::move(places), loss_scale, std::move(whole)};
  busy_ = true;
  changed_.notify_all();
}

std::exception_ptr Wave::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  return std::exchange(thrown_, nullptr);
}

at::Tensor Wave::take_gradient(std::size_t parameter) {
  const at::Tensor gradient = std::exchange(parameters_[parameter].mutable_grad(), at::Tensor());
  return gradient.defined() ? gradient.contiguous() : gradient;
}

std::vector<at::Tensor> Wave::take_gradients() {
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) gradients.push_back(take_gradient(i));
  return gradients;
}

void Wave::run(const std::stop_token& stop) {
  at::set_num_threads(threads_);
  Meter::count_for(number_);
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [&] { return busy_; })) return;
    const Job job = std::exchange(job_, {});
    lock.unlock();
    std::exception_ptr thrown;
    try {
      for (const MicroPass& place : job.places) {
        if (&place == &job.places.back()) whole_ = job.whole;
        pass(job, place);
      }
    } catch (...) {
      thrown = std::current_exception();
    }
    whole_ = {};
    pace_.done(number_);
    lock.lock();
    thrown_ = thrown;
    busy_ = false;
    changed_.notify_all();
  }
}

void Wave::pass(const Job& job, const MicroPass& place) {
  const StepWork& work = *job.work;
  pace_.begin(number_, place.pass);
  Graded graded = bench_.grade(*network_, work.micros[place.micro], work.pass(place.micro));
  pace_.turn(number_);
  graded.loss.backward(
      at::full({}, work.share(place.micro) * job.loss_scale, graded.loss.options().requires_grad(false)));
  done_.push_back({place.micro, {graded.output.detach(), graded.loss.detach()}});
  graded = {};
  pace_.end(number_);
}

/// A node is done forward. Its output's gradient comes when it is due backward.
void Wave::watch(const NodeActivity& activity) {
  if (!activity.outputs.empty() && activity.outputs.front().requires_grad())
    activity.outputs.front().register_hook([this](const at::Tensor&) { pace_.back(number_); });
  pace_.node(number_);
}

}  // namespace wavelet
