# Defines the imported target `tensorflow` from the TensorFlow that TREPAK_PYTHON imports, and the
# variables tensorflow_VERSION (2.21.0), tensorflow_MINOR (2.21) and tensorflow_DIR.

# Importing TensorFlow takes seconds and may print anything, hence the marker before each line.
set(script "
import tensorflow as tf
print('@dir=' + tf.sysconfig.get_lib())
print('@include=' + tf.sysconfig.get_include())
print('@version=' + tf.__version__)
flags = [f for f in tf.sysconfig.get_compile_flags() if f.startswith('-D')]
print('@defines=' + ' '.join(f[2:] for f in flags))
")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -E env TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1
          "${TREPAK_PYTHON}" -c "${script}"
  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${TREPAK_PYTHON} can't import TensorFlow, which the ops are compiled "
                      "against. Install tensorflow-cpu or tensorflow 2.21 in it, or set "
                      "-DTREPAK_PYTHON=<python that has it>.\n${errors}")
endif()

foreach(key dir include version defines)
  if(NOT output MATCHES "@${key}=([^\n]*)")
    message(FATAL_ERROR "No ${key} in what ${TREPAK_PYTHON} says about TensorFlow:\n${output}")
  endif()
  set(tf_${key} "${CMAKE_MATCH_1}")
endforeach()
set(tensorflow_DIR "${tf_dir}")
set(tensorflow_VERSION "${tf_version}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" tensorflow_MINOR "${tf_version}")
separate_arguments(tf_defines)

add_library(tensorflow INTERFACE IMPORTED)
# SYSTEM: warnings in TensorFlow's headers are not ours to fix. The external folders are missing from
# the flags that TensorFlow gives, although its own headers include from them.
target_include_directories(tensorflow SYSTEM INTERFACE
                           "${tf_include}"
                           "${tf_include}/external/highwayhash"
                           "${tf_include}/external/farmhash_archive/src"
                           "${tf_include}/external/com_github_grpc_grpc/include"
                           "${tf_include}/external/dlpack/include")
target_compile_definitions(tensorflow INTERFACE ${tf_defines})
target_link_libraries(tensorflow INTERFACE
                      "${tf_dir}/libtensorflow_framework.so.2" "${tf_dir}/libtensorflow_cc.so.2")
