// What the network says of new data, or of the samples of a split: classes with probabilities, numbers, text.
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>

#include <trainyard/dataset.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/host.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/network.hpp>
#include <trainyard/new_data.hpp>
#include <trainyard/tool.hpp>

#include "generate.hpp"
#include "writer.hpp"

namespace {

using namespace trainyard;

class Predict final : public Tool {
 public:
  struct Options {
    std::vector<std::string> data;
    std::string out;
    std::int64_t batch_size = 256;
    std::string split = "val";
    std::int64_t batches = 0;
    bool inputs = false;
    std::string along;
    std::int64_t generate = 0;
    std::string prompt = "\n";
    double temperature = 1.0;
    std::int64_t top_k = 0;
    bool unknown = true;
    std::int64_t seed = 0;
  };
  static void describe(Manifest<Options>& m);
  explicit Predict(const Options& options) : options_(options) {}

  Report run(Workshop& shop) override {
    const at::NoGradGuard no_grad;
    if (!options_.along.empty() && (options_.data.empty() || options_.generate > 0))
      throw ConfigError(
          "along = \"" + options_.along +
          "\" is a column of new tables: name a file of them, as in trainyard predict RUN new.csv");
    if (options_.generate > 0) return generate(shop);
    return options_.data.empty() ? of_split(shop) : of_data(shop);
  }

 private:
  Report of_data(Workshop& shop);
  /// Of one file, folder or stream; gives how many samples it has. Nothing after a signal.
  std::int64_t of_one(Workshop& shop, const ReadsNewData& reader, const std::string& path,
                      const predict::Meaning& meaning, predict::Writer& writer);
  Report of_split(Workshop& shop);
  Report tensors_of_split(const std::vector<Batch>& batches, Workshop& shop, const std::string& path);
  Report generate(Workshop& shop);
  /// As the run gives batches to its network.
  Batch placed(Batch batch, const Network& network) const {
    const std::vector<NamedTensor> weights = network.parameters();
    const bool doubles = !weights.empty() && weights.front().tensor.scalar_type() == at::kDouble;
    for (at::Tensor& input : batch.inputs) {
      input = input.to(at::Device(host().run().device));
      if (doubles && input.is_floating_point()) input = input.to(at::kDouble);
    }
    return batch;
  }
  static predict::Meaning meaning_of(Workshop& shop, Dataset& dataset) {
    const auto* reader = dynamic_cast<const ReadsNewData*>(&dataset);
    predict::Meaning meaning =
        predict::meaning_of(shop.network().output_shape(), dataset.schema(),
                            reader != nullptr ? reader->class_names() : std::vector<std::string>());
    if (const auto* const scales = dynamic_cast<const ScalesTargets*>(&dataset))
      std::tie(meaning.factor, meaning.summand) = scales->target_scale();
    return meaning;
  }

