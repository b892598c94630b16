# acc_library(room SOURCES… PUBLIC targets… PRIVATE targets…): one static library per room, alias acc::room.
# acc_program(name SOURCES… LIBRARIES…): one self-contained binary: static but for libc.

add_library(acc_options INTERFACE)
target_compile_options(acc_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:POSITION_INDEPENDENT_CODE>>>:-fno-pie>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE MATCHES "Rel")
  # False alarms of GCC 12's optimizer in <string>, <variant>, <optional> and coroutines (GCC bugs 105651, 105562, 80635).
  target_compile_options(acc_options INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-mismatched-new-delete>)
endif()
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  # Its baseline has a fused multiply-add, and GCC uses it wherever it may. Numbers are the same bits as on amd64, whose baseline
  # has none: ranks on both kinds of machine would drift apart.
  target_compile_options(acc_options INTERFACE -ffp-contract=off)
endif()
# An empty optional that is read, an index past the end: these end the program where it is tested.
target_compile_definitions(acc_options INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
if(ACC_UNITY)
  # Where a source is included, its unnamed namespaces look to GCC as if they stood in a header.
  target_compile_options(acc_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
# -O3 buys nothing here and costs a third of the build.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
if(ACC_WERROR)
  target_compile_options(acc_options INTERFACE -Werror)
endif()
target_include_directories(acc_options INTERFACE ${PROJECT_SOURCE_DIR})
if(ACC_SANITIZE)
  # vptr opens a pipe to look at memory, and takes a process without free descriptors (some tests make such) for a finding.
  target_compile_options(acc_options INTERFACE -fsanitize=${ACC_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer
    -fno-sanitize-recover=all)
  target_link_options(acc_options INTERFACE -fsanitize=${ACC_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # Its check of function types can't be assembled for coroutines: "Cannot represent a difference across sections".
    target_compile_options(acc_options INTERFACE -fno-sanitize=function)
  endif()
endif()

function(acc_library room)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(acc_${room} STATIC ${ARG_SOURCES})
  add_library(acc::${room} ALIAS acc_${room})
  target_link_libraries(acc_${room} PUBLIC acc_options ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

function(acc_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE acc_options ${ARG_LIBRARIES})
  # -no-pie: no relocations to write at start, so fewer private pages and a faster first instruction.
  target_link_options(${name} PRIVATE -no-pie)
  if(NOT ACC_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc -Wl,-z,now -Wl,--gc-sections -Wl,-O1)
  endif()
endfunction()

# acc_portable(names…): these programs once more in portable/, the same objects linked for older C libraries too, as the wheel ships
# them (docs/decisions/0044-wheel.md). Not built by default: --target acc-portable.
add_library(acc_old_glibc OBJECT EXCLUDE_FROM_ALL cmake/portable/functions.c cmake/portable/versions.S)
target_compile_options(acc_old_glibc PRIVATE -O2 -fno-pie -ffunction-sections -fdata-sections -Wall -Wextra)
add_custom_target(acc-portable)
function(acc_portable)
  foreach(name ${ARGN})
    add_executable(portable-${name} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}> $<TARGET_OBJECTS:acc_old_glibc>)
    set_target_properties(portable-${name} PROPERTIES OUTPUT_NAME ${name} LINKER_LANGUAGE CXX
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable)
    target_link_libraries(portable-${name} PRIVATE $<TARGET_PROPERTY:${name},LINK_LIBRARIES>)
    # The old versions of what libc took over in 2.34 were in these; today's are empty, and there for old programs.
    target_link_options(portable-${name} PRIVATE $<TARGET_PROPERTY:${name},LINK_OPTIONS>
      -Wl,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 -l:librt.so.1 -Wl,--as-needed)
    add_dependencies(acc-portable portable-${name})
  endforeach()
endfunction()

# acc_runtime_part(name SOURCES…): the objects of one folder of the runtime, position-independent, as they go into both
# the static and the shared library that users' programs link.
function(acc_runtime_part name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  add_library(acc_runtime_${name} OBJECT ${ARG_SOURCES})
  set_target_properties(acc_runtime_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(acc_runtime_${name} PUBLIC ${PROJECT_SOURCE_DIR}/runtime/include)
  target_link_libraries(acc_runtime_${name} PUBLIC acc_options Boost::headers ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND PROPERTY ACC_RUNTIME_PARTS acc_runtime_${name})
endfunction()
