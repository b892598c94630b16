# Read by ctest after the tests of a room (acc_unit_tests): those that emulated.txt names are not run, and have one more label,
# the reason. acc_room and acc_tests come from there.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/emulated.txt acc_lines ENCODING UTF-8)
foreach(acc_line IN LISTS acc_lines)
  list(FIND acc_tests "${acc_line}" acc_place)
  if(acc_line MATCHES "^# (emulated-[a-z]+):")
    set(acc_label ${CMAKE_MATCH_1})
  elseif(NOT acc_place EQUAL -1)
    set_tests_properties("${acc_line}" PROPERTIES DISABLED TRUE LABELS "unit;${acc_room};${acc_label}")
  endif()
endforeach()
