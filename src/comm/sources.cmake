# The implementations of comm/group.h that need nothing but the standard library.
set(comm_sources ${CMAKE_SOURCE_DIR}/src/comm)
target_sources(megatoken_comm PRIVATE
  ${comm_sources}/self/self_group.cpp
  ${comm_sources}/threads/meeting.cpp
  ${comm_sources}/threads/run_ranks.cpp
  ${comm_sources}/threads/thread_group.cpp)
