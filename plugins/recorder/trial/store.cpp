#include "store.hpp"

#include <filesystem>
#include <iterator>

#include <unistd.h>

#include <trainyard/error.hpp>
#include <trainyard/formats/event_file.hpp>

#include "lib/read_file.hpp"

namespace trial {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

}  // namespace

Store::Store(std::string folder, const std::vector<SavedCollection>& collections, bool tensorboard,
             std::size_t most_records, Host& host)
    : folder_(std::move(folder)),
      collections_(collections),
      tensorboard_(tensorboard),
      host_(host),
      queue_(most_records, most_bytes) {}

void Store::start() {
  if (!thread_) thread_ = host_.thread("files", [this](const std::stop_token& stop) { work(stop); });
}

void Store::stop(milliseconds patience) {
  if (!thread_) return;
  if (!queue_.drain(patience))
    if (const std::size_t left = queue_.clear(); left > 0) {
      lost_ += static_cast<std::int64_t>(left);
      host_.log(LogLevel::warning, std::to_string(left) + " records were not stored: the disk took longer " +
                                       "than the run waits for it");
    }
  thread_.reset();
}

bool Store::push(std::shared_ptr<const StepRecord> record, Wants wants) {
  const std::size_t bytes = bytes_of(*record), beside = room_beside(*record);
  return queue_.push(
      [this, record = std::move(record), wants = std::move(wants)] {
        attempt([&] {
          writer().write(*record, [&](const TensorRecord& tensor) {
            const auto place = static_cast<std::size_t>(&tensor - record->tensors.data());
            return place < wants.size() ? wants[place].stored : Stored();
          });
          if (tensorboard_ && record->mode != Mode::global) chart(*record, wants);
        });
      },
      bytes, beside);
}

void Store::cut(std::int64_t step) {
  queue_.push(
      [this, step] {
        attempt([&] {
          writer().cut(step);
          if (!tensorboard_) return;
          charts_.reset();
          std::error_code none;
          for (const fs::directory_entry& file : fs::directory_iterator(folder_ + "/tensorboard", none)) {
            const std::string bytes = lib::read_file(file.path()).value_or("");
            const std::size_t kept = event_file::length_through(bytes, step - 1);
            if (kept < bytes.size())
              AppendFile(file.path().string(), AppendFile::Mode::extend).cut(static_cast<std::int64_t>(kept));
          }
        });
      },
      0);
}

void Store::end() {
  queue_.push([this] { attempt([&] { writer().end(); }); }, 0);
}

TrialWriter& Store::writer() {
  if (!writer_) writer_.emplace(folder_, collections_);
  return *writer_;
}

template <class Write>
void Store::attempt(Write&& write) {
  if (broken_) {
    ++lost_;
    return;
  }
  try {
    write();
  } catch (const std::exception& error) {
    broken_ = true;
    ++lost_;
    host_.log(LogLevel::warning,
              std::string("the trial is stored no further, the run and its rules go on: ") + error.what());
  }
}

/// Scalars and histograms of a record. Steps are those of StepRecord::step: one place for all modes.
void Store::chart(const StepRecord& record, const Wants& wants) {
  std::vector<std::pair<std::string, double>> scalars;
  std::vector<std::pair<std::string, event_file::Histogram>> histograms;
  for (std::size_t i = 0; i < record.tensors.size(); ++i) {
    const TensorRecord& tensor = record.tensors[i];
    const std::string mode = record.mode == Mode::eval ? "eval/" : "";
    if (tensor.value.defined() && tensor.value.numel() == 1) {
      scalars.emplace_back(mode + tensor.name, tensor.scalar());
      continue;
    }
    if (i >= wants.size()) continue;
    if (tensor.statistics)
      for (const std::string& name : wants[i].stored.reductions)
        scalars.emplace_back(mode + tensor.name + "/" + name, reduction(*tensor.statistics, name));
    if (!wants[i].histogram || !tensor.value.defined()) continue;
    const Statistics numbers = tensor.numbers();
    if (numbers.count > numbers.nonfinite())
      histograms.emplace_back(mode + tensor.name, event_file::histogram(tensor.value));
  }
  if (!charts_) {
    fs::create_directories(folder_ + "/tensorboard");
    auto second = static_cast<std::int64_t>(event_file::wall_time());
    std::string path;
    do {
      path = folder_ + "/tensorboard/events.out.tfevents." + std::to_string(second++) + ".trial." +
             std::to_string(::getpid()) + ".v2";
    } while (fs::exists(path));
    charts_.emplace(path, AppendFile::Mode::create);
    charts_->append(event_file::version_record(event_file::wall_time()));
  }
  if (!scalars.empty())
    charts_->append(event_file::scalars_record(event_file::wall_time(), record.step, scalars));
  if (!histograms.empty())
    charts_->append(event_file::histograms_record(event_file::wall_time(), record.step, histograms));
}

void Store::work(const std::stop_token& stop) {
  while (!stop.stop_requested())
    if (const auto task = queue_.pop(stop, milliseconds(1000))) (*task)();
}

}  // namespace trial
