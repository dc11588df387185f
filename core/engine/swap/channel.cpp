#include "core/engine/swap/channel.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <trainyard/error.hpp>

#include "core/rundir/socket.hpp"

namespace trainyard::control {

/// The state that the loop and the channel's thread share.
struct Mailbox {
  struct Waiting {
    std::uint64_t serial;
    Request request;
  };
  struct Reply {
    std::uint64_t serial;
    Answer answer;
  };

  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<Waiting> waiting;  // bounded by max_clients * max_open
  std::vector<Reply> replies;
  bool closing = false;
  std::atomic<bool> pending{false};  // true if `waiting` is not empty
  Descriptor bell{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  void ring() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(bell.get(), &one, sizeof one);  // full: it rings
  }
};

namespace {

using Steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr const char* ended = "the run ended before it came to this request";
constexpr std::size_t read_bytes = std::size_t{16} * 1024;  // read from one client at a time
constexpr std::size_t read_below = max_answer_bytes / 2;    // with more to send, a client is not read
constexpr std::size_t max_output = 2 * max_answer_bytes;    // with more to send, a client is dropped
constexpr std::chrono::milliseconds patience = 5s, farewell_time = 500ms, breath = 1s;

// Each client has a turn after the others, and so do new ones: a client that asks now and then waits for one
// turn of each client that sends without end, and no longer.
constexpr int lines_a_turn = 20, clients_a_turn = 8;

[[noreturn]] void fail(const std::string& what, const std::string& path, int reason = errno) {
  throw DataError("cannot " + what + " the control socket '" + path + "/" + socket_name +
                  "': " + std::strerror(reason));
}

/// Returns true if a process listens at the address.
bool answered(const sockaddr_un& address, const std::string& path) {
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) fail("look at", path);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return true;
  if (errno == EAGAIN) return true;  // too many clients wait for it already
  if (errno == ECONNREFUSED || errno == ENOENT) return false;
  fail("look at", path);
}

void remove_stale(const Descriptor& folder, const std::string& path) {
  struct stat status {};
  if (::fstatat(folder.get(), socket_name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISSOCK(status.st_mode))
    throw ConfigError("'" + path + "/" + socket_name +
                      "' is no socket, and this is the name of the run's control socket: remove it");
  if (answered(address_in(folder), path))
    throw ConfigError("another process answers at '" + path + "/" + socket_name +
                      "': a run is going in this folder; wait for it, or name another run.output_dir");
  if (::unlinkat(folder.get(), socket_name, 0) != 0 && errno != ENOENT) fail("replace", path);
}

Descriptor listen_in(const Descriptor& folder, const std::string& path) {
  Descriptor listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) fail("make", path);
  // The file takes over the mode of the socket: it never exists with another mode, and umask(), which is that
  // of the whole process, is not changed.
  if (::fchmod(listener.get(), 0600) != 0) fail("protect", path);
  const sockaddr_un address = address_in(folder);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    fail("make", path);
  if (::listen(listener.get(), static_cast<int>(max_clients)) != 0) fail("listen at", path);
  return listener;
}

struct Client {
  explicit Client(Descriptor connection) : socket(std::move(connection)) {}

  Descriptor socket;
  std::string in;            // read but not handled yet; at most max_request_bytes and one read
  std::size_t searched = 0;  // bytes of `in` that hold no newline
  bool more = false;         // `in` may hold a whole line: the turn ended before it
  bool skips = false;        // the bytes that come belong to a line that was too long
  bool sends = true;         // false: it has closed its side
  bool reads = true;         // false: nobody takes what is sent
  std::string out;           // not sent yet
  Steady::time_point stuck;  // since when nothing of `out` could be sent
  int open = 0;              // requests in the loop's hands
  short events = 0;          // of the last poll

