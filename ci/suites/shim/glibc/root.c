/* support_test_main.c needs the path where glibc was built. */
const char support_objdir_root[] = "/nonexistent";
