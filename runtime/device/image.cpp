#include "runtime/device/driver.hpp"

// ACC_DEVICE_IMAGE: the file that nvcc wrote. The assembler includes its bytes.
#if defined(ACC_DEVICE_IMAGE)
__asm__(
    ".section .rodata\n"
    ".balign 64\n"
    ".global acc_device_image\n"
    ".hidden acc_device_image\n"
    "acc_device_image:\n"
    ".incbin \"" ACC_DEVICE_IMAGE
    "\"\n"
    ".global acc_device_image_end\n"
    ".hidden acc_device_image_end\n"
    "acc_device_image_end:\n"
    ".byte 0\n"
    ".previous\n");
extern "C" const char acc_device_image[];
extern "C" const char acc_device_image_end[];
#endif

namespace acc::runtime::device {

Image image() noexcept {
#if defined(ACC_DEVICE_IMAGE)
  return {acc_device_image, static_cast<std::size_t>(acc_device_image_end - acc_device_image)};
#else
  return {nullptr, 0};
#endif
}

}  // namespace acc::runtime::device
