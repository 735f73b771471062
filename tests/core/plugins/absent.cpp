// A library that a plugin needs and that is not there when the plugin is loaded.
extern "C" int tenon_absent() noexcept { return 40; }
