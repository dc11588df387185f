// Copies on write, counted by an allocator.
#include <atomic>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <catch2/catch.hpp>

#include <trainyard/helpers/cow.hpp>

namespace cow_tests {

using namespace trainyard;

namespace {

/// LibTorch's own, which counts those of one size.
class Counting final : public c10::Allocator {
 public:
  explicit Counting(std::size_t size) : size_(size) { c10::SetAllocator(c10::kCPU, this, 255); }
  ~Counting() override { c10::SetAllocator(c10::kCPU, own_, 255); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  c10::DataPtr allocate(std::size_t size) override {
    if (size == size_) ++count_;
    return own_->allocate(size);
  }
  c10::DeleterFnPtr raw_deleter() const override { return own_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    own_->copy_data(to, from, size);
  }

  /// Since the last call.
  int taken() { return count_.exchange(0); }

 private:
  c10::Allocator* own_ = c10::GetAllocator(c10::kCPU);
  std::size_t size_;
  std::atomic<int> count_ = 0;
};

constexpr std::int64_t length = 1'000;
constexpr std::size_t bytes = sizeof(float) * length;

TensorValue zeros() {
  return TensorValue(at::zeros({length}));
}
void add_one(TensorValue& in_place) {
  in_place->add_(1.0);
}
float first(const TensorValue& value) {
  return value->const_data_ptr<float>()[0];
}

}  // namespace

TEST_CASE("a copy of a tensor is made by the first write while it is shared, and by nothing else") {
  Counting memory(bytes);
  TensorValue a = zeros();
  CHECK(memory.taken() == 1);
  add_one(a);  // nobody else has it
  CHECK(memory.taken() == 0);

  TensorValue b = a;
  CHECK(memory.taken() == 0);
  CHECK((b->const_data_ptr() == a->const_data_ptr()));
  (*a)[0].add_(1.0);
  CHECK(memory.taken() == 1);
  CHECK((first(a) == 2.0f && first(b) == 1.0f));
  add_one(a);
  add_one(b);  // the last that has the numbers of before
  CHECK(memory.taken() == 0);

  const auto moved = [](TensorValue value) { return add_one(value), value; };
  a = moved(std::move(a));
  CHECK(memory.taken() == 0);
  const TensorValue other = moved(a);  // a functional update of what goes on
  CHECK(memory.taken() == 1);
  CHECK((first(other) == first(a) + 1.0f));

  // A view as a value keeps what it was taken of; views of LibTorch share, and one copy serves them all.
  const TensorValue view = TensorValue(lazy_copy(a->narrow(0, 0, 2)));
  const at::Tensor half = a->narrow(0, 0, length / 2);
  const float before = first(a);
  half.add_(1.0);
  CHECK(memory.taken() == 1);
  CHECK((first(view) == before && first(a) == before + 1.0f));
  a->add_(1.0);
  CHECK(memory.taken() == 0);

  { const TensorValue shortly = a; }
  add_one(a);
  CHECK(memory.taken() == 0);
  TensorValue c = a, d = a;
  c = std::move(d);
  d = c;
  const TensorValue& self = c;
  c = self;
  CHECK(memory.taken() == 0);
}

TEST_CASE("memory that is not LibTorch's own is copied at once") {
  std::vector<float> numbers(4, 1.0f);
  const at::Tensor blob = at::from_blob(numbers.data(), {4});
  const at::Tensor copy = lazy_copy(blob);
  numbers[0] = 7.0f;
  CHECK(copy[0].item<float>() == 1.0f);
}

TEST_CASE(
    "100,000 operations on shared tensors are those on deep copies, and copies those that must be, on two "
    "threads") {
  constexpr std::int64_t small = 24;
  std::vector<TensorValue> begin(8, TensorValue(at::zeros({small})));
  std::atomic<int> wrong = 0;
  const auto work = [&](std::vector<TensorValue> mine, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::vector<float>> model(mine.size(), std::vector<float>(small));
    std::vector<int> buffer(mine.size(), 0);  // who has the same number shares; 0: with `begin` as well
    int next = 1;
    for (int step = 0; step < 50'000; ++step) {
      const std::size_t i = random() % mine.size(), j = random() % mine.size();
      const auto place = static_cast<std::int64_t>(random() % small);
      const bool shared = buffer[i] == 0 || std::count(buffer.begin(), buffer.end(), buffer[i]) > 1;
      const void* const before = mine[i]->const_data_ptr();
      bool written = true;
      switch (random() % 5) {
        case 0: mine[i] = mine[j], model[i] = model[j], buffer[i] = buffer[j], written = false; break;
        case 1:
          mine[i]->add_(1.0);
          for (float& each : model[i]) each += 1.0f;
          break;
        case 2:
          (*mine[i])[place].fill_(3.0);
          model[i][static_cast<std::size_t>(place)] = 3.0f;
          break;
        case 3:
          at::_foreach_mul_({*mine[i]}, 0.5);
          for (float& each : model[i]) each *= 0.5f;
          break;
        default:
          mine[i]->mutable_data_ptr<float>()[place] = 5.0f;
          model[i][static_cast<std::size_t>(place)] = 5.0f;
      }
      if (written) {
        wrong += (mine[i]->const_data_ptr() != before) != shared;
        if (shared) buffer[i] = next++;
      }
      if (!std::equal(model[i].begin(), model[i].end(), mine[i]->const_data_ptr<float>())) ++wrong;
    }
    for (std::size_t i = 0; i < mine.size(); ++i)
      wrong += !std::equal(model[i].begin(), model[i].end(), mine[i]->const_data_ptr<float>());
  };
  std::jthread one(work, begin, 1u), two(work, begin, 2u);
  one.join(), two.join();
  CHECK(wrong == 0);
  for (const TensorValue& each : begin) CHECK(each->eq(0.0).all().item<bool>());
}

TEST_CASE("a snapshot of a model in training stays as it was, whatever steps it") {
  std::vector<at::Tensor> parameters, gradients, first_moments, second_moments, steps;
  std::vector<at::Tensor> snapshot, expected;
  for (int i = 0; i < 50; ++i) {
    parameters.push_back(at::randn({400}));
    gradients.push_back(at::randn({400}));
    first_moments.push_back(at::zeros({400}));
    second_moments.push_back(at::zeros({400}));
    steps.push_back(at::zeros({}));
    expected.push_back(parameters.back().clone());
  }
  for (const at::Tensor& each : parameters) snapshot.push_back(lazy_copy(each));
  const at::Tensor view = parameters[0].view({20, 20});  // as a twin of the network has it
  for (int step = 0; step < 100; ++step) {
    at::_foreach_add_(steps, 1.0);
    at::_fused_adamw_(parameters, gradients, first_moments, second_moments, {}, steps, 0.01, 0.9, 0.999, 0.01,
                      1e-8, false, false, {}, {});
    at::_foreach_add_(parameters, gradients, -0.01);
    parameters[1].data_ptr<float>()[0] += 1.0f;
  }
  for (std::size_t i = 0; i < snapshot.size(); ++i) {
    CHECK(snapshot[i].equal(expected[i]));
    CHECK_FALSE(snapshot[i].equal(parameters[i]));
  }
  CHECK(view.reshape({400}).equal(parameters[0]));
}

TEST_CASE("a pointer from before a snapshot is the one thing that writes into it") {
  const at::Tensor weights = at::zeros({4});
  float* const kept = weights.mutable_data_ptr<float>();
  const at::Tensor snapshot = lazy_copy(weights);
  kept[0] = 1.0f;
  CHECK(snapshot[0].item<float>() == 1.0f);  // where LibTorch learns to see it, the header may say so
}

}  // namespace cow_tests
