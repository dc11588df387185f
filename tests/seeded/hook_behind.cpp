// Caught by state.round_trip: load refuses the version that save writes: it was raised, the constant was not.
#include <trainyard/error.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

class Behind final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("behind").version("1.1.0").summary("A plugin with a mistake.");
    m.hook<&Behind::called>(Event::batch_end);
  }
  explicit Behind(const Options&) {}

  void called(StepContext&) { ++count_; }
  void save(StateWriter& state) const override { state.scalar("count", count_); }
  void load(const StateReader& state) override {
    if (state.version() != "1.0.0") throw PluginError("state of another version");
    count_ = state.integer("count");
  }

 private:
  std::int64_t count_ = 0;
};
TRAINYARD_PLUGIN(Behind)
