# Run by CPack before it packs: modes don't depend on the umask of the build, nor on that of the checkout. CPack makes folders by
# itself, and CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS doesn't reach those.
execute_process(COMMAND chmod -R u=rwX,go=rX ${CPACK_TEMPORARY_DIRECTORY} COMMAND_ERROR_IS_FATAL ANY)
