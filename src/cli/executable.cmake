# The program. main.cpp belongs to it and not to the library, whose tests have a main of their own.
get_target_property(sources megatoken_cli SOURCES)
list(FILTER sources EXCLUDE REGEX "/src/cli/main\\.cpp$")
set_target_properties(megatoken_cli PROPERTIES SOURCES "${sources}")
target_compile_definitions(megatoken_cli PRIVATE MEGATOKEN_VERSION="${PROJECT_VERSION}")
target_link_libraries(megatoken_cli PUBLIC CLI11::CLI11 ${CMAKE_DL_LIBS})

add_executable(megatoken ${CMAKE_SOURCE_DIR}/src/cli/main.cpp)
target_link_libraries(megatoken PRIVATE megatoken_cli)
install(TARGETS megatoken RUNTIME DESTINATION bin)
