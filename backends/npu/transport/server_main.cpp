#include <tenon/backends/npu_remote.hpp>
#include <tenon/backends/npu_sim.hpp>
#include <tenon/error.hpp>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>

// tenon_npu_server SOCKET [URL]: serves a simulated NPU until SIGINT or SIGTERM. Prints one
// line when clients can come.
int main(int count, char** arguments) {
  if (count < 2 || count > 3) {
    fmt::print(stderr, "usage: tenon_npu_server SOCKET [npu://sim?...]\n");
    return 2;
  }
  // Taken by sigwait() below, in this thread and in those that it starts.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  try {
    tenon::register_npu_sim();
    const tenon::NpuServer server(tenon::Device::open(count == 3 ? arguments[2] : "npu://sim"),
                                  arguments[1]);
    fmt::print("listening at {}\n", server.path());
    std::fflush(stdout);
    int signal = 0;
    sigwait(&ends, &signal);
  } catch (const tenon::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return tenon::exit_status(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
