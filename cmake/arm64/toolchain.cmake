# Debian's cross compiler for aarch64, with headers and libraries of Debian's arm64 packages in build/arm64-root
# (cmake/arm64/root.sh makes it; docs/decisions/0050-arm64.md says why they aren't installed). Programs that the build or ctest
# runs run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

get_filename_component(acc_arm64_root ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-root ABSOLUTE)
if(NOT EXISTS ${acc_arm64_root}/complete)
  message(FATAL_ERROR "${acc_arm64_root} is missing: run cmake/arm64/root.sh, or tests/arm64.sh, which does everything")
endif()
set(CMAKE_SYSROOT ${acc_arm64_root})

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)
# Not this machine's, which read files of its own processor alone.
set(CMAKE_STRIP aarch64-linux-gnu-strip)
set(CMAKE_OBJDUMP aarch64-linux-gnu-objdump)
set(CMAKE_READELF aarch64-linux-gnu-readelf)

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/emulate)
