#pragma once

#include <tenon/device.hpp>

#include <memory>
#include <string>

namespace tenon {

/// Lets "npu://unix:PATH" be opened: the device that another process serves at the socket PATH.
/// Calling this again does nothing.
///
/// The memory that CPU and device share has a copy on each side of the socket, so that such a
/// device is never coherent. When the server ends, the device is gone: registers read all ones,
/// memory answers Errc::device_lost.
void register_npu_remote();

/// Serves an NPU to one client process at a time. When the client's last connection ends, the
/// device is reset and its memory cleared for the next one.
class NpuServer {
 public:
  /// Listens at a path, which must not exist or be a socket that nobody listens at. Errc::io_error,
  /// and Errc::out_of_memory also where no thread can be started. A client that it has no memory or
  /// thread for gets Errc::out_of_memory.
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
