#include "agent/preload/hook_archive.hpp"

#include <boost/crc.hpp>

#include <array>
#include <cstdint>

namespace acc::agent::preload {

namespace {

// Little-endian fields of a zip archive (APPNOTE.TXT, 4.3).
class ZipHeader {
 public:
  ZipHeader& u16(std::uint16_t value) { return number(value, 2); }
  ZipHeader& u32(std::size_t value) { return number(value, 4); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  ZipHeader& number(std::size_t value, unsigned bytes) {
    for (; bytes > 0; --bytes, value >>= 8U) text_.push_back(static_cast<char>(value & 0xffU));
    return *this;
  }

  std::string text_;
};

constexpr std::uint16_t kVersion = 20;
constexpr std::uint16_t kJan1980 = 0x21;  // the first day that the format has

}  // namespace

std::string make_archive(std::span<const PythonModule> modules) {
  std::string archive;
  std::string directory;
  for (const auto& [name, source] : modules) {
    const std::string file = std::string{name} + ".py";
    boost::crc_32_type crc;
    crc.process_bytes(source.data(), source.size());
    ZipHeader common;  // of both headers: no flags, stored, its time and day, sums, lengths
    common.u16(kVersion).u16(0).u16(0).u16(0).u16(kJan1980).u32(crc.checksum());
    common.u32(source.size()).u32(source.size());
    common.u16(static_cast<std::uint16_t>(file.size())).u16(0);
    ZipHeader made_by;
    made_by.u16(kVersion);
    ZipHeader place;  // no comment, the first volume, attributes, where its header is
    place.u16(0).u16(0).u16(0).u32(0).u32(archive.size());
    directory += "PK\x01\x02" + made_by.text() + common.text() + place.text() + file;
    archive += "PK\x03\x04" + common.text() + file;
    archive += source;
  }
  const auto count = static_cast<std::uint16_t>(modules.size());
  ZipHeader end;
  end.u16(0).u16(0).u16(count).u16(count).u32(directory.size()).u32(archive.size()).u16(0);
  return archive + directory + "PK\x05\x06" + end.text();
}

std::string preloader_archive() {
  const std::array<PythonModule, 2> modules{
      {{"sitecustomize", preloader_source()}, {"acc_forked_workers", forked_workers_source()}}};
  return make_archive(modules);
}

std::string_view first_stage() {
  return R"py(import os, sys
def refuse(why):
    os.write(3, b"unsafe\0\0" + why.encode())
    os._exit(0)
archive = os.read(3, 1 << 18)
if sys.flags.ignore_environment or sys.flags.isolated or sys.flags.no_site:
    refuse("the interpreter ignores PYTHONPATH or the module site (-E, -I, -S)")
if sys.version_info < (3, 8) or not sys.executable:
    refuse("Python 3.8 or newer is needed")
with open("/proc/self/cmdline", "rb") as file:
    words = file.read().split(b"\0")[:-1]
rest = [os.fsencode(word) for word in sys.argv[1:]]
place = os.memfd_create("acc-preloader", 0)
os.write(place, archive)
environment = dict(os.environb)
path = [b"/proc/self/fd/%d" % place] + [p for p in [environment.get(b"PYTHONPATH")] if p]
environment[b"PYTHONPATH"] = b":".join(path)
environment[b"ACC_PRELOAD_HOOK"] = b"%d" % place
os.execve(sys.executable, words[: len(words) - len(rest) - 2] + rest, environment)
)py";
}

}  // namespace acc::agent::preload
