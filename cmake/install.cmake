# cmake --install and cpack: the program, and what it reads beside it. bin/hetbench finds share/hetbench by its own place
# (harness/cli/data_root.c), so the prefix can be moved. Catalogues, ledgers and experiments are in the program itself.
include(GNUInstallDirs)

function(ht_install_data)
  foreach(pattern harness/report/*.py harness/report/*.js harness/sweep/*.yaml harness/days/*.yaml harness/days/traces/*.csv common/store/recoveries.yaml harness/claims/measured/*.csv results/sysx/predictions.csv
                  results/lohan/predictions.csv results/validation/*.csv python/*.py python/pyproject.toml)
    file(GLOB files CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/${pattern})
    foreach(file ${files})
      get_filename_component(folder ${file} DIRECTORY)
      install(FILES ${CMAKE_SOURCE_DIR}/${file} DESTINATION ${CMAKE_INSTALL_DATADIR}/hetbench/${folder})
    endforeach()
  endforeach()
  install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()

# Manual pages and completion, which the program itself writes.
function(ht_install_texts)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/harness/cli ${CMAKE_SOURCE_DIR}/harness/cli/cmd_*.c)
  string(REGEX REPLACE "cmd_([a-z]+)[.]c" "\\1" commands "${sources}")
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    function(text file)
      execute_process(COMMAND \"${CMAKE_BINARY_DIR}/hetbench\" \${ARGN} OUTPUT_VARIABLE words COMMAND_ERROR_IS_FATAL ANY)
      file(WRITE \"\${share}/\${file}\" \"\${words}\")
    endfunction()
    text(man/man1/hetbench.1 --man)
    foreach(command ${commands})
      text(man/man1/hetbench-\${command}.1 --man \${command})
    endforeach()
    text(bash-completion/completions/hetbench --completion bash)
    text(zsh/site-functions/_hetbench --completion zsh)")
endfunction()

if(TARGET hetbench)
  # One RPATH for both, so that installing does not have to change it: not every linker leaves room.
  set_target_properties(hetbench PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS hetbench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  ht_install_data()
  ht_install_texts()
  set(CPACK_GENERATOR TGZ)
  set(CPACK_PACKAGE_FILE_NAME hetbench-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  include(CPack)
endif()
