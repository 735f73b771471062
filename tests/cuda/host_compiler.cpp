#include "host_compiler.hpp"

#include "io/temp_folder.hpp"

#include <tenon/error.hpp>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>

namespace tenon::testing {
namespace {

std::string content(const std::filesystem::path& name) {
  std::ifstream file(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class HostCompiler final : public cuda::KernelCompiler {
 public:
  std::string identity() const override { return "host compiler " + host_compiler_state().version; }

  std::vector<std::byte> compile(const std::string& text) override {
    HostCompilerState& state = host_compiler_state();
    if (state.seen) state.seen(text);
    if (state.fails) throw Error(Errc::internal, "host compiler", "it was told to fail");
    ++state.compiled;
    if (state.gives_no_image) return std::vector<std::byte>(16);
    std::ofstream(folder() / "fused.cpp") << text;
    run(fmt::format("-shared -include {0}/all.hpp -o {0}/fused.so {0}/fused.cpp",
                    folder().string()));
    const std::string image = content(folder() / "fused.so");
    const auto* const bytes = reinterpret_cast<const std::byte*>(image.data());
    return {bytes, bytes + image.size()};
  }

 private:
  /// The headers are compiled once.
  static const std::filesystem::path& folder() {
    static const TempFolder kept;
    static const std::filesystem::path path = [] {
      std::ofstream(kept.path() / "all.hpp") << "#include \"kernels/fused.hpp\"\n";
      run(fmt::format("-x c++-header -o {0}/all.hpp.gch {0}/all.hpp", kept.path().string()));
      return kept.path();
    }();
    return path;
  }

  static void run(const std::string& arguments) {
    const std::string command = fmt::format("{} -std=c++20 -O1 -fPIC -ffp-contract=off {} {} 2>&1",
                                            TENON_TEST_COMPILER, TENON_TEST_INCLUDES, arguments);
    if (std::system(command.c_str()) != 0) throw Error(Errc::internal, "host compiler", command);
  }
};

}  // namespace

HostCompilerState& host_compiler_state() {
  static HostCompilerState state;
  return state;
}

cuda::FoundCompiler open_host_compiler() {
  return {std::make_unique<HostCompiler>(), "the host's compiler"};
}

}  // namespace tenon::testing
