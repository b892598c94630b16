# cmake -DFILE=preloader.py -DNAME=preloader_source -DSOURCE=preloader_source.cpp -P embed.cmake: the file as an array of bytes.
file(READ ${FILE} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
get_filename_component(file ${FILE} NAME)
file(WRITE ${SOURCE} "// Made from agent/preload/${file} by embed.cmake.
#include \"agent/preload/hook_archive.hpp\"

namespace acc::agent::preload {

std::string_view ${NAME}() {
  static constexpr char kSource[] = {${bytes}};
  return {kSource, sizeof kSource};
}

}  // namespace acc::agent::preload
")
