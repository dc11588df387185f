// The control socket of a live run: ctl.sock in its directory, for its owner (and root) alone.
//
// A thread of its own serves all clients, so that they never delay the loop: the thread checks what comes,
// and only whole, valid requests reach the loop, at most max_open of one client at a time. Lines, answers and
// clients are bounded; a client that sends garbage is told so, one that does not read is dropped. Clients
// have turns, so that a flood keeps none of the others waiting; a client that comes when all places are taken
// is refused.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "core/rundir/protocol.hpp"

namespace trainyard::control {

constexpr std::size_t max_clients = 64;
constexpr int max_open = 4;  ///< unanswered requests of one client

struct Mailbox;

/// A request that waits for its answer. If it is destroyed without one it is refused: "the run ended before".
/// Any thread, one at a time; may outlive the channel.
class Command {
 public:
  Command(Command&& other) noexcept = default;
  Command& operator=(Command&& other) noexcept;
  ~Command();

  const Request& request() const { return request_; }

  /// Answers the request; exactly one of the two is called, once.
  void answer(Json result);
  void refuse(std::string why);

 private:
  friend class Channel;
  Command(std::shared_ptr<Mailbox> mailbox, std::uint64_t serial, Request request)
      : mailbox_(std::move(mailbox)), serial_(serial), request_(std::move(request)) {}
  void close(Answer answer);

  std::shared_ptr<Mailbox> mailbox_;  // null once it is answered
  std::uint64_t serial_;
  Request request_;
};

class Channel {
 public:
  /// Makes the socket. The caller holds the run's lock; a socket left by a dead process is replaced. Throws
  /// ConfigError if a live process answers there, DataError if no socket can be made.
  explicit Channel(const std::string& run_directory);
  /// Refuses open requests, sends what can be sent at once, and removes the socket.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  /// Returns true if take() would return a request. One relaxed load: meant to be called at every step.
  bool pending() const noexcept;

  /// Returns the oldest request. It is obeyed even if its client is gone by now.
  std::optional<Command> take();

  /// Sleeps, in a paused run, until a request is pending, at most `timeout`. Returns pending().
  bool wait(std::chrono::milliseconds timeout);

 private:
  std::shared_ptr<Mailbox> mailbox_;
  std::thread thread_;
};

}  // namespace trainyard::control
