#include "run_facts.hpp"

#include <algorithm>
#include <optional>

namespace tensat {

using trainyard::Table;

namespace {

const trainyard::Value* entry(const Table& table, std::string_view path) {
  const std::size_t dot = path.find('.');
  const trainyard::Value* const here = table.find(path.substr(0, dot));
  if (dot == std::string_view::npos || here == nullptr) return here;
  const Table* const below = here->get_if<Table>();
  return below == nullptr ? nullptr : entry(*below, path.substr(dot + 1));
}

template <class T>
T given(const Table& run, std::string_view path, T fallback) {
  const trainyard::Value* const value = entry(run, path);
  const T* const its = value == nullptr ? nullptr : value->get_if<T>();
  return its == nullptr ? fallback : *its;
}

}  // namespace

RunFacts facts_of(const Table& run, bool training) {
  RunFacts facts;
  const std::string executor = given<std::string>(run, "executor.type", "eager"),
                    device = given<std::string>(run, "run.device", "cpu"),
                    precision = given<std::string>(run, "trainer.precision", "fp32"),
                    dropout = given<std::string>(run, "model.dropout.type", "none");
  facts.way.training = training;
  facts.way.compiled = executor == "compiled";
  facts.way.fuses = given<std::string>(run, "executor.fuse", "all") == "all";
  facts.way.winograd = given<bool>(run, "executor.winograd", true);
  facts.way.samples = std::max<std::int64_t>(1, given<std::int64_t>(run, "data.train.micro_batch_size", 1));
  if (device != "cpu")
    facts.obstacle = "the run is on " + device + ", and times are taken on the processor";
  else if (precision != "fp32")
    facts.obstacle = "trainer.precision is \"" + precision + "\", and times are taken in single precision";
  else if (executor != "eager" && executor != "compiled")
    facts.obstacle =
        "the executor is \"" + executor + "\", and times are taken as eager and compiled compute";
  else if (dropout == "dropconnect" || dropout == "blockwise")
    facts.obstacle =
        "the dropout \"" + dropout + "\" masks weights or computes layers, which would be others";
  return facts;
}

}  // namespace tensat
