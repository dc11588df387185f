// The control socket of a live run: ctl.sock in its directory, for its owner (and root) alone.
//
// One thread of its own serves all clients, so that nothing that they do is felt by the loop: what comes is
// checked there, and only whole, valid requests reach the loop, at most max_open of one client at a time and
// not more than some hundred a second of all together. Lines, answers and clients are bounded; who sends
// garbage is told so, who does not read is dropped. Clients have turns, so that a flood keeps none of the
// others waiting, and where all places are taken the one that sends most gives way to a new one.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/rundir/protocol.hpp"

namespace trainyard::control {

constexpr std::size_t max_clients = 64;
constexpr int max_open = 4;  ///< requests of one client that are not answered yet

struct Mailbox;

/// A request that waits for its answer. One that is destroyed without an answer is refused: "the run ended
/// before". Any thread, one at a time; may outlive the channel.
class Command {
 public:
  Command(Command&& other) noexcept = default;
  Command& operator=(Command&& other) noexcept;
  ~Command();

  const Request& request() const { return request_; }

  /// One of the two, once.
  void answer(Json result);
  void refuse(std::string why);

 private:
  friend class Channel;
  Command(std::shared_ptr<Mailbox> mailbox, std::uint64_t serial, Request request)
      : mailbox_(std::move(mailbox)), serial_(serial), request_(std::move(request)) {}
  void close(Answer answer);

  std::shared_ptr<Mailbox> mailbox_;  // empty: answered
  std::uint64_t serial_;
  Request request_;
};

class Channel {
 public:
  /// Makes the socket. The caller holds the run's lock; a socket that a dead process left is replaced.
  /// Throws ConfigError where a live process answers there, DataError where no socket can be made.
  explicit Channel(const std::string& run_directory);
  /// Refuses what is open, sends what can be sent at once, removes the socket.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Whether take() would give something. One relaxed load: meant to be asked at every step.
  bool pending() const noexcept;

  /// The oldest request. A client that is gone by now is obeyed all the same.
  std::optional<Command> take();

  /// Sleeps until something is pending, at most `timeout`: of a run that is paused. Says pending().
  bool wait(std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::thread thread_;
};

}  // namespace trainyard::control
