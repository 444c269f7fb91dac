# shade::client is libshade_client with its header. shade::torch adds libtorch, where Torch was
# found before: find_package(Torch REQUIRED), then find_package(shade_client REQUIRED).
get_filename_component(_shade_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET shade::client)
  add_library(shade::client SHARED IMPORTED)
  set_target_properties(shade::client PROPERTIES
    IMPORTED_LOCATION "${_shade_prefix}/lib/libshade_client.so.1"
    IMPORTED_SONAME "libshade_client.so.1"
    INTERFACE_INCLUDE_DIRECTORIES "${_shade_prefix}/include")
endif()
if(Torch_FOUND AND NOT TARGET shade::torch)
  add_library(shade::torch INTERFACE IMPORTED)
  set_target_properties(shade::torch PROPERTIES
    INTERFACE_LINK_LIBRARIES "shade::client;${TORCH_LIBRARIES}")
endif()
unset(_shade_prefix)