  bool finished() const { return !sends && !more && (!reads || (open == 0 && out.empty())); }
  bool wants_turn() const { return more && out.size() < read_below; }
};

/// Runs on the channel's thread: owns the socket and serves the clients.
class Server {
 public:
  Server(std::string path, std::shared_ptr<Mailbox> mailbox)
      : path_(std::move(path)), folder_(open_folder(path_)), mailbox_(std::move(mailbox)) {
    if (!folder_) fail("find the folder of", path_);
    if (!mailbox_->bell) fail("make a bell for", path_);
    remove_stale(folder_, path_);
    listener_ = listen_in(folder_, path_);
    if (::fstatat(folder_.get(), socket_name, &file_, AT_SYMLINK_NOFOLLOW) != 0) fail("find", path_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ~Server() {
    struct stat status {};
    if (!listener_ || ::fstatat(folder_.get(), socket_name, &status, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (status.st_ino == file_.st_ino && status.st_dev == file_.st_dev)
      ::unlinkat(folder_.get(), socket_name, 0);
  }

  void run() {
    while (deliver()) {
      drop();
      wait();
      accept();
      serve();
    }
    say_farewell();
  }

 private:
  struct Open {
    std::uint64_t client;
    std::int64_t id;
  };

  /// Hands the loop's answers to their clients; returns false once the channel closes.
  bool deliver() {
    std::vector<Mailbox::Reply> replies;
    bool closing = false;
    {
      const std::lock_guard lock(mailbox_->mutex);
      replies.swap(mailbox_->replies);
      closing = mailbox_->closing;
    }
    for (Mailbox::Reply& reply : replies) {
      const auto found = open_.find(reply.serial);
      if (found == open_.end()) continue;
      conclude(found->second, std::move(reply.answer));
      open_.erase(found);
    }
    return !closing;
  }

  void conclude(const Open& open, Answer answer) {
    const auto found = clients_.find(open.client);
    if (found == clients_.end()) return;
    answer.id = open.id;
    --found->second.open;
    send(found->second, answer);
  }

  void wait() {
    now_ = Steady::now();
    polled_.clear();
    polled_.push_back({mailbox_->bell.get(), POLLIN, 0});
    polled_.push_back({now_ >= accept_after_ ? listener_.get() : -1, POLLIN, 0});
    for (const auto& [id, client] : clients_) {
      int events = client.out.empty() ? 0 : POLLOUT;
      if (client.sends && !client.more && client.out.size() < read_below) events |= POLLIN;
      // A descriptor that is asked for nothing would still report a hang-up, again and again.
      polled_.push_back({events != 0 ? client.socket.get() : -1, static_cast<short>(events), 0});
    }
    if (::poll(polled_.data(), polled_.size(), timeout()) < 0)
      for (pollfd& each : polled_) each.revents = 0;
    now_ = Steady::now();
    std::size_t index = 2;
    for (auto& [id, client] : clients_) {
      client.events = polled_[index++].revents;
      if ((client.events & POLLOUT) != 0) flush(client);
    }
    std::uint64_t rings = 0;
    if (polled_[0].revents != 0) [[maybe_unused]]
      const ssize_t ignored = ::read(mailbox_->bell.get(), &rings, sizeof rings);
  }

  /// Returns the timeout of poll in milliseconds; -1: until something comes.
  int timeout() const {
    auto until = Steady::time_point::max();
    if (now_ < accept_after_) until = accept_after_;
    for (const auto& [id, client] : clients_) {
      if (client.wants_turn()) return 0;
      if (!client.out.empty()) until = std::min(until, client.stuck + patience);
    }
    if (until == Steady::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now_).count();
    return static_cast<int>(std::max<std::int64_t>(left, 0));
  }

  /// Gives every client a turn.
  void serve() {
    for (auto& [id, client] : clients_) {
      if (!client.more && (client.events & (POLLIN | POLLHUP | POLLERR)) != 0) receive(client);
      if (client.wants_turn()) handle_lines(id, client);
    }
  }

  void receive(Client& client) {
    char buffer[read_bytes];
    const ssize_t count = ::recv(client.socket.get(), buffer, sizeof buffer, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count > 0) {
      client.in.append(buffer, static_cast<std::size_t>(count));
      client.more = true;
      return;
    }
    client.sends = false;
    if (count < 0) client.reads = false;
    if (client.in.empty() || client.skips) return;
    client.in.clear();
    refuse(client, {}, "the last line has no newline at its end and is not obeyed");
  }

  void handle_lines(std::uint64_t id, Client& client) {
    std::size_t begin = 0;
    client.more = false;
    for (int lines = 0;; ++lines) {
      const std::size_t end = client.in.find('\n', std::max(begin, client.searched));
      if (end == std::string::npos) break;
      if (lines == lines_a_turn || client.out.size() >= read_below) {
        client.more = true;
        break;
      }
      const std::string_view line(client.in.data() + begin, end - begin);
      begin = client.searched = end + 1;
      if (std::exchange(client.skips, false)) continue;
      if (line.size() < max_request_bytes)
        handle(id, client, line);
      else
        refuse_long(client);
    }
    client.in.erase(0, begin);
    client.searched = client.more ? 0 : client.in.size();
    if (client.more || (client.in.size() < max_request_bytes && !client.skips)) return;
    if (!std::exchange(client.skips, true)) refuse_long(client);
    client.in.clear();
    client.searched = 0;
  }

  void handle(std::uint64_t id, Client& client, std::string_view line) {
    if (line.empty()) return;
    try {
      Request request = parse_request(line);
      if (client.open >= max_open)
        return refuse(client, request.id,
                      "busy: " + std::to_string(max_open) +
                          " requests of this client are not answered yet; wait for an answer");
      ++client.open;
      open_.emplace(++last_serial_, Open{id, request.id});
      const std::lock_guard lock(mailbox_->mutex);
      mailbox_->waiting.push_back({last_serial_, std::move(request)});
      mailbox_->pending.store(true, std::memory_order_relaxed);
      mailbox_->arrived.notify_one();
    } catch (const BadRequest& bad) {
      refuse(client, bad.id, bad.what());
    }
  }

  void refuse_long(Client& client) {
    refuse(client, {}, "a line is longer than " + std::to_string(max_request_bytes) + " bytes");
  }

  void refuse(Client& client, std::optional<std::int64_t> id, std::string why) {
    send(client, {.id = id, .error = std::move(why)});
  }

  void send(Client& client, const Answer& answer) {
    if (!client.reads) return;
    const bool first = client.out.empty();
    client.out += line_of(answer);
    if (!first) return;
    client.stuck = now_;
    flush(client);
  }

  void flush(Client& client) {
    const ssize_t count = ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (count > 0) {
      client.out.erase(0, static_cast<std::size_t>(count));
      client.stuck = now_;
    } else if (errno != EAGAIN && errno != EINTR) {
      client.reads = false;
      client.out.clear();
    }
  }

  void accept() {
    if (polled_[1].revents == 0) return;
    for (int i = 0; i < clients_a_turn; ++i) {
      Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno != EAGAIN) accept_after_ = now_ + breath;  // no descriptor or memory now; retried later
        return;
      }
      Client client(std::move(socket));
      if (!belongs_to_owner(client))
        refuse(client, {}, "only the owner of a run may control it");
      else if (clients_.size() >= max_clients)
        refuse(client, {}, "busy: this run has " + std::to_string(max_clients) + " clients already");
      else
        clients_.emplace(++last_client_, std::move(client));
    }
  }

  static bool belongs_to_owner(const Client& client) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
    return peer.uid == ::geteuid() || peer.uid == 0;
  }

  void drop() {
    std::erase_if(clients_, [&](const auto& each) {
      const Client& client = each.second;
      return client.finished() || client.out.size() > max_output ||
             (!client.out.empty() && now_ - client.stuck > patience);
    });
  }

  void say_farewell() {
    for (const auto& [serial, open] : open_) conclude(open, {.error = ended});
    const auto until = now_ + farewell_time;
    for (now_ = Steady::now(); now_ < until; now_ = Steady::now()) {
      std::erase_if(clients_, [](const auto& each) { return each.second.out.empty(); });
      if (clients_.empty()) return;
      polled_.clear();
      for (const auto& [id, client] : clients_) polled_.push_back({client.socket.get(), POLLOUT, 0});
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now_);
      ::poll(polled_.data(), polled_.size(), static_cast<int>(left.count()));
      for (auto& [id, client] : clients_) flush(client);
    }
  }

