#include "owners.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <random>
#include <system_error>

#include <trainyard/error.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/state.hpp>

#include "lib/read_file.hpp"

namespace cache {
namespace {

using Clock = std::chrono::steady_clock;
using trainyard::Sample, trainyard::State;

constexpr timeval patience = {.tv_sec = 5, .tv_usec = 0};  ///< for each read and write of a connection
constexpr int pause = 10;  ///< after a failure nobody asks for so many times as long as the failure took
constexpr std::size_t token_length = 32;

/// What a rank asks: 'g' gets the sample, 'p' puts the one whose bytes follow. The answer is a length and as many bytes;
/// it is empty if the sample is not there, and after 'p'.
struct Request {
  char what = 'g';
  std::int64_t index = 0;
  std::uint64_t length = 0;
};

[[noreturn]] void fail() {
  const int reason = errno == EAGAIN ? ETIMEDOUT : errno;
  throw std::system_error(reason, std::generic_category());
}

void send_all(int fd, const void* from, std::size_t length) {
  for (const auto* next = static_cast<const char*>(from); length > 0;) {
    const ssize_t sent = ::send(fd, next, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail();
    next += sent;
    length -= static_cast<std::size_t>(sent);
  }
}

void receive_all(int fd, void* to, std::size_t length) {
  for (auto* next = static_cast<char*>(to); length > 0;) {
    const ssize_t got = ::recv(fd, next, length, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = ECONNRESET;
    if (got <= 0) fail();
    next += got;
    length -= static_cast<std::size_t>(got);
  }
}

std::string receive(int fd, std::uint64_t length) {
  std::string bytes(length, '\0');
  receive_all(fd, bytes.data(), bytes.size());
  return bytes;
}

void limit_waits(int fd) {
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

std::string bytes_of(const Sample& sample) {
  State state;
  for (std::size_t i = 0; i < sample.size(); ++i) state.tensors.emplace(std::to_string(i), sample[i]);
  return trainyard::to_bytes({state});
}

Sample sample_of(std::string_view bytes) {
  const std::vector<State> states = trainyard::from_bytes(bytes);
  Sample sample;
  for (std::size_t i = 0; i < states.at(0).tensors.size(); ++i)
    sample.push_back(states[0].tensors.at(std::to_string(i)));
  return sample;
}

/// Makes a word that nobody can guess who cannot read the address file.
std::string make_token() {
  std::random_device device;
  std::string token;
  while (token.size() < token_length) token += "0123456789abcdef"[device() % 16];
  return token;
}

}  // namespace

// ---- the rank that has samples

SampleServer::SampleServer(MemoryLevel& memory, std::string address_file, const std::string& identity,
                           bool local)
    : memory_(memory),
      address_file_(std::move(address_file)),
      token_(make_token()),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof address;
  std::array<char, 256> host{"127.0.0.1"};
  if (::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      (!local && ::gethostname(host.data(), host.size() - 1) != 0))
    throw trainyard::DataError("this rank cannot listen for the others, which would ask it for samples: " +
                               std::string(std::strerror(errno)));
  address_ = std::string(host.data()) + " " + std::to_string(ntohs(address.sin_port)) + " " + token_ + " " +
             identity + "\n";
  publish();
}

SampleServer::~SampleServer() {
  if (trainyard::lib::read_file(address_file_) == address_) ::unlink(address_file_.c_str());
}

void SampleServer::publish() const {
  if (trainyard::lib::read_file(address_file_) == address_) return;
  const std::string beside = address_file_ + "." + token_;
  const Descriptor file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
  // A file that cannot be written is one that the others do not find, and say so.
  if (::write(file.get(), address_.data(), address_.size()) == static_cast<ssize_t>(address_.size()))
    ::rename(beside.c_str(), address_file_.c_str());
  else
    ::unlink(beside.c_str());
}

void SampleServer::serve(const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { ::shutdown(listener_.get(), SHUT_RDWR); });
  std::vector<Descriptor> connections;
  while (!stop.stop_requested()) {
    std::vector<pollfd> waits{{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const Descriptor& each : connections)
      waits.push_back({.fd = each.get(), .events = POLLIN, .revents = 0});
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;  // a signal
    for (std::size_t i = connections.size(); i-- > 0;)
      if (waits[i + 1].revents != 0 && !answer(connections[i].get()))
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
    if (waits[0].revents == 0) continue;
    Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() >= 0 && welcome(connection.get())) connections.push_back(std::move(connection));
  }
}

/// Returns whether whoever connected says the token.
bool SampleServer::welcome(int connection) const {
  limit_waits(connection);
  try {
    return receive(connection, token_length) == token_;
  } catch (const std::exception&) {
    return false;
  }
}

/// Returns false if the connection has ended or asks for nothing that makes sense.
bool SampleServer::answer(int connection) {
  try {
    Request request;
    receive_all(connection, &request, sizeof request);
    const std::string bytes = receive(connection, request.length);
    std::string found;
    if (request.what == 'p')
      memory_.put(request.index, sample_of(bytes));
    else if (const std::optional<Sample> kept = memory_.get(request.index))
      found = bytes_of(*kept);
    const std::uint64_t length = found.size();
    send_all(connection, &length, sizeof length);
    send_all(connection, found.data(), found.size());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// ---- the rank that asks

struct SampleOwners::Owner {
  std::mutex mutex;
  std::vector<Descriptor> idle;  ///< connections that no thread uses at the moment
  Clock::time_point again;       ///< nobody asks before
  std::string failure;           ///< why the last answer did not come; empty: it did
  bool told = false;
};

SampleOwners::SampleOwners(Setup setup) : setup_(std::move(setup)) {
  for (std::size_t i = 0; i < setup_.address_files.size(); ++i) owners_.push_back(std::make_unique<Owner>());
}

SampleOwners::~SampleOwners() = default;

std::optional<Sample> SampleOwners::get(std::int64_t index) {
  const std::optional<std::string> answer = ask(owner_of(index), 'g', index, {});
  if (!answer || answer->empty()) return std::nullopt;
  return sample_of(*answer);
}

bool SampleOwners::put(std::int64_t index, const Sample& sample) {
  return ask(owner_of(index), 'p', index, bytes_of(sample)).has_value();
}

std::optional<std::string> SampleOwners::ask(int rank, char what, std::int64_t index,
                                             std::string_view bytes) {
  Owner& owner = *owners_[static_cast<std::size_t>(rank)];
  const Clock::time_point began = Clock::now();
  Descriptor connection;
  {
    const std::lock_guard lock(owner.mutex);
    if (began < owner.again) return std::nullopt;
    if (!owner.idle.empty()) {
      connection = std::move(owner.idle.back());
      owner.idle.pop_back();
    }
  }
  try {
    if (connection.get() < 0) connection = connection_to(rank);
    const Request request{.what = what, .index = index, .length = bytes.size()};
    send_all(connection.get(), &request, sizeof request);
    send_all(connection.get(), bytes.data(), bytes.size());
    std::uint64_t length = 0;
    receive_all(connection.get(), &length, sizeof length);
    std::string answer = receive(connection.get(), length);
    const std::lock_guard lock(owner.mutex);
    owner.idle.push_back(std::move(connection));
    owner.failure.clear();
    return answer;
  } catch (const std::exception& error) {
    const std::lock_guard lock(owner.mutex);
    owner.idle.clear();  // they lead to the same process
    owner.failure = error.what();
    owner.again = Clock::now() + pause * (Clock::now() - began);
    return std::nullopt;
  }
}

Descriptor SampleOwners::connection_to(int rank) {
  const std::string& path = setup_.address_files[static_cast<std::size_t>(rank)];
  std::ifstream file(path);
  std::string host, port, token, identity;
  if (!(file >> host >> port >> token >> identity)) throw trainyard::DataError("no address in " + path);
  if (identity != setup_.identity) throw trainyard::DataError("its samples are of other data");
  const addrinfo wanted{.ai_flags = 0,
                        .ai_family = AF_INET,
                        .ai_socktype = SOCK_STREAM,
                        .ai_protocol = 0,
                        .ai_addrlen = 0,
                        .ai_addr = nullptr,
                        .ai_canonname = nullptr,
                        .ai_next = nullptr};
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &found); error != 0)
    throw trainyard::DataError(host + ": " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  Descriptor connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  limit_waits(connection.get());
  if (::connect(connection.get(), found->ai_addr, found->ai_addrlen) != 0) fail();
  send_all(connection.get(), token.data(), token.size());
  return connection;
}

std::string SampleOwners::silent() {
  std::string text;
  for (std::size_t rank = 0; rank < owners_.size(); ++rank) {
    Owner& owner = *owners_[rank];
    const std::lock_guard lock(owner.mutex);
    if (owner.failure.empty() || std::exchange(owner.told, true)) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " (" + owner.failure + ")";
  }
  return text;
}

}  // namespace cache
