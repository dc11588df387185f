// Caught by state.random: load takes a number from the state for an index without a look.
#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

class Trusting final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("trusting").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Trusting::called>(Event::batch_end);
  }
  explicit Trusting(const Options&) {}

  void called(StepContext& context) { recent_[place_++ % 8] = static_cast<double>(context.step_number()); }
  void save(StateWriter& state) const override { state.scalar("place", place_); }
  void load(const StateReader& state) override {
    place_ = state.integer("place");
    recent_[place_] = 0.0;
  }

 private:
  double* recent_ = new double[8]();
  std::int64_t place_ = 0;
};
TRAINYARD_PLUGIN(Trusting)
