#include "core/engine/train/active_plugin.hpp"

#include <pthread.h>

#include <thread>

#include "core/engine/events/call_frame.hpp"
#include "core/engine/events/signal_stack.hpp"
#include "core/engine/train/guard.hpp"
#include "core/runfile/hook_order.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::train {
namespace {

/// Keeps, for the life of the process, the objects that a left thread is still in.
std::vector<std::shared_ptr<HostServices>>& kept() {
  static auto& objects = *new std::vector<std::shared_ptr<HostServices>>();
  return objects;
}

std::shared_ptr<PluginObject> make_object(const config::SlotConfig& slot, const plugins::LoadedPlugin& code,
                                          PartCode parts, const HostOutputs& outputs) {
  const auto object = std::make_shared<PluginObject>(slot, outputs, std::move(parts));
  object->instance = guarded(slot, 0, [&] { return code.create(slot.options); });
  object->instance.plugin->set_host(*object);
  return {object.get(), [object](const PluginObject*) {
            if (object.use_count() > 1) object->close();  // a call that does not return holds it, too
          }};
}

}  // namespace

bool left_threads() {
  return !kept().empty();
}

struct HostServices::Worker {
  std::jthread thread;
};

HostServices::~HostServices() {
  const std::lock_guard lock(mutex_);
  for (const std::weak_ptr<Worker>& worker : workers_)
    if (const std::shared_ptr<Worker> alive = worker.lock()) alive->thread = {};  // asks it to stop, joins it
}

void HostServices::close() {
  const std::lock_guard lock(open_);
  outputs_ = nullptr;
}

template <class Call>
void HostServices::with_outputs(Call&& call) {
  const std::lock_guard lock(open_);
  if (outputs_ != nullptr) call(*outputs_);
}

void HostServices::log(LogLevel level, std::string_view message) {
  with_outputs([&](const HostOutputs& to) { to.log(level, owner_ + ": " + std::string(message)); });
}

void HostServices::journal(std::string_view what, std::string_view why) {
  with_outputs([&](const HostOutputs& to) { to.journal(owner_, what, why); });
}

void HostServices::metric(std::string_view name, double value) {
  with_outputs([&](const HostOutputs& to) { to.metric(std::string(name), value); });
}

std::vector<Batch> HostServices::batches(std::string_view split, std::int64_t count) {
  std::vector<Batch> batches;
  with_outputs([&](const HostOutputs& of) { batches = of.batches(split, count); });
  return batches;
}

RandomStream HostServices::random(std::string_view purpose) const {
  return {seed_, owner_ + "/" + std::string(purpose)};
}

std::shared_ptr<void> HostServices::thread(std::string_view name, std::function<void(std::stop_token)> work) {
  auto worker = std::make_shared<Worker>();
  // The kernel keeps 15 characters of a thread's name.
  std::string label = (owner_ + "/" + std::string(name)).substr(0, 15);
  worker->thread =
      std::jthread([this, work = std::move(work), label = std::move(label)](std::stop_token stop) {
        pthread_setname_np(pthread_self(), label.c_str());
        const auto failed = [this](const char* what) {
          {
            const std::lock_guard lock(mutex_);
            if (thread_failed_) return;
            thread_error_ = what;
            thread_failed_ = true;
          }
          with_outputs([](const HostOutputs& to) { to.thread_failed(); });
        };
        const report::SignalStack signal_stack;
        const events::CallScope scope(slot_.c_str(), plugin_.c_str());
        try {
          work(std::move(stop));
        } catch (const std::exception& error) {
          failed(error.what());
        } catch (...) {
          failed("a thread threw something that is no std::exception");
        }
      });
  const std::lock_guard lock(mutex_);
  std::erase_if(workers_, [](const std::weak_ptr<Worker>& each) { return each.expired(); });
  workers_.push_back(worker);
  return worker;
}

void HostServices::leave(std::shared_ptr<void> thread) {
  std::jthread& left = static_cast<Worker*>(thread.get())->thread;
  left.request_stop();
  left.detach();
  kept().push_back(shared_from_this());
}

void HostServices::swap(std::string_view slot, std::string_view type,
                        const std::vector<std::string>& options) {
  config::SwapRequest request{.slot = std::string(slot), .type = std::string(type), .options = {}};
  for (const std::string& assignment : options) config::assign(request.options, assignment);
  with_outputs([&](const HostOutputs& to) { to.swap(std::move(request), owner_); });
}

std::unique_ptr<Plugin> HostServices::make(std::string_view kind, const Table& table) {
  const std::string& type = table.find("type")->as<std::string>();
  const auto code = parts_.find(std::pair(std::string(kind), type));
  if (code == parts_.end())
    throw PluginError("the " + std::string(kind) + " \"" + type +
                      "\" is in none of the options of this plugin; only those can be made");
  std::unique_ptr<Plugin> made = code->second.create(table).plugin;
  made->set_host(*this);
  State state;
  StateWriter writer(state);
  made->save(writer);
  if (state.scalars.empty() && state.tensors.empty()) return made;
  throw ConfigError("the " + std::string(kind) + " \"" + type +
                    "\" has state, which a part of another plugin cannot keep; take one without, or give it "
                    "the slot");
}

std::string HostServices::take_thread_error() {
  const std::lock_guard lock(mutex_);
  thread_failed_ = false;
  return std::exchange(thread_error_, {});
}

ActivePlugin::ActivePlugin(config::SlotConfig slot, const plugins::LoadedPlugin& code, PartCode parts,
                           const HostOutputs& outputs)
    : slot_(std::move(slot)), code_(code), object_(make_object(slot_, code_, std::move(parts), outputs)) {
  subscriber_.participant = config::participant_of(slot_, code_.manifest());
  subscriber_.slot = slot_.slot;
  subscriber_.address = slot_.address();
  subscriber_.self = object_->instance.self;
  subscriber_.disable_on_error = slot_.hook.on_error == config::HookKeys::OnError::disable;
}

State ActivePlugin::state() const {
  State state{.owner = slot_.address(), .version = manifest().version, .scalars = {}, .tensors = {}};
  StateWriter writer(state);
  guarded(slot_, 0, [&] { object_->instance.plugin->save(writer); });
  return state;
}

}  // namespace trainyard::train
