# Manual pages and completions, made by the programs themselves of their tables and help texts. They lie in the build folder as
# they are installed, in Debian's folders: packages take them from there, and so does the wheel.
set(acc_pages ${CMAKE_BINARY_DIR}/package)
set(acc_man ${acc_pages}/share/man/man1)
set(acc_bash ${acc_pages}/share/bash-completion/completions)
set(acc_zsh ${acc_pages}/share/zsh/vendor-completions)
set(acc_fish ${acc_pages}/share/fish/vendor_completions.d)
file(MAKE_DIRECTORY ${acc_man} ${acc_bash} ${acc_zsh} ${acc_fish})
find_program(GZIP gzip REQUIRED)
if(ACC_SANITIZE)
  return()
endif()

set(acc_page_files)

# acc_manual(NAME SUMMARY COMMAND… DEPENDS TARGET…): a page of what the command prints as its help.
function(acc_manual name summary)
  cmake_parse_arguments(PARSE_ARGV 2 page "" "" "COMMAND;DEPENDS")
  add_custom_command(OUTPUT ${acc_man}/${name}.1.gz
    COMMAND ${page_COMMAND} --help > ${acc_pages}/${name}.help
    COMMAND acc-docs --print man ${name} ${summary} < ${acc_pages}/${name}.help > ${acc_man}/${name}.1
    COMMAND ${GZIP} -9nf ${acc_man}/${name}.1
    DEPENDS acc-docs ${page_DEPENDS} VERBATIM)
  set(acc_page_files ${acc_page_files} ${acc_man}/${name}.1.gz PARENT_SCOPE)
endfunction()

# acc_completions(NAME COMMAND… DEPENDS TARGET): `COMMAND… SHELL` prints them.
function(acc_completions name)
  cmake_parse_arguments(PARSE_ARGV 1 page "" "" "COMMAND;DEPENDS")
  set(files ${acc_bash}/${name} ${acc_zsh}/_${name} ${acc_fish}/${name}.fish)
  add_custom_command(OUTPUT ${files}
    COMMAND ${page_COMMAND} bash > ${acc_bash}/${name}
    COMMAND ${page_COMMAND} zsh > ${acc_zsh}/_${name}
    COMMAND ${page_COMMAND} fish > ${acc_fish}/${name}.fish
    DEPENDS ${page_DEPENDS} VERBATIM)
  set(acc_page_files ${acc_page_files} ${files} PARENT_SCOPE)
endfunction()

add_custom_command(OUTPUT ${acc_man}/acc-launch.1.gz
  COMMAND acc-docs --print man > ${acc_man}/acc-launch.1
  COMMAND ${GZIP} -9nf ${acc_man}/acc-launch.1
  DEPENDS acc-docs)
list(APPEND acc_page_files ${acc_man}/acc-launch.1.gz)
acc_completions(acc-launch COMMAND acc-docs --print DEPENDS acc-docs)

set(acc_summary_of_acc "the words of accelerate, with our programs behind them")
set(acc_summary_of_acc-test "check a machine, and all ranks of a job together")
set(acc_summary_of_acc-rendezvous "a meeting point for jobs on several machines")
set(acc_summary_of_acc-ctl "show and steer jobs")
set(acc_summary_of_acc-env "describe this machine for a bug report")
set(acc_summary_of_acc-config "ask for, check and convert config files of jobs")
set(acc_summary_of_acc-agent "the service of a node: takes, starts and keeps jobs")
foreach(program acc acc-test acc-rendezvous acc-agent acc-ctl acc-env acc-config)
  acc_manual(${program} ${acc_summary_of_${program}} COMMAND ${program} DEPENDS ${program})
endforeach()
# Of the words that no other program answers.
acc_manual(acc-merge-weights "make model.safetensors of a checkpoint" COMMAND acc merge-weights DEPENDS acc acc-weights)
acc_manual(acc-estimate-memory "the memory that a model takes" COMMAND acc estimate-memory DEPENDS acc acc-weights)
foreach(program acc acc-ctl acc-config)
  acc_completions(${program} COMMAND ${program} --completion DEPENDS ${program})
endforeach()

# Looked for by the program's name; zsh reads the names in the file.
file(CREATE_LINK acc-ctl.1.gz ${acc_man}/acc-top.1.gz SYMBOLIC)
file(CREATE_LINK acc-ctl ${acc_bash}/acc-top SYMBOLIC)
file(CREATE_LINK acc-ctl.fish ${acc_fish}/acc-top.fish SYMBOLIC)
add_custom_target(acc-pages ALL DEPENDS ${acc_page_files})
