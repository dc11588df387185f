// Caught by state.truncated: load takes a state of which a part is missing.
#include <trainyard/hook.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

class Content final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("content").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&Content::called>(Event::batch_end);
  }
  explicit Content(const Options&) {}

  void called(StepContext&) { ++count_, sum_ += 0.5; }
  void save(StateWriter& state) const override {
    state.scalar("count", count_);
    state.scalar("sum", sum_);
  }
  void load(const StateReader& state) override {
    if (state.has_scalar("count")) count_ = state.integer("count");
    if (state.has_scalar("sum")) sum_ = state.number("sum");
  }

 private:
  std::int64_t count_ = 0;
  double sum_ = 0.0;
};
TRAINYARD_PLUGIN(Content)
