# cmake -DFILES=a;b -DSOURCE=page_files.cpp -P embed.cmake: the files as arrays of bytes, each with its type and the hash that
# serves as its ETag.
set(types html "text/html" css "text/css" js "text/javascript" svg "image/svg+xml")
set(arrays "")
set(rows "")
set(number 0)
foreach(file IN LISTS FILES)
  get_filename_component(name ${file} NAME)
  string(REGEX REPLACE ".*\\." "" ending ${name})
  list(FIND types ${ending} at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${file}: no content type is known for .${ending}: add it to embed.cmake")
  endif()
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  file(READ ${file} bytes HEX)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 16 hash)
  string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
  string(APPEND arrays "constexpr char kPageFile${number}[] = {${bytes}};\n")
  if(name STREQUAL "index.html")
    set(name "")
  endif()
  string(APPEND rows "    PageFile{\"${name}\", \"${type}; charset=utf-8\", \"\\\"${hash}\\\"\", {kPageFile${number}, sizeof kPageFile${number}}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${SOURCE} "// Made from agent/daemon/page by embed.cmake.
#include \"agent/daemon/page_files.hpp\"

#include <array>

namespace acc::agent::daemon {
namespace {
${arrays}
constexpr std::array kPageFiles{
${rows}};
}  // namespace

std::span<const PageFile> page_files() { return kPageFiles; }

}  // namespace acc::agent::daemon
")
