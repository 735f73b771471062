#include "npu/driver_open_remote.hpp"

#include "npu/driver_open.hpp"

#include <tenon/backends/npu_remote.hpp>
#include <tenon/error.hpp>

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tenon::npu::testing {
namespace {

/// A process that serves one device.
class Server {
 public:
  explicit Server(const std::string& url) {
    static int number = 0;
    socket_ = "/tmp/tenon_npu_" + std::to_string(getpid()) + "_" + std::to_string(number++);
    int lines[2];
    if (pipe(lines) != 0) throw Error(Errc::io_error, "pipe", "none");
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves no server behind
      dup2(lines[1], STDOUT_FILENO);
      execl(TENON_NPU_SERVER, TENON_NPU_SERVER, socket_.c_str(), url.c_str(), nullptr);
      _exit(127);
    }
    close(lines[1]);
    // It says when clients can come.
    char byte = 0;
    while (::read(lines[0], &byte, 1) == 1 && byte != '\n') {
    }
    close(lines[0]);
    if (byte != '\n') throw Error(Errc::device_unavailable, url, "the server did not start");
  }
  ~Server() { end(SIGTERM); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  void end(int signal) {
    if (process_ < 0) return;
    kill(process_, signal);
    waitpid(process_, nullptr, 0);
    process_ = -1;
  }
  std::string url() const { return "npu://unix:" + socket_; }

 private:
  std::string socket_;
  pid_t process_ = -1;
};

/// One server at a time, unless its device is still in use.
auto& servers() {
  static std::vector<std::pair<std::unique_ptr<Server>, std::weak_ptr<Device>>> all;
  return all;
}

}  // namespace

DevicePtr open_npu(const std::string& url) {
  register_npu_remote();
  std::erase_if(servers(), [](const auto& entry) { return entry.second.expired(); });
  auto server = std::make_unique<Server>(url);
  DevicePtr device = Device::open(server->url());
  servers().emplace_back(std::move(server), device);
  return device;
}

void kill_server(const DevicePtr& device) {
  for (const auto& [server, served] : servers()) {
    if (served.lock() == device) server->end(SIGKILL);
  }
}

}  // namespace tenon::npu::testing