  const std::string path_;
  const Descriptor folder_;
  const std::shared_ptr<Mailbox> mailbox_;
  Descriptor listener_;
  struct stat file_ {};  // identity of the socket's file, to remove no other one

  std::map<std::uint64_t, Client> clients_;
  std::map<std::uint64_t, Open> open_;  // what the loop has, by serial; also of gone clients
  std::uint64_t last_client_ = 0, last_serial_ = 0;
  std::vector<pollfd> polled_;  // bell, listener, clients in their order
  Steady::time_point now_ = Steady::now(), accept_after_ = now_;
};

/// A thread that is started meanwhile takes no signals, which are for the main thread, but its own faults.
class SignalsHeldBack {
 public:
  SignalsHeldBack() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeldBack() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeldBack(const SignalsHeldBack&) = delete;
  SignalsHeldBack& operator=(const SignalsHeldBack&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

Command::~Command() {
  if (mailbox_) refuse(ended);
}

Command& Command::operator=(Command&& other) noexcept {
  std::swap(mailbox_, other.mailbox_);
  std::swap(serial_, other.serial_);
  std::swap(request_, other.request_);
  return *this;
}

void Command::answer(Json result) {
  close({.ok = true, .result = std::move(result)});
}

void Command::refuse(std::string why) {
  close({.error = std::move(why)});
}

void Command::close(Answer answer) {
  assert(mailbox_);
  const std::shared_ptr<Mailbox> mailbox = std::move(mailbox_);
  {
    const std::lock_guard lock(mailbox->mutex);
    mailbox->replies.push_back({serial_, std::move(answer)});
  }
  mailbox->ring();
}

Channel::Channel(const std::string& run_directory) : mailbox_(std::make_shared<Mailbox>()) {
  auto server = std::make_unique<Server>(run_directory, mailbox_);
  const SignalsHeldBack held;
  thread_ = std::thread([server = std::move(server)] {
    pthread_setname_np(pthread_self(), "control");
    server->run();
  });
}

Channel::~Channel() {
  {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->closing = true;
  }
  mailbox_->ring();
  thread_.join();
}

bool Channel::pending() const noexcept {
  return mailbox_->pending.load(std::memory_order_relaxed);
}

std::optional<Command> Channel::take() {
  const std::lock_guard lock(mailbox_->mutex);
  if (mailbox_->waiting.empty()) return std::nullopt;
  Mailbox::Waiting first = std::move(mailbox_->waiting.front());
  mailbox_->waiting.pop_front();
  mailbox_->pending.store(!mailbox_->waiting.empty(), std::memory_order_relaxed);
  return Command(mailbox_, first.serial, std::move(first.request));
}

bool Channel::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mailbox_->mutex);
  return mailbox_->arrived.wait_for(lock, timeout, [&] { return !mailbox_->waiting.empty(); });
}

}  // namespace trainyard::control
