#pragma once

#include <tenon/device.hpp>

#include <string>

namespace tenon::npu::isa {

/// Lets "npu://ADDRESS?..." be opened: the scheme "npu" is one, the ways to reach a device are
/// several and come from libraries that do not know each other. An address that ends in ':' stands
/// for all that begin with it, such as "unix:". Registering an address again does nothing.
void register_address(std::string address, Device::Factory factory);

}  // namespace tenon::npu::isa
