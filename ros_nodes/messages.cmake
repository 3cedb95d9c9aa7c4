# Common to the message packages; included by their CMakeLists.txt after find_package.

# The C++ type supports are most of the build time, and rclpy uses none of them. (Introspection
# for C stays: rmw_fastrtps_cpp describes each type to other DDS participants with it.)
option(RCLPY_ONLY "Build only what rclpy needs: the C type supports and Python" OFF)

# The message packages of the ROS 2 wheels name the header folder of the machine that built them.
# CMake refuses a folder that does not exist; rosidl_generator_py adds the real one itself.
get_property(imported_targets DIRECTORY PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS imported_targets)
  if(target MATCHES "__rosidl_generator_py$")
    set_property(TARGET ${target} PROPERTY INTERFACE_INCLUDE_DIRECTORIES "")
  endif()
endforeach()

if(RCLPY_ONLY)
  list(FILTER AMENT_EXTENSIONS_rosidl_generate_idl_interfaces EXCLUDE REGEX "_cpp:")
endif()

file(GLOB message_files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS msg/*.msg)
