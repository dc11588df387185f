#include <trainyard/testing/host.hpp>

#include <algorithm>
#include <exception>
#include <filesystem>

#include <trainyard/error.hpp>

namespace trainyard::testing {

FakeHost::FakeHost() {
  facts.directory = std::filesystem::current_path().string();
}

FakeHost::~FakeHost() {
  for (const std::weak_ptr<std::jthread>& each : threads_)
    if (const std::shared_ptr<std::jthread> thread = each.lock(); thread && thread->joinable()) {
      thread->request_stop();
      thread->join();
    }
}

std::vector<FakeHost::Line> FakeHost::log_lines() const {
  const std::lock_guard lock(said_->mutex);
  return said_->lines;
}

bool FakeHost::logged(std::string_view part, LogLevel least) const {
  const std::lock_guard lock(said_->mutex);
  return std::ranges::any_of(said_->lines, [&](const Line& line) {
    return line.level >= least && line.text.find(part) != std::string::npos;
  });
}

std::vector<std::string> FakeHost::thread_errors() const {
  const std::lock_guard lock(said_->mutex);
  return said_->errors;
}

void FakeHost::log(LogLevel level, std::string_view message) {
  const std::lock_guard lock(said_->mutex);
  said_->lines.push_back({level, std::string(message)});
}

void FakeHost::journal(std::string_view what, std::string_view why) {
  journal_entries.emplace_back(what, why);
}

void FakeHost::metric(std::string_view name, double value) {
  metrics[std::string(name)].push_back(value);
}

RandomStream FakeHost::random(std::string_view purpose) const {
  return {seed, purpose};
}

std::vector<Batch> FakeHost::batches(std::string_view split, std::int64_t count) {
  const auto found = data.find(split);
  if (found == data.end())
    throw ConfigError("this host has no split \"" + std::string(split) + "\": give FakeHost::data one");
  const auto most =
      std::min(static_cast<std::size_t>(std::max<std::int64_t>(count, 0)), found->second.size());
  return {found->second.begin(), found->second.begin() + static_cast<std::ptrdiff_t>(most)};
}

std::shared_ptr<void> FakeHost::thread(std::string_view, std::function<void(std::stop_token)> work) {
  auto body = [said = said_, work = std::move(work)](std::stop_token stop) {
    std::string error = "something that is no std::exception";
    try {
      return work(std::move(stop));
    } catch (const std::exception& thrown) {
      error = thrown.what();
    } catch (...) {}
    const std::lock_guard lock(said->mutex);
    said->errors.push_back(std::move(error));
  };
  auto thread = std::make_shared<std::jthread>(std::move(body));
  threads_.push_back(thread);
  return thread;
}

void FakeHost::leave(std::shared_ptr<void> thread) {
  const auto left = std::static_pointer_cast<std::jthread>(std::move(thread));
  left->request_stop();
  left->detach();
}

void FakeHost::swap(std::string_view slot, std::string_view type, const std::vector<std::string>& options) {
  swaps.push_back({std::string(slot), std::string(type), options});
}

std::unique_ptr<Plugin> FakeHost::make(std::string_view kind, const Table& table) {
  if (maker) return maker(kind, table);
  throw ConfigError("this host makes no plugin of kind " + std::string(kind) + ": give FakeHost::maker one");
}

}  // namespace trainyard::testing
