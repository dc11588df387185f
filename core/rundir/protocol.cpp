#include "core/rundir/protocol.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "core/runfile/suggest.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/words.hpp"

namespace trainyard::control {
namespace {

constexpr std::array<std::string_view, 10> verbs = {"status", "set",    "swap",       "add",  "remove",
                                                    "pause",  "resume", "checkpoint", "eval", "stop"};
constexpr std::array<std::string_view, 2> states = {"training", "paused"};
constexpr std::int64_t max_id = std::int64_t{1} << 53;  // every JSON reader holds it exactly

// Requests come from strangers: nlohmann::json keeps keys in a map, which stays fast with thousands of keys;
// ordered_json does not.
using Given = nlohmann::json;

std::string excerpt(const std::string& text) {
  constexpr std::size_t most = 60;
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

/// Names the type of a JSON value for messages.
std::string kind_of(const Given& value) {
  return std::string("a") + (value.is_array() || value.is_object() ? "n " : " ") + value.type_name();
}

class Reader {
 public:
  Reader(const Given& request, std::optional<std::int64_t> id) : request_(request), id_(id) {}

  [[noreturn]] void fail(const std::string& message) const { throw BadRequest(id_, message); }

  void check_keys(const Given& object, const std::string& where, std::vector<std::string> known) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(where + " has no key \"" + excerpt(key) +
           "\": " + (known.empty() ? "this verb takes no args" : config::suggestion(key, known)));
    }
  }

  Verb verb() const {
    const auto found = request_.find("verb");
    const std::vector<std::string> known(verbs.begin(), verbs.end());
    if (found == request_.end() || !found->is_string())
      fail("the request has no text \"verb\": one of " + lib::join(known));
    const auto& word = found->get_ref<const std::string&>();
    const auto at = std::find(verbs.begin(), verbs.end(), word);
    if (at == verbs.end())
      fail("there is no verb \"" + excerpt(word) + "\": " + config::suggestion(word, known));
    return static_cast<Verb>(at - verbs.begin());
  }

  const Given& args() const {
    static const Given none = Given::object();
    const auto found = request_.find("args");
    if (found == request_.end()) return none;
    if (!found->is_object()) fail("\"args\" is " + kind_of(*found) + ", expected an object");
    return *found;
  }

  /// Returns the text of an argument; empty if it is absent and not required.
  std::string text(const char* key, bool required) const {
    const Given& all = args();
    const auto found = all.find(key);
    if (found == all.end()) {
      if (required) fail(std::string("the args have no \"") + key + "\"");
      return {};
    }
    if (!found->is_string()) fail(std::string("\"") + key + "\" is " + kind_of(*found) + ", expected text");
    auto value = found->get<std::string>();
    const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
    if (value.empty() || std::any_of(value.begin(), value.end(), control))
      fail(std::string("\"") + key + "\" is empty or holds control characters");
    return value;
  }

  std::vector<std::string> assignments(bool required) const {
    const Given& all = args();
    const auto found = all.find("assignments");
    if (found == all.end() || (found->is_array() && found->empty())) {
      if (required) fail("the args have no \"assignments\": a list like [\"optimizer.lr=3e-4\"] is expected");
      return {};
    }
    if (!found->is_array()) fail("\"assignments\" is " + kind_of(*found) + ", expected a list of texts");
    std::vector<std::string> values;
    for (const Given& each : *found) {
      if (!each.is_string()) fail("\"assignments\" holds " + kind_of(each) + ", expected texts");
      auto value = each.get<std::string>();
      const std::size_t equals = value.find('=');
      if (equals == std::string::npos || equals == 0 || value.find('\0') != std::string::npos)
        fail("\"" + excerpt(value) + "\" is no assignment: KEY=VALUE is expected, as in optimizer.lr=3e-4");
      values.push_back(std::move(value));
    }
    return values;
  }

