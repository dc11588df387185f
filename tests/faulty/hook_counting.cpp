// Counts what the processes of a run exchange between one batch_start and the next, by c10d's own record, and how
// often the host looks at a number that could lie on a device: a line a step, with both.
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include <atomic>
#include <fstream>
#include <string_view>

#include <trainyard/hook.hpp>

#include "fault.hpp"

namespace {

using namespace trainyard;

/// Operators that wait for a device.
constexpr std::string_view waiting[] = {"aten::_local_scalar_dense", "aten::is_nonzero", "aten::nonzero",
                                        "aten::equal"};
std::atomic<std::int64_t> looks{0};

std::unique_ptr<at::ObserverContext> seen(const at::RecordFunction& function) {
  for (const std::string_view each : waiting) looks += each == function.name();
  return nullptr;
}

class Counting final : public Hook {
 public:
  struct Options {
    std::string file;
  };
  static void describe(Manifest<Options>& m) {
    m.name("counting").version("1.0.0").summary("Counts collectives and looks at numbers.");
    m.option("file", &Options::file, "that the first rank writes").required();
    m.hook<&Counting::batch_start>(Event::batch_start);
  }
  explicit Counting(const Options& options)
      : handle_(
            at::addGlobalCallback(at::RecordFunctionCallback(&seen).scopes({at::RecordScope::FUNCTION}))) {
    if (std::getenv("RANK") == nullptr || faulty::on_rank(0)) out_.open(options.file);
  }
  ~Counting() override { at::removeCallback(handle_); }

  void batch_start(StepContext& context) {
    const std::int64_t begun = exchanges(), looked = looks;
    out_ << context.step_number() - 1 << ' ' << begun - begun_ << ' ' << looked - looked_ << std::endl;
    begun_ = begun;
    looked_ = looked;
  }

 private:
  /// So far: the number of the last one of the record, which holds the latest.
  static std::int64_t exchanges() {
    const std::string record = c10d::dump_fr_trace_json(true, false), key = "\"record_id\":";
    std::int64_t last = -1;
    for (std::size_t at = 0; (at = record.find(key, at)) != std::string::npos; at += key.size())
      last = std::max<std::int64_t>(last, std::atoll(record.c_str() + at + key.size()));
    return last + 1;
  }

  at::CallbackHandle handle_;
  std::ofstream out_;
  std::int64_t begun_ = 0, looked_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Counting)
