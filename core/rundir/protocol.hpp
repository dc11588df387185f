// The protocol between a run and the clients of its control socket: JSON objects, one per line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <trainyard/duration.hpp>

namespace trainyard::control {

using Json = nlohmann::ordered_json;

constexpr int protocol_version = 1;
constexpr std::size_t max_request_bytes = std::size_t{64} * 1024;  ///< of a line with its newline
constexpr std::size_t max_answer_bytes = std::size_t{256} * 1024;

enum class Verb : std::uint8_t { status, set, swap, add, remove, pause, resume, checkpoint, eval, stop };
std::string_view name(Verb verb);

/// A request of a client. Values of assignments are unparsed TOML text and mean what they mean after --set.
struct Request {
  std::int64_t id = 0;
  Verb verb = Verb::status;
  std::vector<std::string> assignments;  ///< for set and swap; each with a key before its '='
  std::string slot, type;                ///< of swap and add; the slot of remove
  std::optional<Duration> watch;         ///< for swap; nothing: the host's default
  std::string carry;                     ///< for swap; empty: the slot's default
};

struct BadRequest : std::runtime_error {
  BadRequest(std::optional<std::int64_t> of, const std::string& message)
      : std::runtime_error(message), id(of) {}
  std::optional<std::int64_t> id;  ///< nothing if it could not be read
};

/// Parses one line without its newline. Throws BadRequest.
Request parse_request(std::string_view line);

struct Answer {  // NOLINT(bugprone-exception-escape): what nlohmann's json moves does not throw
  std::optional<std::int64_t> id;
  bool ok = false;
  Json result;        ///< if ok
  std::string error;  ///< if not ok
};

/// Parses one line. Throws std::runtime_error if the line is no answer of this protocol.
Answer parse_answer(std::string_view line);

/// Returns a line with its newline. Text that is not UTF-8 is replaced. An answer that is longer than
/// max_answer_bytes becomes a refusal that says so.
std::string line_of(const Request& request);
std::string line_of(const Answer& answer);

enum class RunState : std::uint8_t { training, paused };
std::string_view name(RunState state);

/// The result of `status`.
struct Status {
  struct Slot {
    std::string slot;        ///< "schedule", "model.dropout"
    std::string type;        ///< the plugin's name
    std::string version;     ///< of the plugin
    std::int64_t swaps = 0;  ///< plugins that filled the slot earlier
    std::string digest;      ///< SHA-256 of the plugin's file, as sealed
    double seconds = 0.0;    ///< spent in its calls so far
  };

  std::string run;  ///< name of the run
  std::int64_t pid = 0;
  RunState state = RunState::training;
  std::int64_t step = 0;         ///< optimizer steps done
  std::int64_t total_steps = 0;  ///< 0: not known
  std::int64_t epoch = 0;
  double samples_per_second = 0.0;        ///< since the last record of the training
  double seconds = 0.0;                   ///< since the run began
  std::optional<double> seconds_left;     ///< nothing: not known
  std::map<std::string, double> metrics;  ///< the last value of each: "train/loss", "val/accuracy", "lr"
  std::vector<Slot> slots;
  std::vector<std::pair<std::string, double>>
      time;                     ///< seconds by phase, as in result.json; empty: not known yet
  std::int64_t retired = 0;     ///< plugins that were replaced and stay in memory
  std::string last_checkpoint;  ///< its folder; empty: none yet
};

/// Reads a number that config::json_of wrote.
std::optional<double> number(const Json& json);
/// Returns an object of numbers by name.
Json named(const std::vector<std::pair<std::string, double>>& all);

/// Parses a JSON object from one of a run's files, whoever wrote it; null where the text is none. Values
/// nested deeper than any that a run writes are dropped, as no reader here could even copy them.
Json object_in(std::string_view text);

void to_json(Json& json, const Status& status);
/// Throws nlohmann::json::exception where a field is absent or of another type.
void from_json(const Json& json, Status& status);

}  // namespace trainyard::control
