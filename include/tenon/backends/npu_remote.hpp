#pragma once

#include <tenon/device.hpp>

#include <memory>
#include <string>

namespace tenon {

/// Registers the device "npu://unix:PATH": one that another process serves at the socket PATH.
/// Idempotent.
///
/// Memory that CPU and device share has a copy on each side of the socket, so that such a device is
/// never coherent. When the server ends, the device is lost: registers read as all ones, and memory
/// accesses throw Errc::device_lost.
void register_npu_remote();

/// Serves an NPU to one client process at a time. When the client's last connection ends, the
/// device is reset and its memory cleared for the next one.
class NpuServer {
 public:
  /// Listens at a path, which must not exist, or be a socket that no process listens at.
  /// Errc::io_error; Errc::out_of_memory also where no thread can be started. A client for which
  /// the server has no memory or thread gets Errc::out_of_memory.
  NpuServer(DevicePtr device, std::string path);
  /// Ends all connections, and removes the socket.
  ~NpuServer();
  NpuServer(const NpuServer&) = delete;
  NpuServer& operator=(const NpuServer&) = delete;

  const std::string& path() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tenon