  Options options_;
};

void Predict::describe(Manifest<Options>& m) {
  m.name("predict").version("2.0.0").summary(
      "Says what the network makes of new rows, images or text, or of the samples of a split.");
  m.option(
      "data", &Options::data,
      "files or folders of new data, as the run's dataset reads them, without targets; -: standard input; "
      "none: the samples of a split");
  m.option(
      "out", &Options::out,
      "file to write, by its ending: .csv, .jsonl, .npy, and of a split .safetensors; empty: CSV on standard "
      "output, of a split outputs.safetensors in the tool's folder below the run");
  m.option("batch_size", &Options::batch_size, "samples of new data at a time").range(1, 1 << 20);
  m.option("split", &Options::split, "of the run's data, where no new data is given: val, test or train");
  m.option("batches", &Options::batches,
           "of a split, how many, from the first on; 0: all, of training data those of an epoch. They "
           "are held in memory")
      .min(0);
  m.option("inputs", &Options::inputs, "whether the inputs of a split are written, too, into .safetensors");
  m.option("along", &Options::along,
           "column of new tables, by its name or its number from 0, that goes along into the answers; a "
           "feature or none");
  m.option("generate", &Options::generate, "tokens of text to make, by a run of tokens; 0: none").min(0);
  m.option("prompt", &Options::prompt, "text that is gone on with; by default the end of a line");
  m.option("temperature", &Options::temperature,
           "of the draws: below 1 likelier tokens; 0: always the likeliest")
      .min(0.0);
  m.option("top_k", &Options::top_k, "draws from that many of the likeliest tokens; 0: from all").min(0);
  m.option("unknown", &Options::unknown,
           "whether <unk> may be drawn, the token of words that the vocabulary does not have");
  m.option("seed", &Options::seed, "of the draws").min(0);
}

Report Predict::of_data(Workshop& shop) {
  Dataset& dataset = shop.dataset("train");
  const auto* reader = dynamic_cast<const ReadsNewData*>(&dataset);
  if (reader == nullptr)
    throw ConfigError(
        "the run's dataset cannot read data that is not the run's (ReadsNewData): give it as a split of "
        "the run, and take --split");
  const predict::Meaning meaning = meaning_of(shop, dataset);
  const std::string out = options_.out.empty() ? "-" : options_.out;
  const auto writer = predict::open_writer(out, meaning, options_.along);
  std::int64_t samples = 0;
  for (const std::string& path : options_.data) samples += of_one(shop, *reader, path, meaning, *writer);
  if (shop.stopping()) return {};
  writer->finish();
  Report report;
  if (out != "-") report.facts = {{"file", out}, {"from", shop.source()}, {"samples", samples}};
  return report;
}

std::int64_t Predict::of_one(Workshop& shop, const ReadsNewData& reader, const std::string& path,
                             const predict::Meaning& meaning, predict::Writer& writer) {
  const std::unique_ptr<NewData> data = reader.read_new(path);
  if (!options_.along.empty()) data->carry(options_.along);
  const auto named = [&](const std::string& name) {  // a file in a folder says by itself where it lies
    const bool alone = options_.data.size() == 1 || name == path ||
                       name.starts_with(path.ends_with('/') ? path : path + "/");
    return alone ? name : path + ":" + name;
  };
  std::pair<std::int64_t, std::int64_t> told;
  std::int64_t samples = 0;
  for (;;) {
    const Batch batch = placed(data->next(options_.batch_size), shop.network());
    const std::int64_t count = std::ssize(batch.indices);
    if (count == 0 || shop.stopping()) return samples;
    const at::Tensor said = predict::answers(meaning, shop.network().forward(batch, {}), batch);
    const auto width = static_cast<std::size_t>(said.size(1));
    for (std::int64_t i = 0; i < count; ++i)
      writer.add(named(data->name(i)),
                 {said.const_data_ptr<float>() + static_cast<std::size_t>(i) * width, width},
                 data->carried(i));
    samples += count;
    // Bytes are read ahead of the rows in them.
    const auto progress = data->progress();
    if (progress != std::exchange(told, progress)) shop.progress(progress.first, progress.second);
  }
}

Report Predict::of_split(Workshop& shop) {
  const std::int64_t most = options_.batches == 0 ? INT64_MAX : options_.batches;
  const std::vector<Batch> batches = shop.batches(options_.split, most);
  if (batches.empty()) throw ConfigError("split \"" + options_.split + "\" has no batch");
  const std::string path = options_.out.empty() ? shop.folder() + "/outputs.safetensors" : options_.out;
  if (path.ends_with(".safetensors")) return tensors_of_split(batches, shop, path);
  const predict::Meaning meaning = meaning_of(shop, shop.dataset(options_.split));
  const auto writer = predict::open_writer(path, meaning);
  std::int64_t samples = 0, done = 0;
  for (const Batch& batch : batches) {
    if (shop.stopping()) return {};
    const at::Tensor said = predict::answers(meaning, shop.network().forward(batch, {}), batch);
    const auto width = static_cast<std::size_t>(said.size(1));
    for (std::size_t i = 0; i < batch.indices.size(); ++i)
      writer->add(std::to_string(batch.indices[i] + 1), {said.const_data_ptr<float>() + i * width, width});
    samples += std::ssize(batch.indices);
    shop.progress(++done, std::ssize(batches));
  }
  writer->finish();
  Report report;
  if (path != "-")
    report.facts = {{"file", path}, {"from", shop.source()}, {"split", options_.split}, {"samples", samples}};
  return report;
}

Report Predict::tensors_of_split(const std::vector<Batch>& batches, Workshop& shop, const std::string& path) {
  std::vector<at::Tensor> outputs, targets, indices;
  std::vector<std::vector<at::Tensor>> inputs;
  for (const Batch& batch : batches) {
    if (shop.stopping()) return {};
    outputs.push_back(shop.network().forward(batch, {}).to(at::kCPU));
    indices.push_back(at::tensor(batch.indices, at::kLong));
    if (batch.target.defined()) targets.push_back(batch.target.to(at::kCPU));
    inputs.resize(batch.inputs.size());
    for (std::size_t i = 0; i < batch.inputs.size() && options_.inputs; ++i)
      inputs[i].push_back(batch.inputs[i].to(at::kCPU));
    shop.progress(std::ssize(outputs), std::ssize(batches));
  }
  std::vector<NamedTensor> tensors = {{"output", at::cat(outputs)}, {"index", at::cat(indices)}};
  if (!targets.empty()) tensors.push_back({"target", at::cat(targets)});
  for (std::size_t i = 0; i < inputs.size() && options_.inputs; ++i)
    tensors.push_back({"input/" + std::to_string(i), at::cat(inputs[i])});
  for (NamedTensor& each : tensors) each.tensor = each.tensor.contiguous();
  write_safetensors(path, tensors);
  Report report;
  report.facts = {{"file", path},
                  {"from", shop.source()},
                  {"split", options_.split},
                  {"samples", tensors[1].tensor.numel()}};
  return report;
}

Report Predict::generate(Workshop& shop) {
  Dataset& dataset = shop.dataset("train");
  const BatchSchema schema = dataset.schema();
  const auto* const tokenizer = dynamic_cast<const Tokenizer*>(&dataset);
  if (schema.vocabulary == 0 ||
      predict::meaning_of(shop.network().output_shape(), schema, {}).kind != predict::Meaning::Kind::tokens)
    throw ConfigError(
        "generate: the run is of no language model: its network does not say at each token which comes "
        "next");
  if (options_.prompt.empty()) throw ConfigError("prompt is empty: give at least one character");
  if (tokenizer == nullptr)
    throw ConfigError(
        "generate: the run's dataset has numbers for tokens and no text (Tokenizer); train on text with "
        "dataset \"text\"");
  if (!options_.data.empty())
    throw ConfigError("generate: found data, \"" + options_.data.front() +
                      "\": give the text to go on with as --prompt");
  std::vector<std::int64_t> context = tokenizer->encode(options_.prompt);
  predict::Sampling sampling{options_.generate, options_.temperature, options_.top_k, std::nullopt};
  if (!options_.unknown) sampling.left_out = tokenizer->unknown();
  std::fputs(options_.prompt.c_str(), stdout);
  predict::generate(
      shop.network(), at::Device(host().run().device), schema.tokens_per_sample, std::move(context), sampling,
      RandomStream(static_cast<std::uint64_t>(options_.seed), "predict/generate"), [&](std::int64_t token) {
        const std::string text = tokenizer->decode({token});
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
        return !shop.stopping();
      });
  std::fputc('\n', stdout);
  return {};
}

}  // namespace

TRAINYARD_PLUGIN(Predict)
