# What is installed, in three packages: acc (the programs), libacc (the shared library of the C interface) and libacc-dev
# (headers, the static C++ library, and what CMake and pkg-config need to find both).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

foreach(program acc acc-launch acc-agent acc-rendezvous acc-test acc-ctl acc-env acc-config)
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT acc)
endforeach()
# Another name of acc-ctl, a link.
install(FILES ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/acc-top DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT acc)
# Started by acc-test, and by acc for its words that read models; by nobody else.
install(TARGETS acc-test-worker acc-weights RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/acc COMPONENT acc)
install(FILES configs/systemd/acc-launch@.service configs/systemd/acc-agent.service configs/systemd/acc-agent-jobs.service
  DESTINATION lib/systemd/system COMPONENT acc)
install(PROGRAMS configs/systemd/acc-stop-jobs DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/acc COMPONENT acc)
install(FILES configs/systemd/acc.tmpfiles DESTINATION lib/tmpfiles.d RENAME acc.conf COMPONENT acc)

# Documents, laid out as in the repository, so that their links lead somewhere.
install(FILES README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT acc)
install(FILES runtime/python/acc_heartbeat.py DESTINATION ${CMAKE_INSTALL_DATADIR}/acc/python COMPONENT acc)
install(DIRECTORY runtime/python/acc_launch DESTINATION ${CMAKE_INSTALL_DATADIR}/acc/python COMPONENT acc PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY docs configs examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT acc USE_SOURCE_PERMISSIONS
  PATTERN "__pycache__" EXCLUDE PATTERN "quickstart.sh" EXCLUDE REGEX "/docs/site$" EXCLUDE REGEX "/examples/CMakeLists.txt$" EXCLUDE)
foreach(room agent agent/daemon agent/fanout agent/preload agent/output common launcher launcher/check launcher/configure launcher/ctl launcher/ctl/top launcher/env rendezvous runtime runtime/shm)
  install(FILES ${room}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/${room} COMPONENT acc)
endforeach()

include(cmake/Pages.cmake)
if(NOT ACC_SANITIZE)
  install(DIRECTORY ${acc_pages}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT acc)
endif()

configure_file(cmake/changelog.in ${acc_pages}/changelog @ONLY)
execute_process(COMMAND ${GZIP} -9nc ${acc_pages}/changelog OUTPUT_FILE ${acc_pages}/changelog.gz)
foreach(package acc libacc libacc-dev)
  install(FILES cmake/copyright ${acc_pages}/changelog.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${package})
endforeach()

set(acc_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/acc)
install(TARGETS acc_shared EXPORT accTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libacc NAMELINK_COMPONENT libacc-dev)
install(TARGETS acc_runtime EXPORT accTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT libacc-dev)
install(DIRECTORY runtime/include/acc DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT libacc-dev
  FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT accTargets NAMESPACE acc:: DESTINATION ${acc_package_folder} COMPONENT libacc-dev)
configure_package_config_file(cmake/accConfig.cmake.in ${CMAKE_BINARY_DIR}/package/accConfig.cmake
  INSTALL_DESTINATION ${acc_package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/package/accConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/accConfig.cmake ${CMAKE_BINARY_DIR}/package/accConfigVersion.cmake
  DESTINATION ${acc_package_folder} COMPONENT libacc-dev)
# pkg-config's files find the prefix from where they lie: `cmake --install --prefix` may choose another one.
file(RELATIVE_PATH ACC_PREFIX_FROM_PC /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ACC_PREFIX_FROM_PC "${ACC_PREFIX_FROM_PC}")
foreach(name acc acc-runtime)
  configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/package/${name}.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/package/${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT libacc-dev)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "acc maintainers <maintainers@localhost>")
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/PackageModes.cmake)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENTS_ALL acc libacc libacc-dev)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # else it goes before each package's own
set(CPACK_DEBIAN_ACC_DESCRIPTION "Distributed launcher and process supervisor\n Starts, supervises and restarts the workers of a training job on one or many nodes.")
set(CPACK_DEBIAN_LIBACC_DESCRIPTION "Process groups for distributed programs: C library\n Collectives over shared memory, TCP and NCCL, for C and languages that call C.")
set(CPACK_DEBIAN_LIBACC-DEV_DESCRIPTION "Process groups and training loops: headers and the C++ library\n Headers, static library, and the CMake and pkg-config files of both libraries.")
set(CPACK_DEBIAN_ACC_PACKAGE_NAME acc)
set(CPACK_DEBIAN_ACC_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_ACC_PACKAGE_RECOMMENDS elfutils)  # eu-stack: native stacks of running workers
set(CPACK_DEBIAN_ACC_PACKAGE_CONTROL_EXTRA
  "${PROJECT_SOURCE_DIR}/cmake/debian/postinst;${PROJECT_SOURCE_DIR}/cmake/debian/prerm;${PROJECT_SOURCE_DIR}/cmake/debian/postrm")
set(CPACK_DEBIAN_ACC_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_DEBIAN_LIBACC_PACKAGE_NAME libacc)
set(CPACK_DEBIAN_LIBACC_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBACC-DEV_PACKAGE_NAME libacc-dev)
set(CPACK_DEBIAN_LIBACC-DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBACC-DEV_PACKAGE_DEPENDS "libacc (= ${PROJECT_VERSION}), zlib1g-dev")
if(CMAKE_CROSSCOMPILING)
  # dpkg-shlibdeps knows the libraries of installed packages alone. The C library is all that ours need: the one that they were
  # linked with, or a newer one.
  file(STRINGS ${CMAKE_SYSROOT}/usr/include/features.h acc_glibc REGEX "^#define[ \t]+__GLIBC_MINOR__[ \t]")
  string(REGEX REPLACE ".*[ \t]([0-9]+)$" "libc6 (>= 2.\\1)" acc_glibc "${acc_glibc}")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
  set(CPACK_DEBIAN_ACC_PACKAGE_DEPENDS ${acc_glibc})
  set(CPACK_DEBIAN_LIBACC_PACKAGE_DEPENDS ${acc_glibc})
endif()
include(CPack)
