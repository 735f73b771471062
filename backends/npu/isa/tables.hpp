#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenon::npu::isa {

/// Names of all tables of docs/npu-isa.md.
std::vector<std::string> table_names();

/// One of them in Markdown, made from isa.def; empty for a name that is none.
std::string table(std::string_view name);

/// `page` with the text between every `<!-- table: NAME -->` and `<!-- end -->` regenerated.
/// Errc::syntax for a mark without an end or with an unknown name.
std::string fill_tables(std::string_view page);

}  // namespace tenon::npu::isa
