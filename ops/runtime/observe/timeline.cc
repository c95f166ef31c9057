#include "ops/runtime/observe/timeline.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace trepak {
namespace {

constexpr size_t kFlushBytes = 1 << 16;
constexpr std::chrono::seconds kFlushTime(1);

const char* NameOf(Timeline::Track track) {
  switch (track) {
    case Timeline::Track::kSteps:
      return "steps";
    case Timeline::Track::kAccelerator:
      return "accelerator";
    case Timeline::Track::kProgram:
      return "program";
    case Timeline::Track::kRounds:
      return "rounds";
    case Timeline::Track::kAlltoalls:
      return "alltoalls";
    case Timeline::Track::kCopiesOut:
      return "copies out";
    case Timeline::Track::kCopiesIn:
      return "copies in";
  }
  return "";
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", c);
      quoted += code;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// Trace viewers count in microseconds; three more digits keep the nanoseconds.
std::string Microseconds(std::chrono::steady_clock::duration time) {
  const long long ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  char text[32];
  std::snprintf(text, sizeof(text), "%lld.%03lld", ns / 1000, ns % 1000);
  return text;
}

}  // namespace

Timeline::~Timeline() { static_cast<void>(Close()); }

Status Timeline::Failure(const char* what) const {
  return UnavailableError("rank " + std::to_string(rank_) + ": the timeline " + path_ + " cannot " +
                          "be " + what + ": " + std::strerror(errno) +
                          ". Choose another folder in TREPAK_TIMELINE.");
}

Status Timeline::Open(const std::string& path, int rank, const std::string& title,
                      const std::string& about, int64_t step, int64_t first_step,
                      int64_t end_step) {
  TREPAK_RETURN_IF_ERROR(Close());
  std::lock_guard<std::mutex> lock(mutex_);
  path_ = path;
  rank_ = rank;
  status_ = OkStatus();
  first_step_ = first_step;
  end_step_ = end_step;
  file_ = std::fopen(path.c_str(), "w");
  if (file_ == nullptr) {
    return Failure("opened");
  }
  const std::string pid = "\"pid\":" + std::to_string(rank);
  buffer_ = "[\n{\"ph\":\"M\",\"name\":\"trepak\"," + pid + ",\"args\":" + about + "},\n" +
            "{\"ph\":\"M\",\"name\":\"process_name\"," + pid +
            ",\"args\":{\"name\":" + Quoted(title) + "}},\n" +
            "{\"ph\":\"M\",\"name\":\"process_sort_index\"," + pid +
            ",\"args\":{\"sort_index\":" + std::to_string(rank) + "}}";
  named_.clear();
  flushed_ = Clock::now();
  on_ = first_step <= step && step < end_step;
  return OkStatus();
}

void Timeline::NameRow(Track track, int row) {
  if (!named_.insert({track, row}).second) {
    return;
  }
  std::string name = NameOf(track);
  if (row > 0) {
    name += " " + std::to_string(row);
  }
  buffer_ += ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" + std::to_string(rank_) +
             ",\"tid\":" + std::to_string(static_cast<int>(track) + row) +
             ",\"args\":{\"name\":" + Quoted(name) + "}}";
}

void Timeline::Span(Track track, std::string_view name, Clock::time_point begin,
                    Clock::time_point end, Numbers numbers, int row) {
  if (!on()) {
    return;
  }
  std::string event = ",\n{\"ph\":\"X\",\"name\":" + Quoted(name) +
                      ",\"ts\":" + Microseconds(begin.time_since_epoch()) +
                      ",\"dur\":" + Microseconds(std::max(end - begin, Clock::duration::zero()));
  const char* before = ",\"args\":{";
  for (const auto& [what, number] : numbers) {
    event += before + Quoted(what) + ":" + std::to_string(number);
    before = ",";
  }
  if (numbers.size() > 0) {
    event += "}";
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr) {
    return;
  }
  NameRow(track, row);
  Append(event, ",\"tid\":" + std::to_string(static_cast<int>(track) + row));
}

void Timeline::Counter(std::string_view name, Clock::time_point time, int64_t value) {
  if (!on()) {
    return;
  }
  const std::string event = ",\n{\"ph\":\"C\",\"name\":" + Quoted(name) +
                            ",\"ts\":" + Microseconds(time.time_since_epoch()) +
                            ",\"args\":{\"value\":" + std::to_string(value) + "}";
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr) {
    Append(event, "");
  }
}

void Timeline::Append(const std::string& event, const std::string& place) {
  buffer_ += event + ",\"pid\":" + std::to_string(rank_) + place + "}";
  if (buffer_.size() >= kFlushBytes) {
    Flush();
  }
}

void Timeline::BeginStep(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (file_ == nullptr) {
    return;
  }
  on_ = first_step_ <= step && step < end_step_;
  if (Clock::now() - flushed_ >= kFlushTime) {
    Flush();
  }
}

void Timeline::Flush() {
  const bool written = std::fwrite(buffer_.data(), 1, buffer_.size(), file_) == buffer_.size() &&
                       std::fflush(file_) == 0;
  if (!written && status_.ok()) {
    status_ = Failure("written");
  }
  buffer_.clear();
  flushed_ = Clock::now();
}

Status Timeline::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  on_ = false;
  if (file_ == nullptr) {
    return OkStatus();
  }
  buffer_ += "\n]\n";
  Flush();
  if (std::fclose(file_) != 0 && status_.ok()) {
    status_ = Failure("closed");
  }
  file_ = nullptr;
  return status_;
}

Timeline& Timeline::Global() {
  static Timeline* const timeline = new Timeline;
  return *timeline;
}

}  // namespace trepak