 private:
  const Given& request_;
  std::optional<std::int64_t> id_;
};

std::optional<std::int64_t> id_of(const Given& json) {
  const auto found = json.find("id");
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > max_id) return std::nullopt;
  const auto id = found->get<std::int64_t>();
  return id < 0 ? std::nullopt : std::optional(id);
}

Given parsed(std::string_view line) {
  // The JSON library takes a NUL for the end of its input.
  if (line.find('\0') != std::string_view::npos)
    throw BadRequest({}, "the line holds a NUL byte: one JSON object a line is expected");
  Given json = Given::parse(line, nullptr, false);
  if (json.is_discarded())
    throw BadRequest({}, "the line is no JSON in UTF-8: expected {\"v\":1,\"id\":1,\"verb\":\"status\"}");
  if (!json.is_object()) throw BadRequest({}, "the line is " + kind_of(json) + ", expected an object");
  return json;
}

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string_view name(Verb verb) {
  return verbs[static_cast<std::size_t>(verb)];
}

std::string_view name(RunState state) {
  return states[static_cast<std::size_t>(state)];
}

Request parse_request(std::string_view line) {
  const Given json = parsed(line);
  const Reader reader(json, id_of(json));
  const auto version = json.find("v");
  if (version == json.end() || *version != protocol_version)
    reader.fail("\"v\" is " +
                (version == json.end()          ? "absent"
                 : version->is_number_integer() ? version->dump()
                                                : kind_of(*version)) +
                ", this run speaks version " + std::to_string(protocol_version) +
                " of the protocol: use the `trainyard ctl` of the release that runs it");
  if (!id_of(json)) reader.fail("the request has no \"id\": a whole number from 0 to 2^53 is expected");
  reader.check_keys(json, "the request", {"v", "id", "verb", "args"});

  Request request;
  request.id = *id_of(json);
  request.verb = reader.verb();
  const std::string where = "\"args\" of " + std::string(name(request.verb));
  switch (request.verb) {
    case Verb::set:
      reader.check_keys(reader.args(), where, {"assignments"});
      request.assignments = reader.assignments(true);
      break;
    case Verb::add:
    case Verb::remove:
    case Verb::swap: {
      reader.check_keys(reader.args(), where, {"slot", "type", "assignments", "watch", "carry"});
      request.slot = reader.text("slot", true);
      request.type = reader.text("type", request.verb != Verb::remove);
      request.assignments = reader.assignments(false);
      request.carry = reader.text("carry", false);
      const std::string watch = reader.text("watch", false);
      if (watch.empty()) break;
      request.watch = Duration::parse(watch);
      if (!request.watch)
        reader.fail("\"watch\" is \"" + excerpt(watch) + "\", expected a duration like \"5ba\" or \"1ep\"");
      break;
    }
    default: reader.check_keys(reader.args(), where, {});
  }
  return request;
}

Answer parse_answer(std::string_view line) {
  Json json = Json::parse(line, nullptr, false);
  if (!json.is_object() || json["v"] != protocol_version || !json["ok"].is_boolean())
    throw std::runtime_error("the run's answer is not of version " + std::to_string(protocol_version) +
                             " of the control protocol: use the `trainyard ctl` of the release that runs it");
  Answer answer;
  answer.ok = json["ok"];
  if (json["id"].is_number_integer()) answer.id = json["id"].get<std::int64_t>();
  if (answer.ok)
    answer.result = std::move(json["result"]);
  else if (json["error"].is_string())
    answer.error = json["error"].get<std::string>();
  return answer;
}

std::string line_of(const Request& request) {
  Json json = {{"v", protocol_version}, {"id", request.id}, {"verb", name(request.verb)}};
  Json args = Json::object();
  if (!request.slot.empty()) args["slot"] = request.slot;
  if (!request.type.empty()) args["type"] = request.type;
  if (!request.assignments.empty()) args["assignments"] = request.assignments;
  if (request.watch) args["watch"] = request.watch->text();
  if (!request.carry.empty()) args["carry"] = request.carry;
  if (!args.empty()) json["args"] = std::move(args);
  return dumped(json);
}

