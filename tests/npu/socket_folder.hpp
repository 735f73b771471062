#pragma once

#include <filesystem>
#include <string>

#include <stdlib.h>

namespace tenon::npu::testing {

/// A folder with a short name, for sockets have room for few letters.
class SocketFolder {
 public:
  SocketFolder() {
    char name[] = "/tmp/npuXXXXXX";
    path_ = ::mkdtemp(name);
    socket_ = path_ + "/s";
  }
  ~SocketFolder() { std::filesystem::remove_all(path_); }
  SocketFolder(const SocketFolder&) = delete;
  SocketFolder& operator=(const SocketFolder&) = delete;

  const std::string& path() const noexcept { return path_; }
  const std::string& socket() const noexcept { return socket_; }

 private:
  std::string path_, socket_;
};

}  // namespace tenon::npu::testing
