#include "core/cli/client.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace trainyard::control {
namespace {

constexpr timeval patience{.tv_sec = 2, .tv_usec = 0};
constexpr const char* went_away = "the run ended, or closed the connection, before it answered";

}  // namespace

Client::Client(const std::string& run_directory) {
  const Descriptor folder = open_folder(run_directory);
  if (!folder) throw NoAnswer("cannot open '" + run_directory + "': " + std::strerror(errno));
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_in(folder);
  if (!socket_) throw NoAnswer(std::string("cannot make a socket: ") + std::strerror(errno));
  // connect() waits for its turn, up to `patience`, when many clients come at once.
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    ::fcntl(socket_.get(), F_SETFL, O_NONBLOCK);
    return;
  }
  if (errno == ENOENT) throw NoAnswer("it has no control socket");
  if (errno == ECONNREFUSED) throw NoAnswer("the process that made its control socket is gone");
  if (errno == EAGAIN) throw NoAnswer("too many clients wait for it already: try again");
  throw NoAnswer(std::string("cannot connect to its control socket: ") + std::strerror(errno));
}

Json Client::ask(Request request, std::chrono::milliseconds timeout) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout;
  const std::string late = "no answer within " + std::to_string(timeout.count() / 1000.0).substr(0, 5) +
                           " s; what was asked may still be done at the run's next safe point";
  request.id = ++last_id_;
  const std::string line = line_of(request);
  if (line.size() > max_request_bytes)
    throw Refused("the request has " + std::to_string(line.size()) + " bytes, a run takes " +
                  std::to_string(max_request_bytes));
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t count = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count > 0)
      sent += static_cast<std::size_t>(count);
    else if (errno == EAGAIN)
      await(POLLOUT, deadline, late);
    else if (errno == EPIPE)
      break;  // the run closed it; its reason can be read
    else if (errno != EINTR)
      throw NoAnswer(went_away);
  }
  for (;;) {
    Answer answer = parse_answer(next_line(deadline, late));
    if (answer.id && *answer.id != request.id) continue;  // answers a request that timed out
    if (!answer.ok) throw Refused(answer.error);
    return std::move(answer.result);
  }
}

void Client::await(short events, Deadline deadline, const std::string& late) const {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) throw NoAnswer(late);
    pollfd polled{socket_.get(), events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(left.count()));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw NoAnswer(std::strerror(errno));
  }
}

std::string Client::next_line(Deadline deadline, const std::string& late) {
  for (;;) {
    if (const std::size_t end = in_.find('\n'); end != std::string::npos) {
      std::string line = in_.substr(0, end);
      in_.erase(0, end + 1);
      return line;
    }
    if (in_.size() > max_answer_bytes) throw NoAnswer("its answer is longer than the protocol allows");
    char buffer[16 * 1024];
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count > 0)
      in_.append(buffer, static_cast<std::size_t>(count));
    else if (count < 0 && errno == EAGAIN)
      await(POLLIN, deadline, late);
    else if (count == 0 || errno != EINTR)
      throw NoAnswer(went_away);
  }
}

}  // namespace trainyard::control
