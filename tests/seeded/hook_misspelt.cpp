// Caught by state.round_trip: a name of the state is misspelt in load, which asks first whether it is there.
#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

class Misspelt final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("misspelt").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Misspelt::called>(Event::batch_end);
  }
  explicit Misspelt(const Options&) {}

  void called(StepContext&) { ++count_; }
  void save(StateWriter& state) const override { state.scalar("count", count_); }
  void load(const StateReader& state) override {
    if (state.has_scalar("cuont")) count_ = state.integer("cuont");
  }

 private:
  std::int64_t count_ = 0;
};
TRAINYARD_PLUGIN(Misspelt)