std::string line_of(const Answer& answer) {
  Json json = {{"v", protocol_version}, {"id", answer.id ? Json(*answer.id) : Json()}, {"ok", answer.ok}};
  if (!answer.ok) {
    json["error"] = answer.error.substr(0, max_answer_bytes / 8);  // escaping may turn a byte into six
    return dumped(json);
  }
  json["result"] = answer.result;
  std::string line = dumped(json);
  if (line.size() <= max_answer_bytes) return line;
  return line_of(Answer{.id = answer.id,
                        .error = "it is done, but the answer has " + std::to_string(line.size()) +
                                 " bytes, which is more than the " + std::to_string(max_answer_bytes) +
                                 " that may be sent"});
}

std::optional<double> number(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (json == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (json == "inf") return std::numeric_limits<double>::infinity();
  if (json == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

Json named(const std::vector<std::pair<std::string, double>>& all) {
  Json json = Json::object();
  for (const auto& [what, seconds] : all) json[what] = config::json_of(seconds);
  return json;
}

Json object_in(std::string_view text) {
  constexpr int deepest = 16;
  Json json = Json::parse(
      text, [](int depth, Json::parse_event_t, const Json&) { return depth < deepest; }, false);
  return json.is_object() ? json : Json();
}

void to_json(Json& json, const Status& status) {
  Json slots = Json::array();
  for (const Status::Slot& slot : status.slots)
    slots.push_back({{"slot", slot.slot},
                     {"type", slot.type},
                     {"version", slot.version},
                     {"swaps", slot.swaps},
                     {"digest", slot.digest},
                     {"seconds", config::json_of(slot.seconds)}});
  json = {{"run", status.run},
          {"pid", status.pid},
          {"state", name(status.state)},
          {"step", status.step},
          {"total_steps", status.total_steps},
          {"epoch", status.epoch},
          {"samples_per_second", config::json_of(status.samples_per_second)},
          {"seconds", config::json_of(status.seconds)},
          {"seconds_left", status.seconds_left ? config::json_of(*status.seconds_left) : Json()},
          {"metrics", named({status.metrics.begin(), status.metrics.end()})},
          {"slots", std::move(slots)},
          {"time", named(status.time)},
          {"retired", status.retired},
          {"last_checkpoint", status.last_checkpoint.empty() ? Json() : Json(status.last_checkpoint)}};
}

void from_json(const Json& json, Status& status) {
  const auto real = [](const Json& value) {
    const std::optional<double> read = number(value);
    return read ? *read : value.get<double>();  // throws an error that says what is wrong
  };
  json.at("run").get_to(status.run);
  json.at("pid").get_to(status.pid);
  const auto state = json.at("state").get<std::string>();
  const auto found = std::find(states.begin(), states.end(), state);
  if (found == states.end()) throw Json::other_error::create(501, "unknown state " + state, &json);
  status.state = static_cast<RunState>(found - states.begin());
  json.at("step").get_to(status.step);
  json.at("total_steps").get_to(status.total_steps);
  json.at("epoch").get_to(status.epoch);
  status.samples_per_second = real(json.at("samples_per_second"));
  status.seconds = real(json.at("seconds"));
  if (const Json& left = json.at("seconds_left"); !left.is_null()) status.seconds_left = real(left);
  for (const auto& [key, value] : json.at("metrics").items()) status.metrics[key] = real(value);
  for (const Json& each : json.at("slots"))
    status.slots.push_back({.slot = each.at("slot"),
                            .type = each.at("type"),
                            .version = each.at("version"),
                            .swaps = each.at("swaps"),
                            .digest = each.at("digest"),
                            .seconds = real(each.at("seconds"))});
  if (const auto time = json.find("time"); time != json.end())  // runs of older releases lack it
    for (const auto& [phase, seconds] : time->items()) status.time.emplace_back(phase, real(seconds));
  json.at("retired").get_to(status.retired);
  if (const Json& last = json.at("last_checkpoint"); !last.is_null()) last.get_to(status.last_checkpoint);
}

}  // namespace trainyard::control
