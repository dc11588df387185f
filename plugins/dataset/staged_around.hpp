// A dataset around another one whose samples can be kept: what it does not change goes through, to a cache around it as well.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/linked_samples.hpp>
#include <trainyard/staged_dataset.hpp>

#include "around.hpp"

namespace datasets {

class StagedAround : public trainyard::StagedDataset, public trainyard::LinkedSamples, public AroundAnother {
 public:
  std::int64_t size() const override { return within().size(); }
  trainyard::BatchSchema schema() const override { return within().schema(); }
  std::vector<std::int64_t> labels() const override { return within().labels(); }
  trainyard::Batch read(std::span<const std::int64_t> indices,
                        const trainyard::ReadContext& context) const override {
    return within().read(indices, context);
  }

  std::string source() const override { return staged().source(); }
  std::string decoding() const override { return staged().decoding(); }
  std::vector<std::uint8_t> fetch(std::int64_t index) const override { return staged().fetch(index); }
  trainyard::Sample decode(std::int64_t index, std::span<const std::uint8_t> bytes) const override {
    return staged().decode(index, bytes);
  }
  trainyard::Batch assemble(std::span<const std::int64_t> indices, std::span<const trainyard::Sample> samples,
                            const trainyard::ReadContext& context) const override {
    return staged().assemble(indices, samples, context);
  }

  std::string parted_by() const override {
    const auto* const linked = within_as<const trainyard::LinkedSamples>();
    return linked != nullptr ? linked->parted_by() : std::string();
  }

  void set_taken(trainyard::TakenSamples taken) override { taken_ = std::move(taken); }
  void use(const trainyard::Table& learned) override { learned_ = learned; }

 protected:
  /// Opens the dataset within, which learns from these samples; an empty function: from all.
  void open_within(const std::string& split, const trainyard::TakenSamples& taken) {
    if (auto* const learns = within_as<trainyard::Learns>()) {
      if (taken) learns->set_taken(taken);
      if (learned_) learns->use(*learned_);
    }
    within().open(split);
  }
  /// Empty: all samples.
  const trainyard::TakenSamples& taken() const { return taken_; }

 private:
  const trainyard::StagedDataset& staged() const {
    if (const auto* const staged = within_as<const trainyard::StagedDataset>()) return *staged;
    throw trainyard::ConfigError("of: the dataset \"" + type_within() +
                                 "\" does not tell apart what can be kept of a sample and what is random "
                                 "(StagedDataset): take it without a cache");
  }

  std::optional<trainyard::Table> learned_;
  trainyard::TakenSamples taken_;
};

}  // namespace datasets
