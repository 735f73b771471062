#pragma once

#include "server/answer_service.hpp"

#include <string>

namespace tenon::tool {

inline constexpr const char* metrics_type = "text/plain; version=0.0.4; charset=utf-8";

/// Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats), of the type above.
std::string metrics_text(const ServiceCounts& counts);

}  // namespace tenon::tool
