// What the ZeroMQ transport does with a single socket: messages in and out, and its monitor.

#ifndef TREPAK_OPS_RUNTIME_NET_ZMQ_SOCKET_H_
#define TREPAK_OPS_RUNTIME_NET_ZMQ_SOCKET_H_

#include <zmq.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ops/runtime/net/message.h"
#include "ops/runtime/net/status.h"

namespace trepak {

// Thread safety of all of this: that of ZeroMQ's sockets, one thread at a time. Nothing blocks.

// One part of what was received.
class ZmqPart {
 public:
  ZmqPart();

  // False if nothing is there.
  bool Receive(void* socket);

  bool more() const { return zmq_msg_more(part_.get()) != 0; }
  std::string_view view() const {
    return {static_cast<const char*>(zmq_msg_data(part_.get())), zmq_msg_size(part_.get())};
  }
  // The bytes, not copied: the payload keeps them.
  Payload payload() const {
    return Payload(zmq_msg_data(part_.get()), zmq_msg_size(part_.get()), part_);
  }
  // The sender's address, or "a stranger" where ZeroMQ doesn't know.
  std::string from() const;
  // The file descriptor of the connection it came by.
  int fd() const { return zmq_msg_get(part_.get(), ZMQ_SRCFD); }

 private:
  std::shared_ptr<zmq_msg_t> part_;
};

// Returns all parts of the next message; empty if there is none.
std::vector<ZmqPart> ReceiveParts(void* socket);

// ZeroMQ gets memory for a frame as soon as it is announced, whoever announces it. So longer frames
// end a connection, and longer payloads travel in parts: those of a slice that is cut by default
// have one, which the receiver need not copy.
constexpr size_t kPartBytes = 4 << 20;
constexpr int64_t kMostFrameBytes = kPartBytes + 64;  // with what encryption adds

// Reads a message from its header and the parts of its payload, which begin at number `first`; they
// are let go.
Status ToMessage(std::vector<ZmqPart>* parts, size_t first, Message* message);

// Sends header and payload; the payload is not copied. False if the socket can't take it now.
bool SendMessage(void* socket, const Message& message);

void SetInt(void* socket, int option, int value);

// Returns what poll() can wait for; -1 if it is no socket. It becomes readable when something has
// happened to the socket since IsReady, or since a receive that found nothing; before the first of
// these, perhaps not. (zmq_poll asks every socket each time, by several system calls.)
int DescriptorOf(void* socket);

// Whether one of these can be done now: ZMQ_POLLIN, ZMQ_POLLOUT.
bool IsReady(void* socket, int events);

// Returns a socket that tells what happens to another one, and keeps all of it until it is read:
// ZeroMQ's own thread would wait, otherwise. `name` must be the context's only one.
void* OpenMonitor(void* context, void* socket, const std::string& name, int events);

struct ZmqEvent {
  uint16_t kind = 0;   // e.g. ZMQ_EVENT_DISCONNECTED
  int32_t value = -1;  // a file descriptor, or why something failed
};

// Returns the next event of a monitor.
std::optional<ZmqEvent> ReadEvent(void* monitor);

// What the kernel has received on a connection, whether it was read or not; 0 if it can't say.
uint64_t ReceivedBytes(int fd);

// Closes a socket together with its monitor.
void CloseMonitored(void* socket, void* monitor);

}  // namespace trepak

#endif  // TREPAK_OPS_RUNTIME_NET_ZMQ_SOCKET_H_
