// For tests: what a stranger may say to a listening ZeroMQ socket, byte by byte (ZMTP 3.0, RFC 23).

#ifndef TREPAK_OPS_RUNTIME_NET_ZMTP_STRANGER_H_
#define TREPAK_OPS_RUNTIME_NET_ZMTP_STRANGER_H_

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

namespace trepak::zmtp {

constexpr unsigned char kMore = 1;
constexpr unsigned char kLong = 2;
constexpr unsigned char kCommand = 4;

inline std::string Greeting(const std::string& mechanism) {
  std::string name = mechanism;
  name.resize(20, '\0');
  const std::string signature("\xff\0\0\0\0\0\0\0\1\x7f", 10);
  return signature + std::string("\3\0", 2) + name + std::string(32, '\0');
}

// The beginning of a frame of so many bytes.
inline std::string FrameHeader(unsigned char flags, uint64_t bytes) {
  std::string header(1, static_cast<char>(flags | kLong));
  for (int shift = 56; shift >= 0; shift -= 8) {
    header += static_cast<char>(bytes >> shift);
  }
  return header;
}

inline std::string Frame(unsigned char flags, const std::string& bytes) {
  return FrameHeader(flags, bytes.size()) + bytes;
}

inline std::string Brief(const std::string& text) { return static_cast<char>(text.size()) + text; }

inline std::string Command(const std::string& name, const std::string& body) {
  return Frame(kCommand, Brief(name) + body);
}

inline std::string Properties() {
  return Brief("Socket-Type") + std::string("\0\0\0\6", 4) + "DEALER";
}

// What a peer says by PLAIN before it is welcome, and then.
inline std::string PlainHello(const std::string& user, const std::string& password) {
  return Greeting("PLAIN") + Command("HELLO", Brief(user) + Brief(password));
}
inline std::string Initiate() { return Command("INITIATE", Properties()); }

inline std::string Null() { return Greeting("NULL") + Command("READY", Properties()); }

// A connection; closes itself. Nothing that it does blocks.
class Stranger {
 public:
  // `address`: "tcp://127.0.0.1:…".
  explicit Stranger(const std::string& address)
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port =
        htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    [[maybe_unused]] const int pending =
        connect(fd_, reinterpret_cast<sockaddr*>(&where), sizeof(where));
  }
  // Takes a connection that was accepted.
  explicit Stranger(int fd) : fd_(fd) {}
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Stranger& operator=(Stranger&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Stranger() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

  bool is_valid() const { return fd_ >= 0; }

  // Returns how much of it was sent.
  size_t Say(const std::string& bytes) const {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return sent < 0 ? 0 : static_cast<size_t>(sent);
  }

  // Reads what has come. Whether the other end has closed the connection.
  bool Ended() {
    char bytes[4096];
    ssize_t got = 0;
    while ((got = recv(fd_, bytes, sizeof(bytes), 0)) > 0) {
      heard_.append(bytes, static_cast<size_t>(got));
    }
    return got == 0 || (errno != EAGAIN && errno != EINTR && errno != EINPROGRESS);
  }

  const std::string& heard() const { return heard_; }

 private:
  int fd_;
  std::string heard_;
};

}  // namespace trepak::zmtp

#endif  // TREPAK_OPS_RUNTIME_NET_ZMTP_STRANGER_H_
