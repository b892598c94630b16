# cmake -DFILE=preloader.py -DSOURCE=preloader_source.cpp -P embed.cmake: the file as an array of bytes.
file(READ ${FILE} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${SOURCE} "// Made from agent/preload/preloader.py by embed.cmake.
#include \"agent/preload/hook_archive.hpp\"

namespace acc::agent::preload {

namespace {
constexpr char kPreloaderSource[] = {${bytes}};
}  // namespace

std::string_view preloader_source() { return {kPreloaderSource, sizeof kPreloaderSource}; }

}  // namespace acc::agent::preload
")
