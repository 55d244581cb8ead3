# Files of the libraries that slips are put into are compiled one by one, so that a slip costs the compilation of one file.
cmake_language(DEFER CALL set_target_properties ${KLOTSKI_SLIP_LIBRARIES} PROPERTIES UNITY_BUILD OFF)
