/* support_test_main.c asks where glibc was built. */
const char support_objdir_root[] = "/nonexistent";
