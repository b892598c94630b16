# Everything the build needs comes from Debian 12 packages; nothing is downloaded.
find_package(Threads REQUIRED)
find_package(Boost 1.81 CONFIG REQUIRED)
find_package(nlohmann_json 3.11 CONFIG REQUIRED)
set(ZLIB_USE_STATIC_LIBS ON)  # as all of our libraries
find_package(ZLIB REQUIRED)

# A node needs nothing but our binary, so the static yaml-cpp is linked. 0.7's package only offers the shared target.
find_library(YAML_CPP_STATIC libyaml-cpp.a REQUIRED)
find_path(YAML_CPP_INCLUDE yaml-cpp/yaml.h REQUIRED)
add_library(acc_yaml_cpp STATIC IMPORTED)
set_target_properties(acc_yaml_cpp PROPERTIES
  IMPORTED_LOCATION ${YAML_CPP_STATIC}
  INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${YAML_CPP_INCLUDE})

# Debian has no static spdlog or fmt: both are used header-only, by common/log.cpp alone.
find_path(SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
add_library(acc_spdlog INTERFACE)
target_include_directories(acc_spdlog SYSTEM INTERFACE ${SPDLOG_INCLUDE})
target_compile_definitions(acc_spdlog INTERFACE FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL)

# OpenSSL's static libraries, for the same reason. Only what links acc::rendezvous_net pays for them.
find_library(OPENSSL_SSL_STATIC libssl.a REQUIRED)
find_library(OPENSSL_CRYPTO_STATIC libcrypto.a REQUIRED)
find_path(OPENSSL_INCLUDE openssl/ssl.h REQUIRED)
add_library(acc_openssl INTERFACE)
target_include_directories(acc_openssl SYSTEM INTERFACE ${OPENSSL_INCLUDE})
target_link_libraries(acc_openssl INTERFACE ${OPENSSL_SSL_STATIC} ${OPENSSL_CRYPTO_STATIC} ${CMAKE_DL_LIBS} Threads::Threads)

# ncurses for acc-top. Descriptions of terminals are files of each machine (/etc/terminfo, /lib/terminfo, /usr/share/terminfo).
find_library(NCURSESW_STATIC libncursesw.a REQUIRED)
find_library(TINFO_STATIC libtinfo.a REQUIRED)
find_path(NCURSES_INCLUDE ncurses.h REQUIRED)
add_library(acc_ncurses INTERFACE)
target_include_directories(acc_ncurses SYSTEM INTERFACE ${NCURSES_INCLUDE})
target_compile_definitions(acc_ncurses INTERFACE NCURSES_WIDECHAR=1)
target_link_libraries(acc_ncurses INTERFACE ${NCURSESW_STATIC} ${TINFO_STATIC})

# CUDA and NCCL: headers only, the libraries are loaded at run time by the runtime room.
if(NOT ACC_CUDA STREQUAL "OFF")
  if(ACC_CUDA STREQUAL "ON")
    find_package(CUDAToolkit REQUIRED)
  else()
    find_package(CUDAToolkit QUIET)
  endif()
  if(CUDAToolkit_FOUND)
    message(STATUS "CUDA ${CUDAToolkit_VERSION} found")
  else()
    message(STATUS "CUDA not found: GPU code is left out, nothing else changes")
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # The sloppiness lets it cache what uses precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
