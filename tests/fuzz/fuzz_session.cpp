// Any bytes as the sections of a session's snapshot, whose checksums are right: what loads can be
// saved, and loads again.
#include "fuzz/memory_file.hpp"
#include "fuzz/sections.hpp"

#include <tenon/backends/reference.hpp>
#include <tenon/session.hpp>
#include <tenon/snapshot.hpp>

#include <iterator>
#include <optional>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tenon;
  register_reference_backend();
  static const std::vector<BackendPtr> backends{make_backend("reference")};
  const std::string file = testing::scratch_file("session");
  {
    SnapshotWriter writer(file);
    const char* const* name = testing::session_sections;
    for (const auto part :
         testing::split_sections({data, size}, std::size(testing::session_sections))) {
      writer.add(*name++, part);
    }
    writer.commit();
  }
  std::optional<Session> session;
  try {
    session = Session::load(file, backends);
  } catch (const Error& error) {
    if (error.code() == Errc::internal) testing::fail("an internal error");
    return 0;
  }
  session->save(file);
  Session::load(file, backends);
  return 0;
}
