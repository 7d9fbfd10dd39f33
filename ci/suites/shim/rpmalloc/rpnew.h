/* operator new is the library's. */
